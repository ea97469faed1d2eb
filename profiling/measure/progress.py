"""How long a run in rounds of visits has taken, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands, for a progress bar: seconds passed and expected in all, and what runs now."""

    elapsed_s: float
    expected_s: float
    doing: str


class Pace(Generic[K]):
    """Costs of the visits of a run, by condition: the last visit of each says what the next one will cost.

    Attributes:
        elapsed_s: seconds that the run had taken when its last visit ended.
    """

    def __init__(
        self,
        least_rounds: int,
        limit_s: float | None,
        elapsed_s: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock.

        Args:
            least_rounds: rounds that are run whatever they take.
            limit_s: time limit of the run; None for none.
            elapsed_s: seconds that earlier starts of the same run took.
            clock_s: the clock.
        """
        self.elapsed_s, self._clock_s = elapsed_s, clock_s
        self._began_s = clock_s() - elapsed_s
        self._least_rounds, self._limit_s = least_rounds, limit_s
        self._visit_s: dict[K, float] = {}

    @contextmanager
    def visit(self, condition: K) -> Iterator[None]:
        """Time the visit that the block makes."""
        began_s = self._clock_s()
        yield
        now_s = self._clock_s()
        self._visit_s[condition], self.elapsed_s = now_s - began_s, now_s - self._began_s

    def has_time_for(self, conditions: Iterable[K]) -> bool:
        """Whether a visit of each would end within the time limit."""
        return self._limit_s is None or self._clock_s() - self._began_s + self._cost_s(conditions) <= self._limit_s

    def progress(self, left: Iterable[K], round_: int, doing: str) -> Progress:
        """Time passed and expected.

        Args:
            left: conditions that are left of this round.
            round_: number of the round, from 0.
            doing: name of what runs now.
        """
        rounds_left = self._least_rounds - round_ - 1
        left_s = self._cost_s(left) + self._cost_s(self._visit_s) * rounds_left
        return Progress(self.elapsed_s, max(self.elapsed_s + left_s, self._limit_s or 0.0), doing)

    def _cost_s(self, conditions: Iterable[K]) -> float:
        return sum(self._visit_s.get(condition, 0.0) for condition in conditions)
