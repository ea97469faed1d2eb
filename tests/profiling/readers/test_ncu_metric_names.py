"""The metrics that ncu is asked for exist on every GPU since Volta, by NVIDIA's own library, which needs no GPU for it.

The host half of CUPTI's range profiler makes the configuration for a chip by name, and refuses unknown metrics.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from curvescope.profiling.readers.metrics import wanted

_spec = importlib.util.find_spec("nvidia.cuda_cupti") if importlib.util.find_spec("nvidia") else None
LIBRARY = None if _spec is None else next(Path(_spec.submodule_search_locations[0]).glob("lib/libcupti.so.*"), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="nvidia-cuda-cupti-cu12 is not installed")

CHIPS = {
    "GV100": "7.0",
    "TU102": "7.5",
    "TU116": "7.5",
    "GA100": "8.0",
    "GA102": "8.6",
    "AD102": "8.9",
    "GH100": "9.0",
    "GB100": "10.0",
    "GB202": "12.0",
}


class Initialize(ctypes.Structure):
    """`CUpti_Profiler_Host_Initialize_Params` of cupti_profiler_host.h."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("profiler", ctypes.c_int),  # 0: the range profiler
        ("chip", ctypes.c_char_p),
        ("availability", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
    )


class AddMetrics(ctypes.Structure):
    """`CUpti_Profiler_Host_ConfigAddMetrics_Params`."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("count", ctypes.c_size_t),
    )


def host_of(library, chip):
    arguments = Initialize(ctypes.sizeof(Initialize), None, 0, chip.encode())
    assert library.cuptiProfilerHostInitialize(ctypes.byref(arguments)) == 0
    return arguments.host


def accepted(library, host, names):
    listed = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    arguments = AddMetrics(ctypes.sizeof(AddMetrics), None, host, listed, len(names))
    return library.cuptiProfilerHostConfigAddMetrics(ctypes.byref(arguments)) == 0


@pytest.mark.parametrize(("chip", "capability"), CHIPS.items())
def test_every_wanted_metric_exists_on_the_chip(chip, capability):
    library = ctypes.CDLL(str(LIBRARY))
    counters = [name for name in wanted("ncu", capability) if not name.startswith("launch__")]  # ncu's own
    assert any("tensor" in name for name in counters)
    assert accepted(library, host_of(library, chip), counters)
    assert not accepted(library, host_of(library, chip), ["sm__no_such_metric.sum"])
    # What is asked for without knowing the device exists everywhere too.
    everywhere = [name for name in wanted("ncu") if not name.startswith("launch__")]
    assert accepted(library, host_of(library, chip), everywhere)
