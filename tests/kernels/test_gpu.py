"""On a real device: every backend right on the same problems, and the clocks and peaks that the
method relies on.
"""

import numpy as np
import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.kernels.backends import UnsupportedError, open_backend, peak_problem
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.experts import Experts
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import KINDS as LAUNCHES
from curvescope.kernels.launch import Launch
from curvescope.kernels.levels import memory_levels
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.method import BenchMeasurement, BenchOutcome, Method
from curvescope.kernels.mix import Mix

from ..shared import CUPY, ON_VIRTUAL_CARD

pytestmark = pytest.mark.gpu

PROBLEMS = [
    *(Gemm(129, 65, 257, transpose) for transpose in TRANSPOSES),
    *(Gemm(256, 128, 512, "TN", precision) for precision in ("fp64", "tf32", "fp16", "bf16")),
    *(
        Conv(4, 8, 19, 17, 16, 3, 3, (2, 1), (1, 0), (1, 2), 2, direction)
        for direction in DIRECTIONS
    ),
    *(Memory(kind, 48_000_000) for kind in KINDS),
    *(Launch(kind) for kind in LAUNCHES),
    Latency(1 << 20),
    Gemm(64, 64, 64, batch=4),
    Gemm(64, 64, 64, "TN", "bf16", epilogue="gelu"),
    Experts(4, 256, 64, 64, "loop"),
    Mix(16, 48_000_000),
]


@pytest.fixture(scope="module", params=["torch", CUPY, "pycuda", "numba"])
def backend(request):
    try:
        return open_backend(request.param, "cuda")
    except BackendMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_every_backend_is_right_or_says_that_it_cannot(backend, problem, cache):
    measurement = BenchMeasurement(problem)
    measurement.take(backend, Method(cache=cache, visit_s=0.01, verify=not ON_VIRTUAL_CARD))
    timed = (BenchOutcome.OK, BenchOutcome.NOT_VERIFIED)
    expected = timed if is_supported(backend.name, problem) else (BenchOutcome.UNSUPPORTED,)
    assert measurement.verification.outcome in expected, measurement.verification
    assert (len(measurement.durations_ns()) > 0) == measurement.timed


def is_supported(backend, problem):
    """Whether a backend has a kernel for the problem, on Ampere and later."""
    if backend == "torch":
        return not isinstance(problem, (Latency, Mix))
    if isinstance(problem, Experts) or getattr(problem, "batch", 1) > 1:
        return False
    if backend == "numba":
        return isinstance(problem, (Gemm, Memory)) and problem.precision == "fp32"
    if isinstance(problem, Launch):
        return problem.kind != "graph"
    return isinstance(problem, Latency) or problem.precision == "fp32"


def measured_ns(backend, problem, **method):
    measurement = BenchMeasurement(problem)
    for _ in range(6):
        measurement.take(
            backend, Method(cache="hot", visit_s=0.05, verify=not ON_VIRTUAL_CARD, **method)
        )
    assert measurement.timed, measurement.verification
    return float(np.median(measurement.durations_ns())), measurement


def test_the_levels_of_memory_are_told_apart(backend):
    if backend.name not in ("cupy", "pycuda"):
        pytest.skip(f"{backend.name} times whole passes or has no pointer chase")
    l2, dram = memory_levels(backend.describe())
    rates = [
        size / measured_ns(backend, Memory("read", size))[0]
        for size in (l2.size_bytes, dram.size_bytes)
    ]
    assert rates[0] > 1.2 * rates[1]
    latencies = [
        measured_ns(backend, Latency(size))[0] for size in (l2.size_bytes, dram.size_bytes)
    ]
    assert latencies[1] > 1.3 * latencies[0]


def test_the_throughput_of_launches_is_the_devices(backend):
    if backend.name == "numba":
        pytest.skip("numba has no launch problem")
    one_ns, measurement = measured_ns(backend, Launch("throughput"))
    assert not any(sample.waits_for_host for visit in measurement.visits for sample in visit)
    assert one_ns < measured_ns(backend, Launch("synchronize"))[0]


@pytest.mark.not_virtual("it compares results, and a virtual card computes nothing")
def test_the_peaks_do_the_arithmetic_they_say(backend):
    if not backend.peak_precisions:
        pytest.skip(f"{backend.name} has no peak kernels")
    for precision in backend.peak_precisions:
        measurement = BenchMeasurement(peak_problem(backend, precision))
        measurement.take(backend, Method(cache="hot", visit_s=0.01))
        assert measurement.verification.outcome == BenchOutcome.OK, (
            precision,
            measurement.verification,
        )


def test_the_same_cubin_takes_the_same_time_through_every_library():
    # Generous: it finds a stream or an event in the wrong place, not a percent.
    medians = {}
    problem = Gemm(2048, 2048, 2048)
    for name in ("cupy", "pycuda"):
        try:
            backend = open_backend(name, "cuda")
            measurement = BenchMeasurement(problem)
            measurement.take(backend, Method(cache="hot", visit_s=0.2))
        except (BackendMissingError, UnsupportedError) as error:
            pytest.skip(str(error))
        medians[name] = float(np.median(measurement.durations_ns()))
    assert len(medians) == 2
    assert max(medians.values()) < 1.2 * min(medians.values())
