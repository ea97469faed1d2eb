"""Matrix products among recorded operator calls, as the benchmarks name them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..hardware.precisions import PRECISIONS
from ..recording.operators import TORCH_DTYPES, Argument, TensorArgument

# operators that multiply rows with one matrix
OF_MATRICES = ("aten::linear", "aten::addmm", "aten::mm")
# by the stored type
_PRECISIONS = {PRECISIONS[name].torch_dtype: name for name in ("fp64", "fp32", "fp16", "bf16")}


class Product(NamedTuple):
    """A product C (m x n) = op(A) (m x k) · op(B) (k x n), column-major as in BLAS."""

    m: int
    n: int  # number of rows that are multiplied with one matrix
    k: int
    transpose: str  # N or T for A and B
    precision: str


def read_product(op: str, arguments: Sequence[Argument]) -> Product | None:
    """The product of rows with a matrix that a call makes; None if it is of another form."""
    tensors = [argument for argument in arguments if isinstance(argument, TensorArgument)]
    matrices = [tensor for tensor in tensors if len(tensor.shape) > 1]
    if op not in OF_MATRICES or len(matrices) != 2 or len(matrices[1].shape) != 2:
        return None
    x, weights = matrices
    precision = read_precision(weights)
    if precision is None:
        return None
    n, (rows, columns) = math.prod(x.shape[:-1]), weights.shape
    if op == "aten::linear":
        return Product(rows, n, columns, "TN", precision)
    transpose = ("T" if _is_transposed(weights) else "N") + ("T" if _is_transposed(x) else "N")
    return Product(columns, n, rows, transpose, precision)


def read_precision(tensor: TensorArgument) -> str | None:
    """The precision of products of a tensor's type; None of another type."""
    return _PRECISIONS.get(TORCH_DTYPES.get(tensor.dtype, ""))


def _is_transposed(tensor: TensorArgument) -> bool:
    """Whether a matrix is stored by columns."""
    if tensor.strides is None or len(tensor.shape) != 2:
        return False
    rows, columns = tensor.shape
    return columns > 1 and tensor.strides[0] == 1 and tensor.strides[1] >= rows
