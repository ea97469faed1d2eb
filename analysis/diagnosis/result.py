"""A diagnosis as data: the curve, its findings, and each anomaly with its terms, causes
and answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import Disturbances
from ..causes import Attribution, Weighed
from ..decompose.curve import Curve
from ..decompose.findings import Finding, FindingVerdict
from ..decompose.functionals import CANCELS, Functional
from ..decompose.rare_steps import RareSteps
from ..decompose.statistics import Estimate
from ..decompose.terms import Share, Terms
from .difference import Difference
from .remedies import Remedies

if TYPE_CHECKING:
    from ..causes.context import Recorded
    from ..verdicts.outcome import Outcome
    from .answer import Answer


class Drawn:
    """What a notebook shows as HTML and `print` as text, once `analysis.render` has
    registered how.
    """

    _html: ClassVar[Callable[[Any], str] | None] = None
    _text: ClassVar[Callable[[Any], str]] = repr

    @classmethod
    def draw_by(
        cls, html: Callable[[Any], str] | None, text: Callable[[Any], str] | None = None
    ) -> None:
        """Register how objects of this class are drawn."""
        cls._html = None if html is None else staticmethod(html)
        cls._text = staticmethod(text or repr)

    def __str__(self) -> str:
        return type(self)._text(self)

    def _repr_html_(self) -> str | None:
        draw = type(self)._html
        return None if draw is None else draw(self)


@dataclass(frozen=True)
class Explanation(Drawn):
    """A functional split into shares, the largest first, idle and profiling overhead last; they add
    up to its value.
    """

    functional: Functional
    value: Estimate
    shares: tuple[Share, ...]
    attribution: Attribution  # causes of the shares; their amounts add up to the value too
    also: tuple[str, ...] = ()  # labels of other findings from the same term at the same batch size
    # claims, as `shares`
    weighed: tuple[Weighed, ...] = field(default=(), repr=False, compare=False)

    @property
    def cancels(self) -> bool:
        """Whether a part is so much larger than the whole that shares of it say nothing."""
        parts = (
            *(share.value.value for share in self.shares),
            *(cause.amount for cause in self.attribution.causes),
        )
        return max(map(abs, parts), default=0.0) > CANCELS * abs(self.value.value)

    @property
    def largest_term(self) -> str | None:
        """Label of the term that makes most of the value; None if none has its sign."""
        agreeing = [share for share in self.shares if share.value.value * self.value.value > 0]
        return max(agreeing, key=lambda share: abs(share.value.value)).label if agreeing else None

    def line_of(self, label: str | None) -> str | None:
        """Line of the program with most of a term's time; None if unknown."""
        return next((share.line for share in self.shares if share.label == label), None)


@dataclass(frozen=True)
class Diagnosis(Drawn):
    """Everything `diagnose` and `explain` show."""

    curve: Curve
    findings: tuple[Finding, ...]  # every excess, then every curvature
    # one per anomaly, the largest first; empty if no step was profiled
    explanations: tuple[Explanation, ...]
    terms: Terms | None  # None if no step was profiled
    kernel_times: pd.DataFrame  # exclusive times that the terms come from
    # see `find_fixed_cost`; None also if no step was profiled
    fixed_cost: Explanation | None = None
    outcomes: tuple[Outcome, ...] = ()
    answers: tuple[Answer, ...] = ()  # on every explanation, in their order, then on the fixed cost
    remedies: Remedies = field(default_factory=Remedies)  # what changes of complete steps save
    axis: Axis = field(default_factory=Axis)
    notes: tuple[str, ...] = ()  # sentences on the choice of the steps
    recorded: Recorded | None = None  # None if the diagnosis is of no recording
    # the largest of times that have no interval; None if some have
    difference: Difference | None = None

    @property
    def explained(self) -> tuple[Explanation, ...]:
        """The explanations, then that of the fixed cost."""
        return *self.explanations, *([self.fixed_cost] if self.fixed_cost else [])

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that are anomalies."""
        return tuple(f for f in self.findings if f.verdict == FindingVerdict.ANOMALY)

    @property
    def disturbances(self) -> Disturbances | None:
        """The disturbed visits; None without one."""
        return None if self.recorded is None else self.recorded.disturbances

    @property
    def rare_steps(self) -> tuple[RareSteps, ...]:
        """The rare slow steps, by batch size."""
        return () if self.recorded is None else self.recorded.rare
