"""The plans launch the real sources rightly: each is run on the CPU by fibers and checked as a measurement would be."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from curvescope.kernels.catalog import KERNELS
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.cuda_plans import Buffer, plan
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.peak import PeakRounds

from .emulation import Guarded

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++: apt-get install g++")
SOURCE_OF = {kernel.name: kernel.source for kernel in KERNELS}
FLOPS_OF = {kernel.name: kernel.flops_per_thread_round for kernel in KERNELS}
PROBLEMS = [
    *(Gemm(65, 33, 130, transpose) for transpose in TRANSPOSES),
    *(Conv(2, 4, 9, 7, 6, 3, 2, (2, 1), (1, 0), (1, 2), 2, direction) for direction in DIRECTIONS),
    *(Memory(kind, 4800) for kind in KINDS if kind != "read"),
    Latency(64 * 100, loads=16 * 20),
    *(PeakRounds(name, 512, FLOPS_OF[name], name.removeprefix("peak_")) for name in ("peak_fp32", "peak_fp64")),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_a_plan_computes_its_problem_with_the_real_source(build, problem):
    operands = problem.operands(np.random.default_rng(5))
    made = plan(problem, operands, sm_count=1)
    buffers = [Guarded(buffer) for buffer in made.buffers]
    for launch in (*made.setup, made.checked or made.launch):
        assert launch.block[0] <= {kernel.name: kernel.block_threads for kernel in KERNELS}[launch.kernel]
        arguments = [buffers[each.index] if isinstance(each, Buffer) else each for each in launch.arguments]
        assert build(SOURCE_OF[launch.kernel]).launch(launch.kernel, launch.grid, *arguments)
    result = made.read(lambda index: buffers[index].array, lambda index: buffers[index].array.ctypes.data)
    error = problem.error(operands, result)
    assert error.acceptable, error
