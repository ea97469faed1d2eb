"""How long a run in rounds of visits has taken, and how long it will."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from .protocol import Protocol

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands, for a progress bar: seconds passed and expected in all, and what runs now."""

    elapsed_s: float
    expected_s: float
    doing: str


class Pace(Generic[K]):
    """What the visits of a run cost, by what they measure: the last of each says what the next one will.

    Attributes:
        elapsed_s: of the run, when the last visit ended.
    """

    def __init__(
        self, protocol: Protocol, elapsed_s: float = 0.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the clock.

        Args:
            protocol: whose time limit and least rounds count.
            elapsed_s: what an earlier start of the same run took.
            clock_s: the clock.
        """
        self.elapsed_s = elapsed_s
        self._clock_s = clock_s
        self._began_s = clock_s() - elapsed_s
        self._least_rounds, self._limit_s = protocol.rounds[0], protocol.time_limit_s
        self._visit_s: dict[K, float] = {}

    @contextmanager
    def visit(self, what: K) -> Iterator[None]:
        """Time the visit that the block makes."""
        began_s = self._clock_s()
        yield
        now_s = self._clock_s()
        self._visit_s[what], self.elapsed_s = now_s - began_s, now_s - self._began_s

    def has_time_for(self, visits: Iterable[K]) -> bool:
        """Whether these would end within the time limit."""
        return self._limit_s is None or self._clock_s() - self._began_s + self._cost_s(visits) <= self._limit_s

    def progress(self, left: Iterable[K], repeat: int, doing: str) -> Progress:
        """Where the run stands.

        Args:
            left: visits that are left of this round.
            repeat: its number, from 0.
            doing: what runs now.
        """
        rounds_left = self._least_rounds - repeat - 1
        left_s = self._cost_s(left) + self._cost_s(self._visit_s) * rounds_left
        return Progress(self.elapsed_s, max(self.elapsed_s + left_s, self._limit_s or 0.0), doing)

    def _cost_s(self, visits: Iterable[K]) -> float:
        return sum(self._visit_s.get(what, 0.0) for what in visits)
