"""Rounds without some visit, disturbed or never made, count for the conditions that they have, and
only for these.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.decompose.curve import cost_curve, list_focused_rounds
from curvescope.analysis.decompose.functionals import Functional, bend, excess
from curvescope.analysis.decompose.marked import find_marked_steps, with_averaged
from curvescope.analysis.decompose.statistics import FASTER_HALF, replicate, resample_rounds
from curvescope.analysis.decompose.terms import in_rounds
from curvescope.analysis.diagnosis.estimate import Estimates
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.analysis.diagnosis.split import explain_functional
from curvescope.profiling.recording.disturbed import with_set_aside

from ...tables import ask_each
from ..synthetic import profiled_step, times_of

BATCHES, ROUNDS = (1, 2, 4, 8), 10
WAITED = {(1, 0), (2, 0), (2, 3), (4, 5), (8, 1), (8, 2), (8, 9)}  # (batch, round)


@pytest.fixture(scope="module")
def tables():
    """A disturbed visit takes 50 times as long, and counts what it waited."""
    random, rows, kernels = np.random.default_rng(8), [], []
    for round_ in range(ROUNDS):
        for batch in BATCHES:
            slow = 50 if (batch, round_) in WAITED else 1
            for index in range(4):
                conv = slow * (20 + 5 * batch) * np.exp(0.02 * random.standard_normal())
                row, launched = profiled_step(
                    len(rows),
                    batch,
                    round_,
                    [("conv", "forward", "gemm", conv)],
                    idle_ms=2.0 * slow,
                )
                profiled = index > 1
                waits_ns = None if profiled else row["duration_ns"] * (slow - 1) // slow
                rows.append(
                    {**row, "index": index, "profiled": profiled, "run_queue_wait_ns": waits_ns}
                )
                kernels += launched if profiled else []
    steps = pd.DataFrame(rows)
    return steps, pd.DataFrame(kernels)


def without(steps):
    return steps[[key not in WAITED for key in zip(steps["batch"], steps["round"], strict=True)]]


def test_times_and_terms_are_those_of_the_other_visits(tables):
    steps, kernels = tables
    found = diagnose(read(steps, times_of(steps, kernels), FASTER_HALF))
    left = without(steps)
    for point in found.curve.points:
        of_batch = left[(left["batch"] == point.condition) & ~left["profiled"]]
        assert point.time_ms.value == pytest.approx(of_batch["duration_ns"].mean() / 1e6)
        assert found.curve.paces.at(point.condition).time_ms.value == pytest.approx(
            np.sort(of_batch["duration_ns"])[: -(-len(of_batch) // 2)].mean() / 1e6
        )
        assert point.n == 2 * point.rounds == len(of_batch)
        assert (
            point.time_ms.low < point.time_ms.value < point.time_ms.high < 1.1 * point.time_ms.value
        )
    assert found.terms.rounds == {1: 9, 2: 8, 4: 9, 8: 7}
    assert found.curve.rounds == ROUNDS
    value = found.curve.evaluate(excess(4, 8))
    shares = found.terms.decompose(excess(4, 8), found.curve)
    assert math.fsum(share.value.value for share in shares) == pytest.approx(value.value, abs=1e-9)
    assert (
        max(abs(share.value.value) for share in shares) < 40
    )  # ms; one disturbed step of batch 8 takes 3,000


def test_a_round_counts_for_the_conditions_that_it_still_has(tables):
    """Round 1 lacks batch 1 and 2; to throw it away would cost batch 4 and 8 theirs: of ten rounds
    four are whole.
    """
    steps, _ = tables
    whole = cost_curve(without(steps), FASTER_HALF)
    assert cost_curve(steps, FASTER_HALF).rounds_behind(bend(2, 4, 8)) > 7 > whole.rounds == 4


def test_a_drawn_round_without_the_visit_adds_nothing_and_an_empty_draw_gives_the_estimate():
    drawn = resample_rounds(4)
    rounds = [np.array([1.0, 1.2]), np.empty(0), np.array([1.1]), np.empty(0)]
    times = replicate(rounds, drawn, FASTER_HALF)
    empty = np.isin(drawn, (1, 3)).all(axis=1)
    assert empty.any()
    assert set(times[empty]) == {1.05}
    assert 1.0 <= times.min() <= times.max() <= 1.2


def test_marked_steps_of_the_same_visits_are_left_out(tables):
    steps, _ = tables
    rows = [
        (batch, round_, 0, "conv", "forward", 10**9 if (batch, round_) in WAITED else 10**7, 1)
        for batch in BATCHES
        for round_ in range(ROUNDS)
    ]
    marks = pd.DataFrame(
        rows, columns=["batch", "round", "index", "layer", "phase", "duration_ns", "marks"]
    )
    marked = find_marked_steps(marks, steps, FASTER_HALF)
    assert {batch: len(samples.rounds) for batch, samples in marked.steps.items()} == {
        1: 9,
        2: 8,
        4: 9,
        8: 7,
    }
    assert max(samples.times_ms.max() for samples in marked.steps.values()) <= 10


def test_a_curve_of_steps_whose_counters_are_unknown_uses_all(tables):
    steps, _ = tables
    everything = cost_curve(steps.drop(columns="run_queue_wait_ns"), FASTER_HALF)
    assert [point.rounds for point in everything.points] == [ROUNDS] * len(BATCHES)
    assert with_set_aside(steps)["set_aside"].sum() == 4 * len(WAITED)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["default, least", "default"])
def test_with_three_in_ten_visits_disturbed_the_intervals_hold_and_nothing_is_found(
    protocol, monkeypatch
):
    """1,000 sweeps: the table `disturbed_visits` of benchmarks/evidence.py.

    Of 40 sweeps of a line, at most 8 % may alarm, and 90 % of intervals hold.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    sys.modules.pop("benchmarks", None)
    from benchmarks import interval_coverage as coverage

    tally = coverage.simulate("busy neighbour", *coverage.PROTOCOLS[protocol], 0.0, 1, 40)
    assert tally.alarms <= 3
    assert tally.covered >= 36
    assert tally.points >= 0.9 * 40 * len(coverage.BATCHES)


