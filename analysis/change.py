"""A time compared with another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .decompose.statistics import LEVEL, holm

# p of a growth that ends a run of versions while the interval is wide: many looks at few processes
# find some growth by chance (docs/internals/method.md).
_SURE = 0.001
# half-width of an interval, as a share of a limit, at which the estimate says on which side a
# growth is
_PRECISE = 0.6


@dataclass(frozen=True)
class Change:
    """A time compared with the base's."""

    speedup: float  # time of the base over this time; above 1 is faster
    low: float  # lower end of its 95 % interval; infinite if unknown
    high: float  # upper end; infinite if unknown
    p_adjusted: float  # p of no change, adjusted over the family; 1 if unknown
    # whether it is significant: the interval and the adjusted p exclude no change
    real: bool = field(init=False)

    def __post_init__(self) -> None:
        excludes_one = not self.low <= 1 <= self.high
        object.__setattr__(self, "real", self.p_adjusted < LEVEL and excludes_one)

    @property
    def growth(self) -> float:
        """Relative increase of the time over the base's; below 0 is faster."""
        return 1 / self.speedup - 1

    @property
    def bounds_of_growth(self) -> tuple[float, float]:
        """The ends of its 95 % interval; infinite if unknown."""
        most = 1 / self.low - 1 if self.low > 0 else np.inf
        return 1 / self.high - 1, most

    def decides(self, over: float) -> bool:
        """Whether the growth is known well enough to say that it is over a share, or not."""
        low, high = self.bounds_of_growth
        is_over = low > over and self.p_adjusted < _SURE
        is_precise = high - low < 2 * _PRECISE * over
        return is_over or high < over or is_precise


def adjust_changes(changes: Sequence[Change | None]) -> Iterator[Change | None]:
    """Adjust p of the changes over all of them (Holm); they come in their order."""
    p_values = iter(holm([change.p_adjusted for change in changes if change is not None]))
    for change in changes:
        yield None if change is None else replace(change, p_adjusted=next(p_values))
