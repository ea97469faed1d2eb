"""The changes between two recordings are one family."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.change import Change
from curvescope.analysis.compare import _changes, compare, is_decided, refuse_different
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.analysis.render.compare import render_check, verdicts
from curvescope.analysis.side import side
from curvescope.base.errors import CurvescopeError
from curvescope.profiling.recording.store import TOGETHER

from ..tables import ask_each
from .causes.planted_causes import planted
from .synthetic import profiled_step, timed_steps, times_of

BATCHES = (1, 2, 4)


def recording(name, times_ms, seed):
    steps = timed_steps(
        times_ms.get, np.random.default_rng(seed), batches=BATCHES, spikes=0, drift=0
    )
    return side(name, {"device": {}}, steps)


def at_one_batch(one, i):
    curve = one.curve
    return replace(
        one,
        curve=replace(
            curve, points=curve.points[i : i + 1], replicates_ms=curve.replicates_ms[:, [i]]
        ),
    )


def p_values(*sides):
    return [line.changes[0].p_adjusted for line in compare(sides).steps]


def test_p_of_each_change_counts_how_many_changes_there_are():
    """Holm by hand: the least of three p-values counts three times, the next twice, the largest
    once.
    """
    base = recording("base", {1: 10.0, 2: 20.0, 4: 40.0}, 1)
    changed = recording("changed", {1: 10.1, 2: 20.5, 4: 42.0}, 2)
    alone = [p_values(at_one_batch(base, i), at_one_batch(changed, i))[0] for i in range(3)]
    least, middle, largest = sorted(range(3), key=alone.__getitem__)
    together = p_values(base, changed)
    assert alone[largest] > 3 * alone[least] > 0
    assert together[least] == pytest.approx(3 * alone[least])
    assert together[middle] == pytest.approx(max(3 * alone[least], min(1.0, 2 * alone[middle])))
    assert together[largest] == pytest.approx(max(together[middle], alone[largest]))


def test_a_ratio_of_times_that_may_be_0_has_no_bound():
    drawn = np.array([0.0, 1.0, 2.0] * 100)
    (change,) = _changes((1.0, 1.0), (drawn, drawn), (6, 6), [False])
    assert (change.speedup, change.high) == (1.0, np.inf)


def on_gpu(name, kind, factor, clock_hz, seed):
    """Step times that are a factor of 10, 20 and 40 ms, with one sample of the clock in each round
    of a batch size.
    """
    steps = timed_steps(
        {b: 10.0 * b * factor for b in BATCHES}.get, np.random.default_rng(seed), batches=BATCHES
    )
    clocks = pd.DataFrame({"start_ns": [1], "sm_clock_hz": [clock_hz], "throttle_reasons": [""]})
    return side(name, {"device": {"name": name, "kind": kind}}, steps, clocks=clocks)


@ask_each(
    ("kind", "device", "factor", "clock_hz", "remark"),
    [
        ("cuda", "Tesla V100-SXM2-16GB", 1.2, 1.2e9, "only a higher clock: 1200 to 1440 MHz"),
        ("cuda", "Tesla V100-SXM2-16GB", 2.0, 1.2e9, ""),  # faster in cycles, too
        ("cuda", "Tesla V100-SXM2-16GB", 1.2, 1.44e9, ""),  # as many cycles less
        ("cuda", "NVIDIA H100 80GB HBM3", 1.2, 1.2e9, ""),  # another GPU
        ("cpu", "Tesla V100-SXM2-16GB", 1.2, 1.2e9, ""),
    ],
)
def test_a_speed_up_that_is_only_a_higher_clock_is_said_to_be_one(
    kind, device, factor, clock_hz, remark
):
    base = on_gpu(device, kind, factor, clock_hz, 1)
    changed = on_gpu("Tesla V100-SXM2-16GB", kind, 1.0, 1.44e9, 2)
    steps = compare([base, changed]).steps
    assert all(line.changes[0].real for line in steps)
    assert {line.remarks for line in steps} == {(remark,)}


@ask_each(
    ("classes", "label"),
    [
        (({"conv3": "Conv2d"}, {}), "conv3 (Conv2d) backward"),
        (({"conv3": "Conv2d"}, {"conv3": "Linear"}), "conv3 backward"),
        (({}, {}), "conv3 backward"),
    ],
)
def test_a_row_names_the_class_of_its_layer(classes, label):
    steps, kernels, _ = planted("unexplained", 1, rounds=2)
    sides = [
        side("a", {"device": {}, "layer_classes": one}, steps, times_of(steps, kernels))
        for one in classes
    ]
    assert label in {line.label for line in compare(sides).rows}


def of_processes(name, ratio, run):
    """Six processes of four rounds each; what slows a process by up to 50 % slows those of all
    versions.
    """
    random, rows = np.random.default_rng(len(name)), []
    for round_ in range(24):
        for index in range(2):
            time_ms = 10.0 * ratio * (1 + round_ // 4 / 10) * (1 + 0.005 * random.standard_normal())
            rows.append((1, round_, index, round(time_ms * 1e6), False))
    steps = pd.DataFrame(rows, columns=["batch", "round", "index", "duration_ns", "profiled"])
    return side(name, {TOGETHER: {"run": run, "rounds_of_process": 4}}, steps)


def test_versions_that_were_measured_together_are_compared_process_by_process():
    base, head = of_processes("base", 1.0, "a"), of_processes("versus", 1.05, "a")
    apart = of_processes("apart", 1.05, "b")
    assert base.curve.rounds == 6
    together, separately = compare([base, head]), compare([base, apart])
    assert [found[:2] for found in together.regressions(0.03)] == [("versus", "1")]
    assert together.steps[0].changes[0].growth == pytest.approx(0.05, abs=0.005)
    assert separately.regressions(0.03) == []
    ((name, batch, change),) = separately.find_undecided(0.03)
    assert (name, batch) == ("apart", "1")
    assert change.bounds_of_growth[1] > 0.1


@ask_each(
    ("growths", "p", "decides"),
    [
        ((0.031, 0.2), 0.0001, True),  # all of it is over 3 %, surely
        ((0.031, 0.2), 0.01, False),
        ((-0.2, 0.029), 0.5, True),  # all of it is below
        ((0.015, 0.05), 0.01, True),  # half of it is 1.75 %, less than 0.6 of 3 %
        ((0.01, 0.05), 0.01, False),
        ((-1.0, np.inf), 1.0, False),
    ],
)
def test_a_growth_is_known_to_be_over_a_limit_or_not(growths, p, decides):
    low, high = growths
    change = Change(1.0, 1 / (1 + high), 1 / (1 + low) if low > -1 else np.inf, p)
    assert change.bounds_of_growth == pytest.approx((low, high))
    assert change.decides(0.03) is decides


def profiled(name, kernels, network=None):
    """A recording of one profiled step with these kernels, each a name and a time in ms."""
    rows = [
        {"name": kernel, "exclusive_ms": time_ms, "kind": "kernels"} for kernel, time_ms in kernels
    ]
    times = pd.DataFrame(rows).assign(
        step=0, batch=8, layer="fc", phase="forward", op="aten::linear"
    )
    steps = pd.DataFrame(
        {"step": [0], "batch": [8], "duration_ns": [int(1e6 * times["exclusive_ms"].sum())]}
    )
    steps = steps.assign(
        round=0, index=0, profiled=True, start_ns=0, mode="training", process=pd.NA
    )
    return side(name, {"device": {}, "network": network}, steps, times)


def test_what_changed_most_comes_first_and_a_renamed_kernel_is_one_row():
    """Rows stood by size, so that one that changed was hidden below 25 larger ones; a new name made
    two rows.
    """
    same = [("large_gemm", 100.0), ("softmax_kernel<float>", 20.0)]
    before = profiled("before", [*same, ("void reduce<512, 2>(float*)", 1.0)])
    after = profiled("after", [*same, ("void reduce<256, 4>(float*)", 4.0)])
    first, *others = compare([before, after], "kernel").rows
    assert first.label == "void reduce<512, 2>(float*) → void reduce<256, 4>(float*)"
    assert first.times_ms == pytest.approx((1.0, 4.0))
    assert {row.label for row in others} == {"large_gemm", "softmax_kernel<float>"}


def test_a_version_that_takes_a_reference_implementation_is_1385_times_as_slow():
    """An fp16 product of 2048 squared in torch 2.13 and 2.14, by the times of pytorch 193951."""
    brgemm, reference = "matmul brg_matmul:avx512_core_fp16", "matmul ref:any"
    before = profiled("2.13", [(brgemm, 11.236190795898438)])
    after = profiled("2.14", [(reference, 15557.734251022339)])
    (row,) = compare([before, after], "kernel").rows
    assert row.label == f"{brgemm} → {reference}"
    assert row.times_ms[1] / row.times_ms[0] == pytest.approx(1384.6, rel=1e-4)


def test_different_networks_are_refused():
    sides = [
        profiled(name, [("k", 1.0)], network)
        for name, network in (("a", "alexnet"), ("b", "resnet50"))
    ]
    with pytest.raises(
        CurvescopeError,
        match=r"different networks \(a: alexnet; b: resnet50\): --different compares",
    ):
        refuse_different(sides)
    refuse_different([sides[0], profiled("c", [("k", 1.0)])])


def imported(name, kernels, device="NVIDIA H100"):
    """A side that is a profile of another program or of another tool."""
    one = profiled(name, kernels)
    facts = {**one.settings, "imported_from": "PyTorch profiler"}
    times = one.kernel_times.assign(layer=None, op=None)
    hardware = replace(one.hardware, name=device)
    return replace(one, settings=facts, hardware=hardware, kernel_times=times)


def test_profiles_of_other_devices_or_programs_are_refused():
    """A ResNet on an A100 beside copies on another was "faster: 0.306 times as long"."""
    base = imported("a", [("gemm", 80.0), ("copy", 2.0)])
    refuse_different([base, imported("b", [("gemm", 20.0), ("relu", 1.0)])])
    with pytest.raises(
        CurvescopeError, match=r"different devices \(a: NVIDIA H100; b: AMD Instinct"
    ):
        refuse_different([base, imported("b", [("gemm", 80.0)], "AMD Instinct MI300X")])
    with pytest.raises(
        CurvescopeError, match=r"a and b are of different programs: 2% of the time of one"
    ):
        refuse_different([base, imported("b", [("copy", 80.0)])])
    refuse_different([profiled("a", [("gemm", 1.0)]), profiled("b", [("copy", 1.0)])])


def slept(name, times_ms, rounds=6, steps=40):
    """Steps of a version that sleeps for these times, over and over."""
    random = np.random.default_rng(len(name))
    rows = [
        {
            "factor": name,
            "batch": 1,
            "round": round_,
            "index": place,
            "step": round_ * steps + place,
            "start_ns": (round_ * steps + place) * 10**9,
            "duration_ns": int(time_ms * 1e6),
            "profiled": False,
        }
        for round_ in range(rounds)
        for place, time_ms in enumerate(
            np.resize(times_ms, steps) * np.exp(0.01 * random.standard_normal(steps))
        )
    ]
    meta = {TOGETHER: {"run": "run", "rounds_of_process": 1}}
    table = pd.DataFrame(rows).drop(columns="factor")
    return rows, side(name, meta, table, statistic=FASTER_HALF)


@ask_each(
    ("times_ms", "ratio", "pace"),
    [((40.0, 10.0), 1.25, 0.5), ((24.0,), 1.2, 1.2), ((20.0,), None, None)],
)
def test_a_version_is_slower_where_its_cost_or_its_pace_is(times_ms, ratio, pace):
    base_rows, base = slept("even", (20.0,))
    rows, head = slept("versus", times_ms)
    assert is_decided([*base_rows, *rows], ["even", "versus"], 0.05, 1)
    compared = compare([base, head])
    grown = compared.regressions(0.05)
    assert compared.find_undecided(0.05) == []
    if ratio is None:
        assert grown == []
        return
    ((name, _, change),) = grown
    assert name == "versus"
    assert 1 + change.growth == pytest.approx(ratio, rel=0.02)
    assert 1 / compared.steps[0].pace_changes[0].speedup == pytest.approx(pace, rel=0.03)
    assert ("Its pace" in verdicts(compared)[0]) == (ratio != pace)


LAYERS = {"attention": 14.0, "mlp.0": 18.0, "mlp.2": 19.0, "norm": 2.0}


def of_blocks(name, mixer_ms, seed, idle=1.0, noise=0.15):
    """A version in three processes, with a profiled step each: three blocks whose mixers take this
    time, and whose idle time is the same in every process.
    """
    random = np.random.default_rng(seed)
    places = [(block, layer, phase) for block in range(3) for layer in LAYERS for phase in "fb"]
    steps = timed_steps(
        lambda _: 350 + 3 * mixer_ms, random, batches=(32,), rounds=3, noise=0.3, spikes=0
    )
    rows, kernels = [], []
    for round_ in range(3):
        work = [
            (f"blocks.{block}.{layer}", phase, "gemm", LAYERS[layer])
            for block, layer, phase in places
        ]
        work += [(f"blocks.{block}.mixer", "f", "mul", mixer_ms) for block in range(3)]
        work += [(None, "optimizer", f"adam{i}", 0.4) for i in range(60)]
        work = [
            (*place, time_ms * np.exp(noise * random.standard_normal())) for *place, time_ms in work
        ]
        row, launched = profiled_step(100 + round_, 32, round_, work, 58.0 * idle)
        rows.append(row)
        kernels += launched
    steps = pd.concat([steps, pd.DataFrame(rows)], ignore_index=True)
    meta = {TOGETHER: {"run": "run", "rounds_of_process": 1}}
    times = times_of(steps, pd.DataFrame(kernels).assign(op=lambda rows: rows["name"]))
    return side(name, meta, steps, times, FASTER_HALF)


@pytest.mark.slow
@ask_each("seed", range(4))
def test_few_rows_are_tested_first_and_three_steps_alike_by_chance_are_no_change(seed):
    """Mixers that took 65 to 97 times as long had no star among 166 rows, and idle time that rose
    by 14 % in each of three steps was "significant", from 1.14 to 1.14.
    """
    compared = compare(
        [of_blocks("base", 0.15, seed), of_blocks("head", 12.0, seed + 10, idle=1.14)]
    )
    rows = {row.label: row.changes[0] for row in compared.rows}
    idle = rows["idle"]
    assert 1 / idle.speedup == pytest.approx(1.14)
    assert idle.high - idle.low > 0.05
    assert not idle.real
    grown = [label for label, change in rows.items() if change is not None and change.real]
    assert sorted(grown) == [f"blocks.{block}.mixer f" for block in range(3)]
    assert compared.steps[0].changes[0].real is False
    (layer,) = compared.grown_layers(0.03)
    assert (layer.name, layer.label) == ("head", "blocks.*.mixer")
    assert 0.03 < layer.at_least < 3 * 11.85 / 350 < 1.5 * layer.growth
    assert compared.fails(0.03)
    assert not compared.fails(0.2)
    assert "Changed most, significantly: blocks.*.mixer" in verdicts(compared)[0]
    assert str(render_check(compared, 0.03)[0]).startswith("Failed: blocks.*.mixer of head")


@pytest.mark.slow
@ask_each("seed", range(4))
def test_the_same_version_twice_has_no_row_that_changed(seed):
    compared = compare([of_blocks("base", 0.15, seed), of_blocks("head", 0.15, seed + 100)])
    assert [row.label for row in compared.rows if row.changes[0] and row.changes[0].real] == []
    assert compared.grown_layers(0.0) == []


def test_a_layer_that_another_one_makes_up_for_does_not_fail():
    """The step is known well, and takes no longer."""
    base, head = of_blocks("base", 0.15, 1, noise=0.01), of_blocks("head", 12.0, 2, noise=0.01)
    known = slept("even", (350.0,))[1]
    settled = [replace(version, curve=known.curve, run=None) for version in (base, head)]
    steps = compare([known, known]).steps
    compared = compare([base, head])
    assert compared.grown_layers(0.03)
    same = replace(compared, steps=(replace(steps[0], label="32"),), sides=tuple(settled))
    assert same.grown_layers(0.03) == []
