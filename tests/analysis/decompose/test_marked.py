"""Terms of marked steps: those of the unprofiled step, whatever the profiler costs."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.averaged_steps import Samples
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.marked import (
    Marked,
    find_marked_steps,
    with_averaged,
    without_profiler,
)
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.analysis.decompose.terms import OVERHEAD, Key, estimate_terms

from ...tables import ask_each
from ..synthetic import profiled_step, times_of

LAYERS = [f"l{number:03d}" for number in range(100)]
SLEEP_MS = 0.05


def small_operators(
    mark_ms=0.0005, event_ms=0.004, sleeps=("l042",), rounds=10, noise=0.01, seed=0
):
    """A step of a hundred layers of 20 µs and 5 µs of Python each; from batch 2 on some layers
    sleep for 50 µs.

    A mark costs `mark_ms`; the profiler makes each operator longer by `event_ms`, and as much time
    before it.
    """
    random = np.random.default_rng(seed)
    steps, kernels, marks = [], [], []
    for number in range(rounds):
        for batch in (1, 2):
            python = np.array(
                [0.005 + (SLEEP_MS if batch == 2 and layer in sleeps else 0) for layer in LAYERS]
            )
            work = np.full(len(LAYERS), 0.020 * batch)
            for index in range(2):
                key = {"batch": batch, "round": number, "index": index}
                factor = np.exp(noise * random.standard_normal())
                duration_ns = float((work + python).sum() * factor * 1e6)
                steps.append(
                    {**key, "step": len(steps), "profiled": False, "duration_ns": duration_ns}
                )
                times = (work + python) * np.exp(noise * random.standard_normal()) + mark_ms
                marks += [
                    {
                        **key,
                        "layer": layer,
                        "phase": "forward",
                        "duration_ns": time * 1e6,
                        "marks": 1,
                    }
                    for layer, time in zip(LAYERS, times, strict=True)
                ]
            slowed = (work + event_ms) * np.exp(noise * random.standard_normal())
            ran = [
                (layer, "forward", "gemm", time) for layer, time in zip(LAYERS, slowed, strict=True)
            ]
            row, launched = profiled_step(
                len(steps), batch, number, ran, idle_ms=float(python.sum() + 100 * event_ms)
            )
            steps.append({**row, "index": 2, "profiled": True})
            kernels += launched
    steps = pd.DataFrame(steps)
    times = times_of(steps, pd.DataFrame(kernels))
    marked = find_marked_steps(pd.DataFrame(marks), steps, FASTER_HALF)
    settled, sampled = marked.settle(with_averaged(times, FASTER_HALF))
    terms = estimate_terms(settled, steps, statistic=FASTER_HALF, sampled=sampled)
    return cost_curve(steps, FASTER_HALF), terms, settled


@ask_each("event_ms", [0.0, 0.004, 0.1])
def test_a_sleep_is_idle_of_its_layer(event_ms):
    """Of 50 µs in one of a hundred layers, at a profiler's cost of nothing, of a fifth, and of five
    times the work.
    """
    curve, terms, _ = small_operators(event_ms=event_ms)
    functional = excess(1, 2)
    shares = terms.decompose(functional, curve)
    assert math.fsum(share.value.value for share in shares) == pytest.approx(
        curve.evaluate(functional).value, abs=1e-9
    )
    of_layer = [share.value.value for share in shares if share.key.layer == "l042"]
    assert sum(of_layer) == pytest.approx(SLEEP_MS - 0.005, rel=0.1)
    assert max(shares, key=lambda share: share.value.value).key.layer == "l042"
    if event_ms < 0.01:  # with more the operators fill their layers, and what is idle is not known
        assert max(shares, key=lambda share: share.value.value).key == Key(
            "l042", "forward", "idle"
        )


def test_kernels_of_the_first_rounds_are_counted_at_the_pace_of_all():
    """The machine is slower by a fifth in eight of ten rounds: idle stays the fifth of a step that
    it is.
    """
    rounds = np.arange(10)
    places = (("conv", "forward"),)
    times_ms = np.where(rounds < 2, 25.0, 30.0)[:, None]
    kernels = pd.DataFrame(
        {
            "batch": 1,
            "step": [0, 1],
            "layer": "conv",
            "phase": "forward",
            "kind": "kernels",
            "name": "gemm",
            "exclusive_ms": 20.0,
            "exclusive_ns": 20.0e6,
            "averaged": True,
            "of_all_steps": False,
        }
    )
    shares = []
    for profiled in ({1: {0, 1}}, {}):
        marked = Marked(places, {1: Samples(times_ms, rounds)}, "mean", profiled)
        table, _ = marked.settle(kernels)
        of_kind = table.groupby("kind")["exclusive_ms"].sum()
        shares.append(of_kind["idle"] / of_kind.sum())
    assert shares[0] == pytest.approx(0.2)
    assert shares[1] == pytest.approx(
        1 - 20 / 29
    )  # at their own pace, idle would have all of the slowdown


@ask_each("mark_ms", [0.0, 0.0005, 0.005])
def test_what_marks_cost_is_no_term_and_no_overhead(mark_ms):
    curve, terms, _ = small_operators(mark_ms=mark_ms)
    for share in terms.decompose(excess(1, 2), curve):
        if share.key.kind == OVERHEAD:
            assert abs(share.value.value) < 0.02 * curve.at(2).time_ms.value
    assert terms.values_ms.sum(axis=1) == pytest.approx([2.5, 4.55], rel=0.02)


@ask_each("event_ms", [0.004, 0.1])
def test_settled_times_add_up_to_the_unprofiled_step(event_ms):
    curve, _, settled = small_operators(event_ms=event_ms)
    of_steps = settled.groupby(["batch", "step"])["exclusive_ms"].sum().groupby("batch").mean()
    assert of_steps.tolist() == pytest.approx(
        [point.time_ms.value for point in curve.points], rel=0.02
    )


def test_idle_time_has_the_layer_that_sleeps_as_its_place():
    _, _, settled = small_operators()
    places = settled[settled["kind"] == "idle"][["layer", "phase"]].drop_duplicates()
    assert [(row.layer, row.phase) for row in places.dropna().itertuples()] == [("l042", "forward")]


def test_a_batch_size_without_marks_leaves_the_profilers_times():
    steps = pd.DataFrame(
        {"batch": [1, 2, 2], "profiled": [True, True, False], "duration_ns": [1, 2, 2], "round": 0}
    )
    marks = pd.DataFrame(
        {
            "batch": [2],
            "round": 0,
            "index": 0,
            "layer": None,
            "phase": "forward",
            "duration_ns": 2,
            "marks": 1,
        }
    )
    assert find_marked_steps(marks, steps, FASTER_HALF) is None
    assert find_marked_steps(marks[:0], steps, FASTER_HALF) is None


@pytest.mark.slow
@ask_each(
    ("work_ms", "profiled_idle_ms", "whole_ms", "idle_ms"),
    [
        (7.0, 3.0, 10, 3.0),
        (7.0, 5.0, 10, 3.0),
        (7.0, 8.0, 10, 3.0),
        (7.0, 2.0, 10, 2.0),
        (9.0, 2.0, 8, 0.0),
    ],
)
def test_on_a_gpu_the_profiler_costs_time_between_kernels_and_more_stays_overhead(
    work_ms, profiled_idle_ms, whole_ms, idle_ms
):
    row, kernels = profiled_step(
        0, 1, 0, [("conv", "forward", "gemm", work_ms)], idle_ms=profiled_idle_ms
    )
    timed = {**row, "step": 1, "profiled": False, "duration_ns": whole_ms * 1_000_000}
    steps = pd.DataFrame([{**row, "profiled": True}, timed])
    times = with_averaged(times_of(steps, pd.DataFrame(kernels)), FASTER_HALF)
    found = without_profiler(
        times, steps, SimpleNamespace(meta={"torch_device": "cuda:0"}, statistic=FASTER_HALF)
    )
    assert found.groupby("kind")["exclusive_ms"].sum().to_dict() == pytest.approx(
        {"kernels": work_ms, "idle": idle_ms}
    )
    on_cpu = without_profiler(
        times, steps, SimpleNamespace(meta={"torch_device": "cpu"}, statistic=FASTER_HALF)
    )
    assert on_cpu["exclusive_ms"].sum() == pytest.approx(work_ms + profiled_idle_ms)
