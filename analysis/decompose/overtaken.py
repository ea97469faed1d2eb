"""Sizes that take longer than a larger one: where no work is saved, and time is."""

from __future__ import annotations

from collections.abc import Sequence

from .curve import UNKNOWN, Curve, Point
from .functionals import Condition, Functional, outlier
from .statistics import MATERIAL


def find_overtaken(curve: Curve) -> list[tuple[Point, Point]]:
    """Sizes that take 2 % longer than a larger one, by intervals that lie apart, each with the next
    such larger size.
    """
    sizes = [point for point in curve.points if point.condition != UNKNOWN]
    found = []
    for place, small in enumerate(sizes):
        faster = (
            large
            for large in sizes[place + 1 :]
            if large.time_ms.high < small.time_ms.low
            and large.time_ms.value <= (1 - MATERIAL) * small.time_ms.value
        )
        if (large := next(faster, None)) is not None:
            found.append((small, large))
    return found


def outliers(curve: Curve, sizes: Sequence[Condition]) -> list[Functional]:
    """The overtaken ones of these sizes, each against the line between the next smaller and larger
    size that none overtakes.

    The smallest size has no such line.
    """
    slow = {small.condition for small, _ in find_overtaken(curve)}
    usual = [size for size in sizes if size not in slow]
    found = []
    for size in sorted(slow.intersection(sizes)):
        smaller = [other for other in usual if other < size]
        larger = [other for other in usual if other > size]
        if smaller and larger:
            found.append(outlier(smaller[-1], size, larger[0]))
    return found
