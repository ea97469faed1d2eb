"""Chooses the batch sizes of further rounds, so that rounds go where a verdict is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ..base.errors import CurvescopeError
from ..profiling.measure.stopping import Complete, Further, Look, StoppingRule

if TYPE_CHECKING:
    from ..analysis.diagnosis.result import Diagnosis
    from ..profiling.measure.protocol import Protocol
    from ..profiling.recording.remote_store import AnyPath

# Share of the time limit for rounds over all batch sizes, which the curve and the choice of its anomalies need.
COMPLETE_SHARE = 0.5
# Rounds until the next look at the diagnosis, as a share of those so far: each look at growing data is another chance
# to take noise for an effect, and takes about a second.
_UNTIL_NEXT_LOOK = 0.5
_LEAST_UNTIL_NEXT_LOOK = 3
FURTHER_SHARE = 1 / 3  # of the time for experiments that goes to further rounds while there is no anomaly to test


class Focused(StoppingRule[int]):
    """The stopping rule of a sweep that gives rounds to the largest anomaly, while terms of it are open.

    Half of the time limit goes to complete rounds. After that, rounds visit only the batch sizes of the largest anomaly
    while terms that cannot be distinguished from 0 make a fifth of it or more, else all batch sizes again.

    Where no anomaly is found at the time limit though one may be there, more rounds follow: of the batch sizes where it
    may be, or of all.

    Attributes:
        deciding: label of the anomaly whose batch sizes rounds visit; None for all.
    """

    def __init__(
        self, rule: Complete[int], diagnose: Callable[[], Diagnosis], further_s: float = 0.0, *, fixed: bool = False
    ) -> None:
        """Define the rule.

        Args:
            rule: the limits of the sweep; without a time limit, every round stays complete.
            diagnose: diagnosis of the recording so far.
            further_s: seconds for more rounds at the end.
            fixed: whether every round stays complete, whatever the time limit is.
        """
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self.deciding: str | None = None
        whole = fixed or rule.time_limit_s is None
        self._complete_until_s = math.inf if whole else COMPLETE_SHARE * (rule.time_limit_s or 0.0)
        self._rule = Further(rule, self._wanted_s)
        self._diagnose, self._further_s, self._further = diagnose, further_s, False
        self._next_look = 0
        self._batches: Collection[int] | None = None

    @property
    def further_taken_s(self) -> float:
        """Seconds that the rounds at the end took."""
        return self._rule.taken_s

    def next_round(self, look: Look[int]) -> Sequence[int] | None:
        """The batch sizes that a round visits; None to end the sweep."""
        late = look.round_ >= self.least and look.elapsed_s >= self._complete_until_s
        if late and look.round_ >= self._next_look:
            self._next_look = look.round_ + max(_LEAST_UNTIL_NEXT_LOOK, round(_UNTIL_NEXT_LOOK * look.round_))
            self._batches = self._open()
        return self._rule.next_round(look if self._batches is None else look.of(self._batches))

    def _wanted_s(self, round_: int) -> float:
        """Seconds of more rounds, if a curve without an anomaly may have one that they would show."""
        if math.isinf(self._complete_until_s) or not self._further_s:
            return 0.0
        self._further = True
        self._batches, self._next_look = self._open(), round_ + max(_LEAST_UNTIL_NEXT_LOOK, round_)
        return 0.0 if self._batches is None else self._further_s

    def _open(self) -> Collection[int] | None:
        from ..analysis.diagnosis.split import open_finding
        from .plan import open_terms

        self.deciding = None
        try:
            diagnosis = self._diagnose()
        except CurvescopeError:  # e.g. no batch size has two rounds yet: a complete round is right for it
            return None
        if self._further:
            finding = open_finding(diagnosis)
            functional = finding.tested if finding else None
        else:
            functional = diagnosis.explanations[0].functional if open_terms(diagnosis) else None
        if functional is None:
            return None
        self.deciding = functional.label
        return frozenset(functional.conditions)


def focused(protocol: Protocol, path: AnyPath, further_s: float) -> Focused:
    """The rule of a sweep with a protocol.

    Rounds stay complete for a published protocol, whose number of rounds is fixed, and for `until`, which asks every
    batch size to be precise.

    Args:
        protocol: protocol of the sweep.
        path: folder of the recording.
        further_s: seconds for more rounds at the end, where an anomaly may be there.
    """
    from ..analysis.diagnosis.explain import explain
    from ..profiling.recording.store import open_recording

    fixed = protocol.until is not None or protocol.is_fixed
    return Focused(Complete.of(protocol), lambda: explain(open_recording(path)), further_s, fixed=fixed)
