"""What it costs to ask for work: the smallest call there is, in the ways that a device can be asked.

call          host time of one asynchronous call
synchronize   the call and waiting for it
throughput    device time from one kernel to the next, when many are queued
graph         the same inside one CUDA graph
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..profiling.attribution.operator_work import Work
from ..profiling.errors import CurvescopeError
from .problem import Array, Error, compare

KINDS = ("call", "synchronize", "throughput", "graph")
# Kernels that are queued at once: below the 1024 that CUDA queues before a launch waits for the device.
QUEUED = 500


@dataclass(frozen=True)
class Launch:
    """One launch of an operator that adds 1 to one number: a kernel so short that what is timed is the asking.

    Attributes:
        kind: one of `KINDS`.
        precision: of the number.
    """

    kind: str = "call"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CurvescopeError(f"Unknown kind of launch {self.kind!r}: choose from {', '.join(KINDS)}.")

    @property
    def label(self) -> str:
        """As in `launch graph`."""
        return f"launch {self.kind}"

    @property
    def work(self) -> Work:
        """None that counts."""
        return Work(0, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:  # noqa: ARG002 - nothing random about a zero
        """The number."""
        return (np.zeros(1, np.float32),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - the number starts at 0
        """One launch adds 1.

        Args:
            operands: the number.
            result: what one launch added, shape (1,).
        """
        return compare(result, np.ones(1), 0.0)
