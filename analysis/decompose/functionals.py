"""Functionals of step times: anomalies as coefficients over conditions.

As T is a sum of terms, so is a functional, and its shares add up to it without a model or a fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2
from typing import Any, TypeAlias

AXES = ("log2", "linear", "throughput")
EXCESS = "excess"
FIXED_COST = "fixed cost"
BEND = "bend"
OUTLIER = "outlier"
THROUGHPUT = "samples/s"
# an anomaly with a part of more than twice its size is a small difference of large parts
CANCELS = 2.0
# Anything hashable: a batch size, (devices, batch size), a run, a rank.
Condition: TypeAlias = Any


@dataclass(frozen=True)
class Functional:
    """A linear functional of T."""

    kind: str  # excess, fixed cost, curvature, bend, outlier, or the name of another comparison
    # condition of the functional; for an excess or a fixed cost the smaller of the two batch sizes
    at: Condition
    to: Condition | None  # the larger batch size of an excess or a fixed cost; None for other kinds
    # (condition, coefficient), increasing in batch size
    coefficients: tuple[tuple[Condition, float], ...]
    unit: str = "ms"  # unit of the value, for T in ms
    # a short name, e.g. `excess 4→8` or `curvature at 8`.
    label: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        label = f"{self.kind} at {self.at}"
        if self.to is not None:
            label = f"{self.kind} {self.at}→{self.to}"
        object.__setattr__(self, "label", label)

    @property
    def of_rate(self) -> bool:
        """Whether the coefficients multiply 1/T, in steps per second, which is no sum of terms and
        has no shares.
        """
        return self.unit == THROUGHPUT

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions with a coefficient."""
        return tuple(condition for condition, _ in self.coefficients)

    @property
    def weights(self) -> tuple[tuple[int, float], ...]:
        """The coefficients as a recorded experiment has them, as numbers of Python."""
        return tuple((int(condition), float(weight)) for condition, weight in self.coefficients)

    @property
    def last(self) -> Condition:
        """The batch size whose step it is a share of: the largest, or the outlier."""
        if self.kind == OUTLIER:
            return self.at
        return self.to or max(self.conditions)


def excess(small: int, large: int) -> Functional:
    """Excess cost of `large` over the linear continuation of `small`: T(large) −
    (large/small)·T(small), in ms.

    0 where cost is proportional to the batch; positive where the larger batch costs more than its
    share.
    """
    weights = ((small, -large / small), (large, 1.0))
    return Functional(EXCESS, small, large, weights, "ms")


def fixed_cost(small: int, large: int) -> Functional:
    """The cost that does not grow with the batch, in ms: (k·T(b) − T(kb))/(k − 1), for doublings
    2·T(b) − T(2b).

    It is the intercept at batch 0 of the straight line through both times; 0 where cost is
    proportional to the batch.
    """
    ratio = large / small
    weights = ((small, ratio / (ratio - 1)), (large, -1 / (ratio - 1)))
    return Functional(FIXED_COST, small, large, weights, "ms")


def curvature(before: int, at: int, after: int, axis: str = "log2") -> Functional:
    """Curvature of the cost curve at a batch size; above 0 is concave-up, below 0 concave-down.

    On the axis `log2` it is the second divided difference of time per sample over log2 of the batch
    size, in ms per sample; on doublings T(2b)/2b − 2·T(b)/b + T(b/2)/(b/2). On `linear` it is the
    difference of T itself over the batch size, in ms per sample²; 0 for every cost that is fixed
    plus proportional. On `throughput` it is the difference of the samples per second, b/T(b), over
    log2 of the batch size; below 0 the throughput gains less by this doubling than by the one
    before.
    """
    points = before, at, after
    if axis in ("log2", "throughput"):
        left, right = log2(at / before), log2(after / at)
        # On doublings left = right = 1 and the weights are 1, -2, 1.
        mean = (left + right) / 2
        at_weight = -(1 / left + 1 / right) / mean
        weights = (1 / (left * mean), at_weight, 1 / (right * mean))
        if axis == "throughput":
            of_rates = tuple((b, w * b) for b, w in zip(points, weights, strict=True))
            return Functional("curvature", at, None, of_rates, THROUGHPUT)
        per_sample = tuple((b, w / b) for b, w in zip(points, weights, strict=True))
        return Functional("curvature", at, None, per_sample, "ms/sample")
    if axis != "linear":
        raise ValueError(f"axis is one of {AXES}, not {axis!r}")
    differences = (
        (before, 2.0 / ((before - at) * (before - after))),
        (at, 2.0 / ((at - before) * (at - after))),
        (after, 2.0 / ((after - before) * (after - at))),
    )
    return Functional("curvature", at, None, differences, "ms/sample²")


def bend(before: int, at: int, after: int) -> Functional:
    """How much T(after) departs from the straight line through T(before) and T(at), in ms.

    T(after) − T(at) − (after−at)/(at−before)·(T(at) − T(before)): 0 for every cost that is fixed
    plus proportional, so the fixed cost of a step, which larger batches share, is no anomaly.
    """
    ratio = (after - at) / (at - before)
    weights = (before, ratio), (at, -1.0 - ratio), (after, 1.0)
    return Functional(BEND, at, None, weights, "ms")


def outlier(before: int, at: int, after: int) -> Functional:
    """How much longer T(at) is than the straight line through T(before) and T(after) says, in ms.

    A size that a larger one overtakes has it: the size is slow, and its neighbours are not.
    """
    weight = (after - at) / (after - before)
    weights = (before, -weight), (at, 1.0), (after, weight - 1.0)
    return Functional(OUTLIER, at, None, weights)


def neighbours_of(at: Condition, conditions: Sequence[Condition]) -> tuple[int, int, int] | None:
    """A size between its neighbours among the measured ones; None for the first and the last."""
    place = list(conditions).index(at)
    if not 0 < place < len(conditions) - 1:
        return None
    return conditions[place - 1], at, conditions[place + 1]


def neighbours(
    batches: Sequence[int], jumps: Collection[tuple[int, int]] = ()
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Adjacent pairs, and inner points with both neighbours, of increasing batch sizes.

    A line through a pair between which the cost jumps would continue the jump, often manifold, so
    that no inner point begins with one.
    """
    ordered = sorted(batches)
    triples = zip(ordered, ordered[1:], ordered[2:], strict=False)
    inner = [points for points in triples if points[:2] not in jumps]
    return list(pairwise(ordered)), inner
