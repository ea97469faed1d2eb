"""A diagnosis as data: the curve, its findings, and each anomaly with its explanation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.store import Recording
from ..decompose.curve import Curve
from ..decompose.findings import Finding, FindingVerdict
from ..decompose.slow_steps import SlowSteps
from ..decompose.terms import Terms
from .certain import CertainPart
from .difference import Difference
from .explanation import Drawn, Explanation
from .remedies import Remedies

if TYPE_CHECKING:
    from ..causes.context import Recorded
    from ..verdicts.outcome import Outcome


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
    # what costs too much for certain, the largest share of a step first, whatever the sum does
    certain: tuple[CertainPart, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    remedies: Remedies = field(default_factory=Remedies)  # what changes of complete steps save
    axis: Axis = field(default_factory=Axis)
    notes: tuple[str, ...] = ()  # sentences on the choice of the steps
    recorded: Recorded | None = None  # None if the diagnosis is of no recording
    # the largest of times that have no interval; None if some have
    difference: Difference | None = None

    # what it is of; None if of no recording
    recording: Recording | None = field(default=None, repr=False, compare=False)

    @property
    def explained(self) -> tuple[Explanation, ...]:
        """The explanations, then that of the fixed cost."""
        return *self.explanations, *([self.fixed_cost] if self.fixed_cost else [])

    @property
    def answers(self) -> tuple[Explanation, ...]:
        """The explanations that answer an anomaly, then that of the fixed cost; empty before
        `answered`.
        """
        return tuple(
            explanation for explanation in self.explained if explanation.evidence is not None
        )

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that are anomalies."""
        return tuple(f for f in self.findings if f.verdict == FindingVerdict.ANOMALY)

    @property
    def disturbances(self) -> Disturbances | None:
        """The disturbed visits; None without one."""
        return None if self.recorded is None else self.recorded.disturbances

    @property
    def slow_steps(self) -> tuple[SlowSteps, ...]:
        """The slow steps, by batch size."""
        return () if self.recorded is None else self.recorded.slow
