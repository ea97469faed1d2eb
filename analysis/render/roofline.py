"""A roofline as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.numbers import number, quantity
from ...base.words import UNKNOWN
from ..likely_bounds import FEW_BLOCKS, HOST_LINK, LINKS, MEMORY, OPEN, SHORT
from ..roofline import COMPULSORY, NEITHER, UNKNOWN_BOUND, Roofline, RoofPoint
from .breakdown import ABOVE_ROOF, ABOVE_ROOF_NOTE, rate
from .of_peak import show_share
from .tables import table
from .words import dim, note_hidden, number_cell, shorten, show_ms

_BOUNDS = {"memory": "bound by memory", "compute": "bound by compute", NEITHER: "bound by neither"}
_LIKELY = {
    HOST_LINK: "memcpy between host and device",
    LINKS: "collectives, which also wait for other ranks",
    FEW_BLOCKS: "fewer blocks than the GPU has SMs",
    SHORT: "under 5 µs each: most of that is start and end",
    MEMORY: "kinds of kernels that do few FLOPs per byte",
    OPEN: "products and unknown kernels: only counters or shapes tell",
}


NO_ROOF = (
    "No peak of this device is known and no ceiling was measured: there is no roof, and bounds are "
    "unknown. "
    "`curvescope bench ceilings` on the device measures them, also for what was recorded there "
    "before."
)


def render_roofline(drawn: Roofline, limit: int | None = 25) -> RenderableType:
    """Roofs, then points, the longest first."""
    blocks: list[RenderableType] = []
    for verdict in verdicts(drawn):
        blocks += [Text(verdict, "bold"), Text()]
    roofs = _roofs(drawn) if drawn.roofs else Text(NO_ROOF, "yellow")
    blocks += [roofs, Text()]
    if drawn.points:
        shown = drawn.points[:limit]
        blocks.append(_points(drawn, shown))
        blocks += note_hidden(len(drawn.points) - len(shown), "shorter row")
    blocks += _likely(drawn, limit)
    return Group(*blocks, *dim(notes(drawn)))


def _roofs(drawn: Roofline) -> RenderableType:
    """The compute roofs, then the memories, each from the lowest on."""
    rows = table("roof", "limit", "", "source", left=("",), words=("source",))
    for roof in sorted(drawn.roofs, key=lambda roof: (roof.level != "compute", roof.per_s)):
        named = f"{roof.level} ({roof.precision})" if roof.precision else roof.level
        unit = "FLOP/s" if roof.level == "compute" else "B/s"
        rows.add_row(named, quantity(roof.per_s, unit, 4), roof.kind, Text(roof.source))
    return rows


def _points(drawn: Roofline, points: Sequence[RoofPoint]) -> RenderableType:
    """A line for each memory of a point; the first one also has the cells of the point itself."""
    heads = ("in", "ms", "GFLOP/s", "level", "FLOP/B", "GB/s", "of roof", "bound")
    optional = ("GFLOP/s", "GB/s") if drawn.roofs else ("GB/s", "of roof", "bound")
    rows = table(drawn.by, *heads, optional=optional)
    for point in points:
        exceeded = point.exceeded_roofs
        flops = rate(point.flops_per_s, "compute" in exceeded)
        used = ""
        if point.utilisation is not None and point.roof_kind is not None:
            used = show_share(point.utilisation, point.roof_kind)
        if used and exceeded:
            used += ABOVE_ROOF
        time_ms = number(point.time_s * 1e3)
        before = (point.label, _products(point.precisions), time_ms, flops)
        behind = (used, point.bound)
        for level in point.levels or (None,):
            cells = ("", "", "")
            if level is not None:
                mark = "*" if level.source == COMPULSORY else ""
                intensity = number(level.flops_per_byte, 3)
                bytes_per_s = rate(level.bytes_per_s, level.level in exceeded)
                cells = (f"{level.level}{mark}", intensity, bytes_per_s)
            rows.add_row(*before, *cells, *behind)
            before = ("", "", "", "")
            behind = ("", "")
    return rows


def _likely(drawn: Roofline, limit: int | None) -> list[RenderableType]:
    """The table of rows without known work; nothing if every row has a point."""
    if not drawn.without_work:
        return []
    shown = drawn.without_work[:limit]
    heads = ("ms", "calls", "µs a call", "waves", "occupancy", "likely bound")
    rows = table(drawn.by, *heads, optional=("µs a call", "calls"))
    for point in shown:
        share = "" if point.share > 0.995 else f" ({point.share:.0%})"
        call_us, occupancy = "", ""
        if point.calls:
            call_us = number(point.time_s * 1e6 / point.calls, 3)
        if point.occupancy is not None:
            occupancy = f"{point.occupancy:.0%}"
        rows.add_row(
            point.label,
            number(point.time_s * 1e3),
            number(point.calls, 3),
            call_us,
            number_cell(point.waves, 3),
            occupancy,
            f"{point.likely}{share}",
        )
    before = [Text()] if drawn.points else []
    title = Text("FLOPs unknown; the bound that names and launches suggest:")
    hidden = note_hidden(len(drawn.without_work) - len(shown), "shorter row")
    return [*before, title, rows, *hidden]


def verdicts(drawn: Roofline) -> list[str]:
    """What bounds most of the time, and the largest part that reaches no roof; nothing without a
    known bound.
    """
    known = [point for point in drawn.points if point.bound != UNKNOWN_BOUND]
    bounds = _shares((point.bound, point.time_s) for point in known)
    if not bounds:
        return _likely_verdict(drawn)
    parts = []
    for name, share in bounds:
        parts.append(f"{_BOUNDS.get(name, name)} {share:.0%}")
    shares = ", ".join(parts)
    sentence = f"Of the time with a known bound: {shares}."
    far = [point for point in drawn.points if point.bound == NEITHER]
    longest = max(far, key=lambda point: point.time_s, default=None)
    if longest is not None and longest.utilisation is not None:
        used = f"{longest.utilisation:.0%} of its roof, {show_ms(longest.time_s * 1e3, 3)}"
        name = shorten(longest.label)
        sentence += f" The largest part far from both roofs is {name}: {used}."
    return [sentence]


def _shares(times: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The share of each name in the sum of the times, the largest first; empty for none."""
    sums: dict[str, float] = {}
    for name, time in times:
        sums[name] = sums.get(name, 0.0) + time
    whole = sum(sums.values())
    if not whole:
        return []
    largest = sorted(sums, key=sums.__getitem__, reverse=True)
    return [(name, sums[name] / whole) for name in largest]


