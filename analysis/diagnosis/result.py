"""A diagnosis as data: the curve, its findings, and each anomaly with its terms, causes and answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class Explanation:
    """A functional split into its shares, the largest first; their values add up to its value.

    Attributes:
        functional: the functional.
        value: its value and interval.
        shares: one per term; idle and profiling overhead last.
        attribution: the causes of the shares; their amounts add up to the value too.
        also: labels of other findings from the same term at the same batch size.
        weighed: the shares with what causes claim of them, in the order of the shares.
    """

    functional: Functional
    value: Estimate
    shares: tuple[Share, ...]
    attribution: Attribution
    also: tuple[str, ...] = ()
    weighed: tuple[Weighed, ...] = field(default=(), repr=False, compare=False)

    @property
    def cancels(self) -> bool:
        """Whether a part is so much larger than the whole that shares of it say nothing."""
        parts = (*(share.value.value for share in self.shares), *(cause.amount for cause in self.attribution.causes))
        return max(map(abs, parts), default=0.0) > CANCELS * abs(self.value.value)

    def _repr_html_(self) -> str:
        from ..render.notebook import explanation_html

        return explanation_html(self)


@dataclass(frozen=True)
class Diagnosis:
    """Everything `diagnose` and `explain` show.

    Attributes:
        curve: the cost curve.
        findings: every excess, then every curvature.
        explanations: one per anomaly, the largest first; empty if no step was profiled.
        terms: the terms by batch size; None if no step was profiled.
        kernel_times: exclusive times that the terms come from, as `kernel_times` returns them.
        fixed_cost: the fixed cost of a step at the smallest pair of batch sizes where it is significant and at least
            2 % of the step; None if there is no such pair, or if no step was profiled.
        outcomes: outcomes of the recording's experiments; empty if none were made.
        answers: the answer on every explanation, in their order, then on the fixed cost.
        remedies: what changes of complete steps save.
        axis: the axis of batch sizes, for words.
        notes: sentences on the choice of the steps.
        recorded: what causes examine besides the kernels; None if the diagnosis is of no recording.
        difference: the largest difference of times that have no interval; None if some have.
    """

    curve: Curve
    findings: tuple[Finding, ...]
    explanations: tuple[Explanation, ...]
    terms: Terms | None
    kernel_times: pd.DataFrame
    fixed_cost: Explanation | None = None
    outcomes: tuple[Outcome, ...] = ()
    answers: tuple[Answer, ...] = ()
    remedies: Remedies = field(default_factory=Remedies)
    axis: Axis = field(default_factory=Axis)
    notes: tuple[str, ...] = ()
    recorded: Recorded | None = None
    difference: Difference | None = None

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

    def __str__(self) -> str:
        from ..render.notebook import diagnosis_text

        return diagnosis_text(self)

    def _repr_html_(self) -> str:
        from ..render.notebook import diagnosis_html

        return diagnosis_html(self)
