"""The batch in two halves, one after the other: a cost of large working sets or of a slow size goes away.

Networks by name add the gradients of both halves and update the parameters once, so they compute the same, but for
layers that mix samples (batch normalisation). A user's step cannot be opened: it runs twice, with half of the batch
each. Then the time has two updates of the parameters, and the measured gain is less than that of adding gradients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...base.torch_runtime import import_torch
from ...profiling.recording.axis import BATCH
from ..changed_steps import ChangedSteps
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.batch_extents import reason_against_other_batch, slice_batch
from ..replay.rebuild import bind
from ..replay.results import besides, changed_operands, results_of
from ..replay.runnable import Runnable


def _split(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    """Two calls on views of the operands, then one that joins their results; a batch of one stays whole."""
    call, family = runnable.call, runnable.family
    assert call.batch is not None
    if call.batch < 2:
        return runnable
    first, second = (family.at(half) for half in (call.batch - call.batch // 2, call.batch // 2))
    halves = (
        bind(runnable.overload, slice_batch(runnable.arguments, call, first, None)),
        bind(runnable.overload, slice_batch(runnable.arguments, call, second, first)),
    )
    returned, written = (
        results_of(runnable.run()),
        changed_operands(runnable.overload, runnable.arguments),
    )
    if written and not besides(returned, written):
        return replace(runnable, run=lambda: [half() for half in halves])
    shapes = [None if one is None else tuple(one.shape) for one in returned]

    def run() -> list[Any]:
        parts = (results_of(half()) for half in halves)
        return [_join(shape, *pair) for shape, *pair in zip(shapes, *parts, strict=True)]

    return replace(runnable, run=run)


def _join(shape: tuple[int, ...] | None, first: Any, second: Any) -> Any:
    """Results of both halves as one: concatenated along the extent that follows the batch, or else added."""
    if shape is None:
        return None
    for dimension, extents in enumerate(zip(shape, first.shape, second.shape, strict=True)):
        if extents[0] != extents[1]:
            return import_torch().cat((first, second), dimension)
    return first + second


class _TwoSteps(ChangedSteps):
    """Two steps of half the batch; an odd batch size is divided into n and n + 1, and 1 stays whole."""

    def load(self, batch: int) -> None:
        self._halves = [half for half in (batch // 2, batch - batch // 2) if half]
        super().load(self._halves[0])

    def time_step(self) -> tuple[int, int]:
        timed = []
        for half in self._halves:
            super().load(half)  # not timed, and without effect for equal halves
            timed.append(super().time_step())
        return timed[0][0], sum(duration_ns for _, duration_ns in timed)


def _reason_against(target: Target) -> str | None:
    if target.configuration.axis != BATCH:
        return f"the axis is {target.configuration.axis}, and only a batch has halves"
    return "a batch of one sample has no halves" if max(target.batches) < 2 else None


def _changed_results(target: Target) -> str | None:
    if target.configuration.step is None:
        return None
    return "two steps of half the batch ran; in training, add the gradients of both and update once"


def _change(workload: Any, target: Target) -> Any:
    if target.configuration.step is not None:
        return _TwoSteps(workload)
    innermost = workload
    while isinstance(innermost, ChangedSteps):  # another change came before
        innermost = innermost.workload
    innermost.halved = True
    return workload


FACTOR = Factor(
    name="split_batch",
    what="the batch runs in two halves, one after the other",
    remedy="run {where} on the two halves of the batch, one after the other",
    term=TermChange(
        how="torch.cat([layer(half) for half in x.chunk(2)])",
        screen=7,
        reason_against=reason_against_other_batch,
        call=_split,
    ),
    step=StepChange(
        how="divide the batch with torch.chunk; in training add the gradients of both halves before the update",
        screen=7,
        reason_against=_reason_against,
        changed_results=_changed_results,
        change=_change,
    ),
    levels=True,
    any_framework=True,
)
