"""On a real device: every backend right on the same problems, and the clocks and peaks that the method relies on."""

from __future__ import annotations

import numpy as np
import pytest

from curvescope.kernels.backends import UnsupportedError, open_backend, peak_problem
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import KINDS as LAUNCHES
from curvescope.kernels.launch import Launch
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.method import Measurement, Method, Outcome
from curvescope.profiling.errors import BackendMissingError

pytestmark = pytest.mark.gpu

PROBLEMS = [
    *(Gemm(129, 65, 257, transpose) for transpose in TRANSPOSES),
    *(Gemm(256, 128, 512, "TN", precision) for precision in ("fp64", "tf32", "fp16", "bf16")),
    *(Conv(4, 8, 19, 17, 16, 3, 3, (2, 1), (1, 0), (1, 2), 2, direction) for direction in DIRECTIONS),
    *(Memory(kind, 48_000_000) for kind in KINDS),
    *(Launch(kind) for kind in LAUNCHES),
    Latency(1 << 20),
]


@pytest.fixture(scope="module", params=["torch", "cupy", "pycuda", "numba"])
def backend(request):
    try:
        return open_backend(request.param, "cuda")
    except BackendMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_every_backend_is_right_or_says_that_it_cannot(backend, problem, cache):
    measurement = Measurement(problem)
    measurement.visit(backend, Method(cache=cache, visit_s=0.01))
    assert measurement.verification.outcome not in (Outcome.INCORRECT, Outcome.FAILED), measurement.verification
    if measurement.timed:
        assert measurement.durations_ns()


def test_the_peaks_do_the_arithmetic_they_say(backend):
    if not hasattr(backend, "peak"):
        pytest.skip(f"{backend.name} has no peak kernels")
    for precision in backend.peak_precisions:
        measurement = Measurement(peak_problem(backend, precision))
        measurement.visit(backend, Method(cache="hot", visit_s=0.01))
        assert measurement.verification.outcome == Outcome.OK, (precision, measurement.verification)


def test_the_same_cubin_takes_the_same_time_through_every_library():
    # Generous: it finds a stream or an event in the wrong place, not a percent.
    medians = {}
    problem = Gemm(2048, 2048, 2048)
    for name in ("cupy", "pycuda"):
        try:
            backend = open_backend(name, "cuda")
            measurement = Measurement(problem)
            measurement.visit(backend, Method(cache="hot", visit_s=0.2))
        except (BackendMissingError, UnsupportedError) as error:
            pytest.skip(str(error))
        medians[name] = float(np.median(measurement.durations_ns()))
    assert max(medians.values()) < 1.2 * min(medians.values())
