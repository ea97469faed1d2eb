"""The entry `probes` of `recording.json`: a sweep's probes between its sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from .axis import Axis

_NAMED = 8  # sizes in a sentence
_OFF_NAMED = 4  # of those that leave the line
_LEAST_MS = 1e-6  # a line through two sizes may fall to 0


def jumps_of(meta: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The last size on the line and the first off it, of every jump that the sweep looked for in
    further rounds.
    """
    jumps = (meta.get("probes") or {}).get("found", ())
    return tuple((int(before), int(after)) for before, after in jumps)


def find_probed(meta: Mapping[str, Any]) -> frozenset[int]:
    """The sizes that the sweep visited between those that it was given, and behind them."""
    visits = (meta.get("probes") or {}).get("visits", ())
    return frozenset(int(visit["batch"]) for visit in visits)


def times_of_probes(meta: Mapping[str, Any]) -> dict[int, list[float]]:
    """The times of all steps of the probes, by size, ms."""
    times_ms: dict[int, list[float]] = {}
    for visit in (meta.get("probes") or {}).get("visits", ()):
        of_size = times_ms.setdefault(int(visit["batch"]), [])
        of_size += [duration_ns / 1e6 for duration_ns in visit["duration_ns"]]
    return times_ms


def gap_of(sizes: Sequence[int], size: int) -> tuple[int, int]:
    """The two of increasing sizes around one; behind the last, from that to the size."""
    smaller = [other for other in sizes if other < size]
    larger = [other for other in sizes if other > size]
    return max(smaller), min(larger, default=size)


def slopes_outside(
    times_ms: Mapping[int, float], sizes: Sequence[int], low: int, high: int
) -> list[tuple[int, float]]:
    """A size and the slope of the line through two sizes, on each side of a gap that has two."""
    below = [size for size in sizes if size <= low]
    above = [size for size in sizes if size >= high]
    slopes = []
    for pair in (below[-2:], above[:2]):
        if len(pair) == 2:
            first, other = pair
            slope = (times_ms[other] - times_ms[first]) / (other - first)
            slopes.append((first, slope))
    return slopes


def deviation(times_ms: Mapping[int, float], sizes: Sequence[int], size: int) -> float:
    """Logarithm of a size's time over the nearest end of what the line allows there; 0 in between.

    A line is what the times of increasing `sizes` allow at a size between them: their
    interpolation, and what both sides continue to.
    """
    low, high = gap_of(sizes, size)
    lines = slopes_outside(times_ms, sizes, low, high)
    if high in sizes:
        lines.append((low, (times_ms[high] - times_ms[low]) / (high - low)))
    allowed = [times_ms[at] + slope * (size - at) for at, slope in lines]
    time_ms = times_ms[size]
    if not allowed or min(allowed) <= time_ms <= max(allowed):
        return 0.0
    end_ms = max(allowed) if time_ms > max(allowed) else min(allowed)
    return math.log(time_ms / max(end_ms, _LEAST_MS))


def find_leaving_sizes(meta: Mapping[str, Any], times_ms: Mapping[int, float]) -> dict[int, float]:
    """Shares by which probes leave the line of the curve, by size: what was found is part of the
    curve.

    Args:
        meta: of the recording.
        times_ms: T of the sizes of the curve, ms.
    """
    entry = meta.get("probes") or {}
    sizes = sorted(times_ms)
    off: dict[int, float] = {}
    for size, taken_ms in times_of_probes(meta).items():
        if size in times_ms or not sizes or size < sizes[0]:
            continue
        leaves = deviation({**times_ms, size: min(taken_ms)}, sizes, size)
        if abs(leaves) >= entry["least"]:
            off[size] = math.expm1(leaves)
    return off


class Jumps(NamedTuple):
    """What further rounds say of the places of `jumps_of`; in the others they show no jump."""

    up: Collection[tuple[int, int]] = ()
    down: Collection[tuple[int, int]] = ()
    open: Collection[tuple[int, int]] = ()  # too few rounds to tell


def probes_sentence(
    meta: Mapping[str, Any],
    axis: Axis,
    jumps: Jumps,
    times_ms: Mapping[int, float] | None = None,
) -> str | None:
    """The probed sizes, and where the cost jumps, or falls as the size grows; None if nothing was
    probed.

    With T of the sizes of the curve, it also says which probes left the line and were not tested.
    """
    entry = meta.get("probes") or {}
    sizes = sorted({visit["batch"] for visit in entry.get("visits", ())})
    if not sizes:
        return None
    shown = [str(size) for size in sizes[:_NAMED]]
    if len(sizes) > _NAMED:
        shown.append("…")
    what = []
    for does, places in (("jumps", jumps.up), ("falls", jumps.down)):
        spans = [f"from {before} to {after}" for before, after in sorted(places)]
        if spans:
            what.append(f"the cost {does} {' and '.join(spans)}")
    none = set(jumps_of(meta)) - {*jumps.up, *jumps.down, *jumps.open}
    for says, places in (
        ("further rounds show no jump between", none),
        ("further rounds are too few to test a jump between", jumps.open),
    ):
        spans = [f"{before} and {after}" for before, after in sorted(places)]
        if spans:
            what.append(f"{says} {' and between '.join(spans)}")
    off = find_leaving_sizes(meta, times_ms or {})
    if off:
        what.append(_say_leaving(off))
    if not what:
        what = [f"none leaves the line by {100 * entry['least']:.0f} %"]
    took = f"{entry['seconds']:.0f} s"
    return f"Probed between the {axis.values}: {', '.join(shown)} ({took}): {'; '.join(what)}."


def _say_leaving(off: Mapping[int, float]) -> str:
    """The clause on sizes that leave the line in too few visits, by the share by which each
    does.
    """
    largest = sorted(off, key=lambda size: -abs(off[size]))[:_OFF_NAMED]
    shares = ", ".join(f"{size} by {100 * off[size]:+.0f} %" for size in sorted(largest))
    left_out = len(off) - len(largest)
    others = f" and {left_out} more" if left_out else ""
    verb = "leaves" if len(off) == 1 else "leave"
    return f"{shares}{others} {verb} the line, in too few visits to test it: measure such sizes too"
