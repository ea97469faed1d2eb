"""Anomalies in plain words: by how much one size is off its neighbours, and where it is so."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import numpy as np

from ...base.numbers import number, percent
from ...profiling.recording.axis import Axis
from ..decompose.curve import UNKNOWN, Curve
from ..decompose.functionals import (
    EXCESS,
    FIXED_COST,
    OUTLIER,
    Condition,
    Functional,
    bend,
    neighbours_of,
    outlier,
)
from ..decompose.overtaken import find_slow
from ..decompose.statistics import Estimate, Floats
from .words import show_ms

_LEAST_SIZES = 3  # of a line that two sizes do not make by themselves
_FACTOR = 3.0  # between the ends of an interval that still says how large something is


def off_by(curve: Curve, at: Condition, apart: Container[Condition] = ()) -> Estimate | None:
    """How far a size is off its neighbours, in ms; the last one off the line through the two before
    it. None for the first size.

    Sizes that are overtaken, or kept apart, are no neighbours.
    """
    if UNKNOWN in curve.conditions:
        return None
    overtaken = find_slow(curve)
    usual = []
    for size in curve.conditions:
        if size == at or not (size in apart or size in overtaken):
            usual.append(size)
    sizes = neighbours_of(at, usual)
    if sizes is not None:
        functional = outlier(*sizes)
    elif at == usual[-1] and len(usual) >= _LEAST_SIZES:
        functional = bend(*usual[-3:])
    else:
        return None
    return curve.judging(functional).evaluate(functional)


class CostLine(NamedTuple):
    """The straight line that comes nearest to a curve, by the shares by which it is off."""

    fixed_ms: float  # cost at size 0; at least 0
    each_ms: float  # cost of one more; at least 0
    off: float  # largest share of a time by which the line misses it

    def cost_ms(self, size: float) -> float:
        """The cost of a size."""
        return self.fixed_ms + self.each_ms * size

    def fixed_share(self, size: int) -> float:
        """The share of the fixed cost in the cost of a size."""
        return self.fixed_ms / self.cost_ms(size)

    def tells_fixed(self, smallest: int) -> bool:
        """Whether the fixed cost is more of the smallest size than the line misses."""
        return self.fixed_share(smallest) >= self.off

    def as_sum(self, axis: str) -> str:
        """The line as a sum of its two costs."""
        return f"{show_ms(self.fixed_ms, 3)} + {show_ms(self.each_ms, 3)} × {axis}"


def cost_line(curve: Curve) -> CostLine | None:
    """The line of a curve without overtaken sizes; None of fewer than three, or of unknown ones."""
    if UNKNOWN in curve.conditions:
        return None
    slow = find_slow(curve)
    points = [point for point in curve.points if point.condition not in slow]
    if len(points) < _LEAST_SIZES:
        return None
    sizes = np.array([point.condition for point in points], float)
    times = np.array([point.time_ms.value for point in points])
    parts = _fit_line(sizes, times)
    missed = np.abs(parts[0] + parts[1] * sizes - times) / times
    return CostLine(float(parts[0]), float(parts[1]), float(missed.max()))


def _fit_line(sizes: Floats, times: Floats) -> Floats:
    """The fixed cost and the cost of a sample with the least squares of relative misses, neither
    below zero.
    """
    costs = np.column_stack([1 / times, sizes / times])
    parts, *_ = np.linalg.lstsq(costs, np.ones(len(times)), rcond=None)
    if parts.min() < 0:
        only = costs[:, parts.argmax()]
        parts[parts.argmax()] = only.sum() / (only @ only)
    return np.asarray(np.maximum(parts, 0.0), np.float64)


class Place(NamedTuple):
    """Where an anomaly shows, and how its amounts count there."""

    size: Condition
    scale: float  # of amounts of the functional, to be ms of a step of that size


def locate_anomaly(functional: Functional, value: float) -> Place:
    """Where an anomaly shows.

    A time that bends downwards at a size is slow there; one that bends upwards is slow at the next.
    """
    if value < 0 and len(functional.coefficients) == _LEAST_SIZES:
        before, at, after = functional.conditions
        return Place(at, -(at - before) / (after - before))
    return Place(functional.at if functional.kind == FIXED_COST else functional.last, 1.0)


class Outlier(NamedTuple):
    """A size that is slow by itself."""

    size: Condition
    off_ms: float  # above the line between its neighbours; of the first size, above the next one
    beside: tuple[Condition, ...]  # these neighbours


def outlier_of(functional: Functional, value: float, curve: Curve) -> Outlier | None:
    """The size that is slow where the line through two sizes falls below the time of the slower
    one, so that the next size's departure from that line says nothing; None elsewhere.
    """
    if functional.kind == OUTLIER:
        before, size, after = functional.conditions
        return Outlier(size, value, (before, after))
    if len(functional.coefficients) != _LEAST_SIZES or value < 0:
        return None
    times = curve.times_ms
    slower = max(functional.conditions[:-1], key=times.__getitem__)
    if times[functional.last] - value >= times[slower]:
        return None
    sizes = neighbours_of(slower, curve.conditions)
    off = off_by(curve, slower)
    if sizes is None or off is None:
        following = curve.conditions[curve.conditions.index(slower) + 1]
        slow = Outlier(slower, times[slower] - times[following], (following,))
    else:
        slow = Outlier(slower, off.value, (sizes[0], sizes[2]))
    return slow if slow.off_ms > 0 else None


def deviation(functional: Functional, value: float, curve: Curve, axis: Axis) -> str:
    """An anomaly as a clause, e.g. `batch 8 takes 258 ms, 5.63 more than the line between 4 and
    16`.
    """
    time_ms = curve.times_ms
    if functional.kind == EXCESS and functional.to is not None:
        return _dearer(functional, value, time_ms, axis)
    alone = outlier_of(functional, value, curve)
    if alone is not None:
        return _slow(alone, time_ms, axis)
    place = locate_anomaly(functional, value)
    before, at, *rest = functional.conditions
    if value < 0 and place.size == functional.at:
        slow = Outlier(place.size, value * place.scale, (before, *rest))
        return _slow(slow, time_ms, axis)
    takes = f"{axis.name_size(place.size)} takes {show_ms(time_ms[place.size])}"
    more = "more" if value > 0 else "less"
    return f"{takes}, {number(abs(value), 3)} {more} than the line through {before} and {at}"


def _slow(slow: Outlier, time_ms: dict[Condition, float], axis: Axis) -> str:
    line = " and ".join(map(str, slow.beside))
    if len(slow.beside) > 1:
        line = f"the line between {line}"
    takes = f"{axis.name_size(slow.size)} takes {show_ms(time_ms[slow.size])}"
    return f"{takes}, {number(slow.off_ms, 3)} more than {line}"


def _dearer(
    functional: Functional, value: float, time_ms: dict[Condition, float], axis: Axis
) -> str:
    """What the larger of two sizes costs beyond its share: of multiples in ms, else a sample."""
    small, large = functional.at, functional.to
    assert large is not None
    costs = f"{axis.name_size(large)} costs"
    if large % small == 0:
        share = f"{value / time_ms[large]:.0%} of the step"
        times = f"{large // small} times {axis.name_size(small)}"
        return f"{costs} {show_ms(value, 3)} ({share}) more than {times}"
    share = percent(value / (time_ms[large] - value))
    return f"{costs} {share} more a {axis.one} than {small}"


def is_known(low: float, high: float) -> bool:
    """Whether two ends of an interval, above 0, say how large something is."""
    return 0 < low <= high <= _FACTOR * low
