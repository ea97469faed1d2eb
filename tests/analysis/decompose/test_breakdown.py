"""The breakdown against a plain one over a frame of all kernels: the same rows, for real and made
recordings.
"""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.analysis.decompose.averaged_steps import list_used_steps
from curvescope.analysis.decompose.breakdown import ROW_COLUMNS, Row, break_down
from curvescope.analysis.decompose.exclusive import exclusive_ns
from curvescope.analysis.decompose.kernel_times import device_work, kernel_times
from curvescope.analysis.decompose.terms import IDLE, OVERHEAD
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.kernel_precision import kernel_precision
from curvescope.profiling.readers import Options, import_profile
from curvescope.profiling.recording.store import open_recording

from ...shared import PROFILES
from ...tables import ask_each
from ..synthetic import sweep, work_of

COLUMNS = (
    "step",
    "start_ns",
    "duration_ns",
    "layer",
    "phase",
    "op",
    "name",
    "flops",
    "bytes_compulsory",
)


def shared_out(kernels, steps):
    """Every kernel of the profiled steps with its exclusive time in whole ns, and an idle row per
    step.
    """
    found = []
    for step in steps[steps["profiled"].astype(bool)].itertuples():
        rows = kernels[
            (kernels["step"] == step.step).fillna(False) & kernels["duration_ns"].notna()
        ]
        rows = rows.sort_values("start_ns", kind="stable")
        shares, idle = exclusive_ns(
            rows["start_ns"], rows["duration_ns"], step.start_ns, step.duration_ns
        )
        whole = np.diff(np.rint(np.cumsum(shares)), prepend=0)
        assert np.abs(whole - shares).max(initial=0) <= 1
        found += [rows.assign(exclusive_ms=whole / 1e6)]
        found += [
            pd.DataFrame({"name": [IDLE], "step": step.step, "exclusive_ms": round(idle) / 1e6})
        ]
    return pd.concat(found, ignore_index=True)


def plainly(steps, kernels, by, batch=None):
    """The same from frames: a row for each group, then idle."""
    parts = shared_out(kernels, steps if batch is None else steps[steps["batch"] == batch])
    used = list_used_steps(parts)
    of_used = parts["step"].isin(used)

    def row_of(label, group):
        per_step = group.groupby("step")["exclusive_ms"].sum().reindex(used, fill_value=0.0)
        low, high = np.percentile(per_step, [25, 75])
        inside = group[of_used.loc[group.index]]
        time_ms = inside["exclusive_ms"].sum()
        known = [inside[inside[column].notna()] for column in ("flops", "bytes_compulsory")]
        amounts = [
            float(rows[column].sum()) if len(rows) else None
            for rows, column in zip(known, ("flops", "bytes_compulsory"), strict=True)
        ]
        of_known = list(zip(amounts, [rows["exclusive_ms"].sum() for rows in known], strict=True))
        rates = [
            amount / ms / 1e6 if amount is not None and ms else None for amount, ms in of_known
        ]
        shares = [
            ms / time_ms if amount is not None and time_ms else None for amount, ms in of_known
        ]
        flops = amounts[0]
        per_step_flops = None if flops is None else flops / len(used)
        spread = (high - low) / 2 if len(used) > 1 else None
        head = (label, per_step.mean(), spread, len(inside) / len(used), per_step_flops)
        worked = inside[inside["flops"] > 0]
        precisions = worked["flops"].groupby(worked["name"].map(kernel_precision)).sum() / len(used)
        duration_ms = float(inside["duration_ns"].sum()) / 1e6 / len(used)
        return Row(
            *head, *rates, None, *shares, precisions=precisions.to_dict(), duration_ms=duration_ms
        )

    work = parts[parts["name"] != IDLE]
    if by == "layer":
        known, phases = work["layer"].notna(), work["phase"].astype(object)
        outside = {
            "optimizer": "optimizer",
            "forward": "forward outside layers",
            "backward": "backward outside layers",
        }
        work = work.assign(
            layer=work["layer"]
            .astype(object)
            .where(known, phases.map(outside).fillna("work outside layers")),
            phase=phases.where(known, None),
        )
    work = work.groupby(ROW_COLUMNS[by], dropna=False)
    rows = [
        row_of(" ".join(str(k) for k in key if not pd.isna(k)) or f"no {by}", group)
        for key, group in work
    ]
    idle = row_of(IDLE, parts[parts["name"] == IDLE])
    return [*rows, dataclasses.replace(idle, calls=None, duration_ms=None)]


