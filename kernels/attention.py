"""Scaled dot-product attention, softmax(Q Kᵀ / √size) V, and its gradients, for each sample and
head alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import (
    FULL_CHECK_FLOPS,
    Array,
    Error,
    Labelled,
    bound_relative_error,
    compare,
    normal,
)

# Torch's implementations: the fused ones of FlashAttention, xFormers and cuDNN, and single
# operators.
ALGORITHMS = ("flash", "efficient", "cudnn", "math")
DIRECTIONS = ("fwd", "bwd")
PRECISIONS_HERE = ("fp64", "fp32", "tf32", "fp16", "bf16")
# Of a larger problem these many queries of every head are checked: a query's result needs all keys
# and values.
_CHECKED_QUERIES = 8
_QUERIES_AT_ONCE = 512  # of the gradients' reference, so that its scores fit the memory

# The operators whose rules count the work: number of operands, and of arguments before `is_causal`.
_RULE = ("aten::scaled_dot_product_attention", 3, 5)
_BACKWARD_RULE = ("aten::_scaled_dot_product_flash_attention_backward", 4, 11)


@dataclass(frozen=True)
class Attention(Labelled):
    """One pass over queries, keys and values of shape (batch, heads, length, size)."""

    batch: int
    heads: int
    length: int
    size: int
    algorithm: str = "flash"
    causal: int = 0  # 1 if a query sees only the keys up to itself, else 0
    precision: str = "bf16"
    direction: str = "fwd"  # fwd, or bwd for the gradients of all three together

    def __post_init__(self) -> None:
        if precision_of(self.precision) and self.precision not in PRECISIONS_HERE:
            raise CurvescopeError(f"Attention is measured in {', '.join(PRECISIONS_HERE)}.")
        check_choice("attention", self.algorithm, ALGORITHMS)
        check_choice("direction", self.direction, DIRECTIONS)
        if min(self.batch, self.heads, self.length, self.size) < 1 or self.causal not in (0, 1):
            raise CurvescopeError(
                f"{self.label}: every extent is at least 1, and causal is 0 or 1."
            )

    def label_along(self, axis: str) -> str:
        """E.g. `attention flash 8x16x1024x64 bf16`: batch, heads, length, size."""
        backward, causal = (
            "" if self.direction == "fwd" else "bwd ",
            " causal" if self.causal else "",
        )
        extents = "{batch}x{heads}x{length}x{size}"
        return self._fill_template(
            f"attention {backward}{{algorithm}} {extents}{causal} {{precision}}", axis
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of queries, keys, values and result, and of the gradient of each."""
        return self.batch, self.heads, self.length, self.size

    @property
    def work(self) -> Work:
        """FLOPs of the products that the mask leaves, two forward, five backward; each operand
        moved once.
        """
        op, operands, before = _RULE if self.direction == "fwd" else _BACKWARD_RULE
        dtypes = [PRECISIONS[self.precision].profiler_dtype] * operands
        return operator_work.work(
            op, [self.shape] * operands, dtypes, [*[None] * before, bool(self.causal)]
        )

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """Queries, keys and values, and backward the gradient of the result."""
        count = 3 if self.direction == "fwd" else 4
        return tuple(normal(generator, self.shape, self.precision) for _ in range(count))

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against float64; of a large problem, of some queries of every head, or the
        gradients of some heads.

        Values of the order of 1 have weights that add up to 1, with its roundoff. Gradients are (3,
        *shape).
        """
        forward = self.direction == "fwd"
        if result.shape != (self.shape if forward else (3, *self.shape)):
            return Error(float("inf"), 0.0)
        whole = (self.work.flops or 0) <= FULL_CHECK_FLOPS
        allowed = bound_relative_error(self.precision, self.size + self.length)
        pairs = (self._forward_pairs if forward else self._gradient_pairs)(operands, result, whole)
        worst = np.max(
            [compare(computed, reference, allowed).largest for computed, reference in pairs]
        )
        return Error(float(worst), allowed, not whole)

    def _forward_pairs(
        self, operands: tuple[Array, ...], result: Array, whole: bool
    ) -> Iterator[tuple[Array, Array]]:
        """Results and references of every head, of all queries or of some."""
        count = self.length if whole else min(self.length, _CHECKED_QUERIES)
        chosen = np.sort(
            np.random.default_rng(self.length).choice(self.length, count, replace=False)
        )
        for head in np.ndindex(self.batch, self.heads):
            query, key, value = (x[head].astype(np.float64) for x in operands)
            yield result[head][chosen], self._weights(query, key, chosen) @ value

    def _gradient_pairs(
        self, operands: tuple[Array, ...], result: Array, whole: bool
    ) -> Iterator[tuple[Array, Array]]:
        """Gradients and references of all heads or of some: a key's gradient needs all queries."""
        heads = list(np.ndindex(self.batch, self.heads))
        each = (self.work.flops or 0) / len(heads)
        count = len(heads) if whole else max(1, int(FULL_CHECK_FLOPS / each))
        for index in np.random.default_rng(self.length).choice(len(heads), count, replace=False):
            head = heads[index]
            query, key, value, gradient = (x[head].astype(np.float64) for x in operands)
            to_query, to_key, to_value = (np.zeros_like(query) for _ in range(3))
            for begin in range(0, self.length, _QUERIES_AT_ONCE):
                rows = np.arange(begin, min(begin + _QUERIES_AT_ONCE, self.length))
                weights = self._weights(query, key, rows)
                to_weights = gradient[rows] @ value.T
                to_scores = (
                    weights
                    * (to_weights - (to_weights * weights).sum(axis=1, keepdims=True))
                    / self.size**0.5
                )
                to_query[rows] = to_scores @ key
                to_key += to_scores.T @ query[rows]
                to_value += weights.T @ gradient[rows]
            yield from zip(result[(slice(None), *head)], (to_query, to_key, to_value), strict=True)

    def _weights(self, query: Array, key: Array, rows: Array) -> Array:
        scores = query[rows] @ key.T / self.size**0.5
        if self.causal:
            scores[np.arange(self.length) > rows[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
