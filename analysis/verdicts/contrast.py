"""What a factor removes of a functional, with its interval: from starts of processes, or from
rounds of one process.

A functional F is compared at one speed. A change that makes every batch size faster alike makes F
smaller and removes nothing of it, so F' is multiplied by what that change does to the rest of the
time:

- of an excess, to the proportional cost; of a bend, to the time of the largest batch size in it;
- of a fixed cost, to what a sample costs; where that is not known, the step is nearly all fixed
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
        each = zip(self.value, self.varied.T, self.blocks, strict=True)
        if self.replicates:
            return tuple(
                time_estimate(float(time), varied, blocks) for time, varied, blocks in each
            )
        estimates = []
        for time, of_blocks, blocks in each:
            log = block_estimate(0.0, mean_error(np.log(of_blocks)), blocks - 1.0, 1.0)
            low, high = float(np.exp(log.low)), float(np.exp(min(log.high, LARGEST_LOG)))
            estimates.append(Estimate(float(time), low * float(time), high * float(time), 0.0))
        return tuple(estimates)

    def total(self, weights: Floats) -> Estimate:
        """A sum of times."""
        return spread_of((self, weights))(*self.sums(weights))

    def sums(self, weights: Floats) -> tuple[float, Floats]:
        """The same without its interval: its value, and that in each block or replicate."""
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
    return (
        weights - [coefficients.get(batch, 0.0) for batch in batches] if kind == EXCESS else weights
    )


@dataclass(frozen=True)
class Removal:
    """A functional of the unmodified times, and that of the changed ones."""

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
        """F and F' at the speed of the unmodified times, each with what it is in every block: a
        line around the mean, as of any ratio.

        F stays as it was measured. Divided by the speed of its own block it would have the noise
        of the rest, which is most of it where the anomaly is far longer than the rest.
        """
        f, of_f = self.unmodified.sums(self.weights)
        left, of_left = self.changed.sums(self.weights)
        if self.at_one_speed:
            speed, of_speed = self.unmodified.sums(self.rest)
            own, of_own = self.changed.sums(self.rest)
            left *= speed / own
            of_left = of_left * speed / own + left * (of_speed / speed - of_own / own)
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

        The share is one of F, or of what a cause claims, in ms.
        """
        (f, of_f), (left, of_left) = self.sides()
        direction = float(np.sign(f if claim is None else claim))
        tests = []
        for share, sign in ((least, direction), (most, -direction)):
            kept = share if claim is None else 0.0
            beyond = (1 - kept) * f - left - (0.0 if claim is None else share * claim)
            tests.append(self.spread(sign * beyond, sign * ((1 - kept) * of_f - of_left)))
        first, second = (test.p / 2 if test.value > 0 else 1 - test.p / 2 for test in tests)
        return first, second


def pool_spreads(removals: Sequence[Removal]) -> list[Removal]:
    """The removals of several factors in the same starts, with the variance of all where their own
    is smaller.

    A few starts say little of their own variance, and together more.
    """
    if len(removals) < 2 or removals[0].spread.replicates:
        return list(removals)
    sides = [removal.sides() for removal in removals]
    errors = np.array([mean_error(of_f - of_left) for (_, of_f), (_, of_left) in sides])
    mean = float(np.sqrt(np.mean(errors**2)))
    freedom = sum(removal.spread.freedom for removal in removals)
    spreads = (
        replace(removal.spread, freedom=freedom, wider=max(1.0, mean / error) if error > 0 else 1.0)
        for removal, error in zip(removals, errors, strict=True)
    )
    return [
        replace(removal, spread=spread) for removal, spread in zip(removals, spreads, strict=True)
    ]
