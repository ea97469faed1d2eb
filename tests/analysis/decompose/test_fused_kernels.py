"""The time of a fused kernel, shared over the layers and operators in it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.kernel_times import kernel_times
from curvescope.base.errors import CurvescopeError

from ..synthetic import work_of

PARTS = [["block.0", "aten::add", 0.5], ["block.0", "aten::relu", 0.2], [None, "aten::mul", 0.3]]
STEPS = pd.DataFrame(
    {"step": [0], "batch": 8, "round": 0, "index": 0, "start_ns": 0, "duration_ns": 1000, "profiled": True}
).astype({"batch": "Int64", "start_ns": "Int64"})


def kernels(parts=PARTS):
    """A step of 1000 ns: a fused kernel of 701 ns, and a product of 200 ns."""
    return pd.DataFrame(
        {
            "name": ["triton_poi_fused_add_mul_relu_0", "gemm"],
            "start_ns": [0, 701],
            "duration_ns": [701, 200],
            "step": 0,
            "phase": "forward",
            "layer": [None, "block.0"],
            "op": ["triton_poi_fused_add_mul_relu_0", "aten::mm"],
            "fused": [json.dumps(parts), None],
            "bytes_compulsory": [1000, 50],
            "source": "torch",
        }
    )


@pytest.mark.parametrize(
    ("by", "expected_ns"),
    [
        ("layer", {"block.0 forward": 200 + 491, "forward outside layers": 210}),
        ("op", {"aten::add": 351, "aten::relu": 140, "aten::mul": 210, "aten::mm": 200}),
        ("kernel", {"triton_poi_fused_add_mul_relu_0": 701, "gemm": 200}),
    ],
)
def test_the_parts_of_a_fused_kernel_go_to_its_layers_and_operators(by, expected_ns):
    found = break_down(STEPS, work_of(kernels()), by)
    rows = {row.label: row for row in found.rows if row.label != "idle"}
    assert {label: row.time_ms * 1e6 for label, row in rows.items()} == pytest.approx(expected_ns, abs=1)
    assert sum(row.time_ms for row in found.rows) == pytest.approx(1000e-6, abs=1e-12)
    assert sum(row.calls for row in rows.values()) == pytest.approx(2)
    shared = {label: row.shared_time_share for label, row in rows.items() if row.shared_time_share}
    of_layers = {"block.0 forward": pytest.approx(491 / 691, rel=0.01), "forward outside layers": 1.0}
    of_operators = dict.fromkeys(("aten::add", "aten::relu", "aten::mul"), 1.0)
    assert shared == {"layer": of_layers, "op": of_operators, "kernel": {}}[by]


def test_whole_nanoseconds_and_amounts_keep_their_sums():
    times = kernel_times(work_of(kernels()), STEPS)
    assert times["exclusive_ns"].dtype == np.int64
    assert times["exclusive_ns"].sum() == 1000
    assert times["bytes_compulsory"].sum() == pytest.approx(1050)
    assert times["calls"].sum() == pytest.approx(3)  # with idle


def test_a_damaged_column_is_refused():
    with pytest.raises(CurvescopeError, match=r"kernels\.fused is damaged"):
        break_down(STEPS, work_of(kernels([[1]])), "layer")
