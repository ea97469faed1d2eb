"""Sizes between a sweep's: probed with a few steps each; where they leave the line, they join the
curve.

A line is what the times of the sweep's sizes allow at a size between them: their interpolation, and
what both sides continue to. A probe is off it if it leaves all of these by 5 % and by three
standard errors, in two visits or more. A gap is also searched where the sweep's own sizes bend.
Bisection finds the jump in a gap. Both sides of it join the curve and are tested as all others, on
rounds after their choice; the visits that chose them count nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from ..attribution.step_pattern import faster_half
from ..recording.probes import deviation, gap_of, slopes_outside
from .protocol import Protocol
from .stopping import StoppingRule
from .visits import Empty, Look, StepRow, Visit

# share of the time by which a size leaves the line; more than the 2 % of an anomaly, as many are
# tried
_LEAVES = 0.05
_ERRORS = 3.0  # standard errors by which it does
# standard deviations that three of four values of a normal distribution lie within
_THREE_QUARTERS = 1.15
_LEAST_NOISE = 0.01  # of a visit's time: two rounds may agree by chance
_MOST_VISITS = 5  # of a size, until it is left undecided
_MOST_PLACES = 3
# share of a gap's deviation that its jump keeps while the gap is halved; a gradual bend does not
_KEPT = 0.5
_COUNTED = 2  # rounds before a choice that count among the least number of rounds
_LATEST = 2 / 3  # share of the time limit: rounds are left for what is found
# share of the probes' time that is left, so that a later round can test what this one finds
_OF_A_ROUND = 0.5
_STEPS = (2, 4)  # minimum and maximum number of steps of a probe; `_STEPS_S` chooses between
_STEPS_S = 0.1

Gap = tuple[int, int]


def protocol_of_probes(protocol: Protocol) -> Protocol:
    """The protocol of a probe's visit in a sweep: a few steps, none of them profiled."""
    return replace(
        protocol, steps_per_visit=_STEPS, visit_s=_STEPS_S, profiled_steps=0, images=None
    )


