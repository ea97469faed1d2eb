"""Matrix products: C = op(A) · op(B), column-major as in BLAS, cuBLAS and DeepBench.

An array in C order holds a matrix with its extents reversed: C is an array of shape (n, m). In a
torch layer `y = x · Wᵀ`, A is W (transposed) and B is x. Then m is the number of outputs, k of
inputs and n of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    Array,
    Error,
    Labelled,
    bound_error,
    can_check_all,
    compare,
    in_float64,
    normal,
    random_signs,
)

TRANSPOSES = ("NN", "NT", "TN", "TT")
_BF16 = 15  # type of the results of fp8 products, c10/core/ScalarType.h


@dataclass(frozen=True)
class Gemm(Labelled):
    """A matrix product."""

    m: int  # rows of C
    n: int  # columns of C; the batch size if the product belongs to a layer
    k: int  # products summed in each element of C
    transpose: str = "NN"  # N or T for A and B
    precision: str = "fp32"
    template = "gemm {m}x{n}x{k} {transpose} {precision}"

    def __post_init__(self) -> None:
        precision_of(self.precision)
        if min(self.m, self.n, self.k) < 1:
            raise CurvescopeError(f"gemm {self.m}x{self.n}x{self.k}: every extent is at least 1.")
        check_choice("transpose", self.transpose, TRANSPOSES)

    @property
    def work(self) -> Work:
        """2 m n k FLOPs; A and B read, C written (fp8: also two scales)."""
        dtype = PRECISIONS[self.precision].profiler_dtype
        shapes: list[tuple[int, ...]] = [(self.n, self.k), (self.k, self.m)]
        if self.precision == "fp8":
            shapes += [(1,), (1,)]
            dtypes = [dtype, dtype, "float", "float"]
            arguments = [*[None] * 6, _BF16]
            return operator_work.work("aten::_scaled_mm", shapes, dtypes, arguments)
        operator = "aten::_int_mm" if self.precision == "int8" else "aten::mm"
        return operator_work.work(operator, shapes, [dtype, dtype])

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """A and B as C-order arrays: A of shape (k, m), B of shape (n, k), or the reverse if
        transposed.
        """
        draw = partial(normal, generator, precision=self.precision)
        a, b = (self.k, self.m), (self.n, self.k)
        return draw(self._turn(a, 0)), draw(self._turn(b, 1))

    def _turn(self, shape: tuple[int, int], operand: int) -> tuple[int, int]:
        """The shape as stored: the reverse if the operand is transposed."""
        return shape if self.transpose[operand] == "N" else shape[::-1]

    def views(self, operands: tuple[Array, ...]) -> tuple[Array, Array]:
        """op(A) of shape (k, m) and op(B) of shape (n, k): C is the second times the first."""
        a, b = operands
        if self.transpose[0] == "T":
            a = a.T
        if self.transpose[1] == "T":
            b = b.T
        return a, b

    def reference(self, operands: tuple[Array, ...]) -> Array:
        a, b = in_float64(self.views(operands))
        return np.asarray(b @ a)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error of C, of shape (n, m). A large product is checked by sums over the columns of C
        with random signs.
        """
        allowed = bound_error(self.precision, self.k)
        if can_check_all(self.work) or result.shape != (self.n, self.m):
            return compare(result, self.reference(operands), allowed)
        a, b = in_float64(self.views(operands))
        signs = random_signs(self.n)
        reference = (signs @ b) @ a
        return compare(signs @ result, reference, allowed * self.n**0.5, projected=True)
