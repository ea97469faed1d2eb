"""The batch padded with zeros to the next multiple of 8, 16 or 32."""

from __future__ import annotations

from ...profiling.recording.experiments import FactorFacts
from ..replay.recorded_call import CallFamily, CannotReplay
from ..step_factors.padded_batch import MULTIPLES, multiple_of
from .batch_extents import pad_batch, reason_against_other_batch
from .change import Change, Runnable

FACTS = FactorFacts(
    "padded_batch",
    what="the batch is padded with zeros to the next multiple of 8, 16 or 32",
    remedy="pad the batch of {where} to the next multiple of 8, 16 or 32",
    how=(
        "torch.nn.functional.pad(x, (0, 0, 0, extra)) before the layer and output[:batch] after it, "
        "or choose such a batch size"
    ),
)


def reason_against(family: CallFamily, device: str) -> str | None:  # noqa: ARG001 - on any device
    """See `FactorModule`."""
    return reason_against_other_batch(family)


def _pad(runnable: Runnable, batches: tuple[int, ...]) -> Runnable:
    """The call on padded operands; they are padded before its time begins."""
    call, multiple = runnable.call, multiple_of(batches)
    assert call.batch is not None
    if multiple is None:
        raise CannotReplay(f"every batch size is a multiple of {MULTIPLES[-1]}")
    padded = -(-call.batch // multiple) * multiple
    if padded == call.batch:
        return runnable
    return runnable.with_arguments(tuple(pad_batch(runnable.arguments, call, runnable.family.at(padded))))


CHANGE = Change(call=_pad)
