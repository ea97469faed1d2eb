"""The breakdown over columns against the one over a frame: the same rows, for real and made recordings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.analysis.breakdown import break_down
from curvescope.analysis.breakdown_columns import COLUMNS, break_down_columns, device_columns
from curvescope.analysis.terms import device_work
from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.schema import KERNELS
from curvescope.profiling.store import open_recording

from .synthetic import sweep

PROFILES = Path(__file__).parents[1] / "data" / "profiles"


def assert_same(one, two):
    rows = list(zip(one.rows, two.rows, strict=True))
    for a, b in [(dataclasses.replace(one, rows=()), dataclasses.replace(two, rows=())), *rows]:
        for name, value in dataclasses.asdict(b).items():
            found = getattr(a, name)
            near = isinstance(value, float) and found is not None
            assert found == (pytest.approx(value, rel=1e-6, abs=1e-9) if near else value), (name, b)


@pytest.mark.parametrize("by", ["layer", "kernel", "phase", "op"])
@pytest.mark.parametrize("name", ["kineto_resnet50_w0_a.pt.trace.json.gz", "josiahdavis_lm_net_17ed.sql.gz"])
def test_real_profiles_break_down_alike(name, by, tmp_path):
    recording = open_recording(import_profile(PROFILES / name, tmp_path / "r", Options()).path)
    work = device_work(recording.frame("kernels"), recording.frame("memory"))
    pieces = [*recording.pieces("kernels", COLUMNS), *map(device_columns, recording.pieces("memory"))]
    steps = recording.frame("steps")
    one, two = break_down_columns(steps, pieces, by), break_down(steps, work, by)
    assert_same(sorted_rows(one), sorted_rows(two))


def sorted_rows(breakdown):
    """Groups of equal times may come in either order."""
    return dataclasses.replace(breakdown, rows=tuple(sorted(breakdown.rows, key=lambda row: row.label)))


def table(kernels):
    frame = kernels.reindex(columns=list(COLUMNS))
    return pa.Table.from_pandas(frame, pa.schema([KERNELS.arrow.field(c) for c in COLUMNS]), preserve_index=False)


def layers(batch):
    work = {"flops": 10**9 * batch, "bytes_compulsory": 10**6}
    return [
        ("conv1", "forward", "gemm", 2.0 * batch, work),
        (None, "optimizer", "add", 5.0),
        ("conv1", "backward", "x", 1.0),
    ]


def test_a_sweep_has_its_observer_effect_and_rates():
    steps, kernels = sweep(lambda b: 20.0 * b, layers, np.random.default_rng(3), batches=(2, 4))
    for batch in (2, 4, None):
        one = break_down_columns(steps, [table(kernels)], "layer", batch)
        assert_same(sorted_rows(one), sorted_rows(break_down(steps, kernels, "layer", batch)))
        assert one.observer_ms is not None
        assert {row.label: row for row in one.rows}["conv1 forward"].gflop_per_s == pytest.approx(500.0)


rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-5, 60), st.integers(0, 30), st.sampled_from(["a", "b", None])),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(rows, st.integers(1, 5))
def test_any_overlap_is_shared_alike(drawn, pieces):
    steps = pd.DataFrame({"step": [0, 1, 2], "batch": 8, "start_ns": [0, 100, 200], "duration_ns": [50, 50, 0]})
    steps = steps.assign(profiled=True, repeat=0, index=[0, 1, 2], phase="training")
    kernels = pd.DataFrame(drawn, columns=["step", "start_ns", "duration_ns", "layer"])
    kernels["start_ns"] += kernels["step"] * 100
    kernels = kernels.assign(name="k", phase=None, op=None, source="nsys", flops=pd.NA, bytes_compulsory=pd.NA)
    whole = table(kernels)
    size = -(-max(len(drawn), 1) // pieces)
    cut = [whole.slice(first, size) for first in range(0, len(drawn), size)]
    expected = break_down(steps, kernels.convert_dtypes(), "layer")
    assert_same(sorted_rows(break_down_columns(steps, cut, "layer")), sorted_rows(expected))


def test_no_step_and_no_profiled_step_are_refused():
    steps, kernels = sweep(lambda b: 20.0 * b, layers, np.random.default_rng(3), batches=(2, 4))
    with pytest.raises(CurvescopeError, match="no step"):
        break_down_columns(steps.iloc[:0], [], "layer")
    with pytest.raises(CurvescopeError, match="Batch 3 was not measured"):
        break_down_columns(steps, [table(kernels)], "layer", 3)
    with pytest.raises(CurvescopeError, match="No step of batch 2 was profiled"):
        break_down_columns(steps[~steps["profiled"].astype(bool)], [table(kernels)], "layer", 2)
