"""Shapes of curves: each word for a curve that is so, and none for a smooth one."""

import numpy as np
import pytest

from curvescope.analysis.curve_pieces import fit_pieces, fit_sizes_alone
from curvescope.analysis.curve_shapes import (
    Certainty,
    claimed,
    find_events,
    find_saw,
    judge,
    name_shapes,
)

from ..tables import ask_each

DENSE = np.arange(1.0, 65.0)


def found(sizes, times):
    """What is claimed, and the words."""
    fit = fit_pieces(sizes, times)
    events = find_events(fit)
    return claimed(events), name_shapes(fit, events)


def noisy(times, noise=0.01, seed=4):
    return times * np.exp(np.random.default_rng(seed).normal(0, noise, len(times)))


@pytest.mark.slow
@ask_each(
    "times",
    [
        10 + DENSE,
        np.maximum(20, DENSE),
        5 + 3 * np.sqrt(DENSE),
        10 + 30 * (1 - np.exp(-DENSE / 9)) + 0.2 * DENSE,
        10 + 30 * (1 - np.exp(-DENSE / 9)) + np.maximum(0, DENSE - 40),
        4 + DENSE**2 / 50,
    ],
)
def test_a_smooth_curve_has_no_edge_and_no_slow_size(times):
    for sizes in (slice(None), [0, 1, 3, 7, 15, 31, 63]):
        assert not found(DENSE[sizes], noisy(times[sizes]))[0]


def test_eight_rows_that_take_longer_than_nine_are_slow_sizes():
    sizes = np.array([1, 2, 4, 8, 9, 16, 32.0])
    times = np.array([32.1, 32.0, 32.2, 32.0, 5.5, 5.6, 5.9])
    (event,), shapes = found(sizes, times)
    assert (event.kind, event.sizes, event.at) == ("slow", (1, 2, 4, 8), 9)
    assert event.extra_ms.low < 26.5 < event.extra_ms.high
    assert shapes[0].shape == "slow size"


def test_a_slow_size_among_others_is_no_edge():
    times = 20 + DENSE
    times[16] *= 3
    (event,), _ = found(DENSE, noisy(times))
    assert (event.sizes, event.at) == ((17,), 18)


def test_an_edge_between_irregular_sizes_is_at_its_place_and_has_its_size():
    """96 and 97 stand beside each other: on a logarithmic axis that bends the curve."""
    sizes = np.array([1, 2, 4, 8, 16, 32, 64, 95, 96, 97, 98, 128, 192.0])
    times = 1 + sizes / 200 + 0.5 * (sizes > 96)
    (event,), shapes = found(sizes, noisy(times, 0.005))
    assert (event.before, event.at) == (96, 97)
    assert event.extra_ms.low < 0.5 < event.extra_ms.high
    assert shapes[0].shape == "cliff"


@ask_each("step", [16, 48])
def test_edges_at_multiples_are_one_staircase(step):
    sizes = np.unique([*range(8, 200, 8), *range(step, 200, step), *range(step + 1, 200, step)])
    times = 5 + 3 * np.ceil(sizes / step)
    events, shapes = found(sizes.astype(float), noisy(times, 0.003))
    assert {event.at for event in events} == set(range(step + 1, 200, step))
    assert (shapes[0].shape, shapes[0].step) == ("stairs", step)


def test_edges_without_a_common_number_are_no_stairs():
    sizes = np.arange(1.0, 41.0)
    times = 5 + 3.0 * (sizes > 7) + 4.0 * (sizes > 18) + 5.0 * (sizes > 31)
    _, shapes = found(sizes, noisy(times, 0.005))
    assert shapes[0].shape == "edges"


def test_a_plateau_begins_behind_a_slow_size_that_may_be_noise():
    sizes = np.array([16, 32, 64, 96, 128, 256.0])
    rates = np.array([1050.2, 1800.7, 2011.0, 1600.3, 2100.5, 2140.0])
    claims, (plateau,) = found(sizes, sizes / rates)
    assert not claims
    assert (plateau.shape, plateau.at) == ("plateau", 128)


def test_a_floor_and_then_proportion_is_a_knee_and_a_full_rate_a_plateau():
    sizes = 2.0 ** np.arange(10)
    assert found(sizes, noisy(np.maximum(20, sizes)))[1][0].shape == "knee"
    (plateau,) = found(sizes, noisy(1 + sizes))[1]
    assert (plateau.shape, plateau.at) == ("plateau", 16)


def test_more_than_in_proportion_is_super_linear():
    sizes = 2.0 ** np.arange(10)
    assert found(sizes, noisy(3 + sizes + sizes**2 / 20))[1][0].shape == "super-linear"


def test_odd_sizes_that_take_longer_are_a_saw_tooth():
    times = (20 + DENSE) * np.where(DENSE % 2, 1.3, 1.0)
    saw = find_saw(fit_pieces(DENSE, noisy(times)))
    assert saw.step == 2
    # against the next multiple, which is one more
    assert saw.low < np.median(1.3 * (20 + DENSE) / (21 + DENSE)) - 1 < saw.high
    assert find_saw(fit_pieces(DENSE, noisy(20 + DENSE))) is None
    assert find_saw(fit_pieces(DENSE, noisy(5 + 3 * np.ceil(DENSE / 8)))) is None


def test_with_an_assumed_error_it_only_may_be():
    fit = fit_sizes_alone([1, 2, 4], [10, 11, 40], np.full(3, 0.05))
    (event,) = claimed(find_events(fit))
    event = judge(event, event.p_adjusted, assumed=True)
    assert (event.at, event.certainty) == (4, Certainty.MAY_BE)
    # in proportion to 2, a size of 4 takes 22
    assert event.extra_ms.value == pytest.approx(18)


def test_the_tests_of_a_table_are_one_family():
    fit = fit_sizes_alone([1, 2], [100, 233], np.full(2, 0.05))
    assert claimed(find_events(fit))
    assert not claimed(find_events(fit, 20))
