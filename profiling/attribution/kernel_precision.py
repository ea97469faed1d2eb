"""The precision of the products that a kernel computes, from its name: the roof of its rate.

Libraries write the type of the operands into the names of such kernels; a name without one leaves
it unknown, as do those of kernels that compute no products: these move data, whatever its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ...base.words import UNKNOWN
from . import kernel_names

_PRODUCTS = kernel_names.ALGORITHMS | {kernel_names.ATTENTION, kernel_names.RECURRENT}

# The first rule that matches decides. A mixed product runs in the wider of its two operand types;
# in a name as `e4m3bf16_e4m3f32_f32` the type of the result stands beside that of an operand, so
# narrow types come before wide ones. Letters as `s1688` are the instructions of the tensor cores: a
# letter for the sums, then rows x columns x depth. Tensile (Cijk_*) spells operands, results and
# sums with one letter each: B bf16, H fp16, S fp32, D fp64.
_RULES = tuple(
    (re.compile(pattern), precision)
    for pattern, precision in (
        (
            r"bf16xbf16xmxfp4",
            "bf16",
        ),  # _matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1: weights alone are mxfp4
        (r"e2m1|nvfp4|mxfp4|(?<![a-z])fp4", "fp4"),  # bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512
        (
            r"e4m3|e5m2|float8|fp8|(?<![a-z])f8|^cijk_\w*_(f8|b8)",
            "fp8",
        ),  # sm90_xmma_gemm_e4m3bf16_e4m3f32_f32
        (
            r"imma|(?<![a-z])i(8816|16832|16864)|int8|(?<![a-z0-9])[su]8(?!\d)|s8s8|^cijk_\w*_i8",
            "int8",
        ),
        (
            r"tf32|(?<![a-z])xf32",
            "tf32",
        ),  # cutlass_tensorop_s1688gemm_tf32, sm80_xmma_fprop_implicit_gemm_tf32f32
        (r"bf16|bfloat16|nvjet_(sm\d+_)?t|^cijk_\w*_(bbs|bss|b_bs|bb)_", "bf16"),
        (
            r"fp16|f16|half|hgemm|hcudnn|(?<![a-z])h(884|1688|16816)|s884|nvjet_(sm\d+_)?h|^cijk_\w*_(hhs|hss|h_hs|hb)_",
            "fp16",
        ),
        (r"s16816", "fp16"),  # of bf16 where the name says so, above
        (r"s1688", "tf32"),  # of fp16 (Turing) where the name says so, above
        (r"dgemm|d884|dcudnn|double|f64|^cijk_\w*_(db|d_b)_", "fp64"),
        (
            r"sgemm|scudnn|simt_s|cgemm|f32f32|<float|^cijk_\w*_(sb|s_b)_",
            "fp32",
        ),  # volta_scudnn_128x64_relu_small_nn
    )
)


@lru_cache(maxsize=65_536)
def kernel_precision(name: str) -> str:
    """Precision of a kernel's products, one of `devices.PEAK_PRECISIONS`; `unknown` if its name
    does not say it.
    """
    if kernel_names.family(name) not in _PRODUCTS:
        return UNKNOWN
    plain = name.lower()
    return next((precision for pattern, precision in _RULES if pattern.search(plain)), UNKNOWN)


def precisions_of_products(names: Iterable[str]) -> frozenset[str]:
    """The precisions of the kernels that compute products; `unknown` where a name does not say
    it.
    """
    products = [name for name in names if kernel_names.family(name) in _PRODUCTS]
    return frozenset(map(kernel_precision, products))
