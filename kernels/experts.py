"""Grouped products: the tokens of each expert times its own weights, as in a mixture of experts.

Tokens lie in the order of their experts, and are divided evenly. The products are those of
`gemm.py`: A holds an expert's weights, B its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..base.errors import CurvescopeError, check_choice
from ..profiling.attribution import operator_work
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS
from .gemm import Gemm
from .problem import Array, Error, Labelled, check_precision, normal, share_to_check

# All products in one call, which may still be a loop inside of torch; or a call for each expert.
ALGORITHMS = ("grouped", "loop")
PRECISIONS_HERE = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Experts(Labelled):
    """A product of m x k weights and k x n tokens for each expert; all n together are `tokens`."""

    experts: int
    tokens: int
    m: int  # outputs of a token
    k: int  # its inputs
    algorithm: str = "grouped"
    precision: str = "bf16"
    template = "experts {algorithm} {experts} of {m}x{tokens}x{k} {precision}"

    def __post_init__(self) -> None:
        check_precision("Experts are", self.precision, PRECISIONS_HERE)
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        if min(self.experts, self.m, self.k) < 1 or self.tokens < self.experts:
            why = "every extent is at least 1, and every expert has a token"
            raise CurvescopeError(f"{self.label}: {why}.")

    @property
    def has_several(self) -> bool:
        """As of `Labelled`: a product for each expert."""
        return True

    @property
    def ends(self) -> Array:
        """Where the tokens of each expert end, shape (experts,), int32."""
        counts = np.arange(1, self.experts + 1, dtype=np.int64)
        return (counts * self.tokens // self.experts).astype(np.int32)

    def slices(self) -> Iterator[tuple[int, slice]]:
        """Each expert with the rows of its tokens."""
        ends = [0, *map(int, self.ends)]
        for expert in range(self.experts):
            yield expert, slice(ends[expert], ends[expert + 1])

    @property
    def work(self) -> Work:
        """2 m k FLOPs a token; tokens and all weights read, results written."""
        dtype = PRECISIONS[self.precision].profiler_dtype
        shapes = [(self.tokens, self.k), (self.experts, self.k, self.m), (self.experts,)]
        return operator_work.work("aten::_grouped_mm", shapes, [dtype, dtype, "int"])

    def operands(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Weights of shape (experts, k, m) and tokens of shape (tokens, k)."""
        draw = partial(normal, generator, precision=self.precision)
        return draw((self.experts, self.k, self.m)), draw((self.tokens, self.k))

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """The largest error of an expert's product, each checked in the same share."""
        if result.shape != (self.tokens, self.m):
            return Error(float("inf"), 0.0)
        share = share_to_check(self.work)
        errors = []
        for expert, rows in self.slices():
            product = Gemm(self.m, rows.stop - rows.start, self.k, precision=self.precision)
            of_expert = operands[0][expert], operands[1][rows]
            errors.append(product.error_of_share(of_expert, result[rows], share))
        return max(errors, key=lambda error: (not error.acceptable, error.largest))
