"""Looks at the numbers in the tensors of a running step, on a CPU: a small sample of each, so that no memory is taken.

A sample of more than 128 KiB would change which blocks glibc keeps, and so the page faults of the steps that follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from msgspec.structs import replace

from ..recording.operand_numbers import Numbers
from ..recording.operators import PROFILER_DTYPES

_SAMPLE = 8192  # elements
_ORDER = 64  # order statistics
_DENORMAL = (torch.float32, torch.float64, torch.bfloat16)  # fp16 is computed in fp32, where it is normal
_WHOLE = (torch.int64, torch.int32)


def look_at_tensors(values: Any, parameters: Mapping[int, str]) -> list[tuple[Any, Numbers]]:
    """The tensors among arguments or results, of a list its first one, with what their numbers are like.

    Args:
        values: arguments, or what an operator returned.
        parameters: names of the model's parameters, by the address of their memory.
    """
    found = ((tensor, _look_at(tensor, parameters)) for tensor in _tensors_in(values))
    return [(tensor, numbers) for tensor, numbers in found if numbers is not None]


def with_order(seen: list[tuple[Any, Numbers]]) -> list[tuple[Any, Numbers]]:
    """The same with the order statistics of floating-point tensors."""
    return [
        (tensor, replace(numbers, order=_order(tensor)) if tensor.is_floating_point() else numbers)
        for tensor, numbers in seen
    ]


def _tensors_in(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, (tuple, list)) else (values,):
        first = next((one for one in value if one is not None), None) if isinstance(value, (tuple, list)) else value
        if isinstance(first, torch.Tensor):
            yield first


def _look_at(tensor: Any, parameters: Mapping[int, str]) -> Numbers | None:
    """None for tensors that are no plain memory of this machine."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
        return None
    memory = _memory(tensor)
    known: dict[str, Any] = {"parameter": parameters.get(tensor.data_ptr())}
    if tensor.dtype in _WHOLE:
        # Neighbours show whether they ascend.
        sample = memory[:_SAMPLE]
        known["distinct"] = len(sample.unique()) / len(sample)
        known["ascending"] = bool((sample[1:] >= sample[:-1]).all())
    elif tensor.dtype == torch.bool or tensor.is_floating_point():
        sample = _spread(memory)
        known["zeros"] = _share(sample == 0)
        if tensor.dtype in _DENORMAL:
            known["denormals"] = _share((sample != 0) & (sample.abs() < torch.finfo(tensor.dtype).tiny))
    known = {name: value for name, value in known.items() if value}
    return Numbers(tensor.numel(), PROFILER_DTYPES.get(str(tensor.dtype).removeprefix("torch."), ""), **known)


def _memory(tensor: Any) -> Any:
    """All memory from the first to the last element, whatever the strides are."""
    span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((span,), (1,), tensor.storage_offset())


def _spread(memory: Any) -> Any:
    return memory[:: -(-len(memory) // _SAMPLE)]


def _order(tensor: Any) -> tuple[float, ...]:
    ordered = _spread(_memory(tensor)).double().sort().values
    at = torch.linspace(0, len(ordered) - 1, min(_ORDER, len(ordered))).long()
    return tuple(float(f"{one:.3g}") for one in ordered[at].tolist() if math.isfinite(one))


def _share(found: Any) -> float:
    return round(float(found.float().mean()), 4)
