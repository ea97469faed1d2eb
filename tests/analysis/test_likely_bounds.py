"""The likely bound of kernels without known work, from names and launches."""

from __future__ import annotations

import pandas as pd
import pytest

from curvescope.analysis.likely_bounds import likely_point
from curvescope.profiling.hardware.limits import hardware_of

A100 = hardware_of({"device": {"name": "NVIDIA A100-SXM4-80GB", "kind": "cuda"}})  # 108 SMs, 64 warps each
UNKNOWN = hardware_of({})


def row(name, ms, calls=1, blocks=None, phase=None, threads=256, registers=32):
    launch = {"grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": threads, "block_y": 1, "block_z": 1}
    return {
        "name": name, "phase": phase, "exclusive_ms": ms, "calls": calls, **launch,
        "registers_per_thread": registers, "shared_memory_bytes": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "hardware", "likely"),
    [
        (row("Memcpy HtoD", 3.0), UNKNOWN, "host link"),
        (row("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3.0, blocks=24), A100, "communication"),
        (row("vectorized_elementwise_kernel<4>", 0.4, calls=100, blocks=900), A100, "short calls"),  # 4 µs each
        (row("vectorized_elementwise_kernel<4>", 4.0, calls=100, blocks=900), A100, "memory"),
        (row("ampere_sgemm_128x64_nn", 4.0, blocks=107), A100, "few blocks"),
        (row("ampere_sgemm_128x64_nn", 4.0, blocks=108), A100, "memory or compute"),
        (row("ampere_sgemm_128x64_nn", 4.0, blocks=2), UNKNOWN, "memory or compute"),  # of how many SMs?
        (row("nobody_knows", 4.0, phase="optimizer"), UNKNOWN, "memory"),
        (row("nobody_knows", 4.0), A100, "memory or compute"),
    ],
)
def test_names_and_launches_tell(kernel, hardware, likely):
    point = likely_point("x", pd.DataFrame([kernel]), 1, hardware)
    assert (point.likely, point.share) == (likely, 1.0)


def test_a_layer_is_bound_by_what_holds_for_most_of_its_time():
    rows = pd.DataFrame([row("Memcpy HtoD", 3.0), row("ampere_sgemm_128x64_nn", 1.0, blocks=864)])
    point = likely_point("conv1", rows, 2, A100)
    assert (point.likely, point.share, point.calls, point.time_s) == ("host link", 0.75, 1.0, 0.002)


def test_waves_and_occupancy_by_hand():
    """8 blocks of 8 warps fill the 64 warps of an SM; 108 SMs hold 864 blocks at once."""
    point = likely_point("conv1", pd.DataFrame([row("ampere_sgemm_128x64_nn", 1.0, blocks=1296)]), 1, A100)
    assert (point.waves, point.occupancy) == (1.5, 1.0)
