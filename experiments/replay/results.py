"""Results of operator calls, and whether two ways to run a call give the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from operator import gt
from typing import Any

from ...base.counted import counted
from ...base.torch_runtime import import_torch
from ...kernels.problem import bound_relative_error
from ...profiling.hardware.precisions import PRECISIONS
from ...profiling.recording.operators import find_written_arguments
from .runnable import Runnable

# What these return is memory as it was.
_UNDEFINED = ("aten::empty", "aten::new_empty", "aten::resize")
_IS_ITS_TYPE = ("fp64", "fp32", "fp16", "bf16")
_PRECISIONS = {PRECISIONS[name].torch_dtype: name for name in _IS_ITS_TYPE}


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
    """The results of an operator besides the tensors that it wrote; None for results that it left
    out.
    """
    addresses = set(map(_address, written))
    return [
        tensor
        for tensor in results_of(returned)
        if tensor is None or _address(tensor) not in addresses
    ]


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


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
    operands = results_of(list(runnable.arguments))
    sizes = sorted(tensor.numel() for tensor in operands if tensor is not None)
    # A product of M x K and K x N: MK * KN / MN = K squared.
    product = prod(sizes[-2:])
    terms = []
    for result in results:
        count = 0 if result is None else result.numel()
        terms.append((product / count) ** 0.5 if count else 1.0)
    return Tried(results, terms)


def difference(expected: Tried, actual: Tried, *, tf32: bool) -> str | None:
    """How results differ beyond rounding, as a clause; None if they do not.

    Where actual results are larger, their first elements count: the rest is padding. With `tf32`,
    products of float32 may round their operands to TF32.
    """
    if len(expected.results) != len(actual.results):
        returned = counted(len(actual.results), "result")
        return f"it returns {returned} instead of {len(expected.results)}"
    for result, other, terms in zip(expected.results, actual.results, expected.terms, strict=True):
        if (result is None) != (other is None):
            return "it leaves out a result"
        clause = None if result is None else _differs(result, other, terms, tf32)
        if clause is not None:
            return clause
    return None


def _differs(expected: Any, actual: Any, terms: float, tf32: bool) -> str | None:
    torch = import_torch()
    shape, other = tuple(expected.shape), tuple(actual.shape)
    if len(shape) != len(other) or any(map(gt, shape, other)):
        return f"a result has the shape {other} instead of {shape}"
    for dimension, extent in enumerate(shape):
        actual = actual.narrow(dimension, 0, extent)
    if expected.dtype == torch.uint8 or not expected.numel():  # a work space of a library
        return None
    precision = _PRECISIONS.get(str(expected.dtype).removeprefix("torch."))
    if precision is None:
        equal = torch.equal(expected, actual)
        return None if equal else "numbers that are not rounded differ, e.g. indices"
    if precision == "fp32" and tf32:
        precision = "tf32"
    if expected.dtype.itemsize <= 2:
        expected = expected.float()
    if actual.dtype.itemsize <= 2:
        actual = actual.float()
    error, scale = _error_and_scale(torch, expected - actual, expected)
    if not isfinite(error + scale):  # both may be infinite or NaN, which is equal
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
    """Largest absolute difference, and root mean square of the expected; 0 for no elements."""
    if not expected.numel():
        return 0.0, 0.0
    scale = torch.linalg.vector_norm(expected) / expected.numel() ** 0.5
    return float(difference.abs().max()), float(scale)
