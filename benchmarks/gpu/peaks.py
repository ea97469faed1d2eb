"""What the units, the memory and the libraries reach, in one process: over the nominal peak, and
over it at the clock.

Arguments: device, file that gets a row for each problem, file of the answer to `units`. The clock
is that of the SMs in the stream, while the problem ran: a product that the power limit slows down
reaches less of the nominal peak, and as much of the peak at its clock. A later call goes on with
the problems that have no row.

A rate counts the operations of the problem's formula. A note says where that is not what the card
does: a convolution above the peak runs an algorithm with fewer multiplications (FFT or Winograd).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import scripts

from curvescope.base.errors import BackendMissingError
from curvescope.kernels.backends import Backend, open_backend, peak_problem
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.memory import Memory
from curvescope.kernels.method import BenchMeasurement, BenchOutcome, Method
from curvescope.kernels.peak import PeakRounds
from curvescope.kernels.problem import Problem
from curvescope.profiling.hardware.devices import Device
from curvescope.profiling.hardware.limits import match_device

_QUESTION = "What do the units reach in bf16 with ones, and what do products of random numbers?"
_STREAMED_BYTES = 1 << 30  # far beyond every L2
_PRECISIONS = ("fp32", "tf32", "bf16")
# Of the largest, whose operands take seconds to draw, the fastest first and the others last.
_LARGEST = 8192
_EXTENTS = (4096, 2048, 1024)
_FEWER = "fewer operations than counted: FFT or Winograd"
_CONV = Conv(64, 256, 56, 56, 256, 3, 3, padding=(1, 1))
# No result of the virtual card is right.
_METHOD = Method(
    cache="hot",
    time_limit_s=1.0,
    visits=(6, 6),
    visit_s=0.06,
    profile=False,
    verify=not scripts.on_virtual_card(),
)


def problems(streams: Backend | None, library: Backend) -> Iterator[tuple[Backend, Problem]]:
    """The most telling problem first; `streams` has our own kernels, where cupy is installed."""
    if streams is not None:
        for precision in ("fp32", "bf16"):
            if precision in streams.peak_precisions:
                yield streams, peak_problem(streams, precision)
    for kind in ("copy", "read"):
        yield streams or library, Memory(kind, _STREAMED_BYTES)
    products = [(extent, precision) for extent in _EXTENTS for precision in _PRECISIONS]
    for extent, precision in (
        products[0],
        products[2],
        (_LARGEST, "bf16"),
        products[1],
        *products[3:],
    ):
        yield library, Gemm(extent, extent, extent, precision=precision)
    for direction in DIRECTIONS:
        yield library, replace(_CONV, direction=direction)
    for precision in ("tf32", "fp32"):
        yield library, Gemm(_LARGEST, _LARGEST, _LARGEST, precision=precision)


def nominal(problem: Problem, device: Device) -> tuple[float, float] | None:
    """The peak rate per second that the problem is held to, and the clock that it assumes, Hz; None
    if unknown.
    """
    if isinstance(problem, Memory):
        return (device.memory_bytes_per_s, 0.0) if device.memory_bytes_per_s else None
    precision = str(getattr(problem, "precision", "fp32"))
    on_tensor_cores = device.tensor_flops_per_s(precision)
    peak = device.peak_products_per_s(precision)
    running = device.facts.get(f"{device.running_clock}_clock_hz")
    clock = device.facts.get("tensor_clock_hz", running) if on_tensor_cores else running
    return None if peak is None or clock is None else (peak, clock.value)


def row(problem: Problem, backend: Backend, device: Device | None) -> dict[str, Any]:
    """Measure a problem; durations are medians of all samples."""
    measurement = BenchMeasurement(problem)
    while not measurement.done(_METHOD):
        measurement.take(backend, _METHOD)
    assert measurement.verification is not None
    found: dict[str, Any] = {"problem": label(problem), "backend": backend.name}
    found["outcome"] = measurement.verification.outcome
    durations_ns = measurement.durations_ns()
    if not durations_ns:
        return {**found, "detail": measurement.verification.detail or dict(measurement.discarded)}
    median_ns, interval_ns = statistics.median(durations_ns), measurement.interval_ns()
    clocks_hz = [one.clock_hz for one in measurement.conditions if one.clock_hz]
    clock_hz = statistics.median(clocks_hz) if clocks_hz else None
    work = problem.work
    amount = work.bytes_compulsory if isinstance(problem, Memory) else work.flops
    assert amount is not None
    rate = amount / median_ns * 1e9
    found |= {
        "us": median_ns / 1e3,
        "low_us": interval_ns and interval_ns[0] / 1e3,
        "high_us": interval_ns and interval_ns[1] / 1e3,
        "n": len(durations_ns),
        "tera_per_s": rate / 1e12,
        "of": "B" if isinstance(problem, Memory) else "FLOP",
        "clock_mhz": clock_hz and clock_hz / 1e6,
        "over_nominal": None,
        "over_peak_at_clock": None,
        "note": measurement.verification.detail
        if found["outcome"] == BenchOutcome.NOT_VERIFIED
        else "",
    }
    if device is not None and (peak := nominal(problem, device)) is not None:
        per_s, nominal_hz = peak
        found["over_nominal"] = rate / per_s
        if nominal_hz and clock_hz:  # the DRAM has a clock of its own
            found["over_peak_at_clock"] = rate / (per_s * clock_hz / nominal_hz)
        if isinstance(problem, Conv) and found["over_nominal"] > 1:
            found["note"] = _FEWER
    return found


def label(problem: Problem) -> str:
    """The name of a problem in the table."""
    is_peak = isinstance(problem, PeakRounds) and not problem.beyond
    return f"units of {problem.precision}" if is_peak else problem.label


def main() -> int:
    device, path, answers = sys.argv[1:]
    library = open_backend("torch", device)
    streams: Backend | None = None
    try:
        streams = open_backend("cupy", device)
    except BackendMissingError as error:
        print(error, file=sys.stderr)
    facts = library.describe()
    listed = match_device(facts["name"], facts["compute_capability"])
    before = {found["problem"] for found in scripts.read_rows(Path(path))}  # of a call that ended
    for backend, problem in problems(streams, library):
        if label(problem) not in before:
            scripts.add_row(path, row(problem, backend, listed))
    rates = {
        found["problem"]: f"{found['problem']} {found['tera_per_s']:.0f} TFLOP/s"
        for found in scripts.read_rows(Path(path))
        if "bf16" in found["problem"] and "tera_per_s" in found
    }
    scripts.add_row(
        answers,
        {
            "check": "units",
            "question": _QUESTION,
            "answer": "; ".join(rates.values()) or "none ran",
        },
    )
    return 0


if __name__ == "__main__":
    scripts.run(main)
