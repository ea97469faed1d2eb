"""Triad bandwidth of `bench memory` against a C STREAM that is compiled here: in turn, at four
times the last cache.

The goal is a bandwidth within 10 %. Needs numba and a C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from curvescope.kernels.backends import open_backend
from curvescope.kernels.levels import memory_levels
from curvescope.kernels.memory import Memory
from curvescope.kernels.method import BenchMeasurement, Method

_ROUNDS = 12
_CALLS = 8


def compile_stream(folder: Path) -> ctypes.CDLL:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        sys.exit("No C compiler: set CC.")
    source, library = Path(__file__).with_name("stream.c"), folder / "stream.so"
    options = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.triad.restype = ctypes.c_double
    return loaded


def main() -> None:
    backend = open_backend("numba", "cpu")
    threads = backend.describe()["threads"]
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    problem = Memory("triad", memory_levels(backend.describe())[-1].size_bytes)
    method = Method(
        cache="hot", visits=(_ROUNDS, _ROUNDS), visit_s=0.0, samples_per_visit=(_CALLS, _CALLS)
    )
    ours = BenchMeasurement(problem)
    theirs_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        stream = compile_stream(Path(folder))
        arrays = [np.empty(problem.elements, np.float32) for _ in range(3)]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
        stream.fill(*pointers, ctypes.c_size_t(problem.elements))
        for _ in range(_ROUNDS):
            ours.visit(backend, method)
            seconds = [
                stream.triad(*pointers, ctypes.c_size_t(problem.elements))
                for _ in range(_CALLS + 1)
            ]
            theirs_s += seconds[1:]  # the first brings its arrays back, as ours is not kept either
    assert ours.timed, ours.verification
    assert problem.work.bytes_compulsory is not None
    gb_per_s = {
        "ours": [problem.work.bytes_compulsory / ns for ns in ours.durations_ns()],
        "C STREAM": [problem.work.bytes_compulsory / s / 1e9 for s in theirs_s],
    }
    print(f"triad over {problem.size} bytes in {threads} threads")
    for name, values in gb_per_s.items():
        print(
            f"{name:<9} best {max(values):6.2f} GB/s, median {statistics.median(values):6.2f} "
            f"GB/s, n {len(values)}"
        )
    best = max(gb_per_s["ours"]) / max(gb_per_s["C STREAM"])
    median = statistics.median(gb_per_s["ours"]) / statistics.median(gb_per_s["C STREAM"])
    print(f"best over best {best:.3f}, median over median {median:.3f}")
    for note in ours.notes(backend, method):
        print(f"noticed: {note.sentence}")


if __name__ == "__main__":
    main()
