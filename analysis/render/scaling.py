"""Scaling as text for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, with_sign
from ..decompose.statistics import Estimate
from ..scaling import (
    IMBALANCE,
    LOSS_KINDS,
    SLOWER_KERNELS,
    EfficiencyLoss,
    LossShare,
    ScaledPoint,
    Series,
)
from .tables import Indented, table
from .words import dim, interval, list_values, share

_COLUMNS = 6  # numbers of devices that fit beside each other
_SHOWN_LAYERS = 3


def render_series(series: Series, everything: bool = False) -> RenderableType:
    """The table of devices, the split of the loss, and the rank that the others wait for.

    `everything` splits the loss at every number of devices, not only at the largest, with every
    layer.
    """
    each = "on each device" if series.kind == "weak" else "in all"
    batch = f"batch {series.points[0].batch_per_device} {each}"
    title = Text(f"{series.kind.capitalize()} scaling, {batch}", "bold")
    blocks: list[RenderableType] = [title, _devices(series)]
    split = [point for point in series.points if point.loss is not None]
    if split:
        blocks += [Text(), _losses(split)]
    shown = split if everything else split[-1:]
    for point in shown:
        assert point.loss is not None
        loss = _loss(point, point.loss, everything)
        blocks += [Text(), loss]
    if not split and len(series.points) > 1:
        blocks.append(Text("No step was profiled: the causes of the loss are unknown.", "yellow"))
    return Group(*blocks)


def scaling_sentence(series: Series) -> str | None:
    """The speed-up of the most devices, and their largest loss; None if only one device was
    measured.
    """
    last = series.points[-1]
    if last.devices == 1:
        return None
    kind = series.kind.capitalize()
    times = number(last.speedup.value, 3)
    lead = f"{kind} scaling: {last.devices} devices are {times} times as fast as one"
    sentence = f"{lead}, at {last.efficiency.value:.0%} efficiency"
    lost = []
    if last.loss is not None:
        lost = _list_longer(last.loss.shares)
    if lost:
        most = max(lost, key=lambda term: term.ms.value)
        part = share(most.ms.value, last.step_ms.value)
        sentence += f"; they lose most to {most.kind}, {part} of a step"
    return f"{sentence}."


def _list_longer(terms: Iterable[LossShare]) -> list[LossShare]:
    """The terms that are significantly longer."""
    return [term for term in terms if term.real and term.ms.value > 0]


def _devices(series: Series) -> RenderableType:
    heads = ("devices", "batch", "samples/s", "±", "speed-up", "efficiency", "95 % interval", "n")
    rows = table(*heads, first="right")
    for point in series.points:
        devices = str(point.devices)
        if point.nodes not in (None, 1):
            devices = f"{point.nodes} nodes: {devices}"
        speedup, efficiency, ends = "1", "1", ""
        if point.devices > 1:
            speedup = number(point.speedup.value, 3)
            efficiency = number(point.efficiency.value, 3)
            ends = interval(point.efficiency, 2)
        rows.add_row(
            devices,
            str(point.batch_per_device),
            number(point.samples_per_s.value),
            _half_width(point.samples_per_s),
            speedup,
            efficiency,
            ends,
            str(point.n),
        )
    return Group(rows, *dim(_notes(series)))


def _half_width(estimate: Estimate) -> str:
    width = estimate.high - estimate.low
    half = width / 2 / estimate.value
    if math.isfinite(half) and half < 1:
        return f"{half:.0%}"
    return "wide"


def _notes(series: Series) -> list[str]:
    points = series.points
    rounds = sorted({point.rounds for point in points})
    word = "round" if rounds == [1] else "rounds"
    numbers = "/".join(map(str, rounds))
    notes = [f"n timed steps in {numbers} {word}; batch is each device's."]
    devices = list_values(point.devices for point in points)
    discarded = list_values(point.discarded_steps for point in points)
    word = "device" if devices == "1" else "devices"
    notes.append(f"Discarded steps on {devices} {word}: {discarded} (all batch sizes).")
    if any(point.incomplete_steps for point in points):
        left = list_values(point.incomplete_steps for point in points)
        notes.append(f"Steps excluded because some rank did not finish its visit: {left}.")
    if unmatched := sum(point.unmatched_steps for point in points):
        steps = counted(unmatched, "profiled step")
        lack = "with collectives that some ranks lack"
        notes.append(f"{steps} {lack}: their waiting time is unknown.")
    return notes


def _losses(points: list[ScaledPoint]) -> RenderableType:
    """Lost efficiency by kind, a column per number of devices; with the efficiency each column adds
    up to 100 %.
    """
    shown = points[-_COLUMNS:]
    devices = [str(point.devices) for point in shown]
    rows = table("efficiency lost to", *devices)
    lost: list[list[float]] = [[] for _ in shown]
    for kind in LOSS_KINDS:
        terms = [_share_of(point, kind) for point in shown]
        if not any(terms):
            continue
        cells = []
        for column, point, term in zip(lost, shown, terms, strict=True):
            value, cell = 0.0, Text("+0.0%  ", "dim")
            if term is not None:
                value = term.ms.value / point.step_ms.value
                cell = _share_cell(value, term.real)
            column.append(value)
            cells.append(cell)
        rows.add_row(kind, *cells)
    rows.add_section()
    left = [f"{1 - math.fsum(column):.1%}" for column in lost]
    rows.add_row("efficiency", *left)
    return Group(rows, Text("Share of the step's time; * significant.", "dim"))


def _share_cell(share: float, is_real: bool) -> Text:
    return Text(f"{share:+.1%} *") if is_real else Text(f"{share:+.1%}  ", "dim")


def _share_of(point: ScaledPoint, kind: str) -> LossShare | None:
    """The term of a kind in the loss of a point, if it has one."""
    if point.loss is None:
        return None
    for term in point.loss.shares:
        if term.kind == kind:
            return term
    return None


def _loss(point: ScaledPoint, loss: EfficiencyLoss, everything: bool) -> RenderableType:
    lost = number(loss.ms.value, 3)
    head = f"{point.devices} devices lose {lost} ms per step ({interval(loss.ms)})"
    title = Text(head, "bold")
    rows = table("term", "ms", "of the step", "95 % interval")
    step_ms = point.step_ms.value
    kernels: Sequence[LossShare] = loss.kernels
    if not everything:
        kernels = [kernel for kernel in kernels if kernel.real][:_SHOWN_LAYERS]
    for term in loss.shares:
        rows.add_row(*_row(term.kind, term, step_ms))
        if term.kind == SLOWER_KERNELS:
            for kernel in kernels:
                rows.add_row(*_row(f"  {kernel.label}", kernel, step_ms))
    total = math.fsum(term.ms.value for term in loss.shares)
    rows.add_section()
    rows.add_row("lost", with_sign(total), share(total, step_ms), "")
    marks = Text("* significant (Holm correction over the terms of its list).", "dim")
    return Group(title, Indented(rows, marks, *_late(loss)))


def _row(label: str, term: LossShare, step_ms: float) -> tuple[Text, ...]:
    style = "" if term.real else "dim"
    mark = " *" if term.real else ""
    amount = with_sign(term.ms.value)
    part = share(term.ms.value, step_ms)
    cells = (f"{label}{mark}", amount, part, interval(term.ms))
    return tuple(Text(cell, style) for cell in cells)


def _late(loss: EfficiencyLoss) -> list[RenderableType]:
    late = loss.late
    longer = _list_longer(late.shares)[:_SHOWN_LAYERS]
    waits = any(term.real for term in loss.shares if term.kind == IMBALANCE)
    if not waits and not longer:
        return []
    node = "" if late.node is None else f" on node {late.node}"
    less_ms = number(late.waits_less_ms.value, 3)
    less = f"{less_ms} ms less than the others"
    last = f"is the last in {late.latest_in} of {late.profiled_steps} profiled steps"
    text = f"The ranks wait for rank {late.rank}{node}, which waits {less} and {last}."
    if not longer:
        return [Text(f"{text} No term is significantly longer there.")]
    parts = []
    for term in longer:
        amount = with_sign(term.ms.value)
        parts.append(f"{term.label} {amount} ms ({interval(term.ms)})")
    listed = "; ".join(parts)
    return [Text(f"{text} Longer there than on the others: {listed}.")]
