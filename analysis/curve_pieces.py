"""Fits a cost curve of single times by smooth pieces, with jumps between them.

A piece is a time that does not fall with more work: constant, on a line, as the root or the square
of the size, or on two lines that meet. How many pieces there are, and where they begin, is an exact
search over all places (dynamic programming) for the least of: squared relative errors over the
noise, and a price for every number that was fitted. The noise is found in the same search, so jumps
are no part of it; it leans on `USUAL_NOISE` where a curve is short. Where the noise is not stated,
one shape with jumps (`curve_families`) stands in place of pieces that explain no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np

from .curve_families import USUAL_NOISE, WEIGHT, Shape, Shaped, find_jumps
from .decompose.statistics import Floats, Ints

# printed times are rounded, and no table states the difference between two runs of one card
LEAST_NOISE = 0.005
_NOISES = np.geomspace(LEAST_NOISE, 0.4, 24)
_WIDTH = 0.2  # how much a fitted number may change a time, as a share of it
# of a jump where the noise is found with it, and of its place times the logarithm of the number of
# sizes: chosen by simulation, see benchmarks/curve_shapes.py
_PRICE_OF_JUMP = 5.0
_MANY = 30  # sizes from which on chance has as many places as it needs
_PRICE_OF_PLACE = 2.0
_LEAST_STAIRS = 3  # edges, and on average sizes of each
_LEAST_OF_STAIR = 2
_USUAL_RANGE = math.log(2.5)  # of the logarithm of the noise around the usual one
# what pieces of their own cost beside one shape, as they explain more curves; less where both have
# the same jumps, as pieces are nearer to the times beside them
_SHARED = 15.0
_SHARED_WHERE_ALIKE = 5.0
_MOST_PLACES = 64  # at which a piece may begin
_POWERS = (1.0, 0.5, 2.0)
_BENT = -1.0  # power that stands for two lines that meet
_COSTS = {0.0: 1, 1.0: 2, 0.5: 2, 2.0: 2, _BENT: 4}  # fitted numbers


@dataclass(frozen=True)
class Piece:
    """Neighbouring sizes on one smooth line."""

    first: int  # place of its first size
    last: int  # place of its last size
    power: float  # of the size; 0 for a constant, -1 for two lines
    knot: float | None  # size at which two lines meet
    coefficients: Floats
    covariance: Floats  # of the coefficients, for a relative error of 1
    shape: Shape | None = None  # which all pieces share, each with a factor of its own
    # relative error of its factor over that of the piece before, for a relative error of 1
    jump_error: float = 0.0

    @property
    def count(self) -> int:
        """The number of its sizes."""
        return self.last - self.first + 1

    def row(self, size: float) -> Floats:
        """What the coefficients are multiplied by for the time at a size."""
        return np.asarray(self.rows(np.array([size]))[0])

    def times(self, sizes: Floats) -> Floats:
        """The times at several sizes."""
        return np.asarray(self.rows(sizes) @ self.coefficients)

    def rows(self, sizes: Floats) -> Floats:
        """What the coefficients are multiplied by for the times at several sizes."""
        if self.shape is not None:
            return self.shape.columns(sizes)
        return _basis(np.asarray(sizes, np.float64), self.power, self.knot)

    def jump_row(self, size: float) -> Floats:
        """The same for a difference to another piece: what pieces of a shape share is left out."""
        row = self.row(size)
        if self.shape is None:
            return row
        return row * [1, 0, 0]

    def slope_row(self, size: float, *, before: bool) -> Floats:
        """Their factors for the slope at a size, on one side of it."""
        step = 1e-6 * size
        near = size - step if before else size + step
        return (self.row(near) - self.row(size)) / (near - size)

    def at(self, size: float) -> float:
        """The time at a size."""
        return float(self.row(size) @ self.coefficients)


@dataclass(frozen=True)
class Fit:
    """A curve in pieces."""

    sizes: Floats
    times: Floats
    pieces: tuple[Piece, ...]
    noise: float  # relative error of a time without an error of its own; 1 with stated errors
    degrees: float  # of freedom of the noise; infinite where it was stated
    smooth_noise: float  # what a single piece would take for noise
    errors: Floats  # relative error of every time


def fit_pieces(
    sizes: Sequence[float] | Floats, times: Sequence[float] | Floats, errors: Floats | None = None
) -> Fit:
    """The pieces of a curve; sizes increase, and `errors` are relative, where they are known."""
    x = np.asarray(sizes, np.float64)
    y = np.asarray(times, np.float64)
    count = len(x)
    relative = np.ones(count) if errors is None else np.maximum(errors, LEAST_NOISE)
    weights = 1 / (_scale(y) * relative) ** 2
    places = _places(x, y)
    squares = _squares(x, y, weights, places)
    stairs = _staircases(x, places)
    place_price = _PRICE_OF_PLACE * math.log(max(count, 3))
    noises: Sequence[float] | Floats = [float(np.median(relative))]
    if errors is None:
        place_price += _PRICE_OF_JUMP * min(1.0, count / _MANY) ** 2
        noises = _NOISES
    searched = []
    for noise in noises:
        price = _price(noise, count)
        scale = noise if errors is None else 1.0
        costs_of_kinds = []
        for kind, numbers in _COSTS.items():
            costs_of_kinds.append(squares[kind] / scale**2 + price * numbers)
        every = np.stack(costs_of_kinds)
        costs = every.min(axis=0)
        ways = [cut_cheapest(costs, place_price)]
        for cuts in stairs:
            ways.append((_sum(costs, cuts) + place_price, cuts))
        cost, cuts = min(ways, key=itemgetter(0))
        if errors is None:
            cost += _lean(noise, count)
        searched.append((cost, cuts, every))
    cost, cuts, every = min(searched, key=itemgetter(0))
    if errors is None:
        shaped = find_jumps(x, y)
        own_cuts = places[cuts[1:-1]].tolist()
        is_alike = bool(shaped.cuts) and own_cuts == list(shaped.cuts)
        shared = _SHARED_WHERE_ALIKE if is_alike else _SHARED
        if shaped.cost < cost + shared:
            return _fit_shaped(x, y, shaped)
    edges = [*places.tolist(), count]
    kinds = list(_COSTS)
    pieces = []
    for begin, end in pairwise(cuts):
        likeliest = int(every[:, begin, end - 1].argmin())
        kind = kinds[likeliest]
        pieces.append(_piece(x, y, weights, edges[begin], edges[end], kind))
    noise, degrees = 1.0, math.inf
    if errors is None:
        noise, degrees = _noise(x, y, weights, pieces)
    whole = min(float(rest[0, -1]) for rest in squares.values())
    squares_each = max(whole, 0.0) / max(count - 2, 1)
    smooth_noise = float(np.median(relative)) * math.sqrt(squares_each)
    return Fit(x, y, tuple(pieces), noise, degrees, smooth_noise, relative * noise)


def _fit_shaped(x: Floats, y: Floats, shaped: Shaped) -> Fit:
    """A curve of one shape, whose factors are its pieces."""
    logs = np.log(y / shaped.shape.times(x))
    edges = [0, *shaped.cuts, len(x)]
    levels = []
    for begin, end in pairwise(edges):
        levels.append(float(logs[begin:end].mean()))
    fitted = np.repeat(levels, np.diff(edges))
    fitted_numbers = len(levels) + len(shaped.cuts) + 1
    degrees = max(len(x) - fitted_numbers, 0) + WEIGHT
    rest = float(((logs - fitted) ** 2).sum())
    noise = max(math.sqrt((rest + WEIGHT * USUAL_NOISE**2) / degrees), LEAST_NOISE)
    times = np.exp(fitted) * shaped.shape.times(x)
    columns = shaped.shape.columns(x) / times[:, None]
    scale = np.sqrt((columns**2).sum(axis=0))
    scale[scale == 0] = 1.0
    scaled = columns / scale
    common = np.linalg.pinv(scaled.T @ scaled) / np.outer(scale, scale)
    pieces: list[Piece] = []
    jumps = np.abs(np.diff(levels)).tolist()
    over_errors = np.sqrt(degrees * np.expm1(np.array(shaped.deviances) / (WEIGHT + len(x) - 1)))
    errors = [jump / over / noise for jump, over in zip(jumps, over_errors.tolist(), strict=True)]
    for (begin, end), level, error in zip(pairwise(edges), levels, (0.0, *errors), strict=True):
        factor = math.exp(level)
        covariance = np.pad(common[1:, 1:], (1, 0))
        covariance[0, 0] = factor**2 / (end - begin)
        coefficients = np.array([factor, 0.0, 0.0])
        piece = Piece(begin, end - 1, 1.0, None, coefficients, covariance, shaped.shape, error)
        pieces.append(piece)
    unbiased = math.sqrt(len(x) / max(len(x) - 2, 1))
    smooth_noise = float(logs.std()) * unbiased
    return Fit(x, y, tuple(pieces), noise, degrees, smooth_noise, np.full(len(x), noise))


def _scale(y: Floats) -> Floats:
    """The times that errors are shares of: a low one by chance weighs no more than others."""
    padded = np.pad(y, 2, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 5)
    usual = np.median(around, axis=1)
    return np.asarray(np.maximum(y, usual))


def _price(noise: float, count: int) -> float:
    """The price of a fitted number: the less noise, the more any number could have been."""
    precision = 2 * math.log(_WIDTH / noise)
    return math.log(max(count, 3)) + max(0.0, precision)


def fit_sizes_alone(
    sizes: Sequence[float] | Floats, times: Sequence[float] | Floats, errors: Floats
) -> Fit:
    """A curve of too few sizes for a line: each size is a piece."""
    x = np.asarray(sizes, np.float64)
    y = np.asarray(times, np.float64)
    weights = 1 / (y * errors) ** 2
    pieces = [_piece(x, y, weights, place, place + 1, 0.0) for place in range(len(x))]
    return Fit(x, y, tuple(pieces), 1.0, math.inf, 0.0, errors)


def _noise(x: Floats, y: Floats, weights: Floats, pieces: Sequence[Piece]) -> tuple[float, float]:
    """The relative error of a time, and its degrees of freedom."""
    rest, fitted = 0.0, len(pieces) - 1
    for piece in pieces:
        of_piece = slice(piece.first, piece.last + 1)
        matrix = _basis(x[of_piece], piece.power, piece.knot)
        missed = y[of_piece] - matrix @ piece.coefficients
        rest += float(weights[of_piece] @ missed**2)
        fitted += len(piece.coefficients) + (piece.knot is not None)
    degrees = max(len(x) - fitted, 0) + WEIGHT
    noise = math.sqrt((rest + WEIGHT * USUAL_NOISE**2) / degrees)
    return max(noise, LEAST_NOISE), degrees


def _lean(noise: float, count: int) -> float:
    """The price of a noise beside the squares: its own likelihood, and that it is the usual one."""
    away = math.log(noise / USUAL_NOISE) / _USUAL_RANGE
    return 2 * count * math.log(noise) + away**2


def _basis(x: Floats, power: float, knot: float | None) -> Floats:
    """Columns that a piece adds up."""
    ones = np.ones(len(x))
    if knot is not None:
        if power == 0.0:  # a constant, then a line
            return np.column_stack([ones, np.maximum(x - knot, 0)])
        if power == 0.5:  # a line, then a constant
            return np.column_stack([ones, np.minimum(x, knot)])
        return np.column_stack([ones, x, np.maximum(x - knot, 0)])
    if power == 0.0:
        return ones[:, None]
    return np.column_stack([ones, np.asarray(x**power)])


def _places(x: Floats, y: Floats) -> Ints:
    """Where a piece may begin: everywhere, or where the time per size changes most, in order."""
    if len(x) <= _MOST_PLACES:
        return np.arange(len(x))
    rises = np.diff(np.log(y))
    steepest = np.argsort(-np.abs(rises - np.median(rises)))
    largest = 1 + steepest[: _MOST_PLACES - 1]
    following = np.minimum(largest + 1, len(x) - 1)
    return np.unique(np.concatenate([[0], largest, following]))


def _squares(x: Floats, y: Floats, weights: Floats, places: Ints) -> dict[float, Floats]:
    """The weighted squares that a piece of each kind leaves, from one place to before another.

    Row: where it begins; column: the place after it. Impossible ones are infinite.
    """
    edges = np.append(places, len(x))
    begin = edges[:-1, None]
    end = edges[None, 1:]
    possible = begin < end

    def total(values: Floats) -> Floats:
        sums = np.concatenate([[0.0], np.cumsum(weights * values)])
        return np.asarray(sums[end] - sums[begin])

    of_1 = total(np.ones(len(x)))
    of_y = total(y)
    of_yy = total(y * y)
    scaled = x / x[-1]
    counts = end - begin
    least = 1e-12 * np.maximum(of_yy, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = np.where(possible, of_yy - of_y**2 / of_1, np.inf)
        left = {0.0: np.maximum(constant, least)}
        for power in _POWERS:
            column = scaled**power
            of_x = total(column)
            of_xx = total(column**2)
            of_xy = total(column * y)
            slope = (of_1 * of_xy - of_x * of_y) / (of_1 * of_xx - of_x**2)
            gain = slope * (of_xy - of_x * of_y / of_1)
            enough = counts > (1 if power == 1.0 else 2)
            fits = possible & (slope > 0) & enough
            rest = np.maximum(constant - gain, least)
            left[power] = np.where(fits, rest, constant)
    left[_BENT] = _bent(scaled, y, weights, edges, left[1.0])
    return left


def _bent(x: Floats, y: Floats, weights: Floats, edges: Ints, straight: Floats) -> Floats:
    """The squares that two lines leave that meet at one of the places between.

    Sums of columns from one place to another are differences of sums from the beginning, so each
    piece with each knot is one small system.
    """
    columns = {"1": np.ones(len(x)), "x": x, "xx": x * x, "y": y, "xy": x * y}
    sums = {name: _sums_to(edges, weights * column) for name, column in columns.items()}
    best = straight.copy()
    last = len(edges) - 1
    for begin in range(last - 1):
        ends = np.arange(begin + 2, last + 1)[None, :]
        knots = np.arange(begin + 1, last)[:, None]
        whole = {name: column[ends] - column[begin] for name, column in sums.items()}
        behind = {name: column[ends] - column[knots] for name, column in sums.items()}
        at = x[edges[knots]]
        of_h = behind["x"] - at * behind["1"]
        of_xh = behind["xx"] - at * behind["x"]
        of_hh = of_xh - at * of_h
        of_hy = behind["xy"] - at * behind["y"]
        of_1, of_x, of_y = whole["1"], whole["x"], whole["y"]
        xx = whole["xx"] - of_x**2 / of_1
        hh = of_hh - of_h**2 / of_1
        xh = of_xh - of_x * of_h / of_1
        xy = whole["xy"] - of_x * of_y / of_1
        hy = of_hy - of_h * of_y / of_1
        possible = (knots < ends - 1) & (edges[ends] - edges[begin] > 3)
        gains = np.where(possible, _bent_gain(xx, xh, hh, xy, hy), 0.0)
        constant_rest = _constant_rest(weights, y, edges, begin)[1:]
        rest = np.maximum(constant_rest - gains.max(axis=0), 0.0)
        place = slice(begin + 1, last)
        best[begin, place] = np.minimum(best[begin, place], rest)
    return best


def _sums_to(edges: Ints, values: Floats) -> Floats:
    """Sums from the beginning to before each place."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[edges])