COMPLETE, FOCUSED, SLOWER = 6, 18, 1.2  # the machine slows down before the focused rounds


@pytest.fixture(scope="module")
def focused():
    """Batch 1 to 8 in six rounds, then only 4 and 8; a layer takes 30 ms more from batch 8 on."""
    random, rows, kernels = np.random.default_rng(5), [], []
    for number in range(COMPLETE + FOCUSED):
        pace = 1.0 if number < COMPLETE else SLOWER
        for batch in (1, 2, 4, 8) if number < COMPLETE else (4, 8):
            for profiled in (False, True):
                conv, jump = (
                    pace
                    * np.exp(0.05 * random.standard_normal(2))
                    * (20 + 5 * batch, batch + 30 * (batch > 4))
                )
                layers = [("conv", "forward", "gemm", conv), ("jump", "forward", "gemm", jump)]
                row, launched = profiled_step(len(rows), batch, number, layers)
                rows.append({**row, "index": int(profiled), "profiled": profiled})
                kernels += launched if profiled else []
    steps = pd.DataFrame(rows)
    return steps, times_of(steps, pd.DataFrame(kernels))


def read(steps, times, statistic="median"):
    return Recorded(steps, kernel_times=times, statistic=statistic)


def part(focused, batches, rounds):
    steps, times = focused
    steps = steps[steps["batch"].isin(batches) & steps["round"].isin(rounds)]
    return steps, times[times["step"].isin(steps["step"])]


def test_the_curve_and_other_functionals_are_of_complete_rounds_alone(focused):
    found, before = (
        diagnose(read(*focused)),
        diagnose(read(*part(focused, (1, 2, 4, 8), range(COMPLETE)))),
    )
    assert found.curve.points == before.curve.points
    for pair in ((1, 2), (2, 4)):
        assert found.curve.evaluate(excess(*pair)) == before.curve.evaluate(excess(*pair))
        assert found.terms.decompose(excess(*pair), found.curve) == before.terms.decompose(
            excess(*pair), before.curve
        )


