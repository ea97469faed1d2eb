"""MFU, model FLOPs utilisation: the FLOPs that a step's shapes need, over what the peak would do in
the step's time.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from ...base.words import UNKNOWN
from ...profiling.attribution.kernel_precision import kernel_precision
from ...profiling.hardware.limits import PEAK, Hardware, Roof
from ...profiling.recording.store import STEP, Recording
from .breakdown import Breakdown


@dataclass(frozen=True)
class Mfu:
    """The utilisation of a step."""

    # FLOPs of the direct algorithm over the peak times the step's time; a lower bound where some
    # are unknown
    share: float
    peak_flops_per_s: float  # the peak, of all GPUs together
    peak_kind: str  # peak (datasheet), or ceiling (measured) if no peak is known
    peak_source: str  # source of the peak
    # precision of the peak: that of the products with the most FLOPs by their kernels' names, else
    # the recording's
    precision: str | None
    known_time_share: float  # share of the busy time in which kernels with known FLOPs run, 0 to 1


def step_mfu(recording: Recording, breakdown: Breakdown, hardware: Hardware) -> Mfu | None:
    """The utilisation of a step; None if no step, no FLOPs or no peak is known."""
    groups = breakdown.groups
    flops = math.fsum(row.flops or 0 for row in groups)
    busy_ms = math.fsum(row.time_ms for row in groups)
    if breakdown.unit != STEP or not breakdown.n_profiled or not flops or not busy_ms:
        return None
    roof = _peak(recording, hardware)
    if roof is None:
        return None
    peak = roof.per_s * max(1, len(breakdown.busy_ms))
    known_ms = math.fsum(row.time_ms * (row.flops_time_share or 0) for row in groups)
    used = flops / (peak * breakdown.time_ms / 1e3)
    return Mfu(used, peak, roof.kind, roof.source, roof.precision, min(1.0, known_ms / busy_ms))


def _peak(recording: Recording, hardware: Hardware) -> Roof | None:
    """The compute roof of the precision that most FLOPs have: the peak, else the measured one."""
    ours = hardware.roof("compute")
    kernels = recording.arrow("kernels", ["name", "flops"])
    by_name = kernels.group_by("name").aggregate([("flops", "sum")])
    amounts: Counter[str | None] = Counter()
    for row in by_name.to_pylist():
        named: str | None = kernel_precision(row["name"])
        if named == UNKNOWN:
            named = ours.precision if ours else None
        amounts[named] += row["flops_sum"] or 0
    ((precision, _),) = amounts.most_common(1) or ((None, 0),)
    fitting = []
    for roof in (*hardware.roofs, *hardware.other_precisions):
        if roof.level == "compute" and roof.precision == precision:
            fitting.append(roof)
    peaks = [roof for roof in fitting if roof.kind == PEAK]
    return next(iter(peaks + fitting), None)
