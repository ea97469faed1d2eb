"""Denormal numbers count as 0: processors take many times as long for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...profiling.collect.inject import FLUSH_VARIABLE, startup_path
from ...profiling.recording.operand_numbers import LEAST_DENORMAL
from ..factor import Factor, StepChange, Target, TermChange
from ..replay.recorded_call import CallFamily

_HOW = "torch.set_flush_denormal(True) before the first operator"


def _reason_against(family: CallFamily) -> str | None:
    if all(call.numbers.denormals < LEAST_DENORMAL for call in family.calls.values()):
        return "no denormal numbers of its operands and results are recorded"
    threads = import_torch().get_num_threads()
    return (
        None
        if threads == 1
        else f"{threads} threads run, and those that have begun keep their setting"
    )


@contextmanager
def _flushing() -> Iterator[None]:
    torch = import_torch()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _prepare(_: Target) -> None:
    """Set it before the process has further threads, which inherit it."""
    if not import_torch().set_flush_denormal(True):
        raise CurvescopeError("this processor cannot flush denormal numbers")


FACTOR = Factor(
    name="flush_denormal",
    what="denormal numbers count as 0",
    remedy="flush denormal numbers in {where}",
    refuses={"cuda": "the work runs on the GPU"},
    term=TermChange(
        how=_HOW, needs_evidence=True, reason_against=_reason_against, around=_flushing
    ),
    step=StepChange(
        how=_HOW,
        variables=lambda: {FLUSH_VARIABLE: "1", "PYTHONPATH": startup_path()},
        common=12,
        prepare=_prepare,
    ),
)
