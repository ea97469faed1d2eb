"""Factors of the batch: padded, in pieces, or in as many blocks as fill the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...base.torch_runtime import import_torch
from ...profiling.recording.axis import BATCH, TOKENS
from ...profiling.recording.experiments import MULTIPLES, PADDED_BATCH, choose_multiple, pad
from ...profiling.workload.steps import ChangedSteps
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.batch_extents import pad_batch, reason_against_other_batch, slice_batch
from ..replay.rebuild import bind
from ..replay.recorded_call import CallFamily, CannotReplay, RecordedCall
from ..replay.results import besides, find_changed_operands, results_of
from ..replay.runnable import Runnable

# Larger batch sizes in pieces of the size before an algorithm switch, with the operators and
# kernels of that size.


def size_before_switch(families: Sequence[CallFamily], batches: Sequence[int]) -> int | None:
    """The largest batch size before another kernel takes the most time; None without one.

    None too if the larger sizes run other operators: pieces would leave their work out. A kernel
    is another one if it, or the one before, runs at one of the two batch sizes only. Where both run
    at both, one of them just takes longer. Batch sizes that were not recorded are passed over.
    """
    before: int | None = None
    main_before, ran_before = "", set[str]()
    for batch in batches:
        calls = [family.calls[batch] for family in families if batch in family.calls]
        if not calls:
            continue
        longest = max(calls, key=lambda call: (call.duration_ns or 0, call.calls))
        main = _kernels(longest)[0]
        ran = set[str]().union(*map(_kernels, calls))
        switched = main not in ran_before or main_before not in ran
        if before is not None and switched:
            return before if all(map(_differs_in_batch_only, families)) else None
        before, main_before, ran_before = batch, main, ran
    return None


def _differs_in_batch_only(family: CallFamily) -> bool:
    """Whether a call runs as often, in shapes that follow the batch size, at every size."""
    follow = all(rule is not None for path, rule in family.rules.items() if "shape" in path)
    return follow and not family.missing and len({c.calls for c in family.calls.values()}) == 1


def _kernels(call: RecordedCall) -> tuple[str, ...]:
    return call.kernels or (call.op,)


BEFORE_SWITCH = Factor(
    name="before_switch",
    what="larger sizes run in pieces of the size before the switch, with its algorithm",
    remedy="run {where} in pieces that are no larger than the last size before the switch",
    term=TermChange(
        how="torch.cat([layer(piece) for piece in x.split(SIZE)])",
        piece=size_before_switch,
        same_work=True,
    ),
    levels=True,
)


# The size padded to a multiple of 8, 16 or 32: a cost of sizes that kernels handle badly goes away.
#
# A last wave of blocks that is nearly empty stays so: see `filled_wave`.

_NOTHING_TO_PAD = f"every size is a multiple of {MULTIPLES[-1]}"


def _pad(runnable: Runnable, batches: tuple[int, ...]) -> Runnable:
    call, multiple = runnable.call, choose_multiple(batches)
    assert call.batch is not None
    if multiple is None:
        raise CannotReplay(_NOTHING_TO_PAD)
    size = pad(call.batch, multiple)
    if size == call.batch:
        return runnable
    larger = runnable.family.at(size)
    return runnable.with_arguments(tuple(pad_batch(runnable.arguments, call, larger)))


class _PaddedSteps(ChangedSteps):
    """Steps of the next multiple; their time counts for the smaller size."""

    def __init__(self, workload: Any, multiple: int) -> None:
        super().__init__(workload)
        self._multiple = multiple

    def load(self, batch: int) -> None:
        super().load(pad(batch, self._multiple))


def _reason_against_padding(target: Target) -> str | None:
    if target.configuration.axis not in (BATCH, TOKENS):
        return f"an axis of {target.configuration.axis} is not padded"
    return _NOTHING_TO_PAD if choose_multiple(target.batches) is None else None


PADDED_SIZE = Factor(
    name=PADDED_BATCH,
    what="sizes are padded to the next multiple of 8, 16 or 32",
    remedy="pad the sizes of {where} to the next multiple of 8, 16 or 32",
    term=TermChange(
        how="torch.nn.functional.pad(x, (0, 0, 0, extra)) before the layer and output[:size] "
        "after it, or choose such a size",
        reason_against=reason_against_other_batch,
        call=_pad,
    ),
    step=StepChange(
        how="append samples, or tokens that attention masks, and leave them out of the loss",
        screen=9,
        reason_against=_reason_against_padding,
        changed_results=lambda _: (
            "what pads a size belongs to the result, unless the step leaves it out of its loss"
        ),
        change=lambda workload, target: _PaddedSteps(
            workload, choose_multiple(target.batches) or 1
        ),
    ),
    levels=True,
    partial=True,
    any_framework=True,
)


# The batch in two halves, one after the other: a cost of large working sets or of a slow size goes
# away.
#
# Networks by name add the gradients of both halves and update the parameters once, so they compute
# the same, but for layers that mix samples (batch normalisation). A user's step cannot be opened:
# it runs twice, with half of the batch each. Then the time has two updates of the parameters, and
# the measured gain is less than that of adding gradients.


def _split(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    """Two calls on views of the operands, then one that joins their results; a batch of one stays
    whole.
    """
    call, family = runnable.call, runnable.family
    assert call.batch is not None
    if call.batch < 2:
        return runnable
    arguments, smaller_half = runnable.arguments, call.batch // 2
    first, second = family.at(call.batch - smaller_half), family.at(smaller_half)
    slices = (
        slice_batch(arguments, call, first, None),
        slice_batch(arguments, call, second, first),
    )
    halves = [bind(runnable.overload, half) for half in slices]
    returned = results_of(runnable.run())
    written = find_changed_operands(runnable.overload, arguments)
    if written and not besides(returned, written):
        return replace(runnable, run=lambda: [half() for half in halves])
    shapes = [None if result is None else tuple(result.shape) for result in returned]

    def run() -> list[Any]:
        parts = (results_of(half()) for half in halves)
        return [_join(shape, *pair) for shape, *pair in zip(shapes, *parts, strict=True)]

    return replace(runnable, run=run)


def _join(shape: tuple[int, ...] | None, first: Any, second: Any) -> Any:
    """Results of both halves as one: concatenated along the extent that follows the batch, or else
    added.
    """
    if shape is None:
        return None
    for dimension, (whole, half, _) in enumerate(
        zip(shape, first.shape, second.shape, strict=True)
    ):
        if whole != half:
            return import_torch().cat((first, second), dimension)
    return first + second


class _TwoSteps(ChangedSteps):
    """Two steps of half the batch; an odd size is divided into n and n + 1, and 1 stays whole."""

    def load(self, batch: int) -> None:
        half = batch // 2
        self._halves = [half, batch - half] if half else [batch]
        super().load(self._halves[0])

    def time_step(self) -> tuple[int, int]:
        times = []
        for half in self._halves:
            super().load(half)  # not timed, and without effect for equal halves
            times.append(super().time_step())
        start_ns, _ = times[0]
        return start_ns, sum(duration_ns for _, duration_ns in times)


def _reason_against_split_batch(target: Target) -> str | None:
    if target.configuration.axis != BATCH:
        return f"the axis is {target.configuration.axis}, and only a batch has halves"
    return "a batch of one sample has no halves" if max(target.batches) < 2 else None


def _describe_results(target: Target) -> str | None:
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


SPLIT_BATCH = Factor(
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
        how="divide the batch with torch.chunk; in training add the gradients of both halves "
        "before the update",
        screen=7,
        reason_against=_reason_against_split_batch,
        changed_results=_describe_results,
        change=_change,
    ),
    levels=True,
    any_framework=True,
)


# What the empty part of the last wave of blocks, or of the last block of samples, costs, by batch
# sizes that fill it and that begin the next one.
#
# Nothing but the batch size changes: the further sizes run among the unmodified ones, see `Wave`.

FILLED_WAVE = Factor(
    name="filled_wave",
    what="the last wave of blocks, or block of samples, is full",
    term=TermChange(screen=9, same_work=True),
    by_size=True,
)
