"""What changes of complete steps save, in isolation and together, and which batch size has the most
throughput.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...profiling.recording.experiments import Scope, pad
from ...profiling.recording.store import STEP
from ..causes import factors
from ..decompose.curve import UNKNOWN, Curve
from ..decompose.functionals import Condition
from ..verdicts.outcome import Outcome
from ..verdicts.rule import LEAST_SAVING, decide_saving, refutes_padding
from ..verdicts.savings import Saving, savings
from ..verdicts.words import Verdict

_WEIGHTS = "{weights}"  # in instructions, for a list of names
_FEW_NAMES = 4
_UNKNOWN = (
    "[…]  # the parameters that it multiplies by; where weights are tied, that of the embedding"
)
_PRECISE = 1.2  # upper end of a time's interval over the time, beyond which nothing is said
_NEAR = 0.95  # of the largest throughput that was measured


@dataclass(frozen=True)
class Remedies:
    """The changes tried on complete steps, and their savings."""

    # one per change, what saves most at the largest batch size first, untested ones last
    savings: tuple[Saving, ...] = ()
    sets: tuple[Saving, ...] = ()  # the same for changes that were made together

    @cached_property
    def helping(self) -> tuple[Saving, ...]:
        """The changes with a proven saving, first what saves most at the largest batch size; none
        that only avoids the waits for a core of a machine with other work.
        """
        return tuple(saving for saving in self._proven if not saving.beside_work)

    @cached_property
    def beside_work(self) -> tuple[Saving, ...]:
        """The changes with a proven saving while other work runs, and perhaps only then."""
        return tuple(saving for saving in self._proven if saving.beside_work)

    @property
    def _proven(self) -> tuple[Saving, ...]:
        return tuple(saving for saving in self.savings if saving.verdict == Verdict.CONFIRMED)

    @cached_property
    def attempts(self) -> tuple[Saving, ...]:
        """The changes that ran."""
        return tuple(saving for saving in self.savings if saving.verdict != Verdict.UNTESTED)

    @cached_property
    def together(self) -> Saving | None:
        """Changes that all help, and save more together than any one of them; None without such a
        set, proven.
        """
        helping = {remedy.factor for remedy in self.helping}
        proven = []
        for remedy in self.sets:
            if remedy.verdict == Verdict.CONFIRMED and helping.issuperset(remedy.members):
                proven.append(remedy)
        best = max(proven, key=lambda remedy: remedy.leading, default=None)
        if best is None:
            return None
        batch, share = best.leading
        alone = (remedy.leading for remedy in self.helping if not remedy.changed_results)
        if any(leading > (batch, share - LEAST_SAVING) for leading in alone):
            return None
        return best

    @cached_property
    def best(self) -> Saving | None:
        """What saves most at the largest batch size without changing results, else what saves most
        there; None if nothing is proven to save.
        """
        if self.together is not None:
            return self.together
        exact = [remedy for remedy in self.helping if not remedy.changed_results]
        return max(exact or self.helping, key=lambda remedy: remedy.leading, default=None)


def find_remedies(
    outcomes: Iterable[Outcome],
    weights: Sequence[str] = (),
    times_ms: Mapping[Condition, float] | None = None,
) -> Remedies:
    """The plan of remedies from all experiments; `weights` are parameters that the products of a
    step multiply by, and `times_ms` the times of the sweep.
    """
    alone, sets = [], []
    for saving in savings(outcomes):
        if saving.facts:
            how = insert_names(saving.facts.how, weights)
            saving = replace(saving, facts=replace(saving.facts, how=how))
        saving = _without_refuted(saving, times_ms or {})
        if len(saving.members) == 1:
            alone.append(saving)
        else:
            sets.append(saving)
    return Remedies(tuple(alone), tuple(sets))


def _without_refuted(saving: Saving, times_ms: Mapping[Condition, float]) -> Saving:
    """A saving without sizes that are padded to themselves, or to one that the sweep measured as no
    faster.
    """
    if saving.multiple is None:
        return saving
    proven = []
    for batch in saving.proven:
        to = pad(batch, saving.multiple)
        known = batch in times_ms and to in times_ms
        slower = known and refutes_padding(times_ms[batch], times_ms[to], LEAST_SAVING)
        if to > batch and not slower:
            proven.append(batch)
    verdict = decide_saving([gain for _, gain in saving.gains], proven)
    return replace(saving, proven=tuple(proven), verdict=verdict)


def insert_names(how: str | None, weights: Sequence[str]) -> str | None:
    """Instructions with the names of the parameters, if these are known, in the place of
    `{weights}`.
    """
    if how is None or _WEIGHTS not in how:
        return how
    if len(weights) <= _FEW_NAMES:
        names = repr(list(weights)) if weights else _UNKNOWN
    else:
        last_parts = [name.split(".")[-2:] for name in weights]
        ends = tuple(dict.fromkeys(map(".".join, last_parts)))
        names = f"[name for name, _ in model.named_parameters() if name.endswith({ends!r})]"
    return how.replace(_WEIGHTS, names)


def cause_of(saving: Saving) -> str | None:
    """The cause that a change removes; None if it tests none, or for several changes."""
    return factors(Scope.STEP).get(saving.factor)


@dataclass(frozen=True)
class Throughput:
    """Samples per second over batch sizes."""

    batch: int  # the smallest batch size within 5 % of the best throughput
    per_s: float  # samples per second there
    best: int  # the batch size with the best throughput
    best_per_s: float
    grows: bool  # whether the throughput still grows by more than 5 % at the largest batch size


def throughput_of(curve: Curve) -> Throughput | None:
    """The throughput of a curve; None without steps of two batch sizes, or with times that are
    hardly known.
    """
    if curve.unit != STEP:
        return None
    per_s = {}
    for point in curve.points:
        if point.condition == UNKNOWN:
            continue
        time_ms = point.time_ms
        if time_ms.high > _PRECISE * time_ms.value:
            return None
        per_s[int(point.condition)] = 1e3 * point.condition / time_ms.value
    if len(per_s) < 2:
        return None
    best = max(per_s, key=lambda batch: per_s[batch])
    least = _NEAR * per_s[best]
    enough = next(batch for batch in sorted(per_s) if per_s[batch] >= least)
    return Throughput(enough, per_s[enough], best, per_s[best], enough == max(per_s))
