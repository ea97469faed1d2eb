"""Rounds that visit only the batch sizes of one functional: they sharpen it, and leave everything else as it was."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.curve import cost_curve, focused_rounds
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.diagnosis.split import diagnose

from ..synthetic import profiled_step, times_of

COMPLETE, FOCUSED, SLOWER = 6, 18, 1.2  # the machine slows down before the focused rounds


@pytest.fixture(scope="module")
def tables():
    """Batch 1 to 8 in six rounds, then only 4 and 8; a layer takes 30 ms more from batch 8 on."""
    random, rows, kernels = np.random.default_rng(5), [], []
    for number in range(COMPLETE + FOCUSED):
        pace = 1.0 if number < COMPLETE else SLOWER
        for batch in (1, 2, 4, 8) if number < COMPLETE else (4, 8):
            for profiled in (False, True):
                conv, jump = (
                    pace * np.exp(0.05 * random.standard_normal(2)) * (20 + 5 * batch, batch + 30 * (batch > 4))
                )
                layers = [("conv", "forward", "gemm", conv), ("jump", "forward", "gemm", jump)]
                row, launched = profiled_step(len(rows), batch, number, layers)
                rows.append({**row, "index": int(profiled), "profiled": profiled})
                kernels += launched if profiled else []
    steps = pd.DataFrame(rows)
    return steps, times_of(steps, pd.DataFrame(kernels))


def part(tables, batches, rounds):
    steps, times = tables
    steps = steps[steps["batch"].isin(batches) & steps["round"].isin(rounds)]
    return steps, times[times["step"].isin(steps["step"])]


def test_the_curve_and_other_functionals_are_of_complete_rounds_alone(tables):
    found, before = diagnose(*tables), diagnose(*part(tables, (1, 2, 4, 8), range(COMPLETE)))
    assert found.curve.points == before.curve.points
    for pair in ((1, 2), (2, 4)):
        assert found.curve.evaluate(excess(*pair)) == before.curve.evaluate(excess(*pair))
        assert found.terms.decompose(excess(*pair), found.curve) == before.terms.decompose(excess(*pair), before.curve)


def test_the_functional_of_focused_rounds_uses_every_round_that_visited_its_batch_sizes(tables):
    found, before = diagnose(*tables), diagnose(*part(tables, (1, 2, 4, 8), range(COMPLETE)))
    alone = diagnose(*part(tables, (4, 8), range(COMPLETE + FOCUSED)))
    pair = excess(4, 8)
    value = found.curve.evaluate(pair)
    assert value == alone.curve.evaluate(pair)
    shares = found.terms.decompose(pair, found.curve)
    assert shares == alone.terms.decompose(pair, alone.curve)
    assert math.fsum(share.value.value for share in shares) == pytest.approx(value.value, abs=1e-9)
    old = {share.label: share.value for share in before.terms.decompose(pair, before.curve)}
    for share in shares:
        if share.label == "conv forward":
            assert share.value.high - share.value.low < 0.8 * (old[share.label].high - old[share.label].low)


def test_causes_see_the_rounds_of_the_anomaly_and_add_up(tables):
    """The jump is 30 ms of layer `jump`, 1.2 times that in three rounds of four; all amounts are of these rounds."""
    found = diagnose(*tables)
    first = found.explanations[0]
    assert first.functional == excess(4, 8)
    assert first.shares[0].label == "jump forward"
    assert first.shares[0].value.value == pytest.approx(30 * (1 + 3 * SLOWER) / 4, rel=0.1)
    amounts = math.fsum(cause.amount for cause in first.attribution.causes)
    assert amounts == pytest.approx(first.value.value, abs=1e-9)
    finding = next(f for f in found.findings if f.tested == excess(4, 8))
    assert finding.tested_value == first.value


@pytest.mark.parametrize(
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
        [(b, number) for number, batches in enumerate(visited) for b in batches], columns=["batch", "round"]
    )
    assert focused_rounds(steps) == expected


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
        {"batch": b, "round": r, "duration_ns": (b + r) * 10**6, "profiled": False, "mode": "operator"}
        for b, count in rounds.items()
        for r in range(count)
    )
    assert focused_rounds(steps) == []
    assert [(p.n, p.time_ms.value) for p in cost_curve(steps).points] == [(2, 4.5), (4, 9.5), (4, 17.5)]
    assert [p.n for p in cost_curve(steps.assign(mode="training")).points] == [2, 2, 2]
