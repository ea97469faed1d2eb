"""The batch padded to a multiple of 8, 16 or 32: a cost of sizes that kernels handle badly goes away.

A last wave of blocks that is nearly empty stays so: see `filled_wave`.
"""

from __future__ import annotations

from typing import Any

from ...profiling.recording.axis import BATCH
from ..changed_steps import ChangedSteps
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.batch_extents import pad_batch, reason_against_other_batch
from ..replay.recorded_call import CannotReplay
from ..replay.runnable import Runnable

# Blocked kernels of CPUs take 8 or 16 fp32 lanes (AVX2, AVX-512), tensor cores of GPUs sizes of 8 in 16 bits, and
# tiles of products are 16 or 32 rows at least.
_MULTIPLES = (8, 16, 32)
_NOTHING_TO_PAD = f"every batch size is a multiple of {_MULTIPLES[-1]}"


def multiple_of(batches: tuple[int, ...]) -> int | None:
    """The multiple to pad to: the smallest of 8, 16 and 32 that some batch size is not one of; else None."""
    return next(
        (multiple for multiple in _MULTIPLES if any(batch % multiple for batch in batches)), None
    )


def _pad(runnable: Runnable, batches: tuple[int, ...]) -> Runnable:
    call, multiple = runnable.call, multiple_of(batches)
    assert call.batch is not None
    if multiple is None:
        raise CannotReplay(_NOTHING_TO_PAD)
    padded = -(-call.batch // multiple) * multiple
    if padded == call.batch:
        return runnable
    return runnable.with_arguments(
        tuple(pad_batch(runnable.arguments, call, runnable.family.at(padded)))
    )


class _PaddedSteps(ChangedSteps):
    """Steps of the next multiple; their time counts for the smaller batch."""

    def __init__(self, workload: Any, multiple: int) -> None:
        super().__init__(workload)
        self._multiple = multiple

    def load(self, batch: int) -> None:
        super().load(-(-batch // self._multiple) * self._multiple)


def _reason_against(target: Target) -> str | None:
    if target.configuration.axis != BATCH:
        return f"the axis is {target.configuration.axis}, and only a batch is padded"
    return _NOTHING_TO_PAD if multiple_of(target.batches) is None else None


FACTOR = Factor(
    name="padded_batch",
    what="the batch is padded to the next multiple of 8, 16 or 32",
    remedy="pad the batch of {where} to the next multiple of 8, 16 or 32",
    term=TermChange(
        how="torch.nn.functional.pad(x, (0, 0, 0, extra)) before the layer and output[:batch] after it, or choose such "
        "a batch size",
        reason_against=reason_against_other_batch,
        call=_pad,
    ),
    step=StepChange(
        how="append samples, and leave them out of the loss",
        screen=9,
        reason_against=_reason_against,
        changed_results=lambda _: (
            "the samples that pad the batch belong to the result, unless the step leaves them out of its loss"
        ),
        change=lambda workload, target: _PaddedSteps(workload, multiple_of(target.batches) or 1),
    ),
    levels=True,
    partial=True,
    any_framework=True,
)
