"""Operands stored as the operator reads them, before it runs: no copy in every call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...profiling.recording.operators import TensorArgument
from ..factor import Factor, TermChange
from ..replay.operator_kinds import ran_kernel
from ..replay.recorded_call import CallFamily
from ..replay.runnable import Runnable


def _reason_against(family: CallFamily) -> str | None:
    if all(map(_is_contiguous, family.largest.arguments)):
        return "its operands are contiguous already"
    return None if ran_kernel(family, "copy") else "no copy of its operands is recorded"


def _is_contiguous(argument: object) -> bool:
    if not isinstance(argument, TensorArgument) or argument.strides is None:
        return True
    expected = 1
    for extent, stride in zip(reversed(argument.shape), reversed(argument.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _store(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    if runnable.call.op == "aten::bmm" and (shared := runnable.arguments[1]).stride(0) == 0:
        x = runnable.arguments[0].contiguous()
        return replace(runnable, run=partial(_product_of_rows, x, shared[0].contiguous()))
    return runnable.with_arguments(tuple(map(_stored, runnable.arguments)))


def _stored(value: Any) -> Any:
    return value.contiguous() if hasattr(value, "contiguous") else value


def _product_of_rows(x: Any, matrix: Any) -> Any:
    return (x.flatten(0, 1) @ matrix).view(*x.shape[:2], -1)


FACTOR = Factor(
    name="stored_operands",
    what="operands are stored as the operator reads them, and a shared matrix is no batch of matrices",
    remedy="store the operands of {where} contiguous",
    term=TermChange(
        how="operand = operand.contiguous() once, before the steps; for a matrix w that all samples share, "
        "(x.flatten(0, 1) @ w).view(*x.shape[:2], -1) instead of torch.bmm(x, w.expand(len(x), -1, -1))",
        needs_evidence=True,
        reason_against=_reason_against,
        call=_store,
    ),
)
