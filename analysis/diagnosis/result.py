"""A diagnosis as data: the curve, its findings, and each anomaly with its explanation."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import Disturbances
from ...profiling.recording.probes import times_of_probes
from ...profiling.recording.store import Recording
from ..causes.context import Recorded
from ..decompose.curve import Curve
from ..decompose.findings import Finding, FindingVerdict
from ..decompose.slow_steps import SlowSteps
from ..decompose.terms import Terms
from ..verdicts.outcome import Claims, Outcome
from .certain import CertainPart
from .difference import Difference
from .explanation import Drawn, Explanation
from .remedies import Remedies


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The grounds that a diagnosis rests on experiments for."""

    # one per anomaly, the largest first; empty if no step was profiled
    explanations: tuple[Explanation, ...]
    # see `find_fixed_cost`; None also if no step was profiled
    fixed_cost: Explanation | None
    outcomes: tuple[Outcome, ...]
    claims: Claims  # of the causes of factors of complete steps
    remedies: Remedies  # what changes of complete steps save

    @property
    def all_explanations(self) -> tuple[Explanation, ...]:
        """The explanations, the fixed cost last."""
        if self.fixed_cost is None:
            return self.explanations
        return *self.explanations, self.fixed_cost


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Conclusion, Drawn):
    """Everything `diagnose` and `explain` show."""

    curve: Curve
    findings: tuple[Finding, ...]  # every excess, then every curvature
    terms: Terms | None  # None if no step was profiled
    recorded: Recorded  # what it was made from
    # what costs too much for certain, the largest share of a step first, whatever the sum does
    certain: tuple[CertainPart, ...]
    # the largest of times that have no interval; None if some have
    difference: Difference | None
    # what it is of; None if of no recording
    recording: Recording | None = field(repr=False, compare=False)

    @property
    def answers(self) -> tuple[Explanation, ...]:
        """The explanations that answer an anomaly, the fixed cost last."""
        return tuple(
            explanation for explanation in self.all_explanations if explanation.evidence is not None
        )

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that are anomalies."""
        return tuple(f for f in self.findings if f.verdict == FindingVerdict.ANOMALY)

    @property
    def axis(self) -> Axis:
        """What the steps vary."""
        return self.recorded.axis

    @property
    def kernel_times(self) -> pd.DataFrame:
        """Exclusive times that the terms come from."""
        return self.recorded.kernel_times

    @property
    def disturbances(self) -> Disturbances | None:
        """The disturbed visits; None without one."""
        return self.recorded.disturbances

    @property
    def is_disturbed(self) -> bool:
        """Whether the times are of a disturbed machine."""
        return self.disturbances is not None and self.disturbances.prevail

    @property
    def probe_times(self) -> dict[int, list[float]]:
        """Times of the steps of probed sizes, ms.

        A probe has one or two visits: where other work disturbed most visits, it says nothing.
        """
        if self.recording is None or self.is_disturbed:
            return {}
        return times_of_probes(self.recording.meta)

    @property
    def slow_steps(self) -> tuple[SlowSteps, ...]:
        """The slow steps, by batch size."""
        return self.recorded.slow
