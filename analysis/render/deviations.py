"""Anomalies in plain words: by how much one size is off its neighbours, and where it is so."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from ...base.numbers import number
from ...profiling.recording.axis import Axis
from ..decompose.curve import UNKNOWN, Curve
from ..decompose.functionals import (
    EXCESS,
    FIXED_COST,
    OUTLIER,
    Condition,
    Functional,
    bend,
    outlier,
)
from ..decompose.overtaken import find_slow
from ..decompose.statistics import Estimate

_LEAST_SIZES = 3  # of a line that two sizes do not make by themselves
_FACTOR = 3.0  # between the ends of an interval that still says how large something is


def neighbours_of(at: Condition, conditions: Sequence[Condition]) -> tuple[int, int, int] | None:
    """A size between its neighbours among the measured ones; None for the first and the last."""
    place = list(conditions).index(at)
    inner = 0 < place < len(conditions) - 1
    return (conditions[place - 1], at, conditions[place + 1]) if inner else None


def off_by(curve: Curve, at: Condition, apart: Container[Condition] = ()) -> Estimate | None:
    """How far a size is off its neighbours, in ms; the last one off the line through the two before
    it. None for the first size.

    Sizes that are overtaken, or kept apart, are no neighbours.
    """
    if UNKNOWN in curve.conditions:
        return None
    overtaken = find_slow(curve)
    usual = [
        size for size in curve.conditions if size == at or not (size in apart or size in overtaken)
    ]
    if (sizes := neighbours_of(at, usual)) is not None:
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

    def fixed_share(self, size: int) -> float:
        """The share of the fixed cost in the cost of a size."""
        return self.fixed_ms / (self.fixed_ms + self.each_ms * size)


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
    from scipy.optimize import nnls

    parts, _ = nnls(np.column_stack([1 / times, sizes / times]), np.ones(len(times)))
    missed = np.abs(parts[0] + parts[1] * sizes - times) / times
    return CostLine(float(parts[0]), float(parts[1]), float(missed.max()))


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
    times = {point.condition: point.time_ms.value for point in curve.points}
    slower = max(functional.conditions[:-1], key=times.__getitem__)
    if times[functional.last] - value >= times[slower]:
        return None
    sizes = neighbours_of(slower, curve.conditions)
    off = off_by(curve, slower)
    if sizes is None or off is None:
        following = curve.conditions[curve.conditions.index(slower) + 1]
        found = Outlier(slower, times[slower] - times[following], (following,))
    else:
        found = Outlier(slower, off.value, (sizes[0], sizes[2]))
    return found if found.off_ms > 0 else None


def deviation(functional: Functional, value: float, curve: Curve, axis: Axis) -> str:
    """An anomaly as a clause, e.g. `batch 8 takes 258 ms, 5.63 more than the line between 4 and
    16`.
    """
    time_ms = {point.condition: point.time_ms.value for point in curve.points}
    if functional.kind == EXCESS and functional.to is not None:
        return _dearer(functional, value, time_ms, axis)
    if (outlier := outlier_of(functional, value, curve)) is not None:
        return _slow(outlier, time_ms, axis)
    place = locate_anomaly(functional, value)
    if value < 0 and place.size == functional.at:
        before, _, after = functional.conditions
        slow = Outlier(place.size, value * place.scale, (before, after))
        return _slow(slow, time_ms, axis)
    before, at, *_ = functional.conditions
    return (
        f"{axis.name} {place.size} takes {number(time_ms[place.size])} ms, {number(abs(value), 3)} "
        f"{'more' if value > 0 else 'less'} than the line through {before} and {at}"
    )


def _slow(slow: Outlier, time_ms: dict[Condition, float], axis: Axis) -> str:
    beside = " and ".join(map(str, slow.beside))
    line = f"the line between {beside}" if len(slow.beside) > 1 else beside
    return (
        f"{axis.name} {slow.size} takes {number(time_ms[slow.size])} ms, "
        f"{number(slow.off_ms, 3)} more than {line}"
    )


def _dearer(
    functional: Functional, value: float, time_ms: dict[Condition, float], axis: Axis
) -> str:
    """What the larger of two sizes costs beyond its share: of multiples in ms, else a sample."""
    small, large = functional.at, functional.to
    assert large is not None
    if large % small == 0:
        return (
            f"{axis.name} {large} costs {number(value, 3)} ms ({value / time_ms[large]:.0%} of the "
            f"step) more than {large // small} times {axis.name} {small}"
        )
    share = value / (time_ms[large] - value)
    return f"{axis.name} {large} costs {100 * share:.0f} % more a {axis.one} than {small}"


def is_known(low: float, high: float) -> bool:
    """Whether two ends of an interval, above 0, say how large something is."""
    return 0 < low <= high <= _FACTOR * low
