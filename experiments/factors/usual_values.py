"""Operands with usual numbers instead of those of the step: an operator that is slow for some numbers gets faster."""

from __future__ import annotations

from dataclasses import replace

from ...profiling.recording.operand_numbers import LEAST_DENORMAL, CallNumbers
from ..factor import Factor, TermChange
from ..replay.rebuild import rebuild
from ..replay.recorded_call import CallFamily
from ..replay.runnable import Runnable

_FEW_DISTINCT = 0.5  # share of distinct indices that is usual, at least


def _reason_against(family: CallFamily) -> str | None:
    numbers = [call.numbers for call in family.calls.values()]
    if not any(number.operands for number in numbers):
        return "the numbers of its operands are not recorded"
    denormal = any(number.denormals >= LEAST_DENORMAL for number in numbers)
    repeated = any(
        number.distinct is not None and number.distinct < _FEW_DISTINCT for number in numbers
    )
    return (
        None
        if denormal or repeated
        else "its operands have usual numbers: next to none denormal, most indices distinct"
    )


def _usual(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    call = replace(runnable.call, numbers=CallNumbers())
    tensor = next(
        (argument for argument in runnable.arguments if hasattr(argument, "device")), None
    )
    device = "cpu" if tensor is None else str(tensor.device)
    return runnable.with_arguments(
        rebuild(call, device, seed=call.batch or 0, try_run=False).arguments
    )


FACTOR = Factor(
    name="usual_values",
    what="operands have usual numbers, and indices are random",
    term=TermChange(
        needs_evidence=True, reason_against=_reason_against, call=_usual, same_work=True
    ),
)
