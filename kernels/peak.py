"""Arithmetic peak: independent chains of fused multiply-adds that stay in registers, x = x · a + b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..profiling.attribution.operator_work import Work
from ..profiling.errors import CurvescopeError
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .problem import Array, Error, compare, normal

# Chosen so that the chains neither grow nor die: they converge to B / (1 - A) = 1.
A, B = 0.5, 0.5
STEPS = 100_000


@dataclass(frozen=True)
class Peak:
    """Steps of all chains of the device, as many as it needs to be busy; the backend says how many those are.

    Attributes:
        chains: over all threads.
        precision: a key of `PRECISIONS`.
        steps: of each chain.
    """

    chains: int
    precision: str = "fp32"
    steps: int = STEPS

    def __post_init__(self) -> None:
        precision_of(self.precision)
        if self.chains < 1 or self.steps < 1:
            raise CurvescopeError("A peak needs one chain and one step at least.")

    @property
    def label(self) -> str:
        """As in `peak 256 chains fp32`."""
        return self.label_along("")

    def label_along(self, axis: str) -> str:
        """The label of all problems along an axis: * stands for its value."""
        return f"peak {'*' if axis == 'chains' else self.chains} chains {self.precision}"

    @property
    def work(self) -> Work:
        """A multiplication and an addition in every step of every chain; next to nothing moves."""
        return Work(2 * self.chains * self.steps, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:
        """Where the chains begin, shape (chains,)."""
        return (normal(generator, (self.chains,), self.precision),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Against x_n = aⁿ x_0 + b (1 - aⁿ) / (1 - a), which is exact up to the last step's roundings.

        Args:
            operands: where the chains began.
            result: where they ended, shape (chains,).
        """
        shrunk = A**self.steps
        reference = shrunk * operands[0].astype(np.float64) + B * (1 - shrunk) / (1 - A)
        return compare(result, reference, 4 * PRECISIONS[self.precision].result_roundoff)


@dataclass(frozen=True)
class PeakRounds:
    """Rounds of one of our CUDA peak kernels, in which every multiplication of 1 by 1 adds 1 to a sum.

    Attributes:
        kernel: its name.
        threads: of the whole grid.
        flops_per_thread_round: as kernels/catalog.py has it.
        precision: a key of `PRECISIONS`.
        rounds: in one launch; a few milliseconds.
    """

    kernel: str
    threads: int
    flops_per_thread_round: int
    precision: str = "fp32"
    rounds: int = 2000

    @property
    def label(self) -> str:
        """As in `peak_fp16_tensor 270336 threads`."""
        return f"{self.kernel} {self.threads} threads"

    @property
    def work(self) -> Work:
        """FLOPs of all rounds."""
        return Work(self.flops_per_thread_round * self.threads * self.rounds, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:  # noqa: ARG002 - ones are arguments
        """None."""
        return ()

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - there are none
        """One round adds as much as it has fused multiply-adds: half its FLOPs.

        Args:
            operands: none.
            result: each thread's sum after one round, shape (threads,).
        """
        return compare(result, np.full(self.threads, self.flops_per_thread_round / 2), 0.0)
