"""Chooses the batch sizes of further rounds, so that rounds go where a verdict is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..base.errors import CurvescopeError

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


class OpenTerms:
    """The focus of a sweep: the largest anomaly's batch sizes, as long as terms of it cannot be distinguished from 0.

    Half of the time limit goes to complete rounds. After that, rounds visit only the batch sizes of the largest anomaly
    while terms that cannot be distinguished from 0 make a fifth of it or more, else all batch sizes again.

    Where no anomaly is found at the time limit though one may be there, `further` asks for more rounds: of the batch
    sizes where it may be, or of all.
    """

    def __init__(self, diagnose: Callable[[], Diagnosis], time_limit_s: float | None) -> None:
        """Define the focus.

        Args:
            diagnose: diagnosis of the recording so far.
            time_limit_s: time limit of the sweep; None keeps every round complete.
        """
        self._diagnose = diagnose
        self._complete_until_s = math.inf if time_limit_s is None else COMPLETE_SHARE * time_limit_s
        self._next_look = 0
        self._batches: Collection[int] | None = None
        self._further = False
        self.deciding: str | None = None  # label of the anomaly whose batch sizes rounds visit

    def __call__(self, round_: int, elapsed_s: float) -> Collection[int] | None:
        """Batch sizes that a round visits; None for all.

        Args:
            round_: number of the round, from 0.
            elapsed_s: seconds since the sweep began.
        """
        if elapsed_s < self._complete_until_s:
            return None
        if round_ >= self._next_look:
            self._next_look = round_ + max(_LEAST_UNTIL_NEXT_LOOK, round(_UNTIL_NEXT_LOOK * round_))
            self._batches = self._open()
        return self._batches

    def further(self, round_: int) -> bool:
        """Whether a curve without an anomaly may have one that more rounds would show; asked at the end of a sweep.

        Args:
            round_: number of rounds so far.
        """
        if math.isinf(self._complete_until_s):
            return False
        self._further = True
        self._batches, self._next_look = self._open(), round_ + max(_LEAST_UNTIL_NEXT_LOOK, round_)
        return self._batches is not None

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


def focus_of(protocol: Protocol, path: AnyPath) -> OpenTerms:
    """The focus of a sweep with a protocol, see `run_sweep`.

    Rounds stay complete for a published protocol, whose number of rounds is fixed, and for `until`, which asks every
    batch size to be precise.

    Args:
        protocol: protocol of the sweep.
        path: folder of the recording.
    """
    from ..analysis.diagnosis.explain import explain
    from ..profiling.recording.store import open_recording

    fixed = protocol.until is not None or protocol.rounds[0] == protocol.rounds[1]
    return OpenTerms(lambda: explain(open_recording(path)), None if fixed else protocol.time_limit_s)
