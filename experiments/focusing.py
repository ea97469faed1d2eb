"""The end of a sweep's rounds, and the batch sizes of the last ones: rounds go where a verdict is
open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.arguments import FAST_STEP_NS
from ..base.errors import CurvescopeError
from ..profiling.measure.stopping import Complete, StoppingRule
from ..profiling.measure.visits import Look, StepRow

if TYPE_CHECKING:
    from ..analysis.decompose.curve import Curve
    from ..analysis.decompose.findings import Finding
    from ..analysis.diagnosis.result import Diagnosis
    from ..profiling.measure.protocol import Protocol
    from ..profiling.recording.remote_store import AnyPath

# Rounds until the next look, as a share of those so far: each look at growing data is another
# chance to take noise for an effect, and takes up to a second.
_UNTIL_NEXT_LOOK = 0.5
_LEAST_UNTIL_NEXT_LOOK = 3


class Focused(StoppingRule[int]):
    """The stopping rule of a sweep whose rounds end when no open verdict can be decided in the
    time.

    While a functional of the curve is open, rounds visit all batch sizes. After that they visit
    only the sizes of the largest anomaly, whose label is `deciding`. They do so while terms that
    cannot be distinguished from 0 make a fifth of it or more. What further rounds are not expected
    to decide is not open, see `findings.decidable`.
    """

    def __init__(
        self,
        rule: Complete[int],
        curve_of: Callable[[Sequence[StepRow]], tuple[Curve, Sequence[Finding]]],
        diagnose: Callable[[], Diagnosis],
        fast_s: float = math.inf,
    ) -> None:
        """Take the limits of the sweep, and how to get the curve and the diagnosis so far.

        `fast_s` is the time limit where all steps are fast, seconds.
        """
        super().__init__(least=rule.least, time_limit_s=rule.time_limit_s)
        self.deciding: str | None = None
        self._rule, self._curve_of, self._diagnose, self._fast_s = rule, curve_of, diagnose, fast_s
        self._next_look = 0
        self._batches: Collection[int] | None = None

    def next_round(self, look: Look[int]) -> Sequence[int] | None:
        """The batch sizes that a round visits; None to end the sweep."""
        if look.round_ >= self.least and look.round_ >= self._next_look:
            self._next_look = look.round_ + max(
                _LEAST_UNTIL_NEXT_LOOK, round(_UNTIL_NEXT_LOOK * look.round_)
            )
            if all_fast(look.rows()):
                self.time_limit_s = min(self._fast_s, self.time_limit_s or math.inf)
                self._rule.time_limit_s = self.time_limit_s
            self._batches = self._open(look)
        if self._batches is None:
            return self._rule.next_round(look)
        return self._rule.next_round(look.of(self._batches)) if self._batches else None

    def _open(self, look: Look[int]) -> Collection[int] | None:
        """The batch sizes that further rounds visit: None for all, and none to end."""
        from ..analysis.decompose.findings import decidable, list_undecided
        from .plan import open_terms

        self.deciding = None
        try:
            if list_undecided(*self._curve_of(look.rows()), self._more(look)):
                return None
            diagnosis = self._diagnose()
        except (
            CurvescopeError
        ):  # e.g. no batch size has two rounds yet: a complete round is right for it
            return None
        if not diagnosis.explanations:
            return ()
        functional = diagnosis.explanations[0].functional
        more = self._more(look.of(functional.conditions))
        if not any(decidable(share.value, more) for share in open_terms(diagnosis)):
            return ()
        self.deciding = functional.label
        return frozenset(functional.conditions)

    def _more(self, look: Look[int]) -> float:
        """Rounds over the conditions at the time limit, as a factor on those so far."""
        most = math.inf if self._rule.most is None else self._rule.most / look.round_
        round_s = look.end_s - look.elapsed_s
        left_s = (
            math.inf if self.time_limit_s is None else max(self.time_limit_s - look.elapsed_s, 0.0)
        )
        return min(1 + left_s / max(round_s, 1e-9) / look.round_, max(most, 1.0))


def all_fast(rows: Sequence[StepRow]) -> bool:
    """Whether every batch size has a step that is fast."""
    fastest: dict[int, int] = {}
    for row in rows:
        if not row["profiled"]:
            fastest[row["batch"]] = min(
                row["duration_ns"], fastest.get(row["batch"], row["duration_ns"])
            )
    return bool(fastest) and max(fastest.values()) < FAST_STEP_NS


def choose_rule(protocol: Protocol, path: AnyPath, fast_s: float = math.inf) -> StoppingRule[int]:
    """The rule of a sweep with a protocol, with a time limit in seconds where all steps are fast.

    Rounds stay complete for a published protocol, whose number is fixed, and for `until`, which is
    about every size.
    """
    import pandas as pd

    from ..analysis.decompose.curve import cost_curve
    from ..analysis.decompose.findings import find
    from ..analysis.diagnosis.explain import explain
    from ..profiling.recording.probes import jumps_of
    from ..profiling.recording.store import open_recording

    def curve_of(rows: Sequence[StepRow]) -> tuple[Curve, Sequence[Finding]]:
        curve = cost_curve(pd.DataFrame(rows), protocol.statistic)
        curve = replace(curve, jumps=jumps_of(open_recording(path).meta))
        return curve, find(curve, late=True)

    rule: Complete[int] = Complete.of(protocol)
    if protocol.until is not None or protocol.is_fixed:
        return rule
    return Focused(rule, curve_of, lambda: explain(open_recording(path)), fast_s)
