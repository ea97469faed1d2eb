"""Runs numba's CUDA kernels in its simulator and prints one line of JSON for each problem, in a
process of its own.

A line holds the problem, and whether its result is right as it is and with one element changed.

The simulator is chosen by an environment variable when numba is imported, so a process that has
numba cannot switch.
"""

from __future__ import annotations

import json
import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import numpy as np
from numba import cuda

from curvescope.kernels.backends import numba_cuda
from curvescope.kernels.backends.cuda_device import DeviceFacts
from curvescope.kernels.backends.numba_cuda import NumbaCudaBackend
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.timers import EventApi

# One SM of two blocks: the grid of 512 threads is smaller than the arrays, so that the loops go
# round.
ELEMENTS = 600
FACTS = DeviceFacts("simulator", (8, 0), 1, 10**9, 4096)
EVENTS = EventApi(object, lambda: None)
PROBLEMS = [
    *(Memory(kind, 2 * 4 * ELEMENTS) for kind in KINDS),
    *(Gemm(17, 5, 18, transpose) for transpose in TRANSPOSES),
]


def main() -> None:
    NumbaCudaBackend._resident_blocks = lambda *_: 2
    numba_cuda.BYTES_PER_LAUNCH = 3 * 2 * 4 * ELEMENTS  # three passes over two arrays
    backend = NumbaCudaBackend(cuda, FACTS, EVENTS)
    for problem in PROBLEMS:
        operands = problem.operands(np.random.default_rng(0))
        prepared = backend.prepare(problem, operands)
        prepared.run()
        result = prepared.result()
        right = problem.error(operands, result)
        result[-1] += 0.1
        wrong = problem.error(operands, result)
        print(json.dumps([problem.label, bool(right.acceptable), bool(wrong.acceptable)]))


if __name__ == "__main__":
    main()
