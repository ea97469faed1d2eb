"""A roofline as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...profiling.attribution.kernel_precision import UNKNOWN
from ..roofline import COMPULSORY, NEITHER, UNKNOWN_BOUND, Roofline
from .numbers import number, quantity
from .tables import table
from .text import ABOVE_ROOF_NOTE, hidden_note, rate, shortened

_BOUNDS = {"memory": "bound by memory", "compute": "bound by compute", NEITHER: "bound by neither"}


def render_roofline(drawn: Roofline, limit: int | None = 25) -> RenderableType:
    """Roofs, then points, the longest first."""
    blocks: list[RenderableType] = [block for one in verdicts(drawn) for block in (Text(one, "bold"), Text())]
    if drawn.roofs:
        roofs = table("roof", "limit", "", "source", left=("",), words=("source",))
        for roof in drawn.roofs:
            named = f"{roof.level} ({roof.precision})" if roof.precision else roof.level
            limit_text = quantity(roof.per_s, "FLOP/s" if roof.level == "compute" else "B/s", 4)
            roofs.add_row(named, limit_text, roof.kind, Text(roof.source))
        blocks += [roofs, Text()]
    else:
        note = "No peak of this device is known and no ceiling was measured: there is no roof, and bounds are unknown."
        blocks += [Text(note, "yellow"), Text()]
    optional = ("GFLOP/s", "GB/s") if drawn.roofs else ("GB/s", "of roof", "bound")
    rows = table(drawn.by, "in", "ms", "GFLOP/s", "level", "FLOP/B", "GB/s", "of roof", "bound", optional=optional)
    for point in drawn.points[:limit]:
        for index, level in enumerate(point.levels or (None,)):
            rows.add_row(
                "" if index else point.label,
                "" if index else _products(point.precisions),
                "" if index else number(point.time_s * 1e3),
                "" if index else rate(point.flops_per_s, "compute" in point.exceeded_roofs),
                "" if level is None else level.level + ("*" if level.source == COMPULSORY else ""),
                "" if level is None else number(level.flops_per_byte, 3),
                "" if level is None else rate(level.bytes_per_s, level.level in point.exceeded_roofs),
                "" if index or point.utilisation is None else f"{point.utilisation:.0%}",
                "" if index else point.bound,
            )
    hidden = hidden_note(len(drawn.points) - len(drawn.points[:limit]), "shorter rows")
    return Group(*blocks, rows, *hidden, *(Text(note, "dim") for note in notes(drawn)))


def verdicts(drawn: Roofline) -> list[str]:
    """What bounds most of the time, and the largest part that reaches no roof; nothing without a known bound."""
    bounds: dict[str, float] = {}
    for point in drawn.points:
        if point.bound != UNKNOWN_BOUND:
            bounds[point.bound] = bounds.get(point.bound, 0.0) + point.time_s
    if not (whole := sum(bounds.values())):
        return []
    largest_first = sorted(bounds.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{_BOUNDS.get(name, name)} {time / whole:.0%}" for name, time in largest_first)
    found = f"Of the time with a known bound: {shares}."
    far = max((p for p in drawn.points if p.bound == NEITHER), key=lambda point: point.time_s, default=None)
    if far is not None and far.utilisation is not None:
        name = shortened(far.label)
        found += f" The largest part far from both roofs is {name}: {far.utilisation:.0%} of its roof, "
        found += f"{number(far.time_s * 1e3, 3)} ms."
    return [found]


def _products(precisions: Sequence[str]) -> str:
    """The precisions of a point's products: the first, with a plus where there are more; a dash for none by name."""
    named = [precision for precision in precisions if precision != UNKNOWN]
    return "-" if not named else named[0] + ("+" if len(precisions) > 1 else "")


def notes(drawn: Roofline) -> list[str]:
    """Notes that explain the numbers: sources of FLOPs and bytes, and kernels without a point."""
    flops = Counter(point.flops_source for point in drawn.points)
    found = [f"FLOPs: {' and '.join(flops)}." if flops else "No kernel has known work."]
    if any(level.source == COMPULSORY for point in drawn.points for level in point.levels):
        found.append("* compulsory bytes (each operand moved once): a lower bound, compared with the DRAM roof.")
    if any(point.exceeded_roofs for point in drawn.points):
        found.append(ABOVE_ROOF_NOTE)
    if any(UNKNOWN in point.precisions for point in drawn.points):
        found.append(
            "In: precision by the kernel's name, + for more than one; - where it says none: "
            "the roof of the recording's."
        )
    if any(point.bound != "unknown" for point in drawn.points):
        found.append("Bound: the roof of which it reaches at least half; else neither.")
    if drawn.roofs and all(roof.level != "compute" for roof in drawn.roofs):
        found.append(
            "No compute roof is known for the precision of this recording: `curvescope bench ceilings` measures it."
        )
    whole = sum(point.time_s for point in drawn.points) + drawn.time_without_work_s
    if drawn.time_without_work_s > 0 and whole > 0:
        share = drawn.time_without_work_s / whole
        found.append(f"Kernels with unknown work take {share:.0%} of the time and have no point.")
    if drawn.n_steps is None:
        found.append("This profile has no steps: times are totals of all its kernels.")
    return found
