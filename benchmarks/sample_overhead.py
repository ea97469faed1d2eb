"""What a sample costs beside the work: an empty function, timed by the timer alone and by whole
visits.

The goal is under 2 µs for each sample. The part that falls between the two readings of the clock is
in every duration; the rest only takes time. Of many repetitions the fastest is printed beside the
median: other work makes them slower.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from curvescope.kernels.backends import Prepared
from curvescope.kernels.conditions import CpuWatch
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.method import BenchMeasurement, Method
from curvescope.kernels.timers import PerfCounter

_SAMPLES = 2000
_REPETITIONS = 50


class Nothing:
    """A backend whose kernel does nothing."""

    name = "nothing"
    flush_ns = 0

    def __init__(self) -> None:
        self.timer, self.watch = PerfCounter(), CpuWatch()

    def prepare(self, problem: Gemm, operands: tuple[np.ndarray, ...]) -> Prepared:
        return Prepared(lambda: None, lambda: problem.reference(operands), "nothing")

    def flush(self) -> None:
        pass


def main() -> None:
    timer = PerfCounter()
    by_timer, inside, by_visit = [], [], []
    method = Method(cache="hot", samples_per_visit=(_SAMPLES, _SAMPLES))
    for _ in range(_REPETITIONS):
        start = time.perf_counter_ns()
        samples = timer.take(lambda: None, 1, _SAMPLES, None)
        by_timer.append((time.perf_counter_ns() - start) / _SAMPLES)
        inside.append(statistics.median(sample.duration_ns for sample in samples))
        measurement, backend = BenchMeasurement(Gemm(4, 4, 4)), Nothing()
        measurement.visit(backend, method)  # type: ignore[arg-type] # verified and calibrated here
        # Nothing takes no time: whatever a visit takes beyond its samples' durations is overhead.
        start = time.perf_counter_ns()
        visited = measurement.visit(backend, method)  # type: ignore[arg-type]
        spent = (
            time.perf_counter_ns() - start - sum(s.duration_ns for s in visited) * measurement.calls
        )
        by_visit.append(spent / len(visited))
    for name, values in (
        ("the timer, a sample", by_timer),
        ("of that inside its duration", inside),
        ("a whole visit, a sample", by_visit),
    ):
        print(
            f"{name:<28} best {min(values) / 1e3:.3f} µs, median "
            f"{statistics.median(values) / 1e3:.3f} µs"
        )


if __name__ == "__main__":
    main()
