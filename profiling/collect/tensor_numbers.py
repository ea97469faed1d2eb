"""Looks at the numbers in the tensors of a running step, on a CPU: a small sample of each, by
NumPy.

Operators of torch would be events of the profiler: for the 320 layers of an encoder they took 11 s
and 1.4 GB, of which glibc kept so much that later steps had no page faults. Nor may a sample take
more than 128 KiB, for the same reason.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from msgspec.structs import replace

from ..recording.operand_numbers import Numbers
from ..recording.operators import PROFILER_DTYPES

_SAMPLE = 8192  # elements
_ORDER = 64  # order statistics
# NumPy's types of the memory; that of bf16 is the upper half of fp32.
_TYPES = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.bool: np.bool_,
}
# fp16 is computed in fp32, where it is normal
_DENORMAL = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
)
_WHOLE = (torch.int64, torch.int32)

Sample = npt.NDArray[Any]


def look_at_tensors(values: Any, parameters: Mapping[int, str]) -> list[tuple[Any, Numbers]]:
    """The tensors among arguments or results, of a list its first one, with what their numbers are
    like.

    `parameters` has the names of the model's, by the address of their memory.
    """
    looked_at = ((tensor, _look_at(tensor, parameters)) for tensor in _tensors_in(values))
    return [(tensor, numbers) for tensor, numbers in looked_at if numbers is not None]


def with_order(pairs: list[tuple[Any, Numbers]]) -> list[tuple[Any, Numbers]]:
    """The same with the order statistics of floating-point tensors."""
    floating = [dtype for dtype in _TYPES if dtype.is_floating_point]
    return [
        (tensor, replace(numbers, order=_order(tensor)) if tensor.dtype in floating else numbers)
        for tensor, numbers in pairs
    ]


def with_ends(seen: list[tuple[Any, Numbers]]) -> list[tuple[Any, Numbers]]:
    """The same with the values of a vector of whole numbers: the ends of a product's groups."""
    return [
        (tensor, replace(numbers, values=tuple(_memory(tensor).tolist())))
        if tensor.dtype in _WHOLE and tensor.stride() == (1,)
        else (tensor, numbers)
        for tensor, numbers in seen
    ]


def _tensors_in(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, (tuple, list)):
            first = next((item for item in value if item is not None), None)
        else:
            first = value
        if isinstance(first, torch.Tensor):
            yield first


def _look_at(tensor: Any, parameters: Mapping[int, str]) -> Numbers | None:
    """None for tensors that are no plain memory of this machine."""
    if (
        tensor.device.type != "cpu"
        or tensor.layout != torch.strided
        or not tensor.numel()
        or not tensor.data_ptr()
    ):
        return None
    facts: dict[str, Any] = {"parameter": parameters.get(tensor.data_ptr())}
    memory = tensor.untyped_storage()
    parts = memory.nbytes() // (tensor.numel() * tensor.itemsize)
    if parts > 1 and (whole := parameters.get(memory.data_ptr())) is not None:
        facts |= {"part_of": whole, "parts": parts}
    if tensor.dtype in _WHOLE:
        # Neighbours show whether they ascend.
        sample = _memory(tensor)[:_SAMPLE]
        facts["distinct"] = len(np.unique(sample)) / len(sample)
        facts["ascending"] = bool((sample[1:] >= sample[:-1]).all())
    elif tensor.dtype in _TYPES:
        sample = _spread(tensor)
        facts["zeros"] = _share(sample == 0)
        if tensor.dtype in _DENORMAL:
            tiny = torch.finfo(tensor.dtype).tiny
            facts["denormals"] = _share((sample != 0) & (np.abs(sample) < tiny))
    facts = {name: value for name, value in facts.items() if value}
    return Numbers(
        tensor.numel(), PROFILER_DTYPES.get(str(tensor.dtype).removeprefix("torch."), ""), **facts
    )


def _memory(tensor: Any) -> Sample:
    """All memory from the first to the last element, whatever the strides are."""
    dtype = np.dtype(_TYPES[tensor.dtype])
    span = 1 + sum(
        (n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return np.frombuffer(
        (ctypes.c_char * (span * dtype.itemsize)).from_address(tensor.data_ptr()), dtype
    )


def _spread(tensor: Any) -> Sample:
    memory = _memory(tensor)
    sample = memory[:: -(-len(memory) // _SAMPLE)]
    if tensor.dtype == torch.bfloat16:
        return (sample.astype(np.uint32) << 16).view(np.float32)
    return sample


def _order(tensor: Any) -> tuple[float, ...]:
    ordered = np.sort(_spread(tensor).astype(np.float64))
    at = np.linspace(0, len(ordered) - 1, min(_ORDER, len(ordered))).astype(np.int64)
    return tuple(float(f"{number:.3g}") for number in ordered[at].tolist() if math.isfinite(number))


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return round(float(flags.mean()), 4)
