"""NVIDIA's own driver library and libcupti under the collector, on a machine without a GPU.

`make real` fetches them into build/real; what is not there is skipped by name. A driver library
without a driver in the kernel calls the injected collector as ever, before it looks for devices.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.profiling.collect.range_profiler import RangeProfiler
from curvescope.profiling.measure.processes import PRELOADED
from curvescope.profiling.readers.metrics import choose_metrics

from ..tables import ask_each
from .doubles import COMPILER

REAL = Path(__file__).parents[2] / "build" / "real"
# CUDA_ERROR_NO_DEVICE
INITIALIZE = "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 100"
NO_DEVICE = "No CUDA device is visible to this process: there is no GPU work to record."
CUPTI = {  # wheel: name of the library, what cuptiGetVersion says
    "11.8.87": ("libcupti.so.11.8", 18),
    "12.1.105": ("libcupti.so.12", 18),
    "12.8.90": ("libcupti.so.12", 26),
    "13.0.85": ("libcupti.so.13", 130001),
}


def need(path):
    if not path.exists():
        pytest.skip(f"{path.relative_to(REAL.parents[1])} is not there: `make real` fetches it")
    return path


def real_cupti(wheel):
    return need(REAL / f"cupti-{wheel}" / CUPTI[wheel][0])


@pytest.fixture
def record_real(record_fake):
    """Records a program under the real driver library: its exit code and the collector's facts."""
    driver = need(REAL / "driver" / "libcuda.so.1").parent

    def record(program=INITIALIZE, **environment):
        code, recording = record_fake(program, **{"LD_LIBRARY_PATH": str(driver), **environment})
        (collector,) = recording.meta["collectors"]
        assert collector["cuda_driver_version"] // 1000 == 12
        return code, collector

    return record


@pytest.mark.parametrize("wheel", CUPTI)
def test_the_real_driver_injects_the_collector_which_says_that_there_is_no_device(
    record_real, wheel
):
    code, collector = record_real(cupti=str(real_cupti(wheel)))
    assert code == 0
    if wheel.startswith("13"):
        assert "is of CUDA 13, newer than the driver's 12" in collector["cupti_status"]
        return
    assert collector["cupti_status"] == NO_DEVICE
    assert collector["cupti_path"] == str(real_cupti(wheel))
    assert collector["cupti_version"] == CUPTI[wheel][1]


def test_an_unversioned_link_to_a_newer_libcupti_is_passed_over(record_real, tmp_path):
    toolkit = tmp_path / "cuda"
    for folder, wheel, name in (
        ("extras/CUPTI/lib64", "13.0.85", "libcupti.so"),
        ("lib64", "12.8.90", "libcupti.so.12"),
    ):
        (toolkit / folder).mkdir(parents=True)
        (toolkit / folder / name).symlink_to(real_cupti(wheel))
    code, collector = record_real(cupti="", CUDA_HOME=str(toolkit))
    assert code == 0
    assert collector["cupti_path"] == str(toolkit / "lib64" / "libcupti.so.12")
    assert collector["cupti_status"] == NO_DEVICE


@ask_each("wheel", ["12.8.90", "13.0.85"])
def test_the_real_host_half_of_the_range_profiler_takes_the_metrics_of_a_chip(wheel):
    need(REAL / f"cupti-{wheel}" / "libnvperf_host.so")
    profiler = RangeProfiler(str(real_cupti(wheel)))
    names = [name for name in choose_metrics("ncu", "9.0") if not name.startswith("launch__")]
    configuration, passes = profiler.configure(profiler.host("GH100"), names)
    assert len(configuration) > 1000
    assert 1 <= passes <= 20
    with pytest.raises(CurvescopeError, match=r"cuptiProfilerInitialize answered CUPTI_ERROR_\w+"):
        profiler.count(names, 0, 1, lambda: None)  # there is no device


def test_a_libcupti_without_the_range_profiler_is_named():
    with pytest.raises(BackendMissingError, match=r"the range profiler is in CUDA 12\.6 and newer"):
        RangeProfiler(str(real_cupti("12.1.105")))


# The runtime of CUDA 13 asks for a driver's functions by name, and calls cuInit only of one that
# has those it wants.
COUNTING_DRIVER = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) {
  (void)flags;
  FILE* calls = fopen(getenv("CU_INIT_CALLS"), "a");
  if (calls) fputs("cuInit\\n", calls), fclose(calls);
  return 100;
}
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
static int refuse(void) { return 100; }
int cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long long flags, int* status) {
  (void)version, (void)flags;
  *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
  if (!*found) *found = (void*)refuse;
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** found, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, found, version, flags, 0);
}
"""  # noqa: E501


def test_what_is_loaded_before_a_fork_initialises_no_cuda(tmp_path):
    """A fork after cuInit has no CUDA.

    Needs a torch built for CUDA, which needs no GPU for this.
    """
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None:
        pytest.skip("torch here is built without CUDA")
    if shutil.which(COMPILER) is None:
        pytest.skip("no compiler for a driver that counts calls of cuInit")
    source, calls = tmp_path / "driver.c", tmp_path / "calls"
    source.write_text(COUNTING_DRIVER)
    subprocess.run(
        [COMPILER, "-x", "c", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1", "-ldl"],
        check=True,
    )
    program = f"import importlib\nfor name in {PRELOADED}: importlib.import_module(name)"
    environment = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "CU_INIT_CALLS": str(calls),
        "PATH": "/usr/bin:/bin",
    }
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert not calls.exists()
    # The double is the one that torch would call.
    subprocess.run([sys.executable, "-c", "import torch; torch.cuda.is_available(); torch._C._cuda_getDeviceCount()"],  # noqa: E501
                   env=environment, check=False, capture_output=True)  # fmt: skip
    assert calls.exists()


def test_torchs_profiler_has_the_methods_that_are_called():
    event = pytest.importorskip("torch")._C._autograd._KinetoEvent
    for method in (
        "name", "start_ns", "duration_ns", "device_type", "device_index", "device_resource_id", "correlation_id",  # noqa: E501
        "linked_correlation_id", "start_thread_id", "shapes", "flops", "sequence_nr",
    ):  # fmt: skip
        assert callable(getattr(event, method)), method


def test_a_torch_for_cuda_has_loaded_the_libcupti_that_counts():
    if pytest.importorskip("torch").version.cuda is None:
        pytest.skip("torch here is built without CUDA")
    profiler = RangeProfiler()
    assert "nvidia" in profiler.path
    profiler.configure(profiler.host("GH100"), choose_metrics("ncu")[:1])
