"""Sizes that a larger one overtakes: each is one finding, and no other size is judged by it."""

import math

import numpy as np
import pandas as pd
import pytest

import curvescope
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find, find_fixed_cost
from curvescope.analysis.decompose.functionals import bend, fixed_cost, outlier
from curvescope.analysis.diagnosis.explain import explain
from curvescope.analysis.render.headline import finding_sentence

from ...shared import ROOT
from ...tables import ask_each
from ..synthetic import timed_steps

SIZES = (4, 8, 16, 17, 32, 64)


def found_in(time_of, seed=5, sizes=SIZES):
    steps = timed_steps(time_of, np.random.default_rng(seed), batches=sizes, noise=0.01, spikes=0)
    return [finding for finding in find(cost_curve(steps)) if is_anomaly(finding)]


def is_anomaly(finding):
    return finding.verdict == FindingVerdict.ANOMALY


def test_a_slow_size_is_one_finding():
    (finding,) = found_in(lambda batch: 4 + batch + 40 * (batch == 17))
    assert finding.shown == finding.tested == outlier(16, 17, 32)
    assert finding.value.value == pytest.approx(40, abs=2)
    assert finding.shape == "overtaken"


def test_two_slow_sizes_side_by_side_are_told_by_the_line_between_the_usual_ones():
    slow = found_in(lambda batch: 4 + batch + 60 * (batch in (16, 17)))
    assert [finding.tested for finding in slow] == [outlier(8, 16, 32), outlier(8, 17, 32)]


@ask_each("seed", range(5))
def test_a_flat_curve_and_a_straight_one_have_none(seed):
    assert found_in(lambda batch: 4 + batch, seed) == []
    flat = found_in(lambda batch: 10.0, seed)
    assert all(finding.tested.kind != "outlier" for finding in flat)


def test_a_cliff_that_stays_is_no_outlier():
    kinds = {finding.tested.kind for finding in found_in(lambda batch: batch * (1 + (batch > 16)))}
    assert "outlier" not in kinds


def test_the_smallest_size_has_no_line_and_stays_a_neighbour():
    found = found_in(lambda batch: 4 + batch + 40 * (batch == 4))
    assert all(finding.tested.kind != "outlier" for finding in found)


def test_the_fixed_cost_is_of_sizes_that_none_overtakes():
    """From 64, slow, to 128 the line would fall: all of the step would seem fixed."""
    cost = {16: 1.5, 64: 11.1, 128: 10.8}.__getitem__
    steps = timed_steps(
        cost, np.random.default_rng(2), batches=(16, 64, 128), noise=0.001, drift=0, spikes=0
    )
    assert find_fixed_cost(cost_curve(steps), (16, 64, 128)) == fixed_cost(16, 128)


def test_no_fixed_cost_is_more_than_the_shortest_step():
    """At 20 a step launches many small kernels; from it to 40 the line falls to 27 ms at 0."""
    cost = {10: 7.36, 20: 28.0, 40: 28.7, 80: 56.7}.__getitem__
    sizes = (10, 20, 40, 80)
    steps = timed_steps(
        cost, np.random.default_rng(2), batches=sizes, noise=0.001, drift=0, spikes=0
    )
    assert find_fixed_cost(cost_curve(steps), sizes) != fixed_cost(20, 40)


def test_a_size_whose_first_round_was_left_out_does_not_take_the_rounds_of_the_others():
    """Two rounds visited all; 16, 64 and 128 have three, and 64 varies by 1 %."""
    cost = {16: 5.4, 32: 10.65, 64: 24.6, 128: 42.6}
    rows = [
        (batch, round_, round((cost[batch] + 0.3 * (batch == 64) * (round_ == 2)) * 1e6))
        for round_ in range(3)
        for batch in cost
        if (batch, round_) != (32, 0)
    ]
    steps = pd.DataFrame(rows, columns=["batch", "round", "duration_ns"]).assign(
        step=range(len(rows)), index=0, mode="own", start_ns=0, profiled=False, process=pd.NA
    )
    anomalies = [one.tested.label for one in find(cost_curve(steps)) if is_anomaly(one)]
    assert "excess 32→64" in anomalies


@pytest.mark.slow
def test_on_an_h100_17_is_slow_and_32_is_judged_without_it():
    """Of 17, 16 and 32 together two rounds are complete; each alone has three or more."""
    diagnosis = explain(curvescope.open_recording(ROOT / "tests" / "data" / "h100" / "found-late"))
    slow, behind = outlier(16, 17, 32), bend(16, 32, 64)
    found = {f.tested: f for f in diagnosis.findings if is_anomaly(f)}
    assert found[slow].value.value == pytest.approx(26.76, abs=0.01)
    assert 24 < found[slow].value.low < found[slow].value.high < 30
    assert found[behind].tested_value.value == pytest.approx(12.18, abs=0.01)
    assert finding_sentence(diagnosis).startswith(
        "batch 17 takes 50.20 ms, 26.8 more than the line between 16 and 32."
    )
    for explanation in diagnosis.explanations:
        together = math.fsum(share.value.value for share in explanation.shares)
        assert together == pytest.approx(explanation.value.value, rel=1e-9)
