"""Scaling as text for a terminal of 80 columns, and as JSON documents."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, signed
from ..decompose.statistics import Estimate
from ..decompose.terms import COMMUNICATION, IDLE, KERNELS, LEFT_OVER, OVERHEAD, Key, Share, total_ms
from ..ranks.parts import INPUT, WAITING
from ..scaling import LOSS_KINDS, SMALLER_BATCH, Lateness, Loss, ScaledPoint, Series
from .documents import estimate_document
from .tables import Indented, table
from .text import interval, share

_LABELS = {
    COMMUNICATION: "communication",
    WAITING: "load imbalance",
    KERNELS: "slower kernels",
    INPUT: "input",
    IDLE: IDLE,
    SMALLER_BATCH: SMALLER_BATCH,
    LEFT_OVER: LEFT_OVER,
    OVERHEAD: OVERHEAD,
}
_COLUMNS = 6  # numbers of devices that fit beside each other
_SHOWN_LAYERS = 3


def render_series(series: Series, everything: bool = False) -> RenderableType:
    """The table of devices, the split of the loss, and the rank that the others wait for.

    Args:
        series: weak or strong scaling.
        everything: whether to split the loss at every number of devices, not only the largest, with every layer.
    """
    first = series.points[0].point
    batch = f"batch {first.batch} on each device" if series.kind == "weak" else f"batch {first.batch} in all"
    blocks: list[RenderableType] = [Text(f"{series.kind.capitalize()} scaling, {batch}", "bold"), _devices(series)]
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
    """How much faster the most devices are, and what they lose most to; None if only one device was measured."""
    last = series.points[-1]
    if last.point.devices == 1:
        return None
    kind, devices = series.kind.capitalize(), last.point.devices
    sentence = (
        f"{kind} scaling: {devices} devices are {number(last.speedup.value, 3)} times as fast as one, at "
        f"{last.efficiency.value:.0%} efficiency"
    )
    lost = [] if last.loss is None else [one for one in last.loss.shares if one.real and one.value.value > 0]
    if lost:
        most = max(lost, key=lambda one: one.value.value)
        sentence += f"; they lose most to {_LABELS[most.key.kind]}, "
        sentence += f"{share(most.value.value, last.time_ms.value)} of a step"
    return f"{sentence}."


def _devices(series: Series) -> RenderableType:
    rows = table("devices", "batch", "samples/s", "±", "speed-up", "efficiency", "95 % interval", "n", first="right")
    for point in series.points:
        alone = point.point.devices == 1
        rows.add_row(
            _device_count(point),
            str(point.point.batch),
            number(point.throughput_per_s.value),
            _half_width(point.throughput_per_s),
            "1" if alone else number(point.speedup.value, 3),
            "1" if alone else number(point.efficiency.value, 3),
            "" if alone else interval(point.efficiency, 2),
            str(point.n),
        )
    return Group(rows, *(Text(note, "dim") for note in _notes(series)))


def _device_count(point: ScaledPoint) -> str:
    devices, nodes = point.point.devices, point.nodes
    return str(devices) if nodes in (None, 1) else f"{nodes} nodes: {devices}"


def _half_width(estimate: Estimate) -> str:
    half = (estimate.high - estimate.low) / 2 / estimate.value
    return f"{half:.0%}" if math.isfinite(half) and half < 1 else "wide"


def _notes(series: Series) -> list[str]:
    points = series.points
    rounds = {point.rounds for point in points}
    in_rounds = f"{'/'.join(map(str, sorted(rounds)))} {'round' if rounds == {1} else 'rounds'}"
    notes = [f"n timed steps in {in_rounds}; batch is each device's."]
    devices, discarded = (
        ", ".join(str(number) for number in column)
        for column in zip(*((point.point.devices, point.discarded) for point in points), strict=True)
    )
    notes.append(
        f"Discarded steps on {devices} {'device' if devices == '1' else 'devices'}: {discarded} (all batch sizes)."
    )
    if any(point.incomplete for point in points):
        left = ", ".join(str(point.incomplete) for point in points)
        notes.append(f"Steps excluded because some rank did not finish its visit: {left}.")
    if error_ns := max(point.clock_error_ns for point in points):
        notes.append(f"The clocks of the nodes are aligned to ±{number(error_ns / 1e3, 2)} µs.")
    if unmatched := sum(point.unmatched for point in points):
        notes.append(
            f"{counted(unmatched, 'profiled step')} with collectives that some ranks lack: "
            "their waiting time is unknown."
        )
    return notes


def _losses(points: list[ScaledPoint]) -> RenderableType:
    """Lost efficiency by kind, a column per number of devices; with the efficiency each column adds up to 100 %."""
    shown = points[-_COLUMNS:]
    rows = table("efficiency lost to", *(str(point.point.devices) for point in shown))
    shares: list[list[float]] = []
    for kind in LOSS_KINDS:
        of_points = [_share_of(point, kind) for point in shown]
        if any(one is not None for one in of_points):
            shares.append(
                [0.0 if p is None else p.value.value / q.time_ms.value for p, q in zip(of_points, shown, strict=True)]
            )
            cells = [
                Text(f"{value:+.1%} *", "") if one is not None and one.real else Text(f"{value:+.1%}  ", "dim")
                for one, value in zip(of_points, shares[-1], strict=True)
            ]
            rows.add_row(_LABELS[kind], *cells)
    rows.add_section()
    rows.add_row("efficiency", *(f"{1 - math.fsum(column):.1%}" for column in zip(*shares, strict=True)))
    return Group(rows, Text("Share of the step's time; * significant.", "dim"))


def _share_of(point: ScaledPoint, kind: str) -> Share | None:
    return None if point.loss is None else next((one for one in point.loss.shares if one.key.kind == kind), None)


def _loss(point: ScaledPoint, loss: Loss, everything: bool) -> RenderableType:
    title = f"{point.point.devices} devices lose {number(loss.value.value, 3)} ms per step ({interval(loss.value)})"
    rows = table("term", "ms", "of the step", "95 % interval")
    for term in loss.shares:
        rows.add_row(*_row(_LABELS[term.key.kind], term, point.time_ms.value))
        if term.key.kind == KERNELS:
            significant = [one for one in loss.kernels if one.real]
            for one in loss.kernels if everything else significant[:_SHOWN_LAYERS]:
                rows.add_row(*_row("  " + _where(one), one, point.time_ms.value))
    total = total_ms(loss.shares)
    rows.add_section()
    rows.add_row("lost", signed(total), share(total, point.time_ms.value), "")
    marks = Text("* significant (Holm correction over the terms of its list).", "dim")
    return Group(Text(title, "bold"), Indented(rows, marks, *_late(loss)))


def _row(label: str, one: Share, step_ms: float) -> tuple[Text, ...]:
    style = "" if one.real else "dim"
    cells = (signed(one.value.value), share(one.value.value, step_ms), interval(one.value))
    return Text(label + (" *" if one.real else ""), style), *(Text(cell, style) for cell in cells)


def _where(one: Share) -> str:
    return one.label if one.key.kind == KERNELS else _LABELS[one.key.kind]


def _late(loss: Loss) -> list[RenderableType]:
    late = loss.late
    longer = [one for one in late.shares if one.real and one.value.value > 0][:_SHOWN_LAYERS]
    if not loss_of(loss, WAITING).real and not longer:
        return []
    node = "" if late.node is None else f" on node {late.node}"
    text = (
        f"The ranks wait for rank {late.rank}{node}, which waits {number(late.waited_ms.value, 3)} ms less than the "
        f"others and is the last in {late.latest_in} of {late.steps} profiled steps."
    )
    if longer:
        listed = "; ".join(f"{_where(one)} {signed(one.value.value)} ms ({interval(one.value)})" for one in longer)
        text += f" Longer there than on the others: {listed}."
    else:
        text += " No term is significantly longer there."
    return [Text(text)]


def loss_of(loss: Loss, kind: str) -> Share:
    """The share of that kind; 0 if no rank has any."""
    absent = Share(Key(None, None, kind), Estimate(0.0, 0.0, 0.0, 1.0))
    return next((one for one in loss.shares if one.key.kind == kind), absent)


def series_document(series: Series) -> dict[str, Any]:
    """A series for JSON; unknown ends of an interval are None."""
    return {"kind": series.kind, "points": [_point_document(point) for point in series.points]}


def _point_document(point: ScaledPoint) -> dict[str, Any]:
    return {
        "devices": point.point.devices,
        "nodes": point.nodes,
        "batch_per_device": point.point.batch,
        "step_ms": estimate_document(point.time_ms),
        "samples_per_s": estimate_document(point.throughput_per_s),
        "speedup": estimate_document(point.speedup),
        "efficiency": estimate_document(point.efficiency),
        "n": point.n,
        "rounds": point.rounds,
        "spread": point.spread,
        "discarded_steps": point.discarded,
        "incomplete_steps": point.incomplete,
        "unmatched_steps": point.unmatched,
        "clock_error_ns": point.clock_error_ns,
        "loss": None if point.loss is None else _loss_document(point.loss),
    }


def _loss_document(loss: Loss) -> dict[str, Any]:
    return {
        "ms": estimate_document(loss.value),
        "shares": [_share_document(one) for one in loss.shares],
        "kernels": [_share_document(one) for one in loss.kernels],
        "late": _late_document(loss.late),
    }


def _share_document(one: Share) -> dict[str, Any]:
    key, ms = one.key, estimate_document(one.value)
    return {"kind": _LABELS[key.kind], "layer": key.layer, "phase": key.phase, "ms": ms, "real": one.real}


def _late_document(late: Lateness) -> dict[str, Any]:
    return {
        "rank": late.rank,
        "node": late.node,
        "waits_less_ms": estimate_document(late.waited_ms),
        "latest_in": late.latest_in,
        "profiled_steps": late.steps,
        "shares": [_share_document(one) for one in late.shares],
    }
