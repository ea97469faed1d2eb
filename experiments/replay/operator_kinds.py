"""Operators by kind, which decides whether a factor applies to a recorded call."""

from __future__ import annotations

from ...profiling.hardware.precisions import PRECISIONS
from ...profiling.recording.operators import PRODUCTS
from .recorded_call import CallFamily, RecordedCall, tensors_of

FLOAT32 = PRECISIONS["fp32"].profiler_dtype
HALF = frozenset({PRECISIONS["bf16"].profiler_dtype, PRECISIONS["fp16"].profiler_dtype})
_IMAGE_OPERATORS = ("conv", "batch_norm", "pool", "upsample")


def is_product(call: RecordedCall) -> bool:
    """Whether the call is a product of matrices."""
    return _name(call) in PRODUCTS


def is_convolution(call: RecordedCall) -> bool:
    """Whether the call is a convolution, forward or backward."""
    return "conv" in _name(call)


def is_batch_norm(call: RecordedCall) -> bool:
    """Whether the call is a batch normalisation, forward or backward."""
    return "batch_norm" in _name(call)


def is_on_images(call: RecordedCall) -> bool:
    """Whether the call is an operator on images or volumes, with the batch first and the channels
    second.
    """
    return any(kind in _name(call) for kind in _IMAGE_OPERATORS)


def is_half(call: RecordedCall) -> bool:
    """Whether a tensor of the call has a type of two bytes."""
    return any(tensor.dtype in HALF for tensor in tensors_of(call.arguments))


def ran_through_onednn(family: CallFamily) -> bool | None:
    """Whether a CPU call ran primitives of oneDNN at a recorded batch size; None if its kernels are
    not known.

    Their names have two words, e.g. `convolution.forward_training jit:avx512_core`; so do MKL's,
    e.g. `mkl SGEMM(T,N)`.
    """
    names = _kernels(family)
    return any(" " in name and not name.startswith("mkl ") for name in names) if names else None


def ran_kernel(family: CallFamily, part: str) -> bool | None:
    """Whether a call ran a kernel with this in its name at some size; None if its kernels are
    unknown.
    """
    names = _kernels(family)
    return any(part in name for name in names) if names else None


def follows_batch(family: CallFamily) -> bool:
    """Whether an extent of a tensor depends on the batch size; False if only one batch size was
    recorded.
    """
    return any("shape" in path for path in family.moving)


def on_cuda(device: str) -> bool:
    """Whether a device is a CUDA device."""
    return device.startswith("cuda")


def reason_unless_product(family: CallFamily) -> str | None:
    """The reason why a factor of matrix products cannot be changed for a call; None if it can."""
    return None if is_product(family.largest) else "it is no matrix product"


def reason_without_tensors(family: CallFamily) -> str | None:
    """The reason why a factor of operands cannot be changed for a call; None if it can."""
    return None if any(tensors_of(family.largest.arguments)) else "none of its operands is a tensor"


def _kernels(family: CallFamily) -> list[str]:
    return [name for call in family.calls.values() for name in call.kernels or ()]


def _name(call: RecordedCall) -> str:
    return call.op.removeprefix("aten::").removesuffix("_")
