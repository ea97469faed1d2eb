"""Which sizes to capture, compile or pad to: the list whose padding costs least.

A step of some size runs at the smallest size of the list that holds it, and takes the time of that
one. For a histogram of steps and a list of so many sizes, the cheapest list is found exactly
(dynamic programming over the sizes). Times between measured sizes come from the fitted shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.errors import CurvescopeError
from .curve_pieces import Fit, Piece
from .curve_shapes import p_of, quantile
from .decompose.statistics import Estimate, Floats, Ints

MOST_SIZES = 4096


@dataclass(frozen=True)
class SizeCosts:
    """The times of every size from 1 to the largest measured."""

    fit: Fit
    times_ms: Floats  # of size 1, 2, …
    counts: Floats  # steps of size 1, 2, …, as shares of all

    @property
    def largest(self) -> int:
        """The largest size that occurs."""
        return 1 + int(np.flatnonzero(self.counts)[-1])

    def exact_ms(self) -> float:
        """The mean time of a step if every size ran as itself."""
        return float(self.counts @ self.times_ms)

    def padded_ms(self, sizes: Sequence[int]) -> float:
        """The mean time of a step padded to a list."""
        times_ms = self.times_ms[self.runs_at(sizes) - 1]
        return float(self.counts[: self.largest] @ times_ms)

    def runs_at(self, sizes: Sequence[int]) -> Ints:
        """The size at which each that occurs runs: the next of the list, or itself beyond the list.
        A size beyond those measured counts as the largest of these.
        """
        every = np.arange(1, self.largest + 1)
        listed = np.unique(np.minimum(sizes, len(self.times_ms)))
        place = np.searchsorted(listed, every)
        return np.append(listed, 0)[place] + np.where(place < len(listed), 0, every)

    def saving(self, sizes: Sequence[int], present: Sequence[int]) -> Estimate:
        """The saving of a list against the present one, as a share of the time of the present one,
        with the error of the fitted times.
        """
        weights = np.zeros(len(self.times_ms))
        counts = self.counts[: self.largest]
        np.add.at(weights, self.runs_at(present) - 1, counts)
        before = float(weights @ self.times_ms)
        np.add.at(weights, self.runs_at(sizes) - 1, -counts)
        value = float(weights @ self.times_ms) / before
        return self._estimate(value, self._error(weights) / before, 0.0)

    def ratio(self, size: int, other: int) -> Estimate:
        """The time of a size over the time of another; p of equal times."""
        weights = np.zeros(len(self.times_ms))
        time_ms, other_ms = self.times_ms[size - 1], self.times_ms[other - 1]
        value = float(time_ms / other_ms)
        weights[size - 1] += 1 / other_ms
        weights[other - 1] -= value / other_ms
        return self._estimate(value, self._error(weights), 1.0)

    def _estimate(self, value: float, error: float, usual: float) -> Estimate:
        """A value with its standard error, and p of its usual value."""
        half = error * quantile(self.fit.degrees)
        p = float(value == usual)
        if error:
            p = p_of((value - usual) / error, self.fit.degrees)
        return Estimate(value, value - half, value + half, p)

    def _error(self, weights: Floats) -> float:
        """The standard error of a weighted sum of the times."""
        variance = 0.0
        for piece, places in _by_piece(self.fit, len(weights)):
            sizes = np.asarray(places + 1, np.float64)
            row = weights[places] @ piece.rows(sizes)
            variance += float(row @ piece.covariance @ row)
        return self.fit.noise * math.sqrt(max(variance, 0.0))


def costs_of(fit: Fit, histogram: Mapping[int, float] | None) -> SizeCosts:
    """The times of all sizes of a histogram; without one, every size up to the largest measured is
    as frequent.

    CurvescopeError: a size beyond those measured, or above `MOST_SIZES`.
    """
    measured = int(fit.sizes[-1])
    counts = histogram or dict.fromkeys(range(1, measured + 1), 1.0)
    largest = max(counts)
    if largest > measured:
        raise CurvescopeError(
            f"The histogram has size {largest}, and the curve ends at {measured}: measure up to it."
        )
    if largest > MOST_SIZES:
        raise CurvescopeError(f"Sizes up to {MOST_SIZES} are planned, and there is {largest}.")
    priced = min(measured, MOST_SIZES)
    times = np.empty(priced)
    for piece, places in _by_piece(fit, priced):
        times[places] = piece.times(np.asarray(places + 1, np.float64))
    shares = np.zeros(priced)
    for size, count in counts.items():
        shares[size - 1] = count
    return SizeCosts(fit, np.maximum(times, 1e-9), shares / shares.sum())


def _by_piece(fit: Fit, largest: int) -> list[tuple[Piece, Ints]]:
    """The places of all sizes, by the piece whose line they are on.

    A size between two pieces is on the one behind it, and a size before the first piece is on that.
    But a single size that takes longer than the next piece says nothing of its neighbours.
    """
    sizes = np.arange(1, largest + 1)
    lasts = np.array([fit.sizes[piece.last] for piece in fit.pieces])
    piece_of = np.searchsorted(lasts, sizes)
    for place, (piece, behind) in enumerate(itertools.pairwise(fit.pieces)):
        if piece.count == 1 and fit.times[piece.last] > fit.times[behind.first]:
            others = (piece_of == place) & (sizes != lasts[place])
            piece_of[others] += 1
    pieces = []
    for place, piece in enumerate(fit.pieces):
        pieces.append((piece, np.flatnonzero(piece_of == place)))
    return pieces


def cheapest_lists(costs: SizeCosts, most: int) -> list[tuple[int, ...]]:
    """For one size, two sizes, … up to `most`, the list whose mean time is least.

    The largest size that occurs is always held. A size that a larger one undercuts is in no list:
    padding on to that one is cheaper. Of the others the time rises, so each row of the dynamic
    program is the lower hull of lines, asked at rising places.
    """
    times = costs.times_ms.tolist()
    candidates, least = [], math.inf
    for size in range(len(times), 0, -1):
        if times[size - 1] < least:
            least = times[size - 1]
            candidates.append(size)
    candidates.reverse()
    holds_all = int(np.searchsorted(candidates, costs.largest))
    candidates = candidates[: holds_all + 1]
    counts = np.concatenate([[0.0], np.cumsum(costs.counts)])
    below = counts[candidates].tolist()
    times = [times[size - 1] for size in candidates]
    count = len(candidates)
    totals = [time * share for time, share in zip(times, below, strict=True)]
    parents: list[list[int]] = [[-1] * count]
    lists = [_list_at(parents, candidates)]
    for _ in range(1, min(most, count)):
        totals, parent = _one_more(totals, times, below)
        parents.append(parent)
        lists.append(_list_at(parents, candidates))
    return lists


def _one_more(
    totals: list[float], times: list[float], below: list[float]
) -> tuple[list[float], list[int]]:
    """The least cost up to each candidate with one size more, and the candidate before it.

    The cost behind a candidate `i` of a next one `j` is `totals[i] + times[j] (below[j] -
    below[i])`: a line in `times[j]`, whose slope falls with `i`.
    """
    hull: list[int] = []
    start = 0
    found = [math.inf] * len(totals)
    parent = [-1] * len(totals)
    for j, time in enumerate(times):
        while start + 1 < len(hull) and (
            totals[hull[start + 1]] - time * below[hull[start + 1]]
            <= totals[hull[start]] - time * below[hull[start]]
        ):
            start += 1
        if hull:
            i = hull[start]
            found[j] = totals[i] + time * (below[j] - below[i])
            parent[j] = i
        if math.isinf(totals[j]):
            continue
        while len(hull) - start > 1 and _is_above(totals, below, hull[-2], hull[-1], j):
            hull.pop()
        if len(hull) > start and below[hull[-1]] == below[j]:
            if totals[j] >= totals[hull[-1]]:
                continue
            hull.pop()
        hull.append(j)
    return found, parent


def _is_above(totals: list[float], below: list[float], a: int, b: int, c: int) -> bool:
    """Whether the line of `b` lies nowhere under both other lines."""
    left = (totals[c] - totals[a]) * (below[b] - below[a])
    return left <= (totals[b] - totals[a]) * (below[c] - below[a])


def _list_at(parents: list[list[int]], candidates: list[int]) -> tuple[int, ...]:
    """The list that ends at the largest candidate, with a size for each row."""
    chosen, place = [], len(candidates) - 1
    for row in reversed(parents):
        chosen.append(candidates[place])
        place = row[place]
        if place < 0:
            break
    return tuple(reversed(chosen))
