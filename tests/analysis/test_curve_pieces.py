"""Pieces of a curve: the search finds the cheapest, and jumps are no noise."""

import itertools
import math

import numpy as np
import pytest

from curvescope.analysis import curve_pieces
from curvescope.analysis.curve_pieces import fit_pieces, fit_sizes_alone

from ..tables import ask_each

EVERY = np.arange(1.0, 13.0)


def begins(fit):
    return [int(fit.sizes[piece.first]) for piece in fit.pieces]


def test_the_search_finds_the_cheapest_of_all_ways_to_cut():
    """Against every way to cut seven places, by the same costs."""
    random = np.random.default_rng(1)
    for _ in range(20):
        cost = random.uniform(1, 9, (7, 7))
        found, cuts = curve_pieces.cut_cheapest(cost, 2.5)
        every = []
        for count in range(7):
            for inner in itertools.combinations(range(1, 7), count):
                parts = itertools.pairwise([0, *inner, 7])
                every.append(sum(cost[a, b - 1] for a, b in parts) + 2.5 * count)
        assert found == pytest.approx(min(every))
        assert cuts[0] == 0
        assert cuts[-1] == 7


def test_the_squares_of_a_piece_are_those_of_least_squares():
    random = np.random.default_rng(2)
    sizes = np.sort(random.choice(np.arange(1, 99), 12, replace=False)).astype(float)
    times = 5 + sizes + random.normal(0, 1, 12)
    weights = 1 / times**2
    squares = curve_pieces._squares(sizes, times, weights, np.arange(12))
    for power, columns in ((0.0, 1), (1.0, 2)):
        matrix = np.column_stack([sizes[3:10] ** number for number in range(columns)])
        root = np.sqrt(weights[3:10])
        _, rest, *_ = np.linalg.lstsq(root[:, None] * matrix, root * times[3:10], rcond=None)
        assert squares[power][3, 9] == pytest.approx(float(rest[0]), rel=1e-6)
    bent = curve_pieces._best_knot(sizes[3:10], times[3:10], weights[3:10])[0]
    assert squares[curve_pieces._BENT][3, 9] == pytest.approx(bent, rel=1e-4)


@pytest.mark.slow
@ask_each("noise", [0.005, 0.01, 0.02])
def test_two_jumps_are_no_part_of_the_noise(noise):
    """A standard error of 46 % was estimated from such a curve of eleven sizes."""
    random = np.random.default_rng(3)
    sizes = np.array([1, 2, 4, 8, 9, 16, 32, 33, 64, 96, 128.0])
    jumps = 1 + 0.56 * (sizes > 8) + 0.48 * (sizes > 32)
    times = (8 + 2 * sizes) * jumps
    fits = [fit_pieces(sizes, times * np.exp(random.normal(0, noise, 11))) for _ in range(20)]
    assert np.median([fit.noise for fit in fits]) == pytest.approx(noise, abs=0.02)
    assert sum({9, 33} <= set(begins(fit)) for fit in fits) >= 18


def test_what_a_smooth_line_misses_is_a_share_of_the_times_whatever_their_error():
    times = (8 + EVERY) * (1 + 0.5 * (EVERY > 9))
    missed = [
        fit_pieces(EVERY, times, np.full(len(EVERY), error)).smooth_noise for error in (0.01, 0.05)
    ]
    assert missed == pytest.approx([fit_pieces(EVERY, times).smooth_noise] * 2, rel=0.5)
    assert missed[0] < 0.2


def test_a_smooth_curve_is_one_piece_on_any_axis():
    for sizes in (EVERY, 2.0 ** np.arange(12), np.array([1, 2, 3, 50, 51, 52, 400.0])):
        for times in (10 + sizes, 5 + np.sqrt(sizes), sizes**2 + 4):
            assert begins(fit_pieces(sizes, times)) == [1]


def test_a_piece_never_falls():
    fit = fit_pieces(EVERY, 20 - EVERY)
    for piece in fit.pieces:
        slope = piece.slope_row(float(fit.sizes[piece.first]), before=False) @ piece.coefficients
        assert slope >= -1e-9


def test_known_errors_are_kept_and_few_sizes_are_each_a_piece():
    fit = fit_pieces(EVERY, 10 + EVERY, np.full(12, 0.02))
    assert math.isinf(fit.degrees)
    assert fit.errors == pytest.approx(np.full(12, 0.02))
    few = fit_sizes_alone([1, 2, 4], [3, 4, 9], np.full(3, 0.05))
    assert [
        piece.at(piece_size) for piece, piece_size in zip(few.pieces, (1, 2, 4), strict=True)
    ] == [pytest.approx(time) for time in (3, 4, 9)]
