"""Stopping rules: before each round, a rule names the conditions that the round visits, or ends the
run.

A rule may wrap another one: `Until(Complete.of(protocol), precise)` makes complete rounds until the
steps are precise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from ..recording.disturbed import most_disturbed
from .protocol import Protocol
from .visits import Condition, Look, StepRow


@dataclass(kw_only=True)
class StoppingRule(ABC, Generic[Condition]):
    """What the rounds of a run visit, and when it ends."""

    least: int  # number of rounds
    time_limit_s: float | None  # expected seconds of the run; None without a limit

    @abstractmethod
    def next_round(self, look: Look[Condition]) -> Sequence[Condition] | None:
        """The conditions that a round visits, in their order; None to end the run."""

    @property
    def longest_s(self) -> float | None:
        """Seconds that the run takes at most; None where rounds are made whatever they take."""
        return None

    @property
    def allows(self) -> str | None:
        """What the time allows of the run, as a clause; None while it is unknown."""
        return None

    def fits(self, condition: Condition) -> bool:  # noqa: ARG002 - a rule with a limit looks at it
        """Whether a visit of a chosen condition still fits the time; asked right before it."""
        return True


class Complete(StoppingRule[Condition]):
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
        self.most = rounds[1]
        self._deadline_s = deadline_s

    @classmethod
    def of(cls, protocol: Protocol) -> Complete[Condition]:
        """The rounds of a protocol."""
        return cls(protocol.rounds, protocol.time_limit_s)

    def next_round(self, look: Look[Condition]) -> Sequence[Condition] | None:
        """All conditions, within the limits."""
        limit_s = self.time_limit_s if look.round_ >= self.least else None
        ends_s = min(
            (end_s for end_s in (limit_s, self._deadline_s) if end_s is not None), default=math.inf
        )
        return None if look.end_s > ends_s or self._enough(look) else look.conditions

    def _enough(self, look: Look[Condition]) -> bool:
        """Whether the maximum number of rounds is made, and one more for each disturbed visit of a
        condition.
        """
        if self.most is None or look.round_ < self.most:
            return False
        more = 0 if self.least == self.most else most_disturbed(look.rows())
        return look.round_ >= self.most + min(more, self.most)


class Until(StoppingRule[Condition]):
    """The rounds of another rule, until the rows so far are enough."""

    def __init__(
        self, rule: StoppingRule[Condition], enough: Callable[[Sequence[StepRow]], bool]
    ) -> None:
        """Define the rule; whether the rows are enough is asked after each round from the minimum
        on.
        """
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self._rule = rule
        self._enough = enough

    def next_round(self, look: Look[Condition]) -> Sequence[Condition] | None:
        """What the other rule names; None if the rows are enough."""
        chosen = self._rule.next_round(look)
        self.time_limit_s = self._rule.time_limit_s  # shorter where all steps are fast
        if chosen and look.round_ >= self.least and self._enough(look.rows()):
            return None
        return chosen