def _likely_verdict(drawn: Roofline) -> list[str]:
    if drawn.points or not drawn.without_work:
        return []
    likely = _shares((point.likely, point.time_s) for point in drawn.without_work)
    longest = drawn.without_work[0]
    name = shorten(longest.label)
    time = show_ms(longest.time_s * 1e3, 3)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in likely[:3])
    return [
        f"No bound was measured. The longest row, {name}, takes {time}; its likely bound: "
        f"{longest.likely}. Of all time without known work: {shares}."
    ]


def _products(precisions: Sequence[str]) -> str:
    """The precisions of a point's products: the first, with a plus where there are more; a dash for
    none by name.
    """
    named = [precision for precision in precisions if precision != UNKNOWN]
    if not named:
        return "-"
    return f"{named[0]}+" if len(precisions) > 1 else named[0]


def notes(drawn: Roofline) -> list[str]:
    """Notes that explain the numbers: sources of FLOPs and bytes, and kernels without a point."""
    points, without_work = drawn.points, drawn.without_work
    sentences = ["No kernel has known work."]
    if points:
        flops = " and ".join(dict.fromkeys(point.flops_source for point in points))
        sentences = [f"FLOPs: {flops}."]
    if any(level.source == COMPULSORY for point in points for level in point.levels):
        sentences.append(
            "* compulsory bytes (each operand moved once): a lower bound, compared with the DRAM "
            "roof."
        )
    if any(point.exceeded_roofs for point in points):
        sentences.append(ABOVE_ROOF_NOTE)
    if any(UNKNOWN in point.precisions for point in points):
        sentences.append(
            "In: precision by the kernel's name, + for more than one; - where it says none: "
            "the roof of the recording's."
        )
    if any(point.bound != "unknown" for point in points):
        sentences.append("Bound: the roof of which it reaches at least half; else neither.")
    if drawn.roofs and all(roof.level != "compute" for roof in drawn.roofs):
        sentences.append(
            "No compute roof is known for the precision of this recording: "
            "`curvescope bench ceilings` measures it."
        )
    whole = sum(point.time_s for point in points) + drawn.time_without_work_s
    if drawn.time_without_work_s > 0 and whole > 0:
        share = f"{drawn.time_without_work_s / whole:.0%}"
        sentences.append(f"Kernels with unknown work take {share} of the time and have no point.")
    if without_work:
        likely = {point.likely for point in without_work}
        meanings = [f"{name}: {meaning}" for name, meaning in _LIKELY.items() if name in likely]
        listed = "; ".join(meanings)
        sentences.append(f"Likely bound: guessed, not measured. {listed}.")
    if any(point.waves is not None for point in without_work):
        sentences.append("Waves and occupancy are those of the row's longest kernel.")
    if without_work and not points:
        sentences.append(
            "To measure bounds, count FLOPs and bytes: `curvescope record --with ncu -o runs/ncu "
            "-- COMMAND`, then `curvescope roofline runs/ncu`; or record with PyTorch's profiler "
            "and record_shapes=True."
        )
    if drawn.n_steps is None:
        sentences.append("This profile has no steps: times are totals of all its kernels.")
    return sentences


@dataclass(frozen=True, kw_only=True)
class RooflineDocument(Roofline):
    """Points under the roofs of the device: `roofline`.

    The older pair `format` and `version` stays.
    """

    format: str = "curvescope roofline"  # `curvescope roofline`
    version: int = 1  # version of this document before all documents had one
    device: str | None  # name of the device; null if unknown
