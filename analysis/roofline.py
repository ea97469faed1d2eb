"""The roofline of a recording: arithmetic intensity and achieved rates per kernel, layer or phase,
under each roof.

Bytes are measured at a memory level (DRAM, L2, L1) if the recording has them, else compulsory (each
operand moved once, a lower bound, compared with the DRAM roof). FLOPs are measured, else counted
for the direct algorithm. The compute roof of a kernel has the precision in its name, else the
precision of the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ..base.errors import CurvescopeError
from ..base.words import UNKNOWN
from ..profiling.attribution.kernel_precision import kernel_precision
from ..profiling.hardware.limits import Hardware, Roof, hardware_of
from ..profiling.recording.store import Recording
from .decompose.averaged_steps import list_used_steps
from .decompose.curve import native
from .decompose.kernel_times import device_work, kernel_totals
from .decompose.marked import step_times
from .decompose.terms import IDLE, work_label
from .decompose.warm_up import judge_steps
from .likely_bounds import LikelyPoint, likely_point, plain_rows

# columns whose values name a point, by the choice of `--by`
POINT_COLUMNS = {"kernel": ["name"], "layer": ["layer", "phase"], "phase": ["phase"]}
MEASURED, DIRECT, COMPULSORY = "measured", "direct algorithm", "compulsory"
UNKNOWN_BOUND, NEITHER = "unknown", "neither"
# A point that reaches half of the roof above it is called bound by that roof; below that, something
# else limits it.
BOUND_SHARE = 0.5

# Version of the exported document. Fields are added, never renamed or dropped; a change of meaning
# is a new version.
#   1  first version


@dataclass(frozen=True)
class LevelTraffic:
    """A point's traffic at one memory level."""

    level: str  # DRAM, L2 or L1
    bytes: float  # bytes per step
    source: str  # measured or compulsory
    flops_per_byte: float  # arithmetic intensity
    bytes_per_s: float  # achieved bandwidth


