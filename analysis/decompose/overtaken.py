"""Sizes that take longer than a larger one: where no work is saved, and time is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .curve import UNKNOWN, Curve, Point
from .functionals import Condition, Functional, outlier
from .slow_sizes import least_between

_LEAST_STEPS = 2  # of a probed size, to be told of
_FENCE = 1.5  # interquartile ranges


@dataclass(frozen=True)
class Overtaken:
    """A size that takes longer than a larger one."""

    small: Point
    size: int  # the larger one
    time_ms: float  # of a step there


def find_overtaken(
    curve: Curve, probes: Mapping[int, Sequence[float]] | None = None
) -> list[Overtaken]:
    """Sizes that take materially longer than a larger one, by intervals that lie apart, each with
    the next such larger size.

    `probes` has the times of steps of further sizes, ms, of few visits: of two or more steps, each
    must be faster than any usual step of the smaller size.
    """
    sizes = [point for point in curve.points if point.condition != UNKNOWN]
    larger = {int(point.condition): point.time_ms for point in sizes}
    highest = {size: (time.value, time.high) for size, time in larger.items()}
    for size, times_ms in (probes or {}).items():
        if size not in larger and len(times_ms) >= _LEAST_STEPS:
            highest[size] = fmean(times_ms), max(times_ms)
    overtaken: list[Overtaken] = []
    least = least_between(curve.least, curve.unseen)
    for small in sizes:
        most_ms = (1 - least) * small.time_ms.value
        for size, (time_ms, high_ms) in sorted(highest.items()):
            least_ms = small.time_ms.low if size in larger else _fastest_usual_ms(small)
            if size > small.condition and high_ms < least_ms and time_ms <= most_ms:
                overtaken.append(Overtaken(small, size, time_ms))
                break
    return overtaken


def _fastest_usual_ms(point: Point) -> float:
    """The lower fence of a size's steps (Tukey, Exploratory Data Analysis, 1977)."""
    spread = math.inf if point.spread is None else point.spread
    return min(point.time_ms.low, (1 - _FENCE * spread) * point.time_ms.value)


def find_slow(curve: Curve) -> set[Condition]:
    """The overtaken sizes."""
    return {overtaken.small.condition for overtaken in find_overtaken(curve)}


def find_outliers(curve: Curve, sizes: Sequence[Condition]) -> list[Functional]:
    """The overtaken ones of these sizes, each against the line between the next smaller and larger
    size that none overtakes.

    The smallest size has no such line.
    """
    slow = find_slow(curve)
    usual = [size for size in sizes if size not in slow]
    outliers = []
    for size in sorted(slow.intersection(sizes)):
        smaller = [other for other in usual if other < size]
        larger = [other for other in usual if other > size]
        if smaller and larger:
            outliers.append(outlier(smaller[-1], size, larger[0]))
    return outliers