def test_the_functional_of_focused_rounds_uses_every_round_that_visited_its_batch_sizes(focused):
    found, before = (
        diagnose(read(*focused)),
        diagnose(read(*part(focused, (1, 2, 4, 8), range(COMPLETE)))),
    )
    alone = diagnose(read(*part(focused, (4, 8), range(COMPLETE + FOCUSED))))
    pair = excess(4, 8)
    value = found.curve.evaluate(pair)
    assert value == alone.curve.evaluate(pair)
    shares = found.terms.decompose(pair, found.curve)
    assert shares == alone.terms.decompose(pair, alone.curve)
    assert math.fsum(share.value.value for share in shares) == pytest.approx(value.value, abs=1e-9)
    old = {share.label: share.value for share in before.terms.decompose(pair, before.curve)}
    for share in shares:
        if share.label == "conv forward":
            assert share.value.high - share.value.low < 0.8 * (
                old[share.label].high - old[share.label].low
            )


def test_causes_see_the_rounds_of_the_anomaly_and_add_up(focused):
    """The jump is 30 ms of layer `jump`, 1.2 times that in three rounds of four; all amounts are of
    these rounds.
    """
    found = diagnose(read(*focused))
    first = found.explanations[0]
    assert first.functional == excess(4, 8)
    assert first.shares[0].label == "jump forward"
    assert first.shares[0].value.value == pytest.approx(30 * (1 + 3 * SLOWER) / 4, rel=0.1)
    amounts = math.fsum(cause.amount for cause in first.causes)
    assert amounts == pytest.approx(first.value.value, abs=1e-9)
    finding = next(f for f in found.findings if f.tested == excess(4, 8))
    assert finding.tested_value == first.value


def test_a_size_that_was_found_late_is_explained_though_all_its_rounds_are_slower(focused):
    """Of the other sizes the estimate of all rounds averages faster steps alone: on an H100 the
    rounds of the found size had none of them.
    """
    steps, times = focused
    late, small = steps["round"] >= COMPLETE, steps["batch"] < 8
    steps = steps[(late & (steps["round"] < 2 * COMPLETE)) | (~late & small)]
    times = with_averaged(times[times["step"].isin(steps["step"])], FASTER_HALF)
    averaged = times.loc[times["averaged"] & (times["batch"] == 4), "step"]
    assert (steps.set_index("step").loc[averaged, "round"] < COMPLETE).all()
    found = diagnose(read(steps, times, FASTER_HALF))
    estimates = Estimates(found.curve, found.terms)
    first = explain_functional(excess(4, 8), estimates, found.recorded)
    assert first.shares[0].label == "jump forward"


def test_kernels_of_other_rounds_count_where_its_rounds_have_no_profile_of_a_size(focused):
    """Marked steps have terms in every round, and kernels have names in two rounds alone."""
    steps, times = focused
    found = diagnose(read(steps, times))
    rounds = range(COMPLETE, COMPLETE + FOCUSED)
    late = steps.loc[(steps["batch"] == 8) & steps["round"].isin(rounds), "step"]
    early_names = times[~times["step"].isin(late)]
    kept, of_rounds = in_rounds(early_names, steps, (4, 8), rounds, "batch")
    assert set(kept["batch"]) == {4, 8}
    assert set(kept["step"]) <= set(of_rounds["step"])
    behind = replace(found.terms.behind(excess(4, 8)), shared=tuple(rounds))
    terms = replace(found.terms, focused=(behind,))
    estimates = Estimates(found.curve, terms)
    first = explain_functional(excess(4, 8), estimates, read(steps, early_names))
    assert first.shares[0].label == "jump forward"


