"""What screens of a term suggest: the factors that are worth fresh rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ..analysis import causes
from ..analysis.verdicts.outcome import Outcome
from ..analysis.verdicts.rule import LARGE_SAVING, LEVELLED
from ..analysis.verdicts.words import Verdict
from ..profiling.recording.experiments import Scope, Stage

_PROMISING = 0.4  # least share that a factor removes in a screen
_NEAR_BEST = 0.7  # least share that it removes there, as a part of what the best factor does
_MOST_CONFIRMED = 4  # factors of one experiment on fresh rounds


def promising(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The factors that a screen suggests and that have not run on fresh rounds.

    First those that may remove the anomaly, the best first, unless one is confirmed; without those
    that remove much less than the best one, which come if that one fails. Then those that make the
    term much faster.
    """
    fresh = {outcome.factor for outcome in outcomes if outcome.experiment.stage == Stage.CONFIRM}
    # Splitting removes most anomalies: it rules no other factor out.
    telling = {
        name
        for name, cause in causes.factors(Scope.TERM).items()
        if cause not in causes.LAST_OF_CONFIRMED
    }
    proven = is_confirmed(outcome for outcome in outcomes if outcome.factor in telling)
    suspected, helping = {}, {}
    for outcome in outcomes:
        if (
            outcome.experiment.stage != Stage.SCREEN
            or outcome.factor is None
            or outcome.factor in fresh
            or outcome.taken is None
        ):
            continue
        if (
            outcome.taken.value >= _PROMISING
            and outcome.verdict != Verdict.REFUTED
            and outcome.reason != LEVELLED
            and not proven
        ):
            suspected[outcome.factor] = min(outcome.taken.value, 1.0)
        gain = outcome.gain
        if (
            gain
            and gain.low > 0
            and gain.value >= LARGE_SAVING
            and outcome.facts is not None
            and outcome.facts.remedy
        ):
            helping[outcome.factor] = gain.value
    best = max((worth for name, worth in suspected.items() if name in telling), default=0.0)
    likely = {name: worth for name, worth in suspected.items() if worth >= _NEAR_BEST * best}
    first, then = (
        sorted(amounts, key=lambda name: (-amounts[name], name)) for amounts in (likely, helping)
    )
    return most_promising(first, then)


def is_confirmed(judged: Iterable[Outcome | causes.CauseTotal]) -> bool:
    """Whether an experiment confirmed one of some factors, or of some causes."""
    return any(outcome.verdict == Verdict.CONFIRMED for outcome in judged)


def most_promising(*names: Sequence[str]) -> tuple[str, ...]:
    """The first of some lists of factors, as many as one experiment on fresh rounds takes."""
    return tuple(dict.fromkeys(chain.from_iterable(names)))[:_MOST_CONFIRMED]
