"""The part of a functional that a factor removes, with its interval: from starts of processes, or
from rounds of one process.

A functional F is compared at one speed. A change that makes every batch size faster alike makes F
smaller and removes nothing of it, so F' is multiplied by what that change does to the rest of the
time:

- of an excess, to the proportional cost; of a bend, to the time of the largest batch size in it;
- of a fixed cost, to the cost of a sample; where that is not known, the step is nearly all fixed
  cost, and F' is taken as it is.

The block is the unit. Of complete steps it is a start of the processes: identical code in two
processes differs by percents, however many rounds each makes. Of a term in isolation, whose
variants share a process, it is a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..decompose.functionals import EXCESS, FIXED_COST
from ..decompose.statistics import (
    LARGEST_LOG,
    Estimate,
    Floats,
    Ints,
    block_estimate,
    effective_rounds,
    estimate,
    fieller,
    mean_error,
    time_estimate,
)

REFUTED_BELOW = 1 / 5  # far below one half, so that noise does not refute a main cause


@dataclass(frozen=True)
class Spread:
    """How uncertain a number is, from its value in each block, or in bootstrap replicates of the
    blocks.
    """

    freedom: float  # degrees of freedom; below 1 there is one block, and the interval is infinite
    scale: float  # size of the numbers behind it, below a billionth of which a spread is rounding
    replicates: bool  # whether the values are those of replicates
    wider: float = 1.0  # factor on the standard error, see `pool_spreads`

    def __call__(self, value: float, varied: Floats) -> Estimate:
        """The interval of a number, and the p-value of its being 0."""
        if self.replicates:
            return estimate(value, varied, self.freedom + 1, self.scale)
        return block_estimate(value, self.wider * mean_error(varied), self.freedom, self.scale)


@dataclass(frozen=True)
class Times:
    """Times of one variant over batch sizes, ms."""

    value: Floats  # shape (batch sizes,)
    # the same of each block, or of each bootstrap replicate of all blocks, shape (…, batch sizes)
    varied: Floats
    blocks: Ints  # number of blocks behind each time
    replicates: bool  # whether `varied` has replicates

    def by_batch(self) -> tuple[Estimate, ...]:
        """Every time, with an interval that never reaches 0."""
        estimates = []
        for time, varied, blocks in zip(self.value, self.varied.T, self.blocks, strict=True):
            value = float(time)
            if self.replicates:
                estimates.append(time_estimate(value, varied, blocks))
                continue
            log = block_estimate(0.0, mean_error(np.log(varied)), blocks - 1.0, 1.0)
            low, high = float(np.exp(log.low)), float(np.exp(min(log.high, LARGEST_LOG)))
            estimates.append(Estimate(value, low * value, high * value, 0.0))
        return tuple(estimates)

    def total(self, weights: Floats) -> Estimate:
        """A sum of times."""
        return spread_of((self, weights))(*self.sums(weights))

    def sums(self, weights: Floats) -> tuple[float, Floats]:
        """The same without its interval: the sum, and the sum in each block or replicate."""
        return float(self.value @ weights), self.varied @ weights

    def with_times_of(self, other: Times, where: npt.NDArray[np.bool_]) -> Times:
        """The same with the times of another variant at some batch sizes."""
        return replace(
            self,
            value=np.where(where, other.value, self.value),
            varied=np.where(where, other.varied, self.varied),
            blocks=np.where(where, other.blocks, self.blocks),
        )


def spread_of(*parts: tuple[Times, Floats]) -> Spread:
    """The spread of a sum over times, each with its weights."""
    sizes = np.array([weights * times.value for times, weights in parts])
    blocks = effective_rounds(np.array([times.blocks for times, _ in parts]), sizes)
    return Spread(blocks - 1, float(np.abs(sizes[0]).max()), parts[0][0].replicates)


def rest_of(kind: str, coefficients: Mapping[int, float], batches: Sequence[int]) -> Floats:
    """The rest of the time beside a functional, as weights over the batch sizes of its
    experiment.
    """
    own = [batch for batch in batches if coefficients.get(batch)]
    weights = np.zeros(len(batches))
    if kind == FIXED_COST:  # what a sample costs is best known from the largest batch size that ran
        weights[[batches.index(own[0]), -1]] = -1.0, 1.0
        return weights
    weights[batches.index(own[-1])] = 1.0
    if kind == EXCESS:
        weights -= [coefficients.get(batch, 0.0) for batch in batches]
    return weights


@dataclass(frozen=True)
class Removal:
    """A functional of the unmodified times, and of the changed ones."""

    unmodified: Times
    changed: Times
    weights: Floats  # of the functional, by batch size
    rest: Floats  # of the rest of the time, see `rest_of`
    spread: Spread
    at_one_speed: bool  # whether the speed of the rest is known

    @classmethod
    def of(cls, unmodified: Times, changed: Times, weights: Floats, rest: Floats) -> Removal:
        """The removal, at one speed if that is known."""
        at_one_speed = all(times.total(rest).low > 0 for times in (unmodified, changed))
        spread = spread_of((unmodified, weights), (changed, weights))
        return cls(unmodified, changed, weights, rest, spread, at_one_speed)

    def sides(self) -> tuple[tuple[float, Floats], tuple[float, Floats]]:
        """F and F' at the speed of the unmodified times, each with its value in every block: a line
        around the mean, as of any ratio.

        F stays as it was measured. Divided by the speed of its own block it would have the noise
        of the rest, which is most of it where the anomaly is far longer than the rest.
        """
        f, of_f = self.unmodified.sums(self.weights)
        left, of_left = self.changed.sums(self.weights)
        if self.at_one_speed:
            speed, of_speed = self.unmodified.sums(self.rest)
            own, of_own = self.changed.sums(self.rest)
            left *= speed / own
            noise = left * (of_speed / speed - of_own / own)
            of_left = of_left * speed / own + noise
        return (f, of_f), (left, of_left)

    def estimate_removal(self) -> tuple[Estimate, Estimate]:
        """F − F' at one speed, and its share of F, with an infinite interval where F may be 0."""
        (f, of_f), (left, of_left) = self.sides()
        removed = self.spread(f - left, of_f - of_left)
        return removed, fieller((f - left, f), (of_f - of_left, of_f), self.spread)

    def p_values(
        self, least: float, most: float, claim: float | None = None
    ) -> tuple[float, float]:
        """One-sided p of a share removed of at most `least`, and of one of at least `most`.

        The share is a part of F, or of a cause's claim, in ms.
        """
        (f, of_f), (left, of_left) = self.sides()
        direction = float(np.sign(f if claim is None else claim))
        p_values = []
        for share, sign in ((least, direction), (most, -direction)):
            kept, claimed = (1 - share, 0.0) if claim is None else (1.0, share * claim)
            beyond = kept * f - left - claimed
            test = self.spread(sign * beyond, sign * (kept * of_f - of_left))
            p_values.append(test.p / 2 if test.value > 0 else 1 - test.p / 2)
        first, second = p_values
        return first, second


def pool_spreads(removals: Sequence[Removal]) -> list[Removal]:
    """The removals of several factors in the same starts, with the variance of all where their own
    is smaller.

    A few starts say little of their own variance, and together more.
    """
    if len(removals) < 2 or removals[0].spread.replicates:
        return list(removals)
    errors = []
    for removal in removals:
        (_, of_f), (_, of_left) = removal.sides()
        errors.append(mean_error(of_f - of_left))
    mean = float(np.sqrt(np.mean(np.array(errors) ** 2)))
    freedom = sum(removal.spread.freedom for removal in removals)
    pooled = []
    for removal, error in zip(removals, errors, strict=True):
        spread = replace(removal.spread, freedom=freedom, wider=1.0)
        if error > 0:
            spread = replace(spread, wider=max(1.0, mean / error))
        pooled.append(replace(removal, spread=spread))
    return pooled
