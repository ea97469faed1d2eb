"""Slow steps are found with their period and what they have in common, and noise has none."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.slow_steps import InCommon, slow_steps
from curvescope.profiling.attribution.range_names import INPUT_PHASE, PHASE_RANGE
from curvescope.profiling.attribution.step_pattern import find_pattern, in_whole_periods

from ...tables import ask_each

STEPS = 300


def recording(inputs_ns=()):
    """A recording whose `ranges` table has these times of waiting for input, by step."""
    rows = [(PHASE_RANGE + INPUT_PHASE, step, ns) for step, ns in dict(inputs_ns).items()]
    ranges = pd.DataFrame(rows, columns=["name", "step", "duration_ns"])
    return SimpleNamespace(arrow=lambda *_: SimpleNamespace(to_pandas=lambda: ranges))


def steps_of(times_ms, **columns):
    """Steps of one round, as of a recorded program."""
    frame = pd.DataFrame({"duration_ns": (np.asarray(times_ms) * 1e6).astype(np.int64), **columns})
    return frame.assign(
        step=range(len(frame)), index=range(len(frame)), round=0, batch=8, profiled=False
    )


def quiet(seed=0):
    return 10.0 * np.exp(0.02 * np.random.default_rng(seed).standard_normal(STEPS))


def planted(at, factor=2.0):
    times_ms = quiet()
    times_ms[list(at)] *= factor
    return times_ms


EVERY_50 = range(49, STEPS, 50)


def test_a_step_in_fifty_that_takes_twice_as_long_is_found_with_its_period_and_cost():
    (found,) = slow_steps(recording(), steps_of(planted(EVERY_50)))
    assert found.slow == tuple(EVERY_50)
    assert (found.steps, found.period, found.in_common) == (300, 50, ())
    assert found.slow_ms / found.usual_ms == pytest.approx(2, rel=0.05)
    assert found.share == pytest.approx(6 / 306, abs=0.001)  # six steps more in the time of 306
    assert found.sentence.startswith("1 step in 50 at batch 8 takes 2.0 times as long: ")
    assert found.sentence.endswith(
        "ms, 2 % of a step's time (6 of 300 steps). No counter tells them from the others."
    )


def test_steps_without_a_period_are_named():
    (found,) = slow_steps(recording(), steps_of(planted((3, 20, 21, 100, 150, 260))))
    assert found.period is None
    assert "(6 of 300 steps: 3, 20, 21, 100, 150 and later)" in found.sentence


def with_values(usual, slow):
    values = np.full(STEPS, float(usual)) + np.arange(STEPS) % 7
    values[list(EVERY_50)] = slow
    return values


WAITS_NS = {step: 9_000_000 if step in EVERY_50 else 100_000 for step in range(STEPS)}


@ask_each(
    ("inputs_ns", "counters", "told"),
    [
        (
            {},
            {"page_faults": with_values(100, 5000), "system_time_ns": with_values(1e6, 1e6)},
            InCommon("page faults", 5000, 103),
        ),
        (WAITS_NS, {}, InCommon("ms of waiting for input", 9.0, pytest.approx(0.1))),
        ({}, {"sm_clock_hz": with_values(1.4e9, 0.7e9)}, InCommon("MHz", 700, pytest.approx(1400))),
    ],
)
def test_what_slow_steps_have_in_common_is_told(inputs_ns, counters, told):
    (found,) = slow_steps(recording(inputs_ns), steps_of(planted(EVERY_50), **counters))
    assert found.in_common == (told,)
    assert f"In common: {told.slow:g}" in found.sentence


def test_steps_whose_threads_waited_for_a_core_are_of_the_machine():
    times_ms = planted(EVERY_50)
    waits_ns = np.where(times_ms > 15, 0.5e6 * times_ms, 0)
    # As one visit, it would be set aside: here only six of three hundred steps wait, 1 % of the
    # time.
    assert slow_steps(recording(), steps_of(times_ms, run_queue_wait_ns=waits_ns)) == ()


@ask_each(
    "unlike",
    [
        steps_of(planted(EVERY_50, 1.25)),
        steps_of(planted(EVERY_50)).iloc[:25],
        steps_of(planted(EVERY_50)).assign(tokens=5),  # of an inference server
        steps_of([]),
    ],
)
def test_what_is_not_slow_is_not_said(unlike):
    assert slow_steps(recording(), unlike) == ()


def drifting(random):
    return np.exp(0.02 * random.standard_normal(STEPS)) * np.linspace(
        1, random.uniform(0.5, 2.5), STEPS
    )


def persistent(random):
    values = np.zeros(STEPS)
    for i in range(1, STEPS):
        values[i] = 0.9 * values[i - 1] + 0.03 * random.standard_normal()
    return np.exp(values)


NOISE = {
    "normal": lambda random: np.exp(0.02 * random.standard_normal(STEPS)),
    "wide": lambda random: np.exp(0.3 * random.standard_normal(STEPS)),
    "skewed": lambda random: 1 + random.gamma(1.0, 0.05, STEPS),
    "long tails": lambda random: np.exp(0.02 * random.standard_t(3, STEPS)),
    "two paces": lambda random: (
        np.where(random.random(STEPS) < 0.25, 1.3, 1) * np.exp(0.01 * random.standard_normal(STEPS))
    ),
    "a slower machine for a while": lambda random: (
        np.where(np.arange(STEPS) // 60 == 2, 1.4, 1.0)
        * np.exp(0.02 * random.standard_normal(STEPS))
    ),
    "drifting": drifting,
    "persistent": persistent,
}


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("noise", NOISE)
def test_noise_has_slow_steps_in_at_most_two_of_a_hundred_recordings(noise):
    claims = sum(
        bool(slow_steps(recording(), steps_of(10 * NOISE[noise](np.random.default_rng(seed)))))
        for seed in range(100)
    )
    assert claims <= 2


@pytest.mark.slow
def test_slow_steps_at_random_have_no_period_and_nothing_in_common_by_chance():
    claims = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        times_ms = quiet(seed)
        times_ms[random.choice(STEPS, 6, replace=False)] *= 2
        counters = {name: random.gamma(2, 100, STEPS) for name in ("page_faults", "system_time_ns")}
        (found,) = slow_steps(recording(), steps_of(times_ms, **counters))
        claims += found.period is not None or bool(found.in_common)
    assert claims <= 2


def sleeping(period, slow, steps=96):
    """Times of steps of 10 ms, of which some in each period take longer, ms: by place in it."""
    times_ms = np.full(steps, 10.0)
    for place, time_ms in slow.items():
        times_ms[place::period] = time_ms
    return times_ms * np.exp(0.02 * np.random.default_rng(0).standard_normal(steps))


@ask_each(
    ("period", "slow"),
    [(2, {1: 42}), (3, {0: 30, 1: 30}), (7, {2: 200}), (16, {0: 410}), (8, {0: 20, 4: 35})],
)
def test_the_period_of_a_program_is_found(period, slow):
    pattern = find_pattern(sleeping(period, slow), np.zeros(96, np.int64))
    assert pattern.period == period
    assert pattern.slow.sum() == pytest.approx(len(slow) * 96 / period, abs=1)


def test_a_visit_counts_in_whole_periods_and_one_shorter_than_a_period_counts_whole():
    visits = np.repeat([0, 1, 2], [10, 3, 4])
    kept = in_whole_periods(visits, 4)
    assert [int(kept[visits == visit].sum()) for visit in range(3)] == [8, 3, 4]


def test_two_slow_steps_of_many_are_told_and_one_is_said_to_be_seen_once():
    (two,) = slow_steps(recording(), steps_of(planted((3, 20), 40)))
    assert two.matters
    (alone,) = slow_steps(recording(), steps_of(planted((3,), 40)))
    assert not alone.matters
    assert alone.sentence.endswith("(1 of 300 steps; seen once).")


def test_the_spread_of_the_other_steps_is_no_part_of_the_slow_ones():
    times_ms = 10 * np.exp(0.15 * np.random.default_rng(0).standard_normal(STEPS))
    times_ms[[40, 200]] = 40
    (found,) = slow_steps(recording(), steps_of(times_ms))
    assert found.slow == (40, 200)
    # Two steps more of 30 ms in 300 of 10; the slower half takes 11 % of the time beyond its pace.
    assert found.share == pytest.approx(0.02, abs=0.002)
    assert not found.matters


def test_a_step_that_is_far_too_short_makes_no_other_one_slow():
    times_ms = sleeping(2, {1: 42})
    times_ms[10] = 0.01  # two lines of a program's output that came together
    assert find_pattern(times_ms, np.zeros(96, np.int64)).slow.sum() == 48


def test_a_few_disturbed_steps_hide_no_period():
    times_ms = sleeping(16, {14: 410})
    times_ms[[5, 33, 61, 77]] = 18
    assert find_pattern(times_ms, np.zeros(96, np.int64)).period == 16


def test_a_slow_visit_has_no_slow_steps():
    times_ms = quiet()
    times_ms[60:120] *= 1.4
    assert slow_steps(recording(), steps_of(times_ms).assign(round=np.arange(STEPS) // 60)) == ()
