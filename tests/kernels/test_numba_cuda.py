"""numba's CUDA kernels in its simulator, and what is said where there is no device."""

import json
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.kernels.backends import UnsupportedError, open_backend
from curvescope.kernels.backends.cuda_device import DeviceFacts
from curvescope.kernels.backends.numba_cuda import NumbaCudaBackend, check_that_it_compiles
from curvescope.kernels.conv import Conv
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.memory import Memory
from curvescope.kernels.timers import CudaEvents, EventApi

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@pytest.mark.slow
def test_every_kernel_is_right_in_the_simulator_and_a_wrong_result_is_seen():
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.numba_simulated"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 10
    assert {right for _, right, _ in results} == {True}, results
    assert {wrong for _, _, wrong in results} == {False}, results


def test_what_its_kernels_have_not_is_unsupported():
    events = EventApi(object, lambda: None)
    backend = NumbaCudaBackend(SimpleNamespace(), DeviceFacts("GPU", (7, 0), 2, 10, 10), events)
    assert isinstance(backend.timer, CudaEvents)
    assert backend.describe()["compute_capability"] == "7.0"
    for problem, message in (
        (Gemm(2, 2, 2, "NN", "fp16"), "fp32"),
        (Memory("copy", 4800, 2), "do not support a stride"),
        (Conv(1, 1, 3, 3, 1, 1, 1), "Curvescope has no numba kernel for Conv"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            backend.prepare(problem, problem.operands(np.random.default_rng(0)))


def test_a_numpy_without_what_numba_cuda_asks_for_is_said():
    def compiles(_function, _types):
        return np.a_function_that_is_gone

    with pytest.raises(BackendMissingError, match=r"NumPy .+ has no attribute .+newer numba-cuda"):
        check_that_it_compiles(SimpleNamespace(compile_ptx_for_current_device=compiles))


def test_without_a_device_it_is_said():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a device here")
    with pytest.raises(BackendMissingError, match="numba finds no CUDA device"):
        open_backend("numba", "cuda")
