"""A call on a slice of its batch, or on a larger one: tensors narrowed or padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...profiling.recording.operators import Argument, TensorArgument, TensorList, Value
from .operator_kinds import follows_batch
from .recorded_call import CallFamily, CannotReplay, RecordedCall
from .values import storage_elements


def reason_against_other_batch(family: CallFamily) -> str | None:
    """The reason why a call cannot run on another batch; None if it can."""
    if len(family.calls) < 2:
        return "one batch size alone does not show which extents follow it"
    return None if follows_batch(family) else "no operand depends on the batch size"


def slice_batch(
    arguments: Sequence[Any], call: RecordedCall, part: RecordedCall, skipped: RecordedCall | None
) -> list[Any]:
    """The arguments of a call on consecutive samples, as views of those on all; `skipped` is on the
    samples before.
    """

    def view(
        tensor: Any, whole: TensorArgument, wanted: TensorArgument, before: TensorArgument | None
    ) -> Any:
        differing = [
            d for d, (a, b) in enumerate(zip(whole.shape, wanted.shape, strict=True)) if a != b
        ]
        if not differing:
            return tensor
        if len(differing) > 1:
            raise CannotReplay("more than one extent of a tensor follows the batch size")
        (dimension,) = differing
        start = 0 if before is None else before.shape[dimension]
        return tensor.narrow(dimension, start, wanted.shape[dimension])

    return _map(
        arguments, call.arguments, part.arguments, skipped.arguments if skipped else None, view
    )


def pad_batch(arguments: Sequence[Any], call: RecordedCall, larger: RecordedCall) -> list[Any]:
    """The arguments of a call on more samples: the tensors, then zeros."""

    def pad(
        tensor: Any, recorded: TensorArgument, wanted: TensorArgument, _: TensorArgument | None
    ) -> Any:
        if recorded.shape == wanted.shape:
            return tensor
        padded = tensor.new_zeros(storage_elements(wanted))
        padded = (
            padded.view(wanted.shape)
            if wanted.strides is None
            else padded.as_strided(wanted.shape, wanted.strides)
        )
        inner = padded
        for dimension, extent in enumerate(recorded.shape):
            inner = inner.narrow(dimension, 0, extent)
        inner.copy_(tensor)
        return padded

    return _map(arguments, call.arguments, larger.arguments, None, pad)


def _map(
    values: Sequence[Any],
    recorded: Sequence[Argument],
    wanted: Sequence[Argument],
    before: Sequence[Argument] | None,
    change: Any,
) -> list[Any]:
    """Change every tensor; numbers become the wanted call's.

    Defaults, which no recording has, stay.
    """
    changed = list(values)
    for index, (old, new) in enumerate(zip(recorded, wanted, strict=True)):
        first = None if before is None else before[index]
        if isinstance(old, TensorArgument):
            changed[index] = change(values[index], old, new, first)
        elif isinstance(old, TensorList):
            assert isinstance(new, TensorList)
            firsts = first.tensors if isinstance(first, TensorList) else [None] * len(old.tensors)
            entries = zip(values[index], old.tensors, new.tensors, firsts, strict=True)
            changed[index] = [change(*entry) for entry in entries]
        elif isinstance(old, Value) and old != new:
            assert isinstance(new, Value)
            changed[index] = list(new.value) if isinstance(new.value, tuple) else new.value
    return changed
