"""Fits a cost curve of single times by one smooth shape, times a factor behind each jump.

A shape is of a family that work follows: a fixed time and time in proportion to the size, a floor
that work outgrows, a part that saturates, or a power of the size. No shape is chosen: every jump is
judged by its likelihood over all shapes of a grid (Bayes factor), as neighbouring shapes explain
small bends as well. The noise is integrated out around `USUAL_NOISE`. So a jump needs one number
more, where pieces of their own (`curve_pieces`) need three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ..base.words import Word
from .decompose.statistics import Floats, Ints

USUAL_NOISE = 0.03  # published benchmarks vary by 1 to 5 % between runs
WEIGHT = 3.0  # of the usual noise, in times
_FLOORS = (0.0, *np.geomspace(0.05, 20, 18).tolist())  # fixed time over that of the shape's middle
_SLOPES = (0.0, 0.06, 0.15, 0.25, 0.4, 0.7)  # of what follows the part that saturates
_POWERS = (0.25, 0.5, 0.7, 0.85, 1.15, 1.4, 2.0)
_MOST_MIDDLES = 64  # sizes at which a shape may bend
_GAP = 1.2  # ratio of neighbouring middles of a floor
_USUAL_JUMP = 0.25  # logarithm of the factor of a jump, to an order of magnitude
_MOST_JUMPS = 12
_TILE = 8  # just behind whose multiples libraries change tiles, and servers captured sizes
_OFTENER = 4.0  # how often a jump is there, beside other places
# prices beside: time rarely falls, and a jump before or behind a single size is rather an outlier
_PRICE_OF_FALL = 2.0
_PRICE_OF_END = 2.0
# up to which a cut is tried at so many places with deviations, and a further one where it does not
# pay; in a longer curve a jump stands out without
_SHORT = 16
_MOST_TRIED = 8
# of smooth deviations over the noise: slopes change by so much over one e-fold of the size
_SCALES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
_LONG = 256  # sizes up to which deviations are asked for
_STEP = 0.05  # of the middle, whose effect on the times is asked


class Family(Word):
    """Families of shapes."""

    PROPORTIONAL = "proportional"
    FLOOR = "floor"
    SOFT_FLOOR = "soft floor"
    SATURATING = "saturating"
    POWER = "power"


@dataclass(frozen=True)
class Shape:
    """A smooth curve, up to a factor."""

    family: str
    fixed: float  # time at size 0
    middle: float = 0.0  # size at which it bends; of a power the power
    slope: float = 0.0  # behind the part that saturates

    def times(self, sizes: Floats) -> Floats:
        """The times at several sizes."""
        x = np.asarray(sizes, np.float64)
        middle = self.middle
        if self.family == Family.PROPORTIONAL:
            return self.fixed + x
        if self.family == Family.FLOOR:
            return self.fixed + np.maximum(x, middle)
        if self.family == Family.SOFT_FLOOR:
            return np.asarray(self.fixed + np.cbrt(x**3 + middle**3))
        if self.family == Family.SATURATING:
            saturating = middle * (1 - np.exp(-x / middle))
            return np.asarray(self.fixed + saturating + self.slope * x)
        return np.asarray(self.fixed + x**middle)

    def columns(self, sizes: Floats) -> Floats:
        """The times, and what a larger fixed time and a larger middle add to them."""
        times = self.times(sizes)
        further = replace(self, middle=(1 + _STEP) * self.middle)
        growth = (further.times(sizes) - times) / _STEP
        return np.column_stack([times, np.ones(len(times)), growth])


@dataclass(frozen=True)
class Shaped:
    """A curve as one shape with jumps."""

    shape: Shape  # the likeliest
    cuts: tuple[int, ...]  # places at which another factor begins
    # of each jump: by how much twice the logarithm of the likelihood is less without it, beside
    # what its size costs, as it could have been another
    deviances: tuple[float, ...]
    cost: float  # twice the negative logarithm of the likelihood over all shapes, and the prices


def expect_jumps(x: Floats) -> Floats:
    """How much oftener than on average a jump is behind each size but the last."""
    before, behind = x[:-1], x[1:]
    is_near = (before % _TILE == 0) & (behind - before <= before / _TILE)
    weights = np.where(is_near, _OFTENER, 1.0)
    return np.asarray(weights / weights.mean())


def find_jumps(x: Floats, y: Floats) -> Shaped:
    """The jumps of a curve of increasing sizes, each of which is likelier than none beyond its
    place being one of many.
    """
    grid = _grid(tuple(x.tolist()))
    search = _Search(np.log(y) - grid.logs, grid.prior)
    prices = 2 * (math.log(len(x)) - np.log(expect_jumps(x)))
    prices[[0, -1]] += 2 * _PRICE_OF_END
    smooth = _Deviations(np.log(x), search, prices.tolist())
    cuts = smooth.find_cuts()
    shape = grid.shape(search.best_shape(cuts))
    return Shaped(shape, tuple(cuts), smooth.deviances(cuts), smooth.cost(cuts))


@dataclass(frozen=True)
class _Grid:
    """Shapes over some sizes: each bend with each fixed time."""

    bends: list[Shape]  # without a fixed time
    fixed: Floats  # a row for each bend
    logs: Floats  # logarithms of the times, a row for each shape
    prior: Floats  # logarithms of the shares of all shapes

    def shape(self, place: int) -> Shape:
        """The shape of a row."""
        bend, floor = divmod(place, self.fixed.shape[1])
        shape = self.bends[bend]
        return Shape(shape.family, float(self.fixed[bend, floor]), shape.middle, shape.slope)


@lru_cache(maxsize=64)
def _grid(sizes: tuple[float, ...]) -> _Grid:
    x, middles = np.array(sizes), sizes
    if len(x) > _MOST_MIDDLES:
        chosen = np.linspace(0, len(x) - 1, _MOST_MIDDLES)
        middles = tuple(x[chosen.astype(int)].tolist())
    few = middles[::4]
    bent = _fill_gaps(middles)
    # each bend with the time that fixed times are multiples of
    lines = [(Shape(Family.PROPORTIONAL, 0.0), m) for m in few]
    floors = [(Shape(Family.FLOOR, 0.0, m), m) for m in bent]
    soft_floors = [(Shape(Family.SOFT_FLOOR, 0.0, m), m) for m in bent]
    saturating = [(Shape(Family.SATURATING, 0.0, m, s), m) for m in middles for s in _SLOPES]
    powers = [(Shape(Family.POWER, 0.0, p), m**p) for m in few for p in _POWERS]
    families = (lines, floors, soft_floors, saturating, powers)
    bends, scales, counts = [], [], []
    for family in families:
        for bend, scale in family:
            bends.append(bend)
            scales.append(scale)
            counts.append(len(family))
    fixed = np.array(scales)[:, None] * np.array(_FLOORS)
    growing = np.stack([bend.times(x) for bend in bends])
    times = growing[:, None, :] + fixed[:, :, None]
    alike = len(families) * len(_FLOORS) * np.repeat(counts, len(_FLOORS))
    return _Grid(bends, fixed, np.log(times.reshape(-1, len(x))), -np.log(alike))


def _fill_gaps(sizes: tuple[float, ...]) -> list[float]:
    """Sizes with others between them where the next is larger by more than a fifth: work may
    outgrow its floor at any.
    """
    filled = [sizes[-1]]
    for size, following in pairwise(sizes):
        gaps = math.log(following / size) / math.log(_GAP)
        count = math.ceil(gaps)
        filled += np.geomspace(size, following, count, endpoint=False).tolist()
    return filled


class _Search:
    """Likelihoods of cuts over all shapes."""

    def __init__(self, logs: Floats, prior: Floats) -> None:
        """Take the logarithms of times over shapes: a row for each shape."""
        self.prior = prior
        self.count = logs.shape[1]
        self.logs = logs
        zero = np.zeros((len(logs), 1))
        self.strength = (WEIGHT + self.count - 1) / 2
        self.of_log = np.concatenate([zero, np.cumsum(logs, axis=1)], axis=1)
        self.squares = (logs**2).sum(axis=1)

    def list_likely(self, cuts: Sequence[int]) -> list[int]:
        """The places of one cut more, the cheapest without deviations first."""
        edges = [0, *sorted(cuts), self.count]
        rest = self._rest(edges)
        costs: list[tuple[float, int]] = []
        for begin, end in pairwise(edges):
            places = np.arange(begin + 1, end)
            if len(places):
                rest_with = rest[:, None] - self._gain(begin, places, end)
                of_gap = self._costs(rest_with, edges, places)
                costs += zip(of_gap.tolist(), places.tolist(), strict=True)
        costs.sort()
        return [place for _, place in costs]

    def best_shape(self, cuts: Sequence[int]) -> int:
        """The likeliest shape."""
        rest = self._rest([0, *cuts, self.count])
        likelihoods = self._each(rest[:, None])[:, 0] + self.prior
        return int(likelihoods.argmax())

    def _rest(self, edges: Sequence[int]) -> Floats:
        """The squares that each shape leaves with a factor for each stretch."""
        sums = np.diff(self.of_log[:, edges], axis=1)
        explained = (sums**2 / np.diff(edges)).sum(axis=1)
        return np.asarray(np.maximum(self.squares - explained, 0.0))

    def _gain(self, begin: int, places: Ints, end: int) -> Floats:
        """What a cut at each place takes off the squares of each shape."""
        before, behind = places - begin, end - places
        upto = self.of_log[:, places]
        of_before = upto - self.of_log[:, [begin]]
        of_behind = self.of_log[:, [end]] - upto
        step = of_behind / behind - of_before / before
        gain = step**2 * before * behind / (before + behind)
        return np.asarray(gain, np.float64)

    def _each(self, rest: Floats) -> Floats:
        """The logarithm of the likelihood of each shape, up to a constant."""
        squares = np.maximum(rest, 0.0) + WEIGHT * USUAL_NOISE**2
        return np.asarray(-self.strength * np.log(squares))

    def _costs(self, rest: Floats, edges: Sequence[int], places: Ints) -> Floats:
        """Twice the negative logarithm of the likelihood over all shapes, for each column of
        squares left with one cut more at each of the places.
        """
        each = self._each(rest) + self.prior[:, None]
        most = each.max(axis=0)
        beside_most = np.exp(each - most).sum(axis=0)
        likelihood = most + np.log(beside_most)
        price = self._jump_price(edges, self.variance(rest), places)
        return np.asarray(-2 * likelihood + price + self.constant)

    @property
    def constant(self) -> float:
        """What every cost has beside the squares."""
        likelihood = math.lgamma(self.strength) - math.lgamma(WEIGHT / 2)
        likelihood += WEIGHT / 2 * math.log(WEIGHT * USUAL_NOISE**2)
        likelihood += (self.count - 1) / 2 * math.log(2)
        return float(-2 * likelihood)

    def variance(self, rest: Floats) -> Floats:
        """The variance of a time under the shape that leaves least."""
        squares = rest.min(axis=0) + WEIGHT * USUAL_NOISE**2
        return np.asarray(squares / (WEIGHT + self.count - 1))

    def likelihoods(self, rest: Floats) -> Floats:
        """The logarithm of the likelihood of each shape with its prior, from the squares left."""
        return np.asarray(self._each(rest) + self.prior)

    def _jump_price(self, edges: Sequence[int], variance: Floats, places: Ints) -> Floats:
        """What the sizes of the jumps cost, as each could have been another."""
        total = np.zeros(len(variance))
        for begin, cut, end in zip(edges[:-2], edges[1:-1], edges[2:], strict=True):
            total += self._price(variance, begin, np.array([cut]), end)
        right = int(np.searchsorted(edges, places[0]))
        return total + self._price(variance, edges[right - 1], places, edges[right])

    def _price(self, variance: Floats, begin: int, cut: Ints, end: int) -> Floats:
        own = variance * (1 / (cut - begin) + 1 / (end - cut))
        return np.asarray(np.log1p(_USUAL_JUMP**2 / own))


class _Deviations:
    """Likelihoods of cuts where times may also deviate smoothly from their shape, as real work
    does: by a cubic smoothing spline over the logarithm of the size, of any of several scales.
    """

    def __init__(self, logs_of_sizes: Floats, search: _Search, prices: Sequence[float]) -> None:
        """Take the price of a cut behind each size; the sizes of a long curve tell a jump from a
        bend without deviations.
        """
        self._search, self._prices = search, prices
        self._is_short = search.count <= _SHORT
        place = logs_of_sizes - logs_of_sizes[0]
        scales = _SCALES if len(place) <= _LONG else _SCALES[:1]
        self._under = [_Scale(scale, place, search.logs.T) for scale in scales]

    def find_cuts(self) -> list[int]:
        """The cuts that cost least, none of which costs more than without it. A cut that does not
        pay alone may pay with the next ones.
        """
        cuts: list[int] = []
        ways = [(self.cost(cuts), cuts)]
        in_vain = 0
        most = min(_MOST_JUMPS, self._search.count - 2)
        while len(cuts) < most and in_vain <= self._is_short:
            cuts = self._shift([*cuts, self._find_next(cuts)])
            cost = self.cost(cuts)
            in_vain = 0 if cost < min(ways)[0] else in_vain + 1
            ways.append((cost, cuts))
        cost, cuts = min(ways)
        while cuts:
            least, others = min((self.cost(others), others) for others in _leave_out(cuts))
            if least > cost:
                break
            cost, cuts = least, others
        return sorted(cuts)

    def _find_next(self, cuts: list[int]) -> int:
        """The place that gains most as one cut more."""
        likely = self._search.list_likely(cuts)
        if not self._is_short:
            return likely[0]
        return min(likely[:_MOST_TRIED], key=lambda place: self.cost([*cuts, place]))

    def _shift(self, cuts: list[int]) -> list[int]:
        """Each cut but the last once more at its best place between the others."""
        for cut in cuts[:-1]:
            others = [other for other in cuts if other != cut]
            cuts = [self._find_next(others), *others]
        return cuts

    def cost(self, cuts: Sequence[int]) -> float:
        """Twice the negative logarithm of the likelihood of cuts over all shapes and scales, and
        their prices.
        """
        fits = [scale.fit(cuts) for scale in self._under]
        each = []
        for scale, fit in zip(self._under, fits, strict=True):
            each.append(self._likelihoods(scale, fit))
        every = np.concatenate(each) - math.log(len(each))
        most = float(every.max())
        total = float(np.exp(every - most).sum())
        likeliest, shape = divmod(int(every.argmax()), len(each[0]))
        prices = self._price(cuts, fits[likeliest], shape)
        return -2 * (most + math.log(total)) + self._search.constant + prices

    def _price(self, cuts: Sequence[int], fit: _ScaleFit, shape: int) -> float:
        """Of cuts: of their places, of those at which the time falls, and of a noise beyond the
        usual one, as such a curve has outliers.
        """
        noise = math.sqrt(self._search.variance(fit.rest))
        falls = int((fit.jumps(shape) < 0).sum())
        price = falls * _PRICE_OF_FALL + len(cuts) * math.log(max(noise / USUAL_NOISE, 1.0))
        return 2 * price + math.fsum(self._prices[cut - 1] for cut in cuts)

    def _likelihoods(self, scale: _Scale, fit: _ScaleFit) -> Floats:
        """The logarithm of the likelihood of each shape under one scale."""
        search = self._search
        variance = search.variance(fit.rest)
        of_level, of_jumps = fit.norms[0], fit.norms[1:]
        lost = scale.log_determinant + 2 * math.log(of_level / math.sqrt(search.count))
        lost += np.log1p(_USUAL_JUMP**2 / variance * of_jumps**2).sum()
        return np.asarray(search.likelihoods(fit.rest) - lost / 2)

    def deviances(self, cuts: Sequence[int]) -> tuple[float, ...]:
        """The deviances of the jumps, see `Shaped`."""
        cost = self.cost(cuts)
        scale = max(self._under, key=lambda each: self._likelihoods(each, each.fit(cuts)).max())
        found = []
        for cut, others in zip(cuts, _leave_out(cuts), strict=True):
            fit = scale.fit([*others, cut])
            variance = self._search.variance(fit.rest)
            of_size = math.log1p(_USUAL_JUMP**2 / variance * fit.norms[-1] ** 2)
            found.append(self.cost(others) + self._prices[cut - 1] - cost + of_size)
        return tuple(found)


def _leave_out(cuts: Sequence[int]) -> list[list[int]]:
    """The others of each cut."""
    return [[other for other in cuts if other != cut] for cut in cuts]


@dataclass(frozen=True)
class _ScaleFit:
    """A level and jumps under one scale, of each shape."""

    rest: Floats  # squares that are left
    triangle: Floats  # of the columns of the level and the jumps
    projected: Floats  # a column for each shape

    @property
    def norms(self) -> Floats:
        """The norms of the columns beside those before them."""
        return np.abs(np.diag(self.triangle))

    def jumps(self, shape: int) -> Floats:
        """The logarithms of the factors of the jumps of a shape, as cuts are given."""
        fitted = np.linalg.solve(self.triangle, self.projected[:, shape])
        return np.asarray(fitted[1:])


class _Scale:
    """Deviations of one scale."""

    def __init__(self, scale: float, place: Floats, logs: Floats) -> None:
        """Take logarithms of sizes and of times over shapes: a column for each shape."""
        self._inverse: Floats | None = None
        self._white, self.log_determinant = logs, 0.0
        if scale:
            near = np.minimum.outer(place, place)
            far = np.maximum.outer(place, place)
            spline = near**2 * (3 * far - near) / 6  # of a slope that is a random walk
            covariance = np.eye(len(place)) + scale**2 * spline
            root = np.linalg.cholesky(covariance)
            # makes errors and deviations together independent
            self._inverse = np.linalg.inv(root)
            self._white = self._inverse @ logs
            logs_of_root = np.log(np.diag(root))
            self.log_determinant = 2 * float(logs_of_root.sum())
        self._squares = (self._white**2).sum(axis=0)

    def fit(self, cuts: Sequence[int]) -> _ScaleFit:
        """A level and a jump at each cut."""
        places = np.arange(len(self._white))
        levels = [places >= cut for cut in (0, *cuts)]
        columns = np.stack(levels, axis=1).astype(float)
        if self._inverse is not None:
            columns = self._inverse @ columns
        basis, triangle = np.linalg.qr(columns)
        projected = basis.T @ self._white
        explained = (projected**2).sum(axis=0)
        return _ScaleFit(np.maximum(self._squares - explained, 0.0), triangle, projected)
