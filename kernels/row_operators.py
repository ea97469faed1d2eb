"""Operators over the rows of a matrix: normalisation, softmax, elementwise work and embedding.

They move memory: their FLOPs are few, so GB/s of compulsory bytes is the rate to read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .problem import (
    Array,
    Error,
    Labelled,
    bound_relative_error,
    check_precision,
    compare,
    normal,
    softmax,
)

# The operator of torch whose FLOPs and bytes count, by kind.
KINDS = {
    "layer_norm": "aten::layer_norm",
    "rms_norm": "aten::rms_norm",
    "softmax": "aten::_softmax",
    "add": "aten::add",
    "mul": "aten::mul",
    "relu": "aten::relu",
    "silu": "aten::silu",
    "embedding": "aten::embedding",
}
PRECISIONS_HERE = ("fp64", "fp32", "fp16", "bf16")
EPSILON = 1e-5
# Rows of an embedding's table, and a step through it that no cache line or power of two repeats.
TABLE_ROWS = 32_768
_TABLE_STEP = 7919
_OPERANDS = {"add": 2, "mul": 2}
_EXACT = ("relu", "embedding")


@dataclass(frozen=True)
class RowOperator(Labelled):
    """One operator, a key of `KINDS`, over a matrix; an embedding looks up as many rows
    in a table.
    """

    rows: int
    columns: int
    kind: str = "layer_norm"
    precision: str = "fp32"
    template = "{kind} {rows}x{columns} {precision}"

    def __post_init__(self) -> None:
        check_precision("These operators are", self.precision, PRECISIONS_HERE)
        check_choice("operator", self.kind, KINDS)
        if min(self.rows, self.columns) < 1:
            raise CurvescopeError(f"{self.label}: every extent is at least 1.")

    @property
    def work(self) -> Work:
        dtype = PRECISIONS[self.precision].profiler_dtype
        if self.kind == "embedding":
            shapes = [(TABLE_ROWS, self.columns), (self.rows,)]
            return operator_work.work(KINDS[self.kind], shapes, [dtype, "long int"])
        count = _OPERANDS.get(self.kind, 1)
        matrices = [(self.rows, self.columns)] * count
        return operator_work.work(KINDS[self.kind], matrices, [dtype] * count)

    def indices(self) -> Array:
        """Rows of the table that an embedding looks up, shape (rows,), int64."""
        return np.arange(self.rows, dtype=np.int64) * _TABLE_STEP % TABLE_ROWS

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """The matrices to read, or the table of an embedding."""
        rows = TABLE_ROWS if self.kind == "embedding" else self.rows
        count = _OPERANDS.get(self.kind, 1)
        return tuple(normal(generator, (rows, self.columns), self.precision) for _ in range(count))

    def reference(self, operands: tuple[Array, ...]) -> Array:
        """The result in float64, shape (rows, columns)."""
        x = operands[0].astype(np.float64)
        if self.kind == "layer_norm":
            x = x - x.mean(axis=1, keepdims=True)
        if self.kind in ("layer_norm", "rms_norm"):
            mean_square = (x * x).mean(axis=1, keepdims=True)
            return np.asarray(x / np.sqrt(mean_square + EPSILON))
        if self.kind == "softmax":
            return softmax(x)
        if self.kind in _OPERANDS:
            other = operands[1].astype(np.float64)
            return np.asarray(x + other if self.kind == "add" else x * other)
        if self.kind == "embedding":
            return np.asarray(x[self.indices()])
        if self.kind == "relu":
            return np.asarray(np.maximum(x, 0))
        return np.asarray(x / (1 + np.exp(-x)))

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the reference; nothing is allowed where no arithmetic is done."""
        reference = self.reference(operands)
        if self.kind in _EXACT:
            return compare(result, reference, 0.0)
        scale = float(np.abs(reference).max())
        allowed = bound_relative_error(self.precision, self.columns)
        return compare(result, reference, scale * allowed)
