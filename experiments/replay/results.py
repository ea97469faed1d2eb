"""Results of operator calls, and whether two ways to run a call give the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from ...base.counted import counted
from ...base.torch_runtime import import_torch
from ...kernels.problem import bound_relative_error
from ...profiling.hardware.precisions import PRECISIONS
from ...profiling.recording.operators import find_written_arguments
from .runnable import Runnable

# What these return is memory as it was.
_UNDEFINED = ("aten::empty", "aten::new_empty", "aten::resize")
_PRECISIONS = {
    precision.torch_dtype: name
    for name, precision in PRECISIONS.items()
    if name not in ("tf32", "fp8", "int8")
}


def results_of(returned: Any) -> list[Any]:
    """All tensors that an operator returned, in order; None for those that it left out.

    Numbers are no tensors.
    """
    if isinstance(returned, list | tuple):
        return [tensor for entry in returned for tensor in results_of(entry)]
    return [returned] if returned is None or hasattr(returned, "shape") else []


def find_changed_operands(overload: Any, arguments: Sequence[Any]) -> list[Any]:
    """The tensors among the arguments that an operator writes."""
    written = sorted(find_written_arguments(overload._schema))
    return results_of([arguments[index] for index in written if arguments[index] is not None])


def besides(returned: Any, written: Sequence[Any]) -> list[Any]:
    """What an operator returned besides the tensors that it wrote; None for results that it left
    out.
    """
    addresses = {operand.untyped_storage().data_ptr() for operand in written}
    return [
        tensor
        for tensor in results_of(returned)
        if tensor is None or tensor.untyped_storage().data_ptr() not in addresses
    ]


@dataclass(frozen=True)
class Tried:
    """One run of a call from a fixed state."""

    results: list[Any]  # the operands that the call wrote, then what it returned besides
    # products in one element of each, estimated from sizes; their root scales rounding
    terms: list[float]


def try_call(runnable: Runnable, device: str) -> Tried:
    """Run a call from a fixed state of the random generators; operands and generators are as before
    afterwards.
    """
    torch = import_torch()
    written = find_changed_operands(runnable.overload, runnable.arguments)
    former = [operand.clone() for operand in written]
    with torch.random.fork_rng([] if device == "cpu" else [torch.device(device)]):
        torch.manual_seed(0)
        returned = runnable.run()
    results = [operand.clone() for operand in written] + besides(returned, written)
    for operand, values in zip(written, former, strict=True):
        operand.copy_(values)
    if runnable.call.op.startswith(_UNDEFINED):
        results = []
    sizes = sorted(
        (tensor.numel() for tensor in results_of(list(runnable.arguments)) if tensor is not None),
        reverse=True,
    )
    # A product of M x K and K x N: MK * KN / MN = K squared.
    terms = [
        1.0 if result is None or not result.numel() else (prod(sizes[:2]) / result.numel()) ** 0.5
        for result in results
    ]
    return Tried(results, terms)


def difference(expected: Tried, actual: Tried, *, tf32: bool) -> str | None:
    """How results differ beyond rounding, as a clause; None if they do not.

    Where found results are larger, their first elements count: the rest is padding. With `tf32`,
    products of float32 may round their operands to TF32.
    """
    if len(expected.results) != len(actual.results):
        returned = counted(len(actual.results), "result")
        return f"it returns {returned} instead of {len(expected.results)}"
    for result, other, terms in zip(expected.results, actual.results, expected.terms, strict=True):
        if (result is None) != (other is None):
            return "it leaves out a result"
        if result is not None and (clause := _differs(result, other, terms, tf32)) is not None:
            return clause
    return None


def _differs(expected: Any, actual: Any, terms: float, tf32: bool) -> str | None:
    torch = import_torch()
    if expected.dim() != actual.dim() or any(
        a > b for a, b in zip(expected.shape, actual.shape, strict=True)
    ):
        return f"a result has the shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    for dimension, extent in enumerate(expected.shape):
        actual = actual.narrow(dimension, 0, extent)
    if expected.dtype == torch.uint8 or not expected.numel():  # a work space of a library
        return None
    precision = _PRECISIONS.get(str(expected.dtype).removeprefix("torch."))
    if precision is None:
        return (
            None
            if torch.equal(expected, actual)
            else "numbers that are not rounded differ, e.g. indices"
        )
    if precision == "fp32" and tf32:
        precision = "tf32"
    expected, actual = (
        tensor if tensor.dtype.itemsize > 2 else tensor.float() for tensor in (expected, actual)
    )
    error, scale = _error_and_scale(torch, expected - actual, expected)
    if not isfinite(error + scale):  # infinite or NaN in one or both; what is so in both is equal
        both = expected.isfinite() & actual.isfinite()
        if not torch.equal(expected.isfinite(), actual.isfinite()):
            return "other results are infinite or no numbers"
        error, scale = _error_and_scale(torch, (expected - actual)[both], expected[both])
    allowed = 2 * bound_relative_error(precision, terms)  # both are rounded
    if error <= allowed * scale:
        return None
    share = error / scale if scale else float("inf")
    return (
        f"a result differs by {share:.2g} of its root mean square, where rounding allows "
        f"{allowed:.2g}"
    )


def _error_and_scale(torch: Any, difference: Any, expected: Any) -> tuple[float, float]:
    """Largest absolute difference, and root mean square of what is expected; 0 for no elements."""
    if not expected.numel():
        return 0.0, 0.0
    return float(difference.abs().max()), float(
        torch.linalg.vector_norm(expected) / expected.numel() ** 0.5
    )
