"""numba on the CPU: every kernel right, whatever the passes; what it has not is said."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.kernels.backends import UnsupportedError, numba_cpu, open_backend, peak_problem
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import Launch
from curvescope.kernels.memory import KINDS, SCALAR, Memory
from curvescope.kernels.method import BenchMeasurement, BenchOutcome, Method
from curvescope.kernels.mix import Mix
from curvescope.kernels.peak import Peak
from curvescope.profiling.hardware.host import last_level_cache_bytes

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")

# 1000 elements do not spread evenly over threads of any number but few.
PROBLEMS = [
    *(Memory(kind, 12_012) for kind in KINDS),
    Memory("triad", 120_000, 4),
    Memory("copy", 16_000_000, 1, "fp64"),
    *(
        Mix(fmas, 12_012, precision)
        for fmas, precision in ((1, "fp32"), (3, "fp64"), (256, "fp32"))
    ),
    Latency(64 * 100),
    Launch("call"),
]


@pytest.fixture
def backend():
    return open_backend("numba", "cpu")


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_results_are_the_references(backend, problem):
    operands = problem.operands(np.random.default_rng(0))
    prepared = backend.prepare(problem, operands)
    prepared.run()
    error = problem.error(operands, prepared.result())
    assert error.acceptable, error


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_peak_problem_fills_the_registers_and_is_right(backend, precision):
    problem = peak_problem(backend, precision)
    assert problem.chains % backend.describe()["threads"] == 0
    measurement = BenchMeasurement(Peak(problem.chains, precision, steps=1000))
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert measurement.verification.outcome == BenchOutcome.OK
    # An FMA takes a few cycles: a chain that the compiler removed would take none.
    assert measurement.durations_ns()[0] > 1000 * 4 / 10


@pytest.mark.slow
def test_short_passes_are_repeated_inside_a_run_but_with_cold_caches(backend):
    measurement = BenchMeasurement(Memory("copy", 16_000))
    measurement.take(backend, Method(cache="hot", visit_s=0.0))
    assert measurement.inner == 2000  # 32 MB in all
    assert (
        measurement.durations_ns()[0] < 1e6
    )  # of one pass: microseconds, where a run takes a millisecond
    cold = BenchMeasurement(Memory("copy", 16_000))
    cold.take(backend, Method(cache="cold", visit_s=0.0))
    assert cold.inner == 1


def test_runs_of_a_chase_follow_one_another_through_the_complete_buffer():
    problem = Latency(64 * 200, loads=30)
    (buffer,) = problem.operands(np.random.default_rng(0))
    prepared = open_backend("numba", "cpu").prepare(problem, (buffer,))
    last = prepared.run.args[-1]
    for runs in range(1, 9):
        prepared.run()
        assert last[0] == problem.order[30 * runs % 200] * 8
    assert problem.error((buffer,), prepared.result()).acceptable


@pytest.mark.slow
def test_a_flush_reads_and_writes_all_of_its_buffer(backend, monkeypatch):
    buffers, zeros = [], np.zeros
    monkeypatch.setattr(
        numba_cpu.np, "zeros", lambda *of: buffers.append(zeros(*of)) or buffers[-1]
    )
    backend.flush()
    (buffer,) = buffers
    assert buffer.nbytes == 2 * (last_level_cache_bytes() or 128_000_000)
    buffer.fill(1)
    backend.flush()
    assert (buffer == SCALAR).all()
    assert backend.flush_ns > 0


def test_numbas_threads_leave_torch_its_number():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()

    def start_threads():
        """As numba where torch was loaded first: both have one OpenMP library."""
        torch.set_num_threads(before + 1)
        return before + 1

    fake = SimpleNamespace(get_num_threads=start_threads)
    assert numba_cpu.NumbaCpuBackend(fake).describe()["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_what_it_has_not_is_said(backend, monkeypatch):
    with pytest.raises(UnsupportedError, match="use the torch backend"):
        backend.prepare(Gemm(2, 2, 2), ())
    with pytest.raises(UnsupportedError, match="no launch queue"):
        backend.prepare(Launch("graph"), (np.zeros(1, np.float32),))
    with pytest.raises(CurvescopeError, match="--backend numba"):
        peak_problem(open_backend("torch", "cpu"), "fp32")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(BackendMissingError, match=r"curvescope\[numba\]"):
        open_backend("numba", "cpu")
