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
from ..profiling.hardware.precisions import PRECISIONS
from .problem import (
    Array,
    Error,
    Labelled,
    bound_relative_error,
    can_check_all,
    check_precision,
    compare,
    in_float64,
    normal,
    share_to_check,
    softmax,
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
        check_precision("Attention is", self.precision, PRECISIONS_HERE)
        check_choice("attention", self.algorithm, ALGORITHMS)
        check_choice("direction", self.direction, DIRECTIONS)
        if min(self.batch, self.heads, self.length, self.size) < 1 or self.causal not in (0, 1):
            why = "every extent is at least 1, and causal is 0 or 1"
            raise CurvescopeError(f"{self.label}: {why}.")

    def label_along(self, axis: str) -> str:
        """E.g. `attention flash 8x16x1024x64 bf16`: batch, heads, length, size."""
        parts = ["attention", "{algorithm}", "{batch}x{heads}x{length}x{size}", "{precision}"]
        if self.direction == "bwd":
            parts.insert(1, "bwd")
        if self.causal:
            parts.insert(-1, "causal")
        return self._fill_template(" ".join(parts), axis)

    @property
    def has_several(self) -> bool:
        """As of `Labelled`: two products and a softmax."""
        return True

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
        arguments = [*[None] * before, bool(self.causal)]
        return operator_work.work(op, [self.shape] * operands, dtypes, arguments)

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """Queries, keys and values, and backward the gradient of the result."""
        count = 3 if self.direction == "fwd" else 4
        return tuple(normal(generator, self.shape, self.precision) for _ in range(count))

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against float64. A large problem is checked for some queries of every head, or
        for the gradients of some heads.

        Values of the order of 1 have weights that add up to 1, with its roundoff. Gradients are (3,
        *shape).
        """
        shape: tuple[int, ...] = self.shape
        pair = self._forward_pairs
        if self.direction == "bwd":
            shape, pair = (3, *shape), self._gradient_pairs
        if result.shape != shape:
            return Error(float("inf"), 0.0)
        whole = can_check_all(self.work)
        allowed = bound_relative_error(self.precision, self.size + self.length)
        errors = [compare(*both, allowed).largest for both in pair(operands, result, whole)]
        return Error(float(np.max(errors)), allowed, not whole)

    def _forward_pairs(
        self, operands: tuple[Array, ...], result: Array, whole: bool
    ) -> Iterator[tuple[Array, Array]]:
        """Results and references of every head, of all queries or of some."""
        count = self.length if whole else min(self.length, _CHECKED_QUERIES)
        rows = np.sort(self._choose(self.length, count))
        for head in np.ndindex(self.batch, self.heads):
            query, key, value = in_float64(x[head] for x in operands)
            yield result[head][rows], self._weights(query, key, rows) @ value

    def _choose(self, total: int, count: int) -> Array:
        """Different numbers below a total; the same for the same problem."""
        return np.random.default_rng(self.length).choice(total, count, replace=False)

    def _gradient_pairs(
        self, operands: tuple[Array, ...], result: Array, whole: bool
    ) -> Iterator[tuple[Array, Array]]:
        """Gradients and references of all heads or of some: a key's gradient needs all queries."""
        heads = list(np.ndindex(self.batch, self.heads))
        count = len(heads) if whole else max(1, int(share_to_check(self.work) * len(heads)))
        for index in self._choose(len(heads), count):
            head = heads[index]
            gradients = self._gradients(*in_float64(x[head] for x in operands))
            yield from zip(result[(slice(None), *head)], gradients, strict=True)

    def _gradients(
        self, query: Array, key: Array, value: Array, gradient: Array
    ) -> tuple[Array, Array, Array]:
        """The gradients of one head, to queries, keys and values."""
        to_query, to_key, to_value = (np.zeros_like(query) for _ in range(3))
        for begin in range(0, self.length, _QUERIES_AT_ONCE):
            rows = np.arange(begin, min(begin + _QUERIES_AT_ONCE, self.length))
            weights = self._weights(query, key, rows)
            to_weights = gradient[rows] @ value.T
            mean = (to_weights * weights).sum(axis=1, keepdims=True)
            to_scores = weights * (to_weights - mean) / self.size**0.5
            to_query[rows] = to_scores @ key
            to_key += to_scores.T @ query[rows]
            to_value += weights.T @ gradient[rows]
        return to_query, to_key, to_value

    def _weights(self, query: Array, key: Array, rows: Array) -> Array:
        scores = query[rows] @ key.T / self.size**0.5
        if self.causal:
            later = np.arange(self.length) > rows[:, None]
            scores[later] = -np.inf
        return softmax(scores)
