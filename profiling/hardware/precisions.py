"""Number formats of matrix products: storage, rounding, and devices that support them."""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import check_choice


@dataclass(frozen=True)
class Precision:
    """A number format of a matrix product. Roundoff is relative: half a unit in the last place."""

    item_bytes: int
    torch_dtype: str  # names of the stored type
    profiler_dtype: str
    operand_roundoff: float  # in a multiplier that keeps fewer bits than are stored; else 0
    sum_roundoff: float  # of the accumulator
    result_roundoff: float  # of the stored result
    # first compute capability with the format; None for all
    cuda_since: tuple[int, int] | None = None
    tensor_cores_since: tuple[int, int] | None = None  # earlier ones compute in fp32
    on_cpu: bool = True


_VOLTA = (7, 0)
_TURING = (7, 5)
_AMPERE = (8, 0)
_ADA = (8, 9)
# Significant bits: fp64 53, fp32 24, tf32 11 (2^-10, because the hardware may truncate), fp16 11,
# bf16 8. Sources: IEEE 754-2019 table 3.5; for tf32, bf16 and the tensor cores of Ampere the CUDA
# C++ Programming Guide, "Alternate Floating Point" and "Compute Capability 8.x".
PRECISIONS = {
    "fp64": Precision(8, "float64", "double", 0.0, 2.0**-53, 2.0**-53),
    "fp32": Precision(4, "float32", "float", 0.0, 2.0**-24, 2.0**-24),
    "tf32": Precision(4, "float32", "float", 2.0**-10, 2.0**-24, 2.0**-24, _AMPERE, _AMPERE, False),
    "fp16": Precision(2, "float16", "c10::Half", 0.0, 2.0**-24, 2.0**-11, None, _VOLTA),
    "bf16": Precision(2, "bfloat16", "c10::BFloat16", 0.0, 2.0**-24, 2.0**-8, _AMPERE, _AMPERE),
    # Products alone. fp8 is E4M3 (OFP8, 4 significant bits) with results in bf16; Hopper keeps
    # about 14 bits of a sum (DeepSeek-V3 technical report, section 3.3.2). int8 is summed exactly
    # in int32, and its results are int32.
    "fp8": Precision(
        1, "float8_e4m3fn", "c10::Float8_e4m3fn", 0.0, 2.0**-13, 2.0**-8, _ADA, _ADA, False
    ),
    "int8": Precision(1, "int8", "signed char", 0.0, 0.0, 0.0, _TURING, _TURING),
}
# Precisions of a training step: fp32 is without TF32; fp16 and bf16 are mixed precision (AMP):
# autocast, with loss scaling for training in fp16.
STEP_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


def precision_of(name: str) -> Precision:
    """The precision of that name; an error that lists them if there is none."""
    check_choice("precision", name, PRECISIONS)
    return PRECISIONS[name]