def probe_sizes(sizes: Sequence[int]) -> list[int]:
    """Sizes to probe, the most telling kind first: b + 1, 3·2^k, b - 1, and an odd one between two
    sizes.
    """
    gaps = [(low, high) for low, high in pairwise(sizes) if high - low > 1]
    threes = [3 << n for n in range(max(sizes).bit_length())]
    kinds = (
        [low + 1 for low, _ in gaps] + [sizes[-1] + 1],
        [three for low, high in gaps for three in threes if low < three < high],
        [high - 1 for _, high in gaps],
        [(low + 2 * (high - low) // 5) | 1 for low, high in gaps],
    )
    return [
        size for size in dict.fromkeys(size for kind in kinds for size in kind) if size not in sizes
    ]


@dataclass(frozen=True)
class _Line:
    """Times so far, of the fastest step of each visit, without what rounds share."""

    times: dict[int, float]  # by size, ms: of the sweep's sizes and of probes
    visits: dict[int, int]  # number of visits behind each
    noise: float  # standard deviation of a visit's time, as a share of it
    grid: Sequence[int]  # the sweep's sizes

    @classmethod
    def of(
        cls, rows: Sequence[StepRow], probed: dict[int, dict[int, float]], grid: Sequence[int]
    ) -> _Line:
        """The line of the unprofiled steps, with probes by size and round."""
        steps: dict[tuple[int, int], list[float]] = {}
        for row in rows:
            if not row["profiled"]:
                steps.setdefault((row["batch"], row["round"]), []).append(row["duration_ns"] / 1e6)
        logs = {key: math.log(min(times)) for key, times in steps.items()}
        sizes = sorted({size for size, _ in logs})
        centers = {
            size: float(faster_half(np.array([log for (at, _), log in logs.items() if at == size])))
            for size in sizes
        }
        rounds = sorted({round_ for _, round_ in logs})
        shared = {
            round_: median(
                log - centers[size] for (size, in_round), log in logs.items() if in_round == round_
            )
            for round_ in rounds
        }
        apart = sorted(
            abs(log - centers[size] - shared[round_]) for (size, round_), log in logs.items()
        )
        free = max(len(apart) - len(sizes) - len(rounds) + 1, 1) / len(apart)
        noise = max(apart[int(0.75 * len(apart))] / _THREE_QUARTERS / math.sqrt(free), _LEAST_NOISE)
        times = {size: math.exp(center) for size, center in centers.items()}
        visits = dict.fromkeys(sizes, len(rounds))
        for size, by_round in probed.items():
            level = [
                math.log(time_ms) - shared.get(round_, 0.0) for round_, time_ms in by_round.items()
            ]
            if level:
                times[size], visits[size] = (
                    math.exp(float(faster_half(np.array(level)))),
                    len(level),
                )
        return cls(times, visits, noise, [size for size in grid if size in times])

    def around(self, size: int) -> Gap:
        """The gap of the sweep's sizes with a size in it; behind the last one, from that to the
        size.
        """
        return gap_of(self.grid, size)

    def deviation(self, size: int) -> float:
        """Logarithm of the time over the nearest end of what the line allows there; 0
        in between.
        """
        return deviation(self.times, self.grid, size)

    def bends(self, gap: Gap) -> bool:
        """Whether the sweep's own sizes deviate over a gap from both sides of it."""
        low, high = gap
        slopes = [slope for _, slope in self._outside(low, high)]
        rise = (self.times[high] - self.times[low]) / (high - low)
        beyond = max(rise - max(slopes), min(slopes) - rise) * (high - low) if slopes else 0.0
        return beyond > self.least(low, high) * self.times[high]

    def steepest(self, gap: Gap) -> tuple[Gap, float]:
        """The two measured neighbours in a gap with the largest rise or fall beyond the usual
        slope, and its share.
        """
        low, high = gap
        inside = sorted(size for size in self.times if low <= size <= high)
        pairs = list(pairwise(inside))
        slopes = [
            (self.times[after] - self.times[before]) / (after - before) for before, after in pairs
        ]
        usual = [slope for _, slope in self._outside(low, high)]
        if len(pairs) > 1 or not usual:
            usual.append(median([*slopes, *usual]))  # a smooth curve has slopes in between
        shares = [
            max(slope - max(usual), min(usual) - slope, 0.0)
            * (pair[1] - pair[0])
            / max(map(self.times.__getitem__, pair))
            for slope, pair in zip(slopes, pairs, strict=True)
        ]
        largest = max(shares)
        return next(
            (pair, share)
            for pair, share in zip(pairs, shares, strict=True)
            if share >= 0.9 * largest
        )

    def least(self, *sizes: int) -> float:
        """Share of the time from which a deviation of these sizes is none of noise."""
        return max(
            _LEAVES, _ERRORS * self.noise * math.sqrt(sum(1 / self.visits[size] for size in sizes))
        )

    def _outside(self, low: int, high: int) -> list[tuple[int, float]]:
        return slopes_outside(self.times, self.grid, low, high)


class Probing(StoppingRule[int]):
    """The rounds of another rule; from the second on, they also visit sizes to probe."""

    def __init__(
        self,
        rule: StoppingRule[int],
        sizes: Sequence[int],
        limit_s: float,
        visit: Callable[[int], Visit | Empty],
    ) -> None:
        """Define the rule, over the rounds of another one and the increasing sizes of the sweep.

        Probes, which `visit` makes with few steps, take `limit_s` together; the last may end after
        them.
        """
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self.sizes = list(sizes)  # of the curve, increasing; those that are found join them
        # the last size on the line and the first off it, of every jump that was found
        self.places = tuple[Gap, ...]()
        self._rule, self._grid, self._visit = rule, tuple(sizes), visit
        self._limit_s = self._left_s = limit_s
        self._open = probe_sizes(sizes) if len(sizes) > 1 and limit_s > 0 else []
        self.ended = not self._open  # whether no size is probed any more
        self._gaps: dict[Gap, float] = {}  # share by which a gap deviated when its search began
        self.visited: list[dict[str, Any]] = []  # of `recording.json`
        self._tried: dict[int, int] = {}
        self._least = _LEAVES
        self._counted_from = 0

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of `recording.json`."""
        return {
            "limit_s": round(self._limit_s, 1),
            "seconds": round(self._limit_s - self._left_s, 3),
            "least": round(self._least, 4),
            "visits": self.visited,
            "found": [list(place) for place in self.places],
        }

    def next_round(self, look: Look[int]) -> Sequence[int] | None:
        """The sizes that the other rule names, and those to probe."""
        # The other rule does not end the rounds before, and counts few of them: what is found needs
        # fresh ones.
        first = self._counted_from if self.ended else max(look.round_ - self.least + 1, 0)
        chosen = self._rule.next_round(replace(look, round_=look.round_ - first))
        self.time_limit_s = self._rule.time_limit_s
        if self.ended or not chosen or not look.round_:
            return chosen
        line = _Line.of(look.rows(), self._times(), self._grid)
        self._least = max(
            (line.least(size) for size in line.visits if size not in line.grid), default=_LEAVES
        )
        late = self.time_limit_s is not None and look.elapsed_s > _LATEST * self.time_limit_s
        probes = [] if late else list(self._affordable(line, self._choose_sizes(line), look))
        if not probes:
            self.ended, new = True, self._join(line)
            if new:
                self._counted_from = max(look.round_ - _COUNTED, 0)
            return [*chosen, *new] if new else chosen
        beside: dict[int, list[int]] = {}  # by the size of the curve that they are compared with
        for size in probes:
            low = line.around(size)[0]
            beside.setdefault(low if low in chosen else chosen[-1], []).append(size)
        return [visited for size in chosen for visited in (size, *beside.get(size, ()))]

    def probe(self, size: int, round_: int, clock_s: Callable[[], float]) -> None:
        """Visit a size, if time is left for probes."""
        if self._left_s <= 0:
            return
        began_s = clock_s()
        result = self._visit(size)
        self._left_s -= clock_s() - began_s
        self._tried[size] = self._tried.get(size, 0) + 1
        if isinstance(result, Empty) or not result.unprofiled:
            self._tried[size] = _MOST_VISITS
            return
        durations_ns = [row["duration_ns"] for row in result.unprofiled]
        self.visited.append({"batch": size, "round": round_, "duration_ns": durations_ns})

    def _times(self) -> dict[int, dict[int, float]]:
        """Times of the probes in ms, by size and round."""
        times: dict[int, dict[int, float]] = {}
        for visit in self.visited:
            times.setdefault(visit["batch"], {})[visit["round"]] = min(visit["duration_ns"]) / 1e6
        return times

    def _choose_sizes(self, line: _Line) -> list[int]:
        """Sizes that need a visit: undecided ones, and those that halve a gap with a jump."""
        # the first may not have run
        self._open = [size for size in self._open if size > line.grid[0]]
        if any(self._tried.get(size) for size in self._open):
            self._open = [size for size in self._open if not self._is_decided(line, size)]
            for gap in pairwise(line.grid):
                if gap[1] - gap[0] > 1 and gap not in self._gaps and line.bends(gap):
                    self._gaps[gap] = line.steepest(gap)[1]
        again = sorted(
            filter(line.visits.get, self._open), key=lambda size: -abs(line.deviation(size))
        )
        halving = (size for gap in self._gaps for size in self._halve(line, gap))
        return list(dict.fromkeys([*again, *self._open, *halving]))

    def _is_decided(self, line: _Line, size: int) -> bool:
        """Whether a size is on the line, or off it, which opens its gap; also if enough visits left
        that open.
        """
        tried = self._tried.get(size, 0)
        if size in line.times:
            off = abs(line.deviation(size))
            if line.visits[size] > 1 and off > line.least(size, line.around(size)[0]):
                gap = line.around(size)
                self._gaps.setdefault(gap, line.steepest(gap)[1])
                return True
            if off < _LEAVES:
                return True
        return tried >= _MOST_VISITS

    def _halve(self, line: _Line, gap: Gap) -> Iterator[int]:
        """The sizes to visit for the jump in a gap; none if it is found, or if there is none."""
        (before, after), share = line.steepest(gap)
        if share < max(_LEAVES, _KEPT * self._gaps[gap]):
            return
        if after - before > 1:
            inside = dict.fromkeys(
                before + (after - before) * quarter // 4 for quarter in (2, 1, 3)
            )
            yield from (
                size for size in inside if size > before and self._tried.get(size, 0) < _MOST_VISITS
            )
        else:
            unsure = share < line.least(before, after)
            for size in (before, after):
                tried = self._tried.get(size, _MOST_VISITS if size in line.grid else 0)
                if (unsure or line.visits[size] < 2) and tried < _MOST_VISITS:
                    yield size

    def _affordable(self, line: _Line, wanted: Sequence[int], look: Look[int]) -> Iterator[int]:
        """The first sizes whose visits are expected to fit the time of this round's probes."""
        left_s = _OF_A_ROUND * self._left_s
        made = len(self.visited)
        for size in wanted:
            low = line.around(size)[0]
            # With what a size costs at first, e.g. where a library chooses its algorithms.
            usual_s = (self._limit_s - self._left_s) / made if made else look.visit_s.get(low, 0.0)
            time_s = line.times[low] * max(size / low, 1.0) / 1e3
            steps = 1 + max(_STEPS[0], min(_STEPS[1], round(_STEPS_S / max(time_s, 1e-6))))
            left_s -= max(steps * time_s, usual_s)
            if left_s >= 0:
                yield size

    def _join(self, line: _Line) -> list[int]:
        """Add the sizes beside the largest jumps to the curve; returns those that are new."""
        jumps = {}
        for gap, first in self._gaps.items():
            (before, after), share = line.steepest(gap)
            if after - before == 1 and share >= max(line.least(before, after), _KEPT * first):
                jumps[before, after] = share
        usual_ms = sum(line.times[size] for size in line.grid)
        added_ms = 0.0
        new = set[int]()
        for place in sorted(jumps, key=lambda place: -jumps[place])[:_MOST_PLACES]:
            more = set(place) - {*self._grid, *new}
            added_ms += sum(line.times[size] for size in more)
            if not self.places or added_ms <= usual_ms:  # with several, a round at most doubles
                self.places = (*self.places, place)
                new = new | more
        self.places = tuple(sorted(self.places))
        self.sizes[:] = sorted({*self.sizes, *new})
        return sorted(new)
