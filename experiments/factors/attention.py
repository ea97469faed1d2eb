"""Factors of attention: which of torch's kernels runs scaled_dot_product_attention."""

from __future__ import annotations

from functools import partial

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, Target

_OPERATOR = "scaled_dot_product"
_BACKENDS = ("cudnn", "flash", "mem_efficient", "math")  # as torch.backends.cuda names them
_NVIDIA = {"cpu": "these kernels run on GPUs"}


def _reason_against(backend: str, target: Target) -> str | None:
    fused = [name for name in target.operators if _OPERATOR in name]
    if target.operators and not fused:
        return "the steps have no fused attention"
    operator = "efficient" if backend == "mem_efficient" else backend
    if any(f"{_OPERATOR}_{operator}_attention" in name for name in fused):
        return "its attention runs so already"
    return None


def _leave_only(backend: str, _: Target) -> None:
    """Let no other kernels run attention; where these cannot, torch says so."""
    switches = import_torch().backends.cuda
    for name in _BACKENDS:
        getattr(switches, f"enable_{name}_sdp")(name == backend)


def _factor(name: str, backend: str, enum: str, what: str, common: int) -> Factor:
    """The factor of one of `_BACKENDS`, which torch's `SDPBackend` calls `enum`."""
    return Factor(
        name=name,
        what=f"attention runs {what}",
        remedy=f"run the attention of {{where}} {what}",
        refuses=_NVIDIA if backend in ("cudnn", "mem_efficient") else {},
        step=StepChange(
            how=f"with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.{enum}): "
            "around the step",
            common=common,
            reason_against=partial(_reason_against, backend),
            prepare=partial(_leave_only, backend),
        ),
        sets="attention",
    )


CUDNN_ATTENTION = _factor(
    "cudnn_attention", "cudnn", "CUDNN_ATTENTION", "by cuDNN's fused kernel", 17
)
FLASH_ATTENTION = _factor(
    "flash_attention", "flash", "FLASH_ATTENTION", "by torch's kernel FlashAttention", 18
)
EFFICIENT_ATTENTION = _factor(
    "efficient_attention",
    "mem_efficient",
    "EFFICIENT_ATTENTION",
    "by torch's memory-efficient kernel",
    19,
)
MATH_ATTENTION = _factor(
    "math_attention", "math", "MATH", "as products and a softmax, one after the other", 29
)
