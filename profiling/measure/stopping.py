"""Stopping rules: before each round, a rule names the conditions that the round visits, or ends the
run.

A rule may wrap another one: `Until(Complete.of(protocol), precise)` makes complete rounds until the
steps are precise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ..recording.disturbed import most_disturbed
from .protocol import Protocol

C = TypeVar("C", bound=Hashable)
StepRow = dict[str, Any]  # a row of the `steps` table


@dataclass(frozen=True, kw_only=True)
class Look(Generic[C]):
    """The state of a run before a round."""

    round_: int  # from 0
    elapsed_s: float  # since the run began
    conditions: Sequence[C]  # that need a visit, in the order of the round
    visit_s: Mapping[C, float]  # of the last visit of each condition, which predicts the next
    rows: Callable[[], Sequence[StepRow]]  # of all steps so far

    @property
    def end_s(self) -> float:
        """Seconds at which a round over the conditions is expected to end."""
        return self.elapsed_s + sum(
            self.visit_s.get(condition, 0.0) for condition in self.conditions
        )

    def of(self, chosen: Collection[C]) -> Look[C]:
        """The same state for a round over some of the conditions."""
        return replace(
            self, conditions=[condition for condition in self.conditions if condition in chosen]
        )


@dataclass(kw_only=True)
class StoppingRule(ABC, Generic[C]):
    """What the rounds of a run visit, and when it ends."""

    least: int  # number of rounds
    time_limit_s: float | None  # expected seconds of the run; None without a limit

    @abstractmethod
    def next_round(self, look: Look[C]) -> Sequence[C] | None:
        """The conditions that a round visits, in their order; None to end the run."""

    @property
    def longest_s(self) -> float | None:
        """Seconds that the run takes at most; None where rounds are made whatever they take."""
        return None

    @property
    def allows(self) -> str | None:
        """What the time allows of the run, as a clause; None while it is unknown."""
        return None

    def fits(self, condition: C) -> bool:  # noqa: ARG002 - a rule with a limit looks at it
        """Whether a visit of a chosen condition still fits the time; asked right before it."""
        return True


class Complete(StoppingRule[C]):
    """Rounds over all conditions.

    Unless their number is fixed, further rounds, up to twice as many, replace disturbed visits
    within the time.
    """

    def __init__(
        self,
        rounds: tuple[int, int | None],
        time_limit_s: float | None = None,
        deadline_s: float | None = None,
    ) -> None:
        """Define the rule, by the minimum and maximum number of rounds; None for as many as
        conditions need.

        After the minimum, a round starts only if it is expected to end within the time limit; any,
        within the deadline.
        """
        super().__init__(least=rounds[0], time_limit_s=time_limit_s)
        self.most, self._deadline_s = rounds[1], deadline_s

    @classmethod
    def of(cls, protocol: Protocol) -> Complete[C]:
        """The rounds of a protocol."""
        return cls(protocol.rounds, protocol.time_limit_s)

    def next_round(self, look: Look[C]) -> Sequence[C] | None:
        """All conditions, within the limits."""
        limit_s = self.time_limit_s if look.round_ >= self.least else None
        ends_s = min(
            (end_s for end_s in (limit_s, self._deadline_s) if end_s is not None), default=math.inf
        )
        return None if look.end_s > ends_s or self._enough(look) else look.conditions

    def _enough(self, look: Look[C]) -> bool:
        """Whether the maximum number of rounds is made, and one more for each disturbed visit of a
        condition.
        """
        if self.most is None or look.round_ < self.most:
            return False
        more = 0 if self.least == self.most else most_disturbed(look.rows())
        return look.round_ >= self.most + min(more, self.most)


class Until(StoppingRule[C]):
    """The rounds of another rule, until the rows so far are enough."""

    def __init__(self, rule: StoppingRule[C], enough: Callable[[Sequence[StepRow]], bool]) -> None:
        """Define the rule; whether the rows are enough is asked after each round from the minimum
        on.
        """
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self._rule, self._enough = rule, enough

    def next_round(self, look: Look[C]) -> Sequence[C] | None:
        """What the other rule names; None if the rows are enough."""
        chosen = self._rule.next_round(look)
        self.time_limit_s = self._rule.time_limit_s  # shorter where all steps are fast
        return (
            None if chosen and look.round_ >= self.least and self._enough(look.rows()) else chosen
        )
