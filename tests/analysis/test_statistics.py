from __future__ import annotations

import numpy as np
import pytest

from curvescope.analysis.curve import cost_curve
from curvescope.analysis.statistics import estimate, holm, replicate, resample_rounds

from .synthetic import timed_steps


def test_holm_on_the_worked_example():
    # Four p-values at 0.05: 0.01·4 and 0.02·3... the adjusted ones never decrease along the order.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_one_round_knows_nothing_of_its_spread():
    result = estimate(5.0, np.array([5.0, 5.0]), rounds=1, scale=5.0)
    assert (result.low, result.high, result.p) == (-np.inf, np.inf, 1.0)


def test_rounding_of_equal_numbers_is_no_effect():
    # 3 · 0.1 − 0.3 is 5.6e-17, with no spread at all
    result = estimate(3 * 0.1 - 0.3, np.full(100, 3 * 0.1 - 0.3), rounds=5, scale=0.3)
    assert result.p > 0.9


def test_medians_of_replicates_come_from_the_drawn_rounds_alone():
    rounds = [np.array([1.0, 1.0, 1.0]), np.array([9.0])]
    drawn = np.array([[0, 0], [1, 1], [0, 1]])
    medians = replicate(rounds, drawn)
    assert medians.tolist() == [1.0, 9.0, 1.0]


@pytest.mark.parametrize("rounds", [4, 6, 14])
def test_intervals_of_a_mean_difference_cover_the_truth(rounds):
    """95 % intervals of T(2b) − 2·T(b) hold it in 93 to 99 % of 400 simulated sweeps with drift that rounds share."""
    random = np.random.default_rng(rounds)
    drawn = resample_rounds(rounds, 400)
    covered = 0
    for _ in range(400):
        drift = 1 + 0.03 * random.standard_normal(rounds)
        times = {b: [b * drift[r] * (1 + 0.01 * random.standard_normal(4)) for r in range(rounds)] for b in (1, 2)}
        replicates = {b: replicate(values, drawn) for b, values in times.items()}
        value = np.median(np.concatenate(times[2])) - 2 * np.median(np.concatenate(times[1]))
        result = estimate(float(value), replicates[2] - 2 * replicates[1], rounds, 2.0)
        covered += result.low <= 0 <= result.high
    assert 0.93 * 400 <= covered <= 400


def test_a_mean_where_a_protocol_asks_for_it():
    rounds = [np.array([1.0, 3.0]), np.array([8.0])]
    assert replicate(rounds, np.array([[1, 1]]), "mean").tolist() == [8.0]
    steps = timed_steps({1: 1.0, 2: 2.0}.get, np.random.default_rng(0), batches=(1, 2), noise=0, drift=0, spikes=0.3)
    times = steps[steps["batch"] == 1]["duration_ns"]
    assert cost_curve(steps, "mean").points[0].time_ms.value == pytest.approx(times.mean() / 1e6)
    assert cost_curve(steps).points[0].time_ms.value == pytest.approx(times.median() / 1e6)
