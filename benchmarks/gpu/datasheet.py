"""On a GPU: peaks and copies against the datasheet, backends against each other on the same cubin.

Not run on any GPU yet. The goals: FMA at 95 % of clock times lanes times two, a copy at 90 % of the datasheet's
bandwidth, all backends within 2 % of each other.
"""

from __future__ import annotations

import statistics
import sys

from curvescope.base.errors import BackendMissingError
from curvescope.kernels.backends import Backend, open_backend, peak_problem
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.memory import Memory
from curvescope.kernels.method import BenchMeasurement, Method
from curvescope.kernels.problem import Problem
from curvescope.profiling.hardware.limits import match_device


def measure(backend: Backend, problem: Problem, cache: str = "hot") -> float:
    """Median duration in nanoseconds of six visits."""
    measurement, method = BenchMeasurement(problem), Method(cache=cache)
    while not measurement.done(method):
        measurement.visit(backend, method)
    assert measurement.timed, measurement.verification
    return statistics.median(measurement.durations_ns())


def compare_with_datasheet(backend: Backend) -> None:
    """FMA chains and a copy far beyond the L2."""
    facts = backend.describe()
    device = match_device(facts["name"], facts["compute_capability"])
    peak = peak_problem(backend, "fp32")
    assert peak.work.flops is not None
    reached = peak.work.flops / measure(backend, peak) * 1e9
    copy = Memory("copy", 1 << 30)
    assert copy.work.bytes_compulsory is not None
    bandwidth = copy.work.bytes_compulsory / measure(backend, copy) * 1e9
    print(f"{facts['name']}: FMA {reached / 1e12:.2f} TFLOP/s, copy {bandwidth / 1e9:.1f} GB/s")
    if device is not None and (datasheet := device.peak_flops_per_s()):
        print(f"FMA over the peak at the {device.running_clock} clock: {reached / datasheet:.3f}")
    if device is not None and (stated := device.facts.get("memory_bytes_per_s")):
        print(f"copy over the datasheet's bandwidth: {bandwidth / stated.value:.3f}")


def main() -> None:
    backends = {}
    for name in ("cupy", "pycuda"):
        try:
            backends[name] = open_backend(name, "cuda")
        except BackendMissingError as error:
            print(error, file=sys.stderr)
    if backends:
        compare_with_datasheet(next(iter(backends.values())))
    times = {name: measure(backend, Gemm(2048, 2048, 2048)) for name, backend in backends.items()}
    for name, duration_ns in times.items():
        ratio = duration_ns / min(times.values())
        print(f"sgemm 2048 through {name}: {duration_ns / 1e6:.4f} ms, {ratio:.3f} of the least")


if __name__ == "__main__":
    main()
