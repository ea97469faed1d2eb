"""Sweeps of real steps on the CPU."""

import json
import math
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from curvescope.analysis.decompose.breakdown import break_down
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict
from curvescope.analysis.decompose.kernel_times import device_work
from curvescope.analysis.diagnosis.explain import explain
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.attribution.operation import UNKNOWN
from curvescope.profiling.measure import visit
from curvescope.profiling.measure.protocol import (
    PROTOCOLS,
    Protocol,
    get_protocol,
    parse_batches,
    parse_bytes,
)
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.stopping import Complete, Until
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visit import record_step
from curvescope.profiling.recording.store import Status, open_recording
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import Network, from_factory

from ...tables import ask_each
from .. import planted

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch")

SHORT = Protocol("short", (4, 4), 1, (2, 2), visit_s=0.1, profiled_steps=1, time_limit_s=None)
LIMITED = replace(SHORT, time_limit_s=600.0)  # the largest size comes first, and all rounds fit
BATCHES = (2, 4, 8, 16)


def workload_of(build=planted.build_plain, mode="training", precision="fp32"):
    return Workload(
        Network("planted", "a test's", (3, 16, 16), build, classes=10), "cpu", mode, precision
    )


def sweep(path, build, batches=BATCHES, protocol=SHORT, mode="training"):
    run_sweep(Here(workload_of(build, mode)), batches, protocol, path)
    return open_recording(path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    protocol = replace(SHORT, rounds=(2, 2))
    return sweep(tmp_path_factory.mktemp("sweep") / "r", planted.build, protocol=protocol)


@pytest.mark.slow
def test_every_step_is_kept(recorded):
    steps = recorded.frame("steps")
    timed = steps[~steps["profiled"]]
    assert timed.groupby("batch").size().to_dict() == dict.fromkeys(BATCHES, 4)
    assert steps[steps["profiled"]].groupby("batch").size().to_dict() == dict.fromkeys(BATCHES, 2)
    assert steps["step"].is_unique
    assert recorded.meta["status"] == Status.COMPLETE
    assert recorded.meta["rounds"] == 2
    assert recorded.meta["lost"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["layer", "kernel", "phase", "op"])
def test_the_breakdown_of_every_batch_adds_up_to_the_measured_step(recorded, by):
    for batch in BATCHES:
        breakdown = break_down(recorded.frame("steps"), device_work(recorded), by, batch)
        steps = recorded.frame("steps")
        assert breakdown.time_ms == pytest.approx(cost_curve(steps).at(batch).time_ms.value)
        assert sum(row.time_ms for row in breakdown.rows) == pytest.approx(
            breakdown.time_ms, rel=1e-9
        )
        assert [row.label for row in breakdown.rows[-2:]] == ["idle", "profiling overhead"]


@pytest.mark.slow
def test_rows_of_one_step_never_overlap_and_lie_inside_it(recorded):
    kernels, steps = recorded.frame("kernels"), recorded.frame("steps").set_index("step")
    for step, unsorted in kernels.groupby("step"):
        rows = unsorted.sort_values("start_ns")
        ends = (rows["start_ns"] + rows["duration_ns"]).to_numpy()
        assert (ends[:-1] <= rows["start_ns"].to_numpy()[1:]).all()
        window = steps.loc[step]
        assert rows["start_ns"].min() >= window["start_ns"]
        assert ends.max() <= window["start_ns"] + window["duration_ns"]


@pytest.mark.slow
def test_backward_work_lands_on_its_layer(recorded):
    kernels = recorded.frame("kernels")
    backward = kernels[kernels["phase"] == "backward"].groupby("layer")["duration_ns"].sum()
    assert {"stem", "middle.conv", "middle", "pool", "head"} <= set(backward.index)
    mm = kernels[(kernels["layer"] == "middle") & (kernels["phase"] == "backward")]
    by_batch = (
        mm.merge(recorded.frame("steps")[["step", "batch"]], on="step")
        .groupby("batch")["flops"]
        .sum()
    )
    assert by_batch[4] == 0
    assert by_batch[8] == by_batch[16] == 2 * planted.WASTED_FLOPS  # in each of two profiled steps


@pytest.mark.slow
def test_flops_of_convolutions_are_the_direct_algorithms(recorded):
    steps = recorded.frame("steps")
    batch = 4
    step = steps[steps["profiled"] & (steps["batch"] == batch)]["step"].iloc[0]
    kernels = recorded.frame("kernels")
    rows = kernels[(kernels["step"] == step) & (kernels["layer"] == "middle.conv")]
    forward = rows.query("phase == 'forward'")["flops"].dropna().sum()
    backward = rows.query("phase == 'backward'")["flops"].dropna().sum()
    products = 2 * batch * 16 * 16 * 16 * 16 * 9
    bias = batch * 16 * 16 * 16
    assert forward == products + bias
    assert backward == 2 * products + bias


@pytest.mark.slow
def test_a_planted_slow_path_is_found(tmp_path):
    """At batch 8, in the layer `middle`, in the backward pass.

    Other work may hide it in one sweep, so some more are made; how often it is found is for
    benchmarks to say.
    """
    protocol = replace(SHORT, rounds=(10, 10))
    found = []
    for run in range(8):
        recording = sweep(tmp_path / str(run), planted.build, BATCHES[:3], protocol)
        first = explain(recording).explanations[:1]
        found += [(one.functional, one.shares[0].key) for one in first]
        if any(_is_planted(*one) for one in found):
            return
    pytest.fail(f"not found in eight sweeps, but {found}")


def _is_planted(functional, key):
    where = (functional.kind, functional.at, functional.to)
    return where == ("excess", 4, 8) and (key.layer, key.phase) == ("middle", "backward")


@pytest.mark.slow
def test_an_interrupted_sweep_is_readable_up_to_its_last_whole_batch(tmp_path):
    with pytest.raises(KeyboardInterrupt):  # after the first sizes, the largest and the smallest
        run_sweep(
            Here(failing_at(8, KeyboardInterrupt, largest=8)), BATCHES, LIMITED, tmp_path / "r"
        )
    recording = open_recording(tmp_path / "r")
    assert recording.meta["status"] == Status.INTERRUPTED
    diagnosis = explain(recording)
    assert diagnosis.curve.conditions == (2, 16)
    assert [finding.verdict for finding in diagnosis.findings] == [
        FindingVerdict.UNKNOWN
    ]  # one round tells no spread


def failing_at(smallest, error, largest=math.inf):
    """A workload that fails as it loads batches of these sizes."""
    workload = workload_of()
    load = workload.load

    def fail(batch):
        if smallest <= batch <= largest:
            raise error
        load(batch)

    workload.load = fail
    return workload


@pytest.mark.slow
def test_a_batch_size_that_does_not_fit_the_memory_leaves_the_others_measured(tmp_path):
    full = RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate ..."
    )
    run_sweep(Here(failing_at(8, full)), BATCHES, LIMITED, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    assert recording.frame("steps").groupby("batch")["round"].nunique().to_dict() == {2: 4, 4: 4}
    assert [(cell["batch"], cell["why"]) for cell in recording.meta["unmeasured"]] == [
        (16, "out of memory"),  # tried first; it says nothing of 8
        (8, "out of memory"),
    ]
    assert explain(recording).curve.conditions == (2, 4)


def test_a_sweep_of_which_nothing_fits_says_so(tmp_path):
    workload = workload_of()
    time_step = workload.time_step
    once = iter([time_step])  # the trial step fits, nothing after it

    def exhausted():
        if step := next(once, None):
            return step()
        raise MemoryError

    workload.time_step = exhausted
    with pytest.raises(
        CurvescopeError, match="No batch size could be measured; batch 2: out of memory"
    ):
        run_sweep(Here(workload), BATCHES, SHORT, tmp_path / "r")


@pytest.mark.slow
def test_a_step_that_fits_without_the_profiler_only_is_measured_and_the_loss_counted(
    tmp_path, monkeypatch
):
    def refuse(workload, *arguments):
        if workload._batch[0] == 16:
            raise MemoryError
        return record_step(workload, *arguments)

    monkeypatch.setattr(visit, "record_step", refuse)
    run_sweep(Here(workload_of()), BATCHES, SHORT, tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    steps = recording.frame("steps")
    assert set(steps[~steps["profiled"]]["batch"]) == set(BATCHES)
    assert set(steps[steps["profiled"]]["batch"]) == {2, 4, 8}
    assert recording.meta["unmeasured"] == []
    assert recording.meta["lost"]["profiles_out_of_memory"]["count"] == SHORT.rounds[0]
    assert explain(recording).curve.conditions == BATCHES


@pytest.mark.slow
def test_an_error_of_the_model_is_passed_on(tmp_path):
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run_sweep(
            Here(failing_at(8, RuntimeError("shapes do not fit"))), BATCHES, SHORT, tmp_path / "r"
        )


@pytest.mark.slow
def test_the_recording_says_what_ran_and_where_but_not_who(recorded):
    meta = recorded.meta
    assert (meta["network"], meta["batches"], meta["protocol"]["name"]) == (
        "planted",
        list(BATCHES),
        "short",
    )
    assert meta["device"]["kind"] == "cpu"
    assert meta["device"]["threads"] >= 1
    text = json.dumps({key: value for key, value in meta.items() if key != "argv"})
    assert f'"{platform.node()}"' not in text
    assert "HOME" not in text
    assert f"{Path.home()}/" not in text


@ask_each(
    ("text", "expected"),
    [
        ("1..32", (1, 2, 4, 8, 16, 32)),
        ("1,3,9", (1, 3, 9)),
        ("32..160:64", (32, 96, 160)),
        ("1..16+5", (1, 6, 11, 16)),
        ("1..256*4", (1, 4, 16, 64, 256)),
        ("2..7*2", (2, 4)),
        ("1,2,4..16", (1, 2, 4, 8, 16)),
        ("1..4+1,8..32", (1, 2, 3, 4, 8, 16, 32)),
        ("3..13", (3, 6, 12)),
        ("7", (7,)),
    ],
)
def test_batch_sizes(text, expected):
    assert parse_batches(text) == expected


@ask_each(
    "text",
    [
        "0",
        "0..8",
        "4,2",
        "2,2",
        "-1",
        "8..4",
        "a",
        "",
        "1..8:0",
        "1..8*1",
        "1..8+0",
        "8..1+1",
        "1.5",
        "1,,2",
    ],
)
def test_bad_batch_sizes_are_refused(text):
    with pytest.raises(CurvescopeError, match="--batch"):
        parse_batches(text)


@pytest.mark.parametrize(
    ("source", "spec", "message"),
    [
        ("build = 3", "my_bad:build", "has no function build"),
        ("def build():\n    return 3", "my_bad:build", "returned int"),
        ("def build(x):\n    return x", "my_bad:build", "TypeError"),
        ("", "my_bad", "package.module:function"),
    ],
)
def test_bad_factories_are_refused(tmp_path, monkeypatch, source, spec, message):
    (tmp_path / "my_bad.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_bad", raising=False)
    with pytest.raises(CurvescopeError, match=message):
        from_factory(spec, (5,)).build()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "phases"), [("forward+backward", {"forward", "backward"}), ("forward", {"forward"})]
)
def test_a_step_has_the_phases_of_its_mode(tmp_path, mode, phases):
    recording = sweep(tmp_path / "r", planted.build_plain, batches=(1, 2), mode=mode)
    assert set(recording.frame("kernels")["phase"].dropna()) == phases
    assert set(recording.frame("steps")["mode"]) == {mode}


