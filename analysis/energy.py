"""Energy of a step over batch sizes: the same curve, functionals and tests as for time, over
joules.

Energy is measured for a visit and shared among its steps by their durations. No counter gives the
energy of one kernel, so an anomaly splits exactly into two parts only: the step's time at the power
of the smaller batch size, and the difference of power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import CurvescopeError
from ..profiling.recording.axis import Axis, axis_of
from ..profiling.recording.disturbed import with_set_aside
from ..profiling.recording.store import Recording
from .decompose.curve import Curve, cost_curve
from .decompose.findings import Finding, FindingVerdict, find, find_fixed_cost
from .decompose.functionals import Functional
from .decompose.statistics import Estimate

_TOO_SHORT = (
    "its visits were too short for the source; record it with `curvescope diagnose --of energy`"
)


@dataclass(frozen=True)
class PowerSplit:
    """The exact split of a functional of energy; both parts add up to its value."""

    by_time_j: float  # the functional of time, at the power of the smallest batch size in it
    by_power_j: float  # what the other powers at the other batch sizes add


@dataclass(frozen=True, kw_only=True)
class EnergyDiagnosis:
    """What `explain --of energy` shows."""

    curve: Curve  # curve of energy; its fields in ms hold joules
    times: Curve  # curve of time of the same steps
    findings: tuple[Finding, ...]  # every excess, then every curvature, in joules
    splits: tuple[PowerSplit, ...]  # split of every finding, in their order
    # energy that does not grow with the batch size, with its interval; None if it is not
    # significant
    fixed_cost: tuple[Functional, Estimate] | None
    source: dict[str, Any]  # entry `energy` of `recording.json`
    unmeasured: int  # number of timed steps without an energy
    axis: Axis = field(default_factory=Axis)  # axis of batch sizes, for words

    @property
    def anomalies(self) -> tuple[Finding, ...]:
        """The findings that are anomalies."""
        return tuple(
            finding for finding in self.findings if finding.verdict == FindingVerdict.ANOMALY
        )

    def power_w(self, condition: int) -> float:
        """Mean power of the steps of a condition, watts."""
        return _powers_w(self.curve, self.times)[condition]


def explain_energy(recording: Recording, axis: str = "log2") -> EnergyDiagnosis:
    """Test the curve of energy of a recording of a sweep; CurvescopeError says why if there is
    none.
    """
    if axis == "throughput":
        raise CurvescopeError(
            "--curvature throughput is of times: of energies choose log2 or linear."
        )
    steps = with_set_aside(recording.frame("steps"))
    source = recording.meta.get("energy") or {}
    timed = steps[~steps["profiled"].astype(bool)]
    measured = timed[timed["energy_uj"].notna()]
    if measured.empty:
        why = source.get("missing") or _TOO_SHORT
        raise CurvescopeError(f"{recording.path} has no energy of steps: {why}.")
    # a curve divides by 10⁶: from ns to ms, from µJ to J
    joules = measured.assign(duration_ns=measured["energy_uj"])
    curve = cost_curve(joules, recording.statistic)
    times = cost_curve(measured, recording.statistic)
    findings = find(curve, axis)
    fixed = find_fixed_cost(curve, curve.conditions)
    splits = [split_by_power(finding.shown, curve, times) for finding in findings]
    fixed_cost = None if fixed is None else (fixed, curve.evaluate(fixed))
    return EnergyDiagnosis(
        curve=curve,
        times=times,
        findings=findings,
        splits=tuple(splits),
        fixed_cost=fixed_cost,
        source=dict(source),
        unmeasured=len(timed) - len(measured),
        axis=axis_of(recording.meta),
    )


def split_by_power(functional: Functional, energies: Curve, times: Curve) -> PowerSplit:
    """Split a functional of energy into a part of time and a part of power.

    With E(b) = P(b)·T(b) and the smallest batch size a: Σ cᵦ·E(b) = P(a)·Σ cᵦ·T(b) + Σ cᵦ·(P(b) −
    P(a))·T(b).
    """
    powers_w = _powers_w(energies, times)
    base_w = powers_w[min(functional.conditions)]
    seconds = {point.condition: point.time_ms.value / 1e3 for point in times.joint}
    by_time, by_power = [], []
    for batch, weight in functional.coefficients:
        by_time.append(weight * seconds[batch])
        by_power.append(weight * (powers_w[batch] - base_w) * seconds[batch])
    return PowerSplit(base_w * math.fsum(by_time), math.fsum(by_power))


def _powers_w(energies: Curve, times: Curve) -> dict[int, float]:
    powers_w = {}
    for energy, time in zip(energies.joint, times.joint, strict=True):
        time_s = time.time_ms.value / 1e3
        powers_w[energy.condition] = energy.time_ms.value / time_s
    return powers_w
