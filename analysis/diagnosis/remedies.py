"""The plan of remedies: what changes of complete steps save, in isolation and together, and at which batch sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...profiling.recording.experiments import Scope
from ..causes import factors
from ..verdicts.outcome import Outcome
from ..verdicts.savings import Saving, savings
from ..verdicts.words import Verdict

_WEIGHTS = "{weights}"  # in instructions, for a list of names
_FEW_NAMES = 4
_UNKNOWN = "[…]  # the parameters that it multiplies by; where weights are tied, that of the embedding"
_ADDS = 0.01  # least part of the step that several changes save beyond the best one of them


@dataclass(frozen=True)
class Remedies:
    """What was tried on complete steps, and what it saves."""

    savings: tuple[Saving, ...] = ()  # one per change, the largest proven saving first, untested ones last
    sets: tuple[Saving, ...] = ()  # the same for changes that were made together

    @cached_property
    def helping(self) -> tuple[Saving, ...]:
        """The changes with a proven saving, the largest first."""
        return tuple(saving for saving in self.savings if saving.verdict == Verdict.CONFIRMED)

    @cached_property
    def tried(self) -> tuple[Saving, ...]:
        """The changes that ran."""
        return tuple(saving for saving in self.savings if saving.verdict != Verdict.UNTESTED)

    @cached_property
    def together(self) -> Saving | None:
        """Changes that all help, and save more together than any one of them; None without such a set, proven."""
        helping = {one.factor for one in self.helping}
        proven = [one for one in self.sets if one.verdict == Verdict.CONFIRMED and helping.issuperset(one.members)]
        best = max(proven, key=_saved, default=None)
        if best is None or any(_saved(one) > _saved(best) - _ADDS for one in self.helping if not one.changed_results):
            return None
        return best

    @cached_property
    def best(self) -> Saving | None:
        """What saves most without changing results, else what saves most; None if nothing is proven to save."""
        kept = [one for one in self.helping if not one.changed_results] or list(self.helping)
        return self.together or max(kept, key=_saved, default=None)


def find_remedies(outcomes: Iterable[Outcome], weights: Sequence[str] = ()) -> Remedies:
    """The plan of remedies from all experiments; `weights` are parameters that the products of a step multiply by."""
    found = [
        replace(saving, facts=replace(saving.facts, how=naming(saving.facts.how, weights))) if saving.facts else saving
        for saving in savings(outcomes)
    ]
    return Remedies(
        tuple(one for one in found if len(one.members) == 1), tuple(one for one in found if len(one.members) > 1)
    )


def naming(how: str | None, weights: Sequence[str]) -> str | None:
    """Instructions with the names of the parameters, if these are known, in the place of `{weights}`."""
    if how is None or _WEIGHTS not in how:
        return how
    if len(weights) <= _FEW_NAMES:
        names = repr(list(weights)) if weights else _UNKNOWN
    else:
        ends = tuple(dict.fromkeys(".".join(name.split(".")[-2:]) for name in weights))
        names = f"[name for name, _ in model.named_parameters() if name.endswith({ends!r})]"
    return how.replace(_WEIGHTS, names)


def cause_of(saving: Saving) -> str | None:
    """The cause that a change removes; None if it tests none, or for several changes."""
    return factors(Scope.STEP).get(saving.factor)


def _saved(saving: Saving) -> float:
    largest = saving.largest
    return largest[1].value if largest else 0.0
