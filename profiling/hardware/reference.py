"""A reference beside timed steps: fresh memory and products, the same work each time, which sees
the machine's pace.

On a shared machine the price of a page fault and the clock vary by a tenth within seconds, and a
step with them. What the reference took beside each step is recorded, and `analysis.decompose.pace`
takes it out. The work is small and begins with a part that is not timed, so that it does not depend
on the step before it.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

SHARE = 0.05  # of the time of the steps, at most
_MOST_RUNS = 8  # at one place
_FRESH_BYTES = 1 << 20
_PARTS = 4
_SIDE, _PRODUCTS = 64, 30  # of matrices, which one core multiplies
_MATRIX = np.full((_SIDE, _SIDE), 1.0 / _SIDE)


def work() -> None:
    """Take fresh memory, write to each of its pages, and multiply matrices."""
    with mmap.mmap(-1, _FRESH_BYTES) as fresh:
        for page in range(0, _FRESH_BYTES, mmap.PAGESIZE):
            fresh[page] = 1
    for _ in range(_PRODUCTS):
        np.matmul(_MATRIX, _MATRIX)


class Reference:
    """Runs the reference between the steps of a process, as often as `SHARE` allows."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        work: Callable[[], object] = work,
    ) -> None:
        """Run it once, to know its time."""
        self._clock_ns = clock_ns
        self._work = work
        began_ns = clock_ns()
        self._run()
        self.cost_ns = clock_ns() - began_ns  # of one run, with its part that is not timed

    def fits(self, visit_ns: float) -> bool:
        """Whether it may run before and after steps that take so long together."""
        return 0 < 2 * self.cost_ns <= SHARE * visit_ns

    def read(self, steps_ns: float) -> int:
        """Mean time of the faster half of its parts, of as many runs as steps of that time allow;
        nanoseconds.

        There is one run at least. What interrupts a part says little of the pace.
        """
        runs = min(max(int(SHARE * steps_ns / self.cost_ns), 1), _MOST_RUNS)
        parts_ns = sorted(part_ns for _ in range(runs) for part_ns in self._run())
        faster_ns = parts_ns[: (len(parts_ns) + 1) // 2]
        return round(sum(faster_ns) / len(faster_ns))

    def is_due(self, steps_ns: float) -> bool:
        """Whether it may run again after steps of that time."""
        return self.cost_ns <= SHARE * steps_ns

    def _run(self) -> list[int]:
        self._work()
        times_ns = [self._clock_ns()]
        for _ in range(_PARTS):
            self._work()
            times_ns.append(self._clock_ns())
        return [after - before for before, after in pairwise(times_ns)]
