"""Counters of kernels by CUPTI's range profiler, on the double; its parameters against NVIDIA's
headers.

`tests/profiling/readers/test_ncu_metric_names.py` makes configurations with NVIDIA's own library.
"""

import ctypes
import ctypes.util
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.profiling.collect.range_profiler import (
    FUNCTIONS,
    RangeProfiler,
    structure,
    structure_bytes,
)

from .doubles import COMPILER, headers

_spec = (
    importlib.util.find_spec("nvidia.cuda_cupti") if importlib.util.find_spec("nvidia") else None
)
CUPTI = None if _spec is None else Path(_spec.submodule_search_locations[0])
METRICS = ("dram__bytes.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")
CONTEXT = 4096


@pytest.fixture
def step(doubles):
    """A step of some kernels on the double, and what it did."""

    class Step:
        library = ctypes.CDLL(str(doubles / "libcupti.so.12"))
        profiler = RangeProfiler(str(doubles / "libcupti.so.12"))
        kernels, runs = 3, 0

        def run(self):
            self.runs += 1
            for _ in range(self.kernels):
                self.library.fake_range_kernel()

        def count(self, **options):
            return self.profiler.count(METRICS, 0, CONTEXT, self.run, **options)

    return Step()


@pytest.mark.skipif(CUPTI is None, reason="nvidia-cuda-cupti-cu12 is not installed")
def test_without_a_gpu_nvidias_library_says_so_by_name():
    profiler = RangeProfiler(str(next(CUPTI.glob("lib/libcupti.so.*"))))
    with pytest.raises(CurvescopeError, match="cuptiProfilerInitialize answered CUPTI_ERROR"):
        profiler.count(METRICS, 0, CONTEXT, lambda: None)


@pytest.mark.slow
def test_the_parameters_of_every_function_lie_as_in_the_headers(doubles, tmp_path):
    names = ("target", "profiler_target", "profiler_host", "range_profiler")
    text = "".join((CUPTI / "include" / f"cupti_{name}.h").read_text() for name in names)
    structs = {
        function: re.search(rf"\b{function}\s*\(\s*(\w+)", text)[1] for function in FUNCTIONS
    }
    lines = []
    for function, struct in structs.items():
        lines.append(f'std::printf("{function} %zu\\n", std::size_t({struct}_STRUCT_SIZE));')
        lines += [
            f'std::printf("{function} {field} %zu\\n", offsetof({struct}, {field}));'
            for field, _ in FUNCTIONS[function]
        ]
    source = tmp_path / "offsets.cpp"
    includes = "".join(f"#include <cupti_{name}.h>\n" for name in names)
    source.write_text(
        f"#include <cstddef>\n#include <cstdio>\n{includes}int main() {{\n"
        + "\n".join(lines)
        + "\n}\n"
    )
    subprocess.run(
        [COMPILER, "-std=c++17", *headers(), source, "-o", tmp_path / "offsets"], check=True
    )
    said = subprocess.run(
        [tmp_path / "offsets"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    ours = []
    for function in FUNCTIONS:
        kind = structure(function)
        ours.append(f"{function} {structure_bytes(kind)}")
        ours += [
            f"{function} {field} {getattr(kind, field).offset}" for field, _ in FUNCTIONS[function]
        ]
    assert said == ours


@pytest.mark.parametrize("passes", [1, 5])
def test_a_step_runs_once_per_pass_and_each_kernel_has_its_values_in_order(
    step, monkeypatch, passes
):
    monkeypatch.setenv("FAKE_CUPTI_PASSES", str(passes))
    counted = step.count()
    assert step.runs == passes
    assert [list(one.values()) for one in counted] == [[1000, 10.01], [2000, 20.01], [3000, 30.01]]
    assert [list(one) for one in counted] == [list(METRICS)] * 3
    assert not step.library.fake_range_profiler_is_enabled()


def test_the_columns_of_a_recording_come_from_the_metrics_of_its_gpu(step):
    counts = step.profiler.count_kernels("9.0", 0, CONTEXT, step.run)
    assert len(counts.columns) == step.kernels
    assert {
        "dram_bytes",
        "l2_bytes",
        "flops_executed",
        "sm_cycles",
        "tensor_pipe_use",
    } <= counts.columns[0].keys()
    assert "tensor cores" in counts.flops_counted


def test_what_cupti_cannot_evaluate_is_missing(step):
    step.kernels = 1
    counted = step.profiler.count(("sm__undefined.sum", "dram__bytes.sum"), 0, CONTEXT, step.run)
    assert counted == [{"dram__bytes.sum": 1001}]


def test_kernels_without_room_are_counted_again_with_more(step):
    assert len(step.count(ranges=2)) == 3
    assert step.runs == 2


def test_a_step_that_fails_leaves_no_profiler_behind(step, monkeypatch):
    monkeypatch.setattr(step, "run", lambda: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        step.count()
    assert not step.library.fake_range_profiler_is_enabled()


@pytest.mark.slow
def test_a_refusal_says_what_would_allow_it(doubles, tmp_path):
    """In a process of its own: the double reads what fails once."""
    program = tmp_path / "program.py"
    program.write_text(
        "from curvescope.profiling.collect.range_profiler import RangeProfiler\n"
        f"RangeProfiler({str(doubles / 'libcupti.so.12')!r}).count({METRICS}, 0, {CONTEXT}, "
        "print)\n"
    )
    for code, words in (
        (35, "NVreg_RestrictProfilingToAdminUsers=0"),
        (15, "answered CUPTI_ERROR_NOT_INITIALIZED"),
    ):
        environment = {
            "FAKE_CUPTI_FAIL": f"cuptiRangeProfilerEnable={code}",
            "PATH": "/usr/bin:/bin",
        }
        ended = subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, check=False
        )
        assert words in ended.stderr.splitlines()[-1]


def test_a_library_without_a_range_profiler_says_which_cuda_has_one(tmp_path):
    with pytest.raises(BackendMissingError, match="cannot be loaded"):
        RangeProfiler(str(tmp_path / "libcupti.so.12"))
    with pytest.raises(BackendMissingError, match=r"is in CUDA 12\.6 and newer"):
        RangeProfiler(ctypes.util.find_library("c"))
