"""Scaled dot-product attention: softmax(Q Kᵀ / √size) V, for each sample and head alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..profiling.attribution import operator_work
from ..profiling.errors import CurvescopeError
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import FULL_CHECK_FLOPS, Array, Error, Labelled, allowed_relative_error, compare, normal

# Torch's implementations: the fused ones of FlashAttention, xFormers and cuDNN, and single operators.
ALGORITHMS = ("flash", "efficient", "cudnn", "math")
PRECISIONS_HERE = ("fp64", "fp32", "tf32", "fp16", "bf16")
# Of a larger problem these many queries of every head are checked: a query's result needs all keys and values.
_CHECKED_QUERIES = 8


@dataclass(frozen=True)
class Attention(Labelled):
    """One forward pass over queries, keys and values of shape (batch, heads, length, size).

    Attributes:
        batch: number of samples.
        heads: number of heads.
        length: number of queries and of keys of a head.
        size: size of a head.
        algorithm: one of `ALGORITHMS`.
        causal: 1 if a query sees only the keys up to itself, else 0.
        precision: fp64, fp32, tf32, fp16 or bf16.
    """

    batch: int
    heads: int
    length: int
    size: int
    algorithm: str = "flash"
    causal: int = 0
    precision: str = "bf16"

    def __post_init__(self) -> None:
        if precision_of(self.precision) and self.precision not in PRECISIONS_HERE:
            raise CurvescopeError(f"Attention is measured in {', '.join(PRECISIONS_HERE)}.")
        if self.algorithm not in ALGORITHMS:
            raise CurvescopeError(f"Unknown attention {self.algorithm!r}: choose from {', '.join(ALGORITHMS)}.")
        if min(self.batch, self.heads, self.length, self.size) < 1 or self.causal not in (0, 1):
            raise CurvescopeError(f"{self.label}: every extent is at least 1, and causal is 0 or 1.")

    def label_along(self, axis: str) -> str:
        """E.g. `attention flash 8x16x1024x64 bf16`: batch, heads, length, size."""
        names = ("batch", "heads", "length", "size")
        extents = "x".join("*" if axis == name else str(getattr(self, name)) for name in names)
        return f"attention {self.algorithm} {extents}{' causal' if self.causal else ''} {self.precision}"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of queries, keys, values and result."""
        return self.batch, self.heads, self.length, self.size

    @property
    def work(self) -> operator_work.Work:
        """FLOPs of the two products over the pairs that the mask leaves; each operand once."""
        dtypes = [PRECISIONS[self.precision].profiler_dtype] * 3
        arguments = [None] * 5 + [bool(self.causal)]
        return operator_work.work("aten::scaled_dot_product_attention", [self.shape] * 3, dtypes, arguments)

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        """Queries, keys and values."""
        query, key, value = (normal(generator, self.shape, self.precision) for _ in range(3))
        return query, key, value

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against float64; of a large problem, of some queries of every head.

        A result is a mean of values of the order of 1, whose weights have the roundoff of the precision.

        Args:
            operands: queries, keys and values.
            result: array of `shape`.
        """
        if result.shape != self.shape:
            return Error(float("inf"), 0.0)
        whole = (self.work.flops or 0) <= FULL_CHECK_FLOPS
        count = self.length if whole else min(self.length, _CHECKED_QUERIES)
        chosen = np.sort(np.random.default_rng(self.length).choice(self.length, count, replace=False))
        query, key, value = operands
        allowed, worst = allowed_relative_error(self.precision, self.size + self.length), 0.0
        for sample in range(self.batch):
            for head in range(self.heads):
                k, v = (x[sample, head].astype(np.float64) for x in (key, value))
                scores = query[sample, head, chosen].astype(np.float64) @ k.T / self.size**0.5
                if self.causal:
                    scores[np.arange(self.length) > chosen[:, None]] = -np.inf
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                reference = weights @ v / weights.sum(axis=1, keepdims=True)
                one = compare(result[sample, head, chosen], reference, allowed)
                worst = max(worst, one.largest) if one.largest == one.largest else float("nan")
                if worst != worst:
                    return Error(worst, allowed, not whole)
        return Error(worst, allowed, not whole)
