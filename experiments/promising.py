"""The factors that are worth fresh rounds, as screens of a term suggest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ..analysis import causes
from ..analysis.verdicts.outcome import Outcome
from ..analysis.verdicts.rule import LARGE_SAVING, LEVELLED
from ..analysis.verdicts.words import Verdict
from ..profiling.recording.experiments import Scope, Stage

if TYPE_CHECKING:
    from ..analysis.decompose.statistics import Estimate

_PROMISING = 0.4  # least share that a factor removes in a screen
_NEAR_BEST = 0.7  # least share that it removes there, as a part of what the best factor does
_MOST_CONFIRMED = 4  # factors of one experiment on fresh rounds


def promising(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The factors that a screen suggests and that have not run on fresh rounds.

    Factors that may remove the anomaly come first, the best first, unless one is confirmed. They
    remove nearly as much as the best: the others come if that one fails. Then come the factors that
    make the term much faster.
    """
    fresh = {outcome.factor for outcome in outcomes if outcome.experiment.stage == Stage.CONFIRM}
    # Splitting removes most anomalies: it rules no other factor out.
    tested = causes.factors(Scope.TERM).items()
    telling = {name for name, cause in tested if cause not in causes.LAST_OF_CONFIRMED}
    proven = is_confirmed(outcome for outcome in outcomes if outcome.factor in telling)
    suspected, helping = {}, {}
    for outcome in outcomes:
        name, taken = outcome.factor, outcome.taken
        if outcome.experiment.stage != Stage.SCREEN or taken is None:
            continue
        if name is None or name in fresh:
            continue
        if not proven and _may_remove(outcome, taken):
            suspected[name] = min(taken.value, 1.0)
        if outcome.gain and _helps(outcome, outcome.gain):
            helping[name] = outcome.gain.value
    best = max((worth for name, worth in suspected.items() if name in telling), default=0.0)
    likely = {name: worth for name, worth in suspected.items() if worth >= _NEAR_BEST * best}
    return most_promising(_best_first(likely), _best_first(helping))


def _may_remove(outcome: Outcome, taken: Estimate) -> bool:
    """Whether a factor may remove the anomaly: it took so much in a screen."""
    refuted = outcome.verdict == Verdict.REFUTED or outcome.reason == LEVELLED
    return taken.value >= _PROMISING and not refuted


def _helps(outcome: Outcome, gain: Estimate) -> bool:
    is_remedy = outcome.facts is not None and outcome.facts.remedy is not None
    return is_remedy and gain.low > 0 and gain.value >= LARGE_SAVING


def _best_first(amounts: dict[str, float]) -> list[str]:
    return sorted(amounts, key=lambda name: (-amounts[name], name))


def is_confirmed(judged: Iterable[Outcome | causes.CauseTotal]) -> bool:
    """Whether an experiment confirmed one of some factors, or of some causes."""
    return any(outcome.verdict == Verdict.CONFIRMED for outcome in judged)


def most_promising(*names: Sequence[str]) -> tuple[str, ...]:
    """The first of some lists of factors, as many as one experiment on fresh rounds takes."""
    unique = dict.fromkeys(chain.from_iterable(names))
    return tuple(unique)[:_MOST_CONFIRMED]
