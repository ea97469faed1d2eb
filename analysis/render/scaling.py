"""Scaling as text for a terminal of 80 columns."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, signed
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
from .words import interval, share

_COLUMNS = 6  # numbers of devices that fit beside each other
_SHOWN_LAYERS = 3


def render_series(series: Series, everything: bool = False) -> RenderableType:
    """The table of devices, the split of the loss, and the rank that the others wait for.

    `everything` splits the loss at every number of devices, not only at the largest, with every
    layer.
    """
    first = series.points[0]
    batch = (
        f"batch {first.batch_per_device} {'on each device' if series.kind == 'weak' else 'in all'}"
    )
    blocks: list[RenderableType] = [
        Text(f"{series.kind.capitalize()} scaling, {batch}", "bold"),
        _devices(series),
    ]
    split = [point for point in series.points if point.loss is not None]
    if split:
        blocks += [Text(), _losses(split)]
    for point in split if everything else split[-1:]:
        assert point.loss is not None
        blocks += [Text(), _loss(point, point.loss, everything)]
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
    kind, devices = series.kind.capitalize(), last.devices
    sentence = (
        f"{kind} scaling: {devices} devices are {number(last.speedup.value, 3)} times as fast as "
        f"one, at {last.efficiency.value:.0%} efficiency"
    )
    lost = (
        []
        if last.loss is None
        else [term for term in last.loss.shares if term.real and term.ms.value > 0]
    )
    if lost:
        most = max(lost, key=lambda term: term.ms.value)
        sentence += f"; they lose most to {most.kind}, "
        sentence += f"{share(most.ms.value, last.step_ms.value)} of a step"
    return f"{sentence}."


def _devices(series: Series) -> RenderableType:
    rows = table(
        "devices",
        "batch",
        "samples/s",
        "±",
        "speed-up",
        "efficiency",
        "95 % interval",
        "n",
        first="right",
    )
    for point in series.points:
        alone = point.devices == 1
        rows.add_row(
            str(point.devices)
            if point.nodes in (None, 1)
            else f"{point.nodes} nodes: {point.devices}",
            str(point.batch_per_device),
            number(point.samples_per_s.value),
            _half_width(point.samples_per_s),
            "1" if alone else number(point.speedup.value, 3),
            "1" if alone else number(point.efficiency.value, 3),
            "" if alone else interval(point.efficiency, 2),
            str(point.n),
        )
    return Group(rows, *(Text(note, "dim") for note in _notes(series)))


def _half_width(estimate: Estimate) -> str:
    half = (estimate.high - estimate.low) / 2 / estimate.value
    return f"{half:.0%}" if math.isfinite(half) and half < 1 else "wide"


def _notes(series: Series) -> list[str]:
    points = series.points
    rounds = {point.rounds for point in points}
    in_rounds = f"{'/'.join(map(str, sorted(rounds)))} {'round' if rounds == {1} else 'rounds'}"
    notes = [f"n timed steps in {in_rounds}; batch is each device's."]
    devices = ", ".join(str(point.devices) for point in points)
    discarded = ", ".join(str(point.discarded_steps) for point in points)
    word = "device" if devices == "1" else "devices"
    notes.append(f"Discarded steps on {devices} {word}: {discarded} (all batch sizes).")
    if any(point.incomplete_steps for point in points):
        left = ", ".join(str(point.incomplete_steps) for point in points)
        notes.append(f"Steps excluded because some rank did not finish its visit: {left}.")
    if unmatched := sum(point.unmatched_steps for point in points):
        steps = counted(unmatched, "profiled step")
        notes.append(
            f"{steps} with collectives that some ranks lack: their waiting time is unknown."
        )
    return notes


def _losses(points: list[ScaledPoint]) -> RenderableType:
    """Lost efficiency by kind, a column per number of devices; with the efficiency each column adds
    up to 100 %.
    """
    shown = points[-_COLUMNS:]
    rows = table("efficiency lost to", *(str(point.devices) for point in shown))
    shares: list[list[float]] = []
    for kind in LOSS_KINDS:
        of_points = [_share_of(point, kind) for point in shown]
        if any(of_point is not None for of_point in of_points):
            shares.append(
                [
                    0.0 if p is None else p.ms.value / q.step_ms.value
                    for p, q in zip(of_points, shown, strict=True)
                ]
            )
            cells = [
                Text(f"{value:+.1%} *", "")
                if point is not None and point.real
                else Text(f"{value:+.1%}  ", "dim")
                for point, value in zip(of_points, shares[-1], strict=True)
            ]
            rows.add_row(kind, *cells)
    rows.add_section()
    rows.add_row(
        "efficiency", *(f"{1 - math.fsum(column):.1%}" for column in zip(*shares, strict=True))
    )
    return Group(rows, Text("Share of the step's time; * significant.", "dim"))


def _share_of(point: ScaledPoint, kind: str) -> LossShare | None:
    return (
        None
        if point.loss is None
        else next((term for term in point.loss.shares if term.kind == kind), None)
    )


def _loss(point: ScaledPoint, loss: EfficiencyLoss, everything: bool) -> RenderableType:
    title = (
        f"{point.devices} devices lose {number(loss.ms.value, 3)} ms per step ({interval(loss.ms)})"
    )
    rows = table("term", "ms", "of the step", "95 % interval")
    for term in loss.shares:
        rows.add_row(*_row(term.kind, term, point.step_ms.value))
        if term.kind == SLOWER_KERNELS:
            significant = [kernel for kernel in loss.kernels if kernel.real]
            for kernel in loss.kernels if everything else significant[:_SHOWN_LAYERS]:
                rows.add_row(*_row("  " + kernel.label, kernel, point.step_ms.value))
    total = math.fsum(term.ms.value for term in loss.shares)
    rows.add_section()
    rows.add_row("lost", signed(total), share(total, point.step_ms.value), "")
    marks = Text("* significant (Holm correction over the terms of its list).", "dim")
    return Group(Text(title, "bold"), Indented(rows, marks, *_late(loss)))


def _row(label: str, term: LossShare, step_ms: float) -> tuple[Text, ...]:
    style = "" if term.real else "dim"
    cells = (signed(term.ms.value), share(term.ms.value, step_ms), interval(term.ms))
    return Text(label + (" *" if term.real else ""), style), *(Text(cell, style) for cell in cells)


def _late(loss: EfficiencyLoss) -> list[RenderableType]:
    late = loss.late
    longer = [term for term in late.shares if term.real and term.ms.value > 0][:_SHOWN_LAYERS]
    if not any(term.real for term in loss.shares if term.kind == IMBALANCE) and not longer:
        return []
    node = "" if late.node is None else f" on node {late.node}"
    text = (
        f"The ranks wait for rank {late.rank}{node}, which waits "
        f"{number(late.waits_less_ms.value, 3)} ms less than the others and is the last in "
        f"{late.latest_in} of {late.profiled_steps} profiled steps."
    )
    if longer:
        listed = "; ".join(
            f"{term.label} {signed(term.ms.value)} ms ({interval(term.ms)})" for term in longer
        )
        text += f" Longer there than on the others: {listed}."
    else:
        text += " No term is significantly longer there."
    return [Text(text)]
