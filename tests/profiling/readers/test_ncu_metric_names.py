"""The metrics that are counted exist on every GPU since Volta, by NVIDIA's own library, which needs
no GPU for it.

The host half of CUPTI's range profiler makes the configuration for a chip by name, and refuses
unknown metrics.
"""

import importlib.util
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.collect.range_profiler import RangeProfiler
from curvescope.profiling.readers.metrics import choose_metrics

from ...tables import ask_each

_spec = (
    importlib.util.find_spec("nvidia.cuda_cupti") if importlib.util.find_spec("nvidia") else None
)
LIBRARY = (
    None
    if _spec is None
    else next(Path(_spec.submodule_search_locations[0]).glob("lib/libcupti.so.*"), None)
)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="nvidia-cuda-cupti-cu12 is not installed")

CHIPS = [
    ("GV100", "7.0"),
    ("TU102", "7.5"),
    ("TU116", "7.5"),
    ("GA100", "8.0"),
    ("GA102", "8.6"),
    ("AD102", "8.9"),
]
CHIPS += [("GH100", "9.0"), ("GB100", "10.0"), ("GB202", "12.0")]


@ask_each(("chip", "capability"), CHIPS)
def test_every_wanted_metric_exists_on_the_chip(chip, capability):
    profiler = RangeProfiler(str(LIBRARY))
    # ncu's own
    counters = [
        name for name in choose_metrics("ncu", capability) if not name.startswith("launch__")
    ]
    assert any("tensor" in name for name in counters)
    configuration, passes = profiler.configure(profiler.host(chip), counters)
    assert len(configuration) > 1000
    assert 1 <= passes <= 20
    with pytest.raises(CurvescopeError, match="cuptiProfilerHostConfigAddMetrics"):
        profiler.configure(profiler.host(chip), ["sm__no_such_metric.sum"])
    # What is asked for without knowing the device exists everywhere too.
    everywhere = [name for name in choose_metrics("ncu") if not name.startswith("launch__")]
    profiler.configure(profiler.host(chip), everywhere)
