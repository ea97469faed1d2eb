"""Matrix products: C = op(A) · op(B), column-major as in BLAS, cuBLAS and DeepBench.

An array in C order holds a matrix with its extents reversed: C is an array of shape (n, m). In a
torch layer `y = x · Wᵀ`, A is W (transposed) and B is x. Then m is the number of outputs, k of
inputs and n of samples. An epilogue adds a bias to each column of C, and applies an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import erf

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    Array,
    Error,
    Labelled,
    bound_error,
    compare,
    in_float64,
    normal,
    random_signs,
    share_to_check,
)

TRANSPOSES = ("NN", "NT", "TN", "TT")
# What follows a product: a bias; a bias and an activation in the same call; or the activation in a
# call of its own. Libraries decide whether one call is one kernel.
EPILOGUES = ("none", "bias", "relu", "gelu", "then_relu", "then_gelu")
_BF16 = 15  # type of the results of fp8 products, c10/core/ScalarType.h


@dataclass(frozen=True)
class Gemm(Labelled):
    """A matrix product."""

    m: int  # rows of C
    n: int  # columns of C; the batch size if the product belongs to a layer
    k: int  # products summed in each element of C
    transpose: str = "NN"  # N or T for A and B
    precision: str = "fp32"
    batch: int = 1  # products, each of operands of its own
    epilogue: str = "none"

    def __post_init__(self) -> None:
        precision_of(self.precision)
        if min(self.m, self.n, self.k, self.batch) < 1:
            raise CurvescopeError(f"{self.label}: every extent is at least 1.")
        check_choice("transpose", self.transpose, TRANSPOSES)
        check_choice("epilogue", self.epilogue, EPILOGUES)
        if self.has_epilogue and self.batch > 1:
            raise CurvescopeError(f"{self.label}: an epilogue is of one product, not of a batch.")

    def label_along(self, axis: str) -> str:
        """E.g. `gemm 64x8x32 TN bf16 gelu`, or `gemm b16 64x8x32 NN fp32` of a batch."""
        parts = ["gemm", "{m}x{n}x{k}", "{transpose}", "{precision}"]
        if self.batch > 1 or axis == "batch":
            parts.insert(1, "b{batch}")
        if self.has_epilogue or axis == "epilogue":
            parts.append("{epilogue}")
        return self._fill_template(" ".join(parts), axis)

    @property
    def has_epilogue(self) -> bool:
        """Whether a bias, or an activation too, follows the product."""
        return self.epilogue != "none"

    @property
    def has_several(self) -> bool:
        """As of `Labelled`: the product and its epilogue."""
        return self.has_epilogue

    @property
    def activation(self) -> str | None:
        """The function that the epilogue applies: relu or gelu; None without one."""
        name = self.epilogue.removeprefix("then_")
        return name if name in _ACTIVATIONS else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of C as an array: (n, m), or (batch, n, m)."""
        return self._add_batch((self.n, self.m))

    def _add_batch(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self.batch == 1 else (self.batch, *shape)

    @property
    def work(self) -> Work:
        """2 m n k FLOPs of each product; A and B read, C written (fp8: also two scales).

        An epilogue adds the bias, but no FLOPs of the activation, and no bytes: a fused one moves
        none.
        """
        dtype = PRECISIONS[self.precision].profiler_dtype
        shapes: list[tuple[int, ...]] = [(self.n, self.k), (self.k, self.m)]
        if self.has_epilogue:
            return operator_work.work("aten::addmm", [(self.m,), *shapes], [dtype] * 3)
        if self.batch > 1:
            return operator_work.work("aten::bmm", [*map(self._add_batch, shapes)], [dtype] * 2)
        if self.precision == "fp8":
            shapes += [(1,), (1,)]
            dtypes = [dtype, dtype, "float", "float"]
            arguments = [*[None] * 6, _BF16]
            return operator_work.work("aten::_scaled_mm", shapes, dtypes, arguments)
        operator = "aten::_int_mm" if self.precision == "int8" else "aten::mm"
        return operator_work.work(operator, shapes, [dtype, dtype])

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """A and B as C-order arrays: A of shape (k, m), B of shape (n, k), or the reverse if
        transposed; with an epilogue also the bias, of shape (m,).
        """
        draw = partial(normal, generator, precision=self.precision)
        a, b = self._turn((self.k, self.m), 0), self._turn((self.n, self.k), 1)
        bias = [draw((self.m,))] if self.has_epilogue else []
        return (draw(self._add_batch(a)), draw(self._add_batch(b)), *bias)

    def _turn(self, shape: tuple[int, int], operand: int) -> tuple[int, int]:
        """The shape as stored: the reverse if the operand is transposed."""
        return shape if self.transpose[operand] == "N" else shape[::-1]

    def views(self, operands: tuple[Array, ...]) -> tuple[Array, Array]:
        """op(A) of shape (k, m) and op(B) of shape (n, k): C is the second times the first."""
        a, b = operands[:2]
        if self.transpose[0] == "T":
            a = _transpose(a)
        if self.transpose[1] == "T":
            b = _transpose(b)
        return a, b

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """C in float64."""
        return self._references(operands)[0]

    def _references(
        self, operands: tuple[Array, ...], columns: Array | slice = slice(None)
    ) -> list[Array]:
        """C, or columns of it, in float64: once for each formula of the activation."""
        a, b = in_float64(self.views(operands))
        product = b[..., columns, :] @ a
        if self.has_epilogue:
            product = product + operands[2].astype(np.float64)
        if self.activation is None:
            return [product]
        return [formula(product) for formula in _ACTIVATIONS[self.activation]]

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error of C. A large product is checked by sums over the columns of C with random signs;
        with an epilogue by some columns, as sums do not pass an activation.
        """
        return self.error_of_share(operands, result, share_to_check(self.work))

    def error_of_share(self, operands: tuple[Array, ...], result: Array, share: float) -> Error:
        """Error of C, of which a share may be checked in float64; 1 for all."""
        allowed = bound_error(self.precision, self.k)
        if share == 1 or result.shape != self.shape:
            return _compare_any(result, self._references(operands), allowed)
        if self.has_epilogue:
            count = max(1, int(share * self.n))
            columns = np.random.default_rng(self.n).choice(self.n, count, replace=False)
            references = self._references(operands, columns)
            return _compare_any(result[columns], references, allowed, projected=True)
        a, b = in_float64(self.views(operands))
        signs = random_signs(self.n)[None]
        return compare(signs @ result, signs @ b @ a, allowed * self.n**0.5, projected=True)


def _compare_any(
    result: Array, references: Sequence[Array], allowed: float, projected: bool = False
) -> Error:
    """Compare a result with the reference that it is nearest to."""
    errors = [compare(result, reference, allowed, projected) for reference in references]
    return min(errors, key=lambda error: error.largest)


def _transpose(matrices: Array) -> Array:
    """A matrix, or each of a batch, transposed."""
    return matrices.T if matrices.ndim == 2 else matrices.swapaxes(1, 2)


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


def _gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + erf(x / 2**0.5)))


def _gelu_by_tanh(x: Array) -> Array:
    """The formula of cuBLASLt's epilogue, which differs by under 0.001."""
    return np.asarray(x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))))


_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "relu": (_relu,),
    "gelu": (_gelu, _gelu_by_tanh),
}
