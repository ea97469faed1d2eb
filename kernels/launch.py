"""Kernel launch latency and throughput, with the smallest possible kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.errors import check_choice
from ..profiling.attribution.operation import Work
from .problem import Array, Error, Labelled, compare

KINDS = (
    "call",  # host time of one asynchronous call
    "synchronize",  # host time of the call and of waiting for it
    # device time from one kernel to the next, with many queued while the device is busy
    "throughput",
    "graph",  # the same inside one CUDA graph
)
# Number of queued kernels: below the 1024 that CUDA queues before a launch blocks.
QUEUED = 500


@dataclass(frozen=True)
class Launch(Labelled):
    """One launch of an operator that adds 1 to one number: so short that only the launch takes
    time.
    """

    kind: str = "call"
    precision: str = "fp32"
    template = "launch {kind}"

    def __post_init__(self) -> None:
        check_choice("kind of launch", self.kind, KINDS)

    @property
    def work(self) -> Work:
        return Work(0, 0)

    def operands(self, generator: np.random.Generator) -> tuple[Array]:  # noqa: ARG002 - the operand is 0
        return (np.zeros(1, np.float32),)

    def error(self, operands: tuple[Array, ...], result: Array) -> Error:  # noqa: ARG002 - the number starts at 0
        """Error against 1: one launch adds 1 to the number, shape (1,)."""
        return compare(result, np.ones(1), 0.0)