def test_a_sweep_ends_when_it_is_precise_enough(tmp_path):
    protocol = Protocol(
        "until", (2, 50), 1, (1, 1), visit_s=0.0, profiled_steps=0, time_limit_s=None
    )
    seen = []

    def after_four_rounds(steps):
        seen.append(len(steps))
        return len(steps) >= 8

    run_sweep(
        Here(workload_of()),
        (1, 2),
        protocol,
        tmp_path / "r",
        rule=Until(Complete.of(protocol), after_four_rounds),
    )
    assert seen == [4, 6, 8]
    assert open_recording(tmp_path / "r").meta["rounds"] == 4


def test_dell_counts_iterations_by_images():
    protocol = replace(PROTOCOLS["dell"], images=1000)
    assert protocol.statistic == "mean"
    for batch in (1, 7, 64, 5000):
        iterations = protocol.rounds[0] * protocol.steps_of_visit(batch, discarded_ns=10**9)
        assert iterations * batch >= 1000
        assert (iterations - protocol.rounds[0]) * batch < 1000
    with pytest.raises(CurvescopeError, match="choose one of"):
        get_protocol("none")


@ask_each(
    ("text", "expected"),
    [("8GB", 8 * 10**9), ("8 GiB", 8 << 30), ("500mb", 5 * 10**8), ("12e9", 12 * 10**9)],
)
def test_sizes_of_memory(text, expected):
    assert parse_bytes(text, "--memory-limit") == expected


@ask_each("text", ["", "GB", "8XB", "-1GB", "0", "1.2.3GB"])
def test_bad_sizes_are_refused(text):
    with pytest.raises(CurvescopeError, match="--memory-limit"):
        parse_bytes(text, "--memory-limit")


@ask_each(
    ("precision", "product", "scales"),
    [("fp32", "float", 0), ("bf16", "c10::BFloat16", 0), ("fp16", "c10::Half", 1)],
)
def test_products_run_in_the_precision_and_weights_stay_in_fp32(precision, product, scales):
    workload = workload_of(precision=precision)
    types = set()
    workload.load(4)
    rows = record_step(workload, lambda operation: types.update(operation.dtypes) or UNKNOWN)
    assert rows.kernels
    assert product in types
    assert precision != "fp32" or types.isdisjoint({"c10::BFloat16", "c10::Half"})
    assert {str(p.dtype) for p in workload.model.parameters()} == {"torch.float32"}
    assert workload._scaler.is_enabled() == scales


def test_tf32_is_no_mode_of_a_cpu():
    with pytest.raises(CurvescopeError, match="tf32"):
        workload_of(precision="tf32")
