"""Jumps of one smooth shape: likelihoods by hand, jumps that pieces of their own explained away,
and nothing on curves of no family.
"""

import math

import numpy as np
import pytest

from curvescope.analysis import curve_families
from curvescope.analysis.curve_families import (
    Family,
    Shape,
    _Deviations,
    _Scale,
    _Search,
    expect_jumps,
    find_jumps,
)
from curvescope.analysis.curve_pieces import fit_pieces
from curvescope.analysis.curve_shapes import claimed, find_events

from ..tables import ask_each

DOUBLING = 2.0 ** np.arange(14)
NOISE = 0.03
# seeds, of which each stands for one curve
SEEDS = range(12)


def noisy(times, seed, noise=NOISE):
    return times * np.exp(np.random.default_rng(seed).normal(0, noise, len(times)))


def edges(sizes, times):
    return {event.at for event in claimed(find_events(fit_pieces(sizes, times)))}


@pytest.mark.slow
@ask_each(
    "shape",
    [
        Shape(Family.PROPORTIONAL, 200.0),
        Shape(Family.FLOOR, 20.0, 256.0),
        Shape(Family.SATURATING, 100.0, 64.0, 0.25),
    ],
)
def test_a_jump_is_found_over_doubling_sizes(shape):
    """Pieces of their own found it in 3 of 12 curves behind a floor."""
    smooth = shape.times(DOUBLING)
    jumped = smooth * np.where(DOUBLING >= 1024, 1.3, 1.0)
    found = [edges(DOUBLING, noisy(jumped, seed)) for seed in SEEDS]
    assert sum(at == {1024} for at in found) >= 7
    assert sum(bool(edges(DOUBLING, noisy(smooth, seed))) for seed in SEEDS) <= 1


def test_a_jump_has_its_size_and_its_place_in_a_short_curve():
    sizes = np.arange(1.0, 13.0)
    times = (20 + sizes) * np.where(sizes > 7, 1.3, 1.0)
    (event,) = claimed(find_events(fit_pieces(sizes, noisy(times, 1, 0.01))))
    assert (event.before, event.at) == (7, 8)
    assert event.extra_ms.low < 0.3 * 28 < event.extra_ms.high
    assert event.extra_ms.high - event.extra_ms.low < 4


@pytest.mark.slow
@ask_each("noise", [0.01, 0.05])
def test_a_bend_that_no_family_has_is_rarely_a_jump(noise):
    """At a noise of 5 % 3 of 60 such curves get an edge."""
    smooth = 300 + 64 * np.tanh(DOUBLING / 64) + np.maximum(DOUBLING, 512)
    assert sum(bool(edges(DOUBLING, noisy(smooth, seed, noise))) for seed in SEEDS[:6]) <= 1


def test_the_squares_of_a_cut_are_those_around_the_means_of_both_stretches():
    logs = np.random.default_rng(2).normal(0, 1, (3, 9))
    search = _Search(logs, np.zeros(3))
    stretches = (logs[:, :4], logs[:, 4:])
    expected = sum(part.var(axis=1) * part.shape[1] for part in stretches)
    assert search._rest([0, 4, 9]) == pytest.approx(expected)
    gains = search._rest([0, 9]) - search._gain(0, np.array([4]), 9)[:, 0]
    assert gains == pytest.approx(expected)


def test_a_jump_needs_to_be_beyond_the_noise():
    sizes = np.arange(1.0, 17.0)
    times = (20 + sizes) * np.where(sizes > 8, 1.2, 1.0)
    assert find_jumps(sizes, noisy(times, 3, 0.02)).cuts == (8,)
    assert not find_jumps(sizes, noisy(times, 3, 0.2)).cuts


@ask_each(
    "step, noise, expected",
    [
        (0.2, 0.0, 0.0),
        (-0.2, 0.0, 2 * 2.0),  # a fall
        # squares of 16 times and the usual ones of 3, over 18: noise beyond the usual
        (0.2, 0.12, math.log((16 * 0.12**2 + 3 * 0.03**2) / 18 / 0.03**2)),
    ],
)
def test_a_fall_and_a_jump_amid_more_noise_than_usual_have_a_price(step, noise, expected):
    logs = np.tile([noise, -noise], 8) + np.repeat([0.0, step], 8)
    smooth = _Deviations(np.arange(16.0), _Search(logs[None], np.zeros(1)), [0.0] * 15)
    fit = _Scale(0.0, np.arange(16.0), logs[:, None]).fit([8])
    assert fit.jumps(0) == pytest.approx([step])
    assert smooth._price([8], fit, 0) == pytest.approx(expected)


def test_a_last_size_that_takes_longer_is_rather_an_outlier(monkeypatch):
    sizes = np.arange(1.0, 17.0)
    times = noisy((20 + sizes) * np.where(sizes > 15, 1.15, 1.0), 3, 0.02)
    assert find_jumps(sizes, times).cuts == ()
    monkeypatch.setattr(curve_families, "_PRICE_OF_END", 0.0)
    assert find_jumps(sizes, times).cuts == (15,)


def test_a_jump_is_expected_oftener_just_behind_a_multiple_of_eight():
    sizes = np.array([1, 8, 9, 12, 16, 32, 33, 64, 72.0])
    expected = expect_jumps(sizes)
    assert expected / expected.min() == pytest.approx([1, 4, 1, 1, 1, 4, 1, 4])
    assert expected.mean() == pytest.approx(1)
    assert expect_jumps(DOUBLING) == pytest.approx(np.ones(13))


# ms of a pass over so many tokens, on one card and on two (mxxm-t/mx-llama.cpp, issue 10)
TOKENS = np.array([1, 2, 4, 8, 9, 13, 16, 32, 33, 64, 128.0])
ON_ONE = np.array([47.6, 57, 63.7, 94.5, 152.9, 156.2, 158.6, 168.5, 270.8, 290.1, 425.3])
ON_TWO = np.array([31.0, 36.2, 42.3, 68.7, 106.9, 113.7, 118.7, 146.1, 190.9, 250.6, 452.9])


def test_edges_of_a_published_curve_are_no_noise():
    """None was said, with a noise of 7 %: 9 is 56 % slower than 8, and 33 than 32 by 31 %."""
    assert edges(TOKENS, ON_ONE) == {9, 33}
    assert 9 in edges(TOKENS, ON_TWO)


def test_a_jump_that_does_not_pay_alone_pays_with_another():
    assert {4, 8} <= set(find_jumps(TOKENS, ON_TWO).cuts)


def test_sizes_before_a_fall_by_a_third_are_slow():
    """A smooth deviation that falls had explained it (deepseek-ai/DeepGEMM, issue 60)."""
    times = [19.5, 19.2, 19.2, 17.3, 17.1, 15.8, 10.0, 11.5, 13.2]
    (event,) = claimed(find_events(fit_pieces(2.0 ** np.arange(9), np.array(times))))
    assert (event.kind, event.at, event.sizes[-1]) == ("slow", 64, 32)
