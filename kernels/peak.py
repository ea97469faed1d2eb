"""Arithmetic peak: independent chains of fused multiply-adds in registers, x = x · a + b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.attribution.operation import Work
from ..profiling.hardware.precisions import PRECISIONS, precision_of
from .conditions import Note
from .problem import Array, Error, Labelled, compare, normal

# With these values the chains neither overflow nor underflow: they converge to B / (1 - A) = 1.
A, B = 0.5, 0.5
STEPS = 100_000


def end_of_chains(start: Array, steps: int) -> Array:
    """In float64: x_n = aⁿ x_0 + b (1 - aⁿ) / (1 - a)."""
    shrunk = A**steps
    return np.asarray(shrunk * start.astype(np.float64) + B * (1 - shrunk) / (1 - A))


@dataclass(frozen=True)
class Peak(Labelled):
    """Independent chains on the whole device; the backend chooses how many of them keep it busy."""

    chains: int
    precision: str = "fp32"
    steps: int = STEPS
    template = "peak {chains} chains {precision}"

    def __post_init__(self) -> None:
        precision_of(self.precision)
        if self.chains < 1 or self.steps < 1:
            raise CurvescopeError("A peak needs at least one chain and one step.")

    @property
    def work(self) -> Work:
        """One multiplication and one addition per step and chain; the memory traffic is
        negligible.
        """
        return Work(2 * self.chains * self.steps, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:
        """Initial values of the chains, shape (chains,)."""
        return (normal(generator, (self.chains,), self.precision),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:
        """Error against the ends of the chains; only the last step's roundings remain."""
        reference = end_of_chains(operands[0], self.steps)
        return compare(result, reference, 4 * PRECISIONS[self.precision].result_roundoff)


@dataclass(frozen=True)
class PeakRounds(Labelled):
    """Rounds of one of our CUDA peak kernels: every multiplication of 1 by 1 adds 1 to a sum.

    Each thread does `flops_per_thread_round` FLOPs in a round, see kernels/catalog.py. The default
    number of rounds takes a few milliseconds.
    """

    kernel: str
    threads: int
    flops_per_thread_round: int
    precision: str = "fp32"
    rounds: int = 500
    beyond: str = ""  # faster instructions of the device, where this kernel is a lower bound

    def label_along(self, axis: str) -> str:
        """E.g. `peak_fp32 270336 threads`; with `at least` where it is a lower bound."""
        bound = ", at least" if self.beyond else ""
        return self._fill_template(f"{{kernel}} {{threads}} threads{bound}", axis)

    @property
    def note(self) -> Note | None:
        """What the rate is not; None where it is the peak."""
        if not self.beyond:
            return None
        sentence = (
            f"{self.kernel} is a lower bound: it runs mma.sync, and these tensor cores reach their "
            f"peak with {self.beyond}"
        )
        return Note("at least", 1, sentence)

    @property
    def work(self) -> Work:
        return Work(self.flops_per_thread_round * self.threads * self.rounds, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array, ...]:  # noqa: ARG002 - the ones are arguments
        return ()

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - no operands
        """Error of each thread's sum after one round against half its FLOPs: each fused
        multiply-add adds 1.
        """
        return compare(result, np.full(self.threads, self.flops_per_thread_round / 2), 0.0)