def _constant_rest(weights: Floats, y: Floats, edges: Ints, begin: int) -> Floats:
    """The squares that a constant leaves from one place to before each later one."""

    def total(values: Floats) -> Floats:
        sums = _sums_to(edges, weights * values)
        return np.asarray(sums[begin + 1 :] - sums[begin])

    square = total(y) ** 2 / total(np.ones(len(y)))
    return total(y * y) - square


def _bent_gain(xx: Floats, xh: Floats, hh: Floats, xy: Floats, hy: Floats) -> Floats:
    """By how much two lines that meet and do not fall lessen the squares, from centred sums."""
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = xx * hh - xh**2
        slope = (hh * xy - xh * hy) / determinant
        bend = (xx * hy - xh * xy) / determinant
        is_known = determinant > 1e-12 * xx * hh
        rises = (slope >= 0) & (slope + bend >= 0) & is_known
        both = np.where(rises, slope * xy + bend * hy, 0.0)
        knee = np.where(hy > 0, hy**2 / hh, 0.0)
        flat = (xy - hy) ** 2 / (xx - 2 * xh + hh)
        level = np.where(xy > hy, flat, 0.0)
    largest = np.maximum(both, np.maximum(knee, level))
    return np.nan_to_num(largest, posinf=0.0)


def _best_knot(x: Floats, y: Floats, weights: Floats) -> tuple[float, float, float]:
    """The least squares of two lines that meet and do not fall, the knot, and their kind."""
    inner = x[1:-1]
    if len(inner) > _MOST_PLACES:
        chosen = np.linspace(0, len(inner) - 1, _MOST_PLACES)
        inner = inner[chosen.astype(int)]
    root = np.sqrt(weights)
    behind = root * np.maximum(x[None, :] - inner[:, None], 0.0)
    below = root * np.minimum(x[None, :], inner[:, None])
    target = root * y
    level = np.broadcast_to(root, behind.shape)
    slope = np.broadcast_to(root * x, behind.shape)
    left, coefficients = _least_squares(np.stack([level, slope, behind], 2), target)
    _, before_knot, bend = coefficients.T
    falls = (before_knot < 0) | (before_knot + bend < 0)
    best = (math.inf, float(inner[0]), 1.0)
    for squares, kind in (
        (np.where(falls, np.inf, left), 1.0),
        (_two_columns(root, behind, target), 0.0),
        (_two_columns(root, below, target), 0.5),
    ):
        place = int(np.argmin(squares))
        if squares[place] < best[0]:
            best = float(squares[place]), float(inner[place]), kind
    return best


