"""Factors of numbers: their precision, and which values operands have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ...base.words import UNKNOWN
from ...profiling.collect.inject import FLUSH_VARIABLE, startup_path
from ...profiling.recording.operand_numbers import LEAST_DENORMAL, CallNumbers
from ..changed_steps import StepsWithin
from ..factor import ON_GPU, Factor, StepChange, Target, TermChange
from ..replay.operator_kinds import on_cuda
from ..replay.rebuild import rebuild
from ..replay.recorded_call import CallFamily
from ..replay.runnable import Runnable

# Products and convolutions in fewer bits: bf16, with half the memory traffic too, or TF32 on Ampere
# and later.

_SHORTENED = ("fp32", "tf32")  # by autocast


def _reason_against_bf16(target: Target) -> str | None:
    precision = target.configuration.precision
    if precision not in (None, *_SHORTENED):
        return f"the steps run in {precision} already"
    return _reason_of_products(target, _SHORTENED)


def _reason_of_products(target: Target, shortened: Sequence[str]) -> str | None:
    """Why no product gets shorter, where the recorded kernels of all say their precision."""
    precisions = target.precisions
    if not precisions or precisions & {*shortened, UNKNOWN}:
        return None
    return f"no recorded product computes in {' or '.join(shortened)}"


def _in_bf16(workload: Any, target: Target) -> StepsWithin:
    torch = import_torch()
    device = "cuda" if on_cuda(target.configuration.device) else "cpu"
    return StepsWithin(workload, partial(torch.autocast, device, torch.bfloat16))


def _reason_against_tf32(target: Target) -> str | None:
    precision = target.configuration.precision
    if precision not in (None, "fp32"):
        return f"the steps run in {precision}"
    return _reason_of_products(target, ("fp32",))


def _in_tf32(workload: Any, target: Target) -> Any:
    """Switch it on once the steps are built: networks by name set it from their precision."""
    torch = import_torch()
    if torch.cuda.get_device_capability(target.configuration.device)[0] < 8:
        raise CurvescopeError("this GPU has no TF32")
    if torch.backends.cuda.matmul.allow_tf32:
        raise CurvescopeError("the steps use TF32 already")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return workload


BF16_AUTOCAST = Factor(
    name="bf16_autocast",
    what="products and convolutions compute in bf16",
    remedy="run {where} in bf16 by autocast",
    step=StepChange(
        how={
            device: f'with torch.autocast("{device}", torch.bfloat16): around the forward pass and '
            "the loss"
            for device in ("cpu", "cuda")
        },
        common=4,
        reason_against=_reason_against_bf16,
        changed_results=lambda _: "products and convolutions have 8 significant bits",
        change=_in_bf16,
    ),
    is_made_in_programs=True,
)
TF32 = Factor(
    name="tf32",
    what="products of fp32 compute in TF32",
    remedy="run the products of {where} in TF32",
    refuses={"cpu": "TF32 is a format of NVIDIA's GPUs"},
    step=StepChange(
        how="torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
        common=15,
        reason_against=_reason_against_tf32,
        changed_results=lambda _: "products and convolutions have 11 significant bits",
        change=_in_tf32,
    ),
    is_made_in_programs=True,
)


# Denormal numbers count as 0: processors take many times as long for them.

_HOW = "torch.set_flush_denormal(True) before the first operator"


def _reason_against_flush_denormal(family: CallFamily) -> str | None:
    if all(call.numbers.denormals < LEAST_DENORMAL for call in family.calls.values()):
        return "no denormal numbers of its operands and results are recorded"
    threads = import_torch().get_num_threads()
    if threads == 1:
        return None
    return f"{threads} threads run, and those that have begun keep their setting"


@contextmanager
def _flush_denormals() -> Iterator[None]:
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


FLUSH_DENORMAL = Factor(
    name="flush_denormal",
    what="denormal numbers count as 0",
    remedy="flush denormal numbers in {where}",
    refuses=ON_GPU,
    term=TermChange(
        how=_HOW,
        needs_evidence=True,
        reason_against=_reason_against_flush_denormal,
        around=_flush_denormals,
    ),
    step=StepChange(
        how=_HOW,
        variables=lambda: {FLUSH_VARIABLE: "1", "PYTHONPATH": startup_path()},
        common=12,
        prepare=_prepare,
    ),
)


# Operands with usual numbers instead of those of the step: an operator that is slow for some
# numbers gets faster.

_FEW_DISTINCT = 0.5  # share of distinct indices that is usual, at least


def _reason_against_usual_values(family: CallFamily) -> str | None:
    numbers = [call.numbers for call in family.calls.values()]
    if not any(number.operands for number in numbers):
        return "the numbers of its operands are not recorded"
    distinct = [number.distinct for number in numbers if number.distinct is not None]
    repeated = min(distinct, default=1.0) < _FEW_DISTINCT
    if repeated or any(number.denormals >= LEAST_DENORMAL for number in numbers):
        return None
    return "its operands have usual numbers: next to none denormal, most indices distinct"


def _usual(runnable: Runnable, _: tuple[int, ...]) -> Runnable:
    call = replace(runnable.call, numbers=CallNumbers())
    tensors = [argument for argument in runnable.arguments if hasattr(argument, "device")]
    device = str(tensors[0].device) if tensors else "cpu"
    usual = rebuild(call, device, seed=call.batch or 0, try_run=False)
    return runnable.with_arguments(usual.arguments)


USUAL_VALUES = Factor(
    name="usual_values",
    what="operands have usual numbers, and indices are random",
    term=TermChange(
        needs_evidence=True,
        reason_against=_reason_against_usual_values,
        call=_usual,
        same_work=True,
    ),
)
