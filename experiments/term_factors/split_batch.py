"""The batch in two halves, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...base.torch_runtime import import_torch
from ...profiling.recording.experiments import FactorFacts
from ..replay.recorded_call import CallFamily
from ..replay.results import besides, changed_operands, results_of
from .batch_extents import reason_against_other_batch, slice_batch
from .change import Change, Runnable

FACTS = FactorFacts(
    "split_batch",
    what="the batch runs in two halves, one after the other",
    remedy="run {where} on two halves of the batch",
    how="torch.cat([layer(half) for half in x.chunk(2)])",
)


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `FactorModule`."""
    return reason_against_other_batch(family)


def _split(runnable: Runnable, batches: tuple[int, ...]) -> Runnable:  # noqa: ARG001
    """Two calls on views of the operands, then one that joins their results; a batch of one stays whole."""
    call, family = runnable.call, runnable.family
    assert call.batch is not None
    if call.batch < 2:
        return runnable
    first, second = (family.at(half) for half in (call.batch - call.batch // 2, call.batch // 2))
    halves = (
        runnable.bind(tuple(slice_batch(runnable.arguments, call, first, None))),
        runnable.bind(tuple(slice_batch(runnable.arguments, call, second, first))),
    )
    returned, written = results_of(runnable.run()), changed_operands(runnable.overload, runnable.arguments)
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


CHANGE = Change(call=_split)