def _two_columns(level: Floats, column: Floats, target: Floats) -> Floats:
    """The squares that a constant and one rising column leave, for each row of columns."""
    matrix = np.stack([np.broadcast_to(level, column.shape), column], 2)
    left, coefficients = _least_squares(matrix, target)
    return np.where(coefficients[:, 1] < 0, np.inf, left)


def _least_squares(matrix: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The squares left, and the coefficients, for each of several matrices."""
    scale = np.sqrt((matrix**2).sum(axis=1, keepdims=True))
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    ridge = 1e-10 * np.eye(matrix.shape[2])
    gram = np.einsum("kni,knj->kij", scaled, scaled) + ridge
    right = np.einsum("kni,n->ki", scaled, target)
    solution = np.linalg.solve(gram, right[..., None])[..., 0]
    rest = target - np.einsum("kni,ki->kn", scaled, solution)
    return (rest**2).sum(axis=1), solution / scale[:, 0, :]


def cut_cheapest(costs: Floats, jump: float) -> tuple[float, list[int]]:
    """The cheapest way to cut a curve into pieces: its cost, and where pieces begin, with the end.

    Args:
        costs: of the piece from a place to another one, both inside.
        jump: price of a cut.
    """
    count = len(costs)
    totals = np.full(count + 1, np.inf)
    begins = np.zeros(count + 1, int)
    totals[0] = -jump
    for end in range(1, count + 1):
        sums = totals[:end] + costs[:end, end - 1] + jump
        begins[end] = int(np.argmin(sums))
        totals[end] = sums[begins[end]]
    cuts = [count]
    while cuts[0]:
        cuts.insert(0, int(begins[cuts[0]]))
    return float(totals[count]), cuts


def _staircases(x: Floats, places: Ints) -> list[list[int]]:
    """The cuts just above the multiples of a number, for each number that makes three or more: of
    them one place is found, not each.
    """
    sizes = x[places]
    most = 1 + len(sizes) / _LEAST_OF_STAIR
    largest, block = int(x[-1] // 2), 4 * len(sizes)
    staircases: dict[tuple[int, ...], list[int]] = {}
    for first in range(2, largest, block):
        steps = np.arange(first, min(first + block, largest))
        stairs = np.ceil(sizes / steps[:, None])
        rises = np.diff(stairs, axis=1) > 0
        edges = rises.sum(axis=1) + 2
        is_new = np.append(True, (rises[1:] != rises[:-1]).any(axis=1))
        for each in rises[is_new & (edges > _LEAST_STAIRS) & (edges <= most)]:
            cuts = [0, *(1 + np.flatnonzero(each)).tolist(), len(sizes)]
            staircases.setdefault(tuple(cuts), cuts)
        if len(staircases) > _MOST_PLACES:
            break
    return list(staircases.values())


def _sum(costs: Floats, cuts: list[int]) -> float:
    """What pieces cost beside their places."""
    ends = np.array(cuts[1:]) - 1
    return float(costs[cuts[:-1], ends].sum())


def _piece(x: Floats, y: Floats, weights: Floats, begin: int, end: int, power: float) -> Piece:
    """A piece with its coefficients and their covariance."""
    of_piece = slice(begin, end)
    knot = None
    if power == _BENT:
        _, scaled, power = _best_knot(x[of_piece] / x[-1], y[of_piece], weights[of_piece])
        knot = scaled * x[-1]
    for kind in (power, 0.0):
        matrix = _basis(x[of_piece], kind, knot)
        root = np.sqrt(weights[of_piece])[:, None]
        scale = np.sqrt(((root * matrix) ** 2).sum(axis=0))
        scaled = root * matrix / scale
        inverse = np.linalg.pinv(scaled.T @ scaled)
        coefficients = inverse @ scaled.T @ (root[:, 0] * y[of_piece]) / scale
        if knot is not None or len(coefficients) < 2 or coefficients[1] > 0:
            break
    covariance = inverse / np.outer(scale, scale)
    return Piece(begin, end - 1, kind, knot, coefficients, covariance)
