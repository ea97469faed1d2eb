"""Programs whose steps are not alike: T holds its true value, and their period is found."""

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.profiling.attribution.step_pattern import find_pattern

from ...tables import ask_each

PROGRAMS, ROUNDS, USUAL_MS = 40, 6, 10.0
STEP_NOISE, VISIT_NOISE = 0.02, 0.01


def program_of(seed):
    """Factors of a function of a number of steps, their mean, and the period; None without one."""
    random = np.random.default_rng(seed)
    if seed % 4 == 0:  # slow steps at random: geometric gaps
        share, slow = 1 / random.uniform(2, 20), random.uniform(1.5, 12)
        return (
            lambda steps: np.where(random.random(steps) < share, slow, 1.0),
            1 + share * (slow - 1),
            None,
        )
    longest = int(random.integers(2, 65))
    factors = np.ones(longest)
    for _ in range(random.integers(1, 4)):
        factors[random.integers(0, longest)] = random.uniform(1.5, 12)
    period = next(
        length
        for length in range(1, longest + 1)
        if longest % length == 0 and np.all(factors == np.resize(factors[:length], longest))
    )
    return lambda steps: np.resize(factors, steps), factors.mean(), period


def measured(seed, steps_of, period):
    """Steps of six visits, each of them a new process."""
    random = np.random.default_rng(seed + 1000)
    steps = max(100, 4 * (period or 1) + 7)
    rows = []
    for round_ in range(ROUNDS):
        noise = STEP_NOISE * random.standard_normal(steps) + VISIT_NOISE * random.standard_normal()
        times_ns = 1e6 * USUAL_MS * steps_of(steps + 2)[2:] * np.exp(noise)
        rows += [(8, round_, place, int(time_ns)) for place, time_ns in enumerate(times_ns)]
    steps = pd.DataFrame(rows, columns=["batch", "round", "index", "duration_ns"])
    return steps.assign(profiled=False, start_ns=np.arange(len(steps)) * 10**9)


@pytest.fixture(scope="module")
def programs():
    found = []
    for seed in range(PROGRAMS):
        steps_of, mean, period = program_of(seed)
        found.append((measured(seed, steps_of, period), USUAL_MS * mean, period))
    return found


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("count", [12, PROGRAMS])
def test_intervals_of_t_hold_what_a_step_of_a_mixture_costs(count, programs):
    held = 0
    for steps, truth_ms, _ in programs[:count]:
        time = cost_curve(steps, FASTER_HALF).points[0].time_ms
        held += time.low <= truth_ms <= time.high
    assert held >= 0.93 * count


def test_the_period_of_a_mixture_is_right_in_nine_of_ten_and_none_is_invented(programs):
    found = [
        find_pattern(steps["duration_ns"].to_numpy() / 1e6, steps["round"].to_numpy()).period
        for steps, _, _ in programs
    ]
    periods = [period for *_, period in programs]
    right = [mine == true for mine, true in zip(found, periods, strict=True) if true is not None]
    assert np.mean(right) >= 0.9
    assert [mine for mine, true in zip(found, periods, strict=True) if true is None] == [None] * 10


@ask_each(
    ("period", "slow_ms_a_sample", "truth_ms"),
    [(2, 4.0, {8: 26.0, 32: 74.0}), (16, 50.0, {8: 35.0, 32: 110.0})],
)
def test_programs_whose_truth_is_known_cost_what_they_cost(period, slow_ms_a_sample, truth_ms):
    tables = []
    for batch in truth_ms:
        factors = np.ones(period)
        factors[0] += slow_ms_a_sample * batch / USUAL_MS
        tables.append(measured(batch, lambda steps, of=factors: np.resize(of, steps), period))
        tables[-1]["batch"] = batch
    curve = cost_curve(pd.concat(tables), FASTER_HALF)
    for batch, time_ms in truth_ms.items():
        assert curve.at(batch).time_ms.value == pytest.approx(time_ms, rel=0.02)
        assert curve.at(batch).has_slow_steps
        assert curve.paces.at(batch).time_ms.value == pytest.approx(USUAL_MS, rel=0.03)
    pair = excess(*truth_ms)
    assert curve.evaluate(pair).value == pytest.approx(truth_ms[32] - 4 * truth_ms[8], rel=0.05)