@dataclass(frozen=True)
class RoofPoint:
    """One kernel, layer or phase."""

    label: str  # name of the kernel, layer or phase
    calls: float  # launches per step with known work
    time_s: float  # time per step; for a kernel, of the launches with known work only
    flops: float  # FLOPs per step
    flops_source: str  # measured or direct algorithm
    flops_per_s: float  # achieved rate
    levels: tuple[LevelTraffic, ...]  # traffic, DRAM first; empty if no bytes are known
    bound: str  # memory, compute, neither (under half of the roof above it), or unknown
    # achieved rate over the limit of the roofs at its intensity; over 1 if the roofs do not apply
    # (another precision, another algorithm's FLOPs); None without roofs
    utilisation: float | None
    roof_kind: str | None  # kind of roof that `utilisation` refers to, ceiling or peak
    exceeded_roofs: tuple[str, ...] = ()  # roofs that its rates exceed, `compute` and `DRAM`
    # precisions of its products by the names of its kernels; `unknown` for kernels whose names say
    # none
    precisions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Points of one batch size under the roofs of the device."""

    batch: int | None  # number of samples in a step; None if unknown
    by: str  # kernel, layer or phase
    points: tuple[RoofPoint, ...]  # points, longest first
    # roofs of memory, and of the precisions of the points; that of the recording where a name says
    # none
    roofs: tuple[Roof, ...]
    time_without_work_s: float  # time per step of kernels with unknown work
    # number of profiled steps; None if the profile has no steps and points are totals of the
    # profile
    n_steps: int | None
    # groups of which no kernel has known work, longest first, with what likely bounds them
    without_work: tuple[LikelyPoint, ...] = ()


def read_roofline(recording: Recording, by: str = "kernel", batch: int | None = None) -> Roofline:
    """Points and roofs of a recording at one batch size, see `roofline`."""
    steps = judge_steps(recording, recording.frame("steps"))
    times = (
        kernel_totals(device_work(recording)) if steps.empty else step_times(recording, steps).table
    )
    return roofline(times, hardware_of(recording.meta), by, batch)


def roofline(
    kernel_times: pd.DataFrame, hardware: Hardware, by: str = "kernel", batch: int | None = None
) -> Roofline:
    """Points and roofs at one batch size, by default the largest; by kernel, layer or phase.

    The times are the result of `kernel_times`, or of `kernel_totals` without steps, e.g. from
    Nsight Compute. The batch size must be profiled, and some kernel have a time; else
    CurvescopeError.
    """
    if "step" not in kernel_times:
        rows, n_steps, batch = kernel_times, None, None
    else:
        sizes_of = kernel_times["batch"].dropna().unique()
        profiled = sorted(map(native, sizes_of))
        if batch is None and profiled:
            batch = profiled[-1]
        if batch is not None and batch not in profiled:
            sizes = ", ".join(map(str, profiled))
            raise CurvescopeError(f"Batch {batch} was not profiled; the recording has {sizes}.")
        if batch is not None:
            kernel_times = kernel_times[kernel_times["batch"] == batch]
        used = list_used_steps(kernel_times)
        n_steps = len(used)
        is_busy = kernel_times["name"] != IDLE
        rows = kernel_times[kernel_times["step"].isin(used) & is_busy]
    if rows.empty:
        raise CurvescopeError(
            "No kernel of the recording has a time, so there is no roofline to draw."
        )
    per = n_steps or 1
    points, without, without_ms = [], [], 0.0
    for label, group in _groups(rows, POINT_COLUMNS[by]):
        counted = [row for row in group if row.flops is not None or row.flops_executed is not None]
        group_ms = math.fsum(row.exclusive_ms for row in group)
        if not counted:
            without_ms += group_ms
            if hardware.kind != "cpu":  # what is likely is known of GPUs
                without.append(likely_point(label, group, per, hardware))
            continue
        # The work of a layer is stored in one row per operator call, its time in all of them.
        timed_ms = group_ms
        if by == "kernel":
            timed_ms = math.fsum(row.exclusive_ms for row in counted)
        without_ms += group_ms - timed_ms
        if point := _point(label, counted, timed_ms / 1e3 / per, per, hardware):
            points.append(point)
    points.sort(key=lambda p: -p.time_s)
    without.sort(key=lambda p: -p.time_s)
    return Roofline(
        batch=batch,
        by=by,
        points=tuple(points),
        roofs=_choose_roofs(points, hardware),
        time_without_work_s=without_ms / 1e3 / per,
        n_steps=n_steps,
        without_work=tuple(without),
    )


def _choose_roofs(points: Sequence[RoofPoint], hardware: Hardware) -> tuple[Roof, ...]:
    ran = {precision for point in points for precision in point.precisions}
    default = UNKNOWN in ran or not ran
    roofs = []
    for roof in hardware.roofs:
        if roof.precision is None or default or roof.precision in ran:
            roofs.append(roof)
    roofs += [roof for roof in hardware.other_precisions if roof.precision in ran]
    return tuple(roofs)


def _groups(rows: pd.DataFrame, keys: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """Label and rows of each group, see `plain_rows`; in order of appearance."""
    groups: dict[tuple[str | None, ...], list[Any]] = {}
    for row in plain_rows(rows.drop(columns=["step", "batch", "round"], errors="ignore")):
        names = tuple(getattr(row, key) for key in keys)
        groups.setdefault(names, []).append(row)
    for key, group in groups.items():
        if keys[0] == "layer":
            yield work_label(key[0], key[1]), group
        else:
            yield key[0] or f"no {keys[0]}", group


def _sum(rows: Sequence[Any], column: str) -> float | None:
    """The sum of a column; None if a row has no value in it."""
    values = []
    for row in rows:
        value = getattr(row, column, None)
        if value is None:
            return None
        values.append(value)
    return math.fsum(values)


def _point(
    label: str, rows: Sequence[Any], time_s: float, per: int, hardware: Hardware
) -> RoofPoint | None:
    executed = all(row.flops_executed is not None for row in rows)
    work = "flops_executed" if executed else "flops"
    amounts = [getattr(row, work) or 0.0 for row in rows]
    flops = math.fsum(amounts) / per
    if time_s <= 0 or flops <= 0:
        return None
    levels: list[LevelTraffic] = []
    for level, column, source in (
        ("DRAM", "dram_bytes", MEASURED),
        ("DRAM", "bytes_compulsory", COMPULSORY),
        ("L2", "l2_bytes", MEASURED),
        ("L1", "l1_bytes", MEASURED),
    ):
        size = (_sum(rows, column) or 0.0) / per
        if size > 0 and level not in {reached.level for reached in levels}:
            levels.append(LevelTraffic(level, size, source, flops / size, size / time_s))
    of_names: dict[str, float] = {}
    for row in rows:
        precision = UNKNOWN if row.name is None else kernel_precision(str(row.name))
        amount = getattr(row, work) or 0.0
        of_names[precision] = of_names.get(precision, 0.0) + amount
    by_precision = {precision: amount / per for precision, amount in sorted(of_names.items())}
    compute_s, compute_kind = hardware.least_compute(by_precision, time_s)
    bound, utilisation, kind = _bound(time_s, compute_s, compute_kind, levels, hardware)
    source = MEASURED if executed else DIRECT
    calls = math.fsum(row.calls for row in rows) / per
    dram = next((level.bytes_per_s for level in levels if level.level == "DRAM"), None)
    exceeded = hardware.exceeded(by_precision, time_s, dram)
    rates = flops, source, flops / time_s, tuple(levels)
    precisions = tuple(precision for precision, amount in by_precision.items() if amount > 0)
    return RoofPoint(label, calls, time_s, *rates, bound, utilisation, kind, exceeded, precisions)


def _bound(
    time_s: float,
    compute_s: float | None,
    compute_kind: str | None,
    levels: Sequence[LevelTraffic],
    hardware: Hardware,
) -> tuple[str, float | None, str | None]:
    """The limit of a point: the roof that allows the longest time, if the point comes near it."""
    needs = [("compute", compute_s, compute_kind)] if compute_s is not None else []
    for level in levels:
        if roof := hardware.roof(level.level):
            needs.append(("memory", level.bytes / roof.per_s, roof.kind))
    if not any(name == "memory" for name, _, _ in needs) or compute_s is None:
        return UNKNOWN_BOUND, None, None
    name, least_s, kind = max(needs, key=lambda need: need[1])
    share = least_s / time_s
    return (name if share >= BOUND_SHARE else NEITHER), share, kind


CSV_COLUMNS = (
    "row",
    "label",
    "level",
    "calls",
    "time_s",
    "flops",
    "flops_source",
    "flops_per_s",
    "bytes",
    "bytes_source",
    "bytes_per_s",
    "flops_per_byte",
    "bound",
    "utilisation",
    "roof_per_s",
    "roof_kind",
    "provenance",
    "precision",
    *("exceeded_roofs", "precisions"),
)


def csv_rows(drawn: Roofline) -> list[dict[str, Any]]:
    """The document as rows: first `roof` rows, then a `point` row per point and memory level;
    missing is empty.
    """
    rows: list[dict[str, Any]] = []
    for roof in drawn.roofs:
        row = asdict(roof)
        row["row"] = "roof"
        row["roof_per_s"] = roof.per_s
        row["roof_kind"] = roof.kind
        row["provenance"] = roof.source
        rows.append(row)
    for point in drawn.points:
        shared = asdict(point)
        shared["row"] = "point"
        shared["exceeded_roofs"] = " ".join(point.exceeded_roofs) or None
        shared |= {"precisions": " ".join(point.precisions) or None}
        for level in point.levels:
            rows.append({**shared, **asdict(level), "bytes_source": level.source})
        if not point.levels:
            rows.append(shared)
    return [{column: row.get(column) for column in CSV_COLUMNS} for row in rows]