@ask_each(
    ("visited", "expected"),
    [
        ([(1, 2, 4)] * 3, []),
        ([(1, 2, 4)] * 3 + [(2, 4)] * 2, [((2, 4), [0, 1, 2, 3, 4])]),
        ([(1, 2, 4)] * 3 + [(1,)], []),  # cut off after the first batch size
        ([(1, 2, 4), (1, 2), (2, 4)], [((1, 2), [0, 1]), ((2, 4), [0, 2])]),
        ([(1, 2, 4)], []),
    ],
)
def test_sets_of_batch_sizes_that_more_rounds_visited(visited, expected):
    steps = pd.DataFrame(
        [(b, number) for number, batches in enumerate(visited) for b in batches],
        columns=["batch", "round"],
    )
    assert list_focused_rounds(steps) == expected


def test_a_batch_size_that_stopped_fitting_costs_the_others_nothing():
    """Batch 4 ran out of memory in the third round: the excess from 1 to 2 keeps all ten rounds."""
    random = np.random.default_rng(1)
    rows = [
        (batch, number, round(1e7 * batch * (1 + 0.01 * random.standard_normal())), False)
        for number in range(10)
        for batch in ((1, 2, 4) if number < 2 else (1, 2))
    ]
    curve = cost_curve(pd.DataFrame(rows, columns=["batch", "round", "duration_ns", "profiled"]))
    assert curve.behind(excess(1, 2)).rounds == 10
    assert curve.behind(excess(2, 4)).rounds == 2


def test_all_samples_of_a_benchmark_count_though_its_problems_end_at_different_times():
    rounds = {4: 2, 8: 4, 16: 4}  # the problem at 4 is known after two rounds
    steps = pd.DataFrame(
        {
            "batch": b,
            "round": r,
            "duration_ns": (b + r) * 10**6,
            "profiled": False,
            "mode": "operator",
        }
        for b, count in rounds.items()
        for r in range(count)
    )
    assert list_focused_rounds(steps) == []
    assert [(p.n, p.time_ms.value) for p in cost_curve(steps).points] == [
        (2, 4.5),
        (4, 9.5),
        (4, 17.5),
    ]
    # of a sweep the points of most sizes have the rounds that these share
    sweep = cost_curve(steps.assign(mode="training"))
    assert [p.n for p in sweep.points] == [2, 4, 4]
    assert [p.n for p in sweep.joint] == [2, 2, 2]


def test_a_size_that_was_found_late_takes_no_rounds_from_the_other_points():
    """An H100's VGG-A had 5 rounds of nine sizes, and 2 of all after 17 was found: batch 1 took 1.8
    to 18 ms.
    """
    every, late = (1, 2, 4, 8), (1, 2, 4, 5, 8)
    rows = [
        (batch, number, int(1e6 * batch * (1 + 0.02 * (-1) ** number)), False)
        for number in range(8)
        for batch in (late if number > 5 else every)
    ]
    columns = ["batch", "round", "duration_ns", "profiled"]
    curve = cost_curve(pd.DataFrame(rows, columns=columns))
    assert {p.condition: p.rounds for p in curve.points} == {1: 8, 2: 8, 4: 8, 5: 2, 8: 8}
    alone = cost_curve(pd.DataFrame([row for row in rows if row[0] != 5], columns=columns))
    assert [p for p in curve.points if p.condition != 5] == list(alone.points)
    assert {p.rounds for p in curve.joint} == {2}
    assert curve.behind(excess(4, 5)).rounds == 2


def test_a_size_whose_profiles_were_all_disturbed_is_split_by_them(tables):
    """Its time is that of the other visits; each part is the share that those profiles give it."""
    steps, kernels = tables
    only_here = (steps["batch"] != 2) | ~steps["profiled"] | (steps["round"] == 0)
    steps = steps[only_here]
    kernels = kernels[kernels["step"].isin(steps["step"])]
    found = diagnose(read(steps, times_of(steps, kernels), FASTER_HALF))
    whole = Functional("time", 2, None, ((2, 1.0),))
    shares = found.terms.decompose(whole, found.curve)
    time_ms = found.curve.at(2).time_ms.value
    assert time_ms < 40
    assert math.fsum(share.value.value for share in shares) == pytest.approx(time_ms, abs=1e-9)