def assert_as_plainly(found, steps, kernels, by, batch=None):
    """Times to a thousandth of a nanosecond; groups of equal times may come in either order."""
    rows = sorted((row for row in found.rows if row.label != OVERHEAD), key=lambda row: row.label)
    expected = sorted(plainly(steps, kernels, by, batch), key=lambda row: row.label)
    assert [row.label for row in rows] == [row.label for row in expected]
    for one, two in zip(rows, expected, strict=True):
        for name, value in dataclasses.asdict(two).items():
            near = isinstance(value, (float, dict))
            assert getattr(one, name) == (
                pytest.approx(value, rel=1e-12, abs=1e-9) if near else value
            ), (name, two)
    times = [row.time_ms for row in found.rows if row.label not in (IDLE, OVERHEAD)]
    assert times == sorted(times, reverse=True)
    assert sum(row.time_ms for row in found.rows) == pytest.approx(found.time_ms, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["layer", "kernel", "phase", "op"])
@pytest.mark.parametrize(
    "name", ["kineto_resnet50_w0_a.pt.trace.json.gz", "josiahdavis_lm_net_17ed.sql.gz"]
)
def test_real_profiles_break_down_as_plainly(name, by, imported_profile):
    recording = open_recording(imported_profile(name))
    steps, work = recording.frame("steps"), device_work(recording)
    kernels = pd.concat([piece.to_pandas() for piece in work(COLUMNS)], ignore_index=True)
    assert (kernels["name"].str.startswith("Memcpy")).any()
    assert_as_plainly(break_down(steps, work, by), steps, kernels, by)


def test_copies_have_a_rate_by_what_they_move(tmp_path):
    path = PROFILES / "pipit_cloverleaf.sqlite.gz"
    recording = open_recording(import_profile(path, tmp_path / "r", Options(steps="whole")).path)
    rows = break_down(
        recording.frame("steps"), device_work(recording, copied_bytes=True), "kernel"
    ).rows
    rates = {row.label: row.gb_per_s for row in rows if row.label.startswith("Memcpy")}
    copies = recording.frame("memory").groupby("memcpy_kind")[["bytes", "duration_ns"]].sum()
    expected = {
        f"Memcpy {kind}": sums["bytes"] / sums["duration_ns"] for kind, sums in copies.iterrows()
    }
    assert rates == pytest.approx(
        expected, rel=0.01
    )  # where copies overlap kernels, both share the time
    plain = break_down(recording.frame("steps"), device_work(recording), "kernel").rows
    assert {row.gb_per_s for row in plain if row.label.startswith("Memcpy")} == {None}


def layers(batch):
    work = {"flops": 10**9 * batch, "bytes_compulsory": 10**6}
    return [
        ("conv1", "forward", "gemm", 2.0 * batch, work),
        (None, "optimizer", "add", 5.0),
        ("conv1", "backward", "x", 1.0),
    ]


def test_a_sweep_has_its_profiling_overhead_and_rates():
    steps, kernels = sweep(lambda b: 20.0 * b, layers, np.random.default_rng(3), batches=(2, 4))
    for batch in (2, 4):
        one = break_down(steps, work_of(kernels), "layer", batch)
        assert_as_plainly(one, steps, kernels, "layer", batch)
        timed = steps[(steps["batch"] == batch) & ~steps["profiled"].astype(bool)]["duration_ns"]
        assert one.time_ms == pytest.approx(float(timed.median()) / 1e6)
        assert one.rows[-1].label == OVERHEAD
        assert one.overhead_ms == one.rows[-1].time_ms
        assert {row.label: row for row in one.rows}["conv1 forward"].gflop_per_s == pytest.approx(
            500.0
        )
    assert break_down(steps, work_of(kernels), "layer") == one


rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(-5, 60),
        st.integers(0, 30),
        st.sampled_from(["a", "b", None]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(rows, st.integers(1, 5))
def test_any_overlap_is_shared_alike(drawn, pieces):
    steps = pd.DataFrame(
        {"step": [0, 1, 2], "batch": 8, "start_ns": [0, 100, 200], "duration_ns": [50, 50, 0]}
    )
    steps = steps.assign(profiled=True, round=0, index=[0, 1, 2], mode="training")
    kernels = pd.DataFrame(drawn, columns=["step", "start_ns", "duration_ns", "layer"])
    kernels["start_ns"] += kernels["step"] * 100
    kernels = kernels.assign(
        name="k", phase=None, op=None, source="nsys", flops=pd.NA, bytes_compulsory=pd.NA
    )
    size = -(-len(drawn) // pieces)
    cut = [kernels[first : first + size] for first in range(0, len(drawn), size)]
    assert_as_plainly(
        break_down(steps, work_of(*cut), "layer"), steps, kernels.convert_dtypes(), "layer"
    )


def test_no_work_and_no_profiled_step_are_refused():
    steps, kernels = sweep(lambda b: 20.0 * b, layers, np.random.default_rng(3), batches=(2, 4))
    with pytest.raises(CurvescopeError, match="has a duration"):
        break_down(steps.iloc[:0], work_of(), "layer")
    with pytest.raises(CurvescopeError, match="Batch 3 was not measured"):
        break_down(steps, work_of(kernels), "layer", 3)
    with pytest.raises(CurvescopeError, match="No step of batch 2 was profiled"):
        break_down(steps[~steps["profiled"].astype(bool)], work_of(kernels), "layer", 2)
    for nothing in (work_of(), work_of(kernels.iloc[:0])):
        with pytest.raises(CurvescopeError, match="nothing to break down"):
            break_down(steps, nothing, "layer", 2)


def test_kernels_without_steps_are_summed(tmp_path):
    recording = open_recording(
        import_profile(PROFILES / "averyclapp_metrics_long.csv", tmp_path / "r").path
    )
    found = break_down(recording.frame("steps"), device_work(recording), "kernel")
    durations = recording.frame("kernels")["duration_ns"]
    assert found.time_ms == pytest.approx(durations.sum() / 1e6)
    assert (found.n_profiled, sum(row.calls for row in found.rows)) == (0, 9)


def one_step(columns, rows):
    """A step of 100 ns, and device work of these rows."""
    steps = pd.DataFrame(
        {"step": [0], "batch": 8, "start_ns": 0, "duration_ns": 100, "profiled": True, "round": 0}
    )
    kernels = pd.DataFrame(rows, columns=["name", "start_ns", "duration_ns", *columns])
    return steps.assign(index=0, mode="forward"), work_of(
        kernels.assign(step=0, source="torch").convert_dtypes()
    )


def test_a_rate_is_over_the_kernels_whose_work_is_known():
    steps, work = one_step(
        ("layer", "flops"), [("gemm", 0, 20, "a", 1000), ("cast", 20, 60, "a", None)]
    )
    row = break_down(steps, work, "layer").rows[0]
    assert (row.gflop_per_s, row.flops_time_share) == (pytest.approx(50), pytest.approx(0.25))
    assert (row.gb_per_s, row.bytes_time_share) == (None, None)


def test_use_of_tensor_pipes_is_a_mean_over_the_time_of_the_kernels_that_have_it():
    rows = [("gemm", 0, 10, "a", 0.5), ("gemm", 10, 30, "a", 0.1), ("cast", 40, 60, "a", None)]
    steps, work = one_step(("layer", "tensor_pipe_use"), rows)
    (layer,) = break_down(steps, work, "layer").rows[:1]
    assert (layer.tensor_pipe_use, layer.tensor_time_share) == (
        pytest.approx(0.2),
        pytest.approx(0.4),
    )
    uses = {row.label: row.tensor_pipe_use for row in break_down(steps, work, "kernel").rows}
    assert (uses["gemm"], uses["cast"]) == (pytest.approx(0.2), None)
    assert break_down(steps.iloc[:0], work, "kernel").rows[1].tensor_pipe_use == pytest.approx(0.2)


def test_communication_is_a_term_of_its_own_and_of_no_layer():
    rows = [
        ("conv2d_grad", 0, 30, "conv1", "backward"),
        ("ncclDevKernel_Generic_1", 30, 50, "conv1", "backward"),
    ]
    steps, work = one_step(("layer", "phase"), rows)
    found = {row.label: row.time_ms for row in break_down(steps, work, "layer").rows}
    assert found == {"communication": 50e-6, "conv1 backward": 30e-6, "idle": 20e-6}
    assert set(kernel_times(work, steps)["kind"]) == {"kernels", "communication", "idle"}


PARTS = [["block.0", "aten::add", 0.5], ["block.0", "aten::relu", 0.2], [None, "aten::mul", 0.3]]
STEPS = pd.DataFrame(
    {
        "step": [0],
        "batch": 8,
        "round": 0,
        "index": 0,
        "start_ns": 0,
        "duration_ns": 1000,
        "profiled": True,
    }
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


@ask_each(
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
    assert {label: row.time_ms * 1e6 for label, row in rows.items()} == pytest.approx(
        expected_ns, abs=1
    )
    assert sum(row.time_ms for row in found.rows) == pytest.approx(1000e-6, abs=1e-12)
    assert sum(row.calls for row in rows.values()) == pytest.approx(2)
    shared = {label: row.shared_time_share for label, row in rows.items() if row.shared_time_share}
    of_layers = {
        "block.0 forward": pytest.approx(491 / 691, rel=0.01),
        "forward outside layers": 1.0,
    }
    of_operators = dict.fromkeys(("aten::add", "aten::relu", "aten::mul"), 1.0)
    assert shared == {"layer": of_layers, "op": of_operators, "kernel": {}}[by]
    times = kernel_times(work_of(kernels()), STEPS)
    assert (times["exclusive_ns"].dtype, times["exclusive_ns"].sum()) == (np.int64, 1000)
    assert times["bytes_compulsory"].sum() == pytest.approx(1050)


def test_a_damaged_column_is_refused():
    with pytest.raises(CurvescopeError, match=r"kernels\.fused is damaged"):
        break_down(STEPS, work_of(kernels([[1]])), "layer")
