"""Operators by kind and operands by type: what decides whether a factor applies to a recorded call."""

from __future__ import annotations

from typing import Protocol

from ...profiling.recording.operators import Argument, TensorArgument, TensorList

# Names of types as PyTorch's profiler writes them.
FLOAT32 = frozenset({"float"})
HALF = frozenset({"c10::BFloat16", "c10::Half"})
_PRODUCTS = ("linear", "addmm", "mm", "bmm", "baddbmm", "matmul")


class Call(Protocol):
    """A recorded operator call."""

    @property
    def op(self) -> str:
        """Operator of the framework, e.g. `aten::linear`."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments in the order of the operator's schema."""


def tensors_of(call: Call) -> list[TensorArgument]:
    """All tensors among the arguments, those of lists too."""
    found: list[TensorArgument] = []
    for argument in call.arguments:
        if isinstance(argument, TensorArgument):
            found.append(argument)
        elif isinstance(argument, TensorList):
            found += argument.tensors
    return found


def is_product(call: Call) -> bool:
    """Whether the call is a product of matrices."""
    return _name(call) in _PRODUCTS


def is_convolution(call: Call) -> bool:
    """Whether the call is a convolution, forward or backward."""
    return "conv" in _name(call)


def is_batch_norm(call: Call) -> bool:
    """Whether the call is a batch normalisation, forward or backward."""
    return "batch_norm" in _name(call)


def on_cuda(device: str) -> bool:
    """Whether a device is a CUDA device."""
    return device.startswith("cuda")


def _name(call: Call) -> str:
    return call.op.removeprefix("aten::").removesuffix("_")
