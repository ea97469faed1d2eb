"""The plan of remedies: what changes of complete steps save, in isolation and together, and at which batch sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ...profiling.recording.experiments import Scope
from ..causes import factors
from ..verdicts.outcome import Outcome
from ..verdicts.savings import Saving, savings
from ..verdicts.words import Verdict

_ADDS = 0.01  # least part of the step that several changes save beyond the best one of them


@dataclass(frozen=True)
class Remedies:
    """What was tried on complete steps, and what it saves.

    Attributes:
        savings: one per change, the largest proven saving first, untested ones last.
        sets: the same for changes that were made together.
    """

    savings: tuple[Saving, ...] = ()
    sets: tuple[Saving, ...] = ()

    @cached_property
    def helping(self) -> tuple[Saving, ...]:
        """The changes with a proven saving, the largest first."""
        return tuple(one for one in self.savings if one.verdict == Verdict.CONFIRMED)

    @cached_property
    def tried(self) -> tuple[Saving, ...]:
        """The changes that ran."""
        return tuple(one for one in self.savings if one.verdict != Verdict.UNTESTED)

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


def find_remedies(outcomes: Iterable[Outcome]) -> Remedies:
    """The plan of remedies from all experiments of a recording."""
    found = savings(outcomes)
    return Remedies(
        tuple(one for one in found if len(one.members) == 1), tuple(one for one in found if len(one.members) > 1)
    )


def cause_of(saving: Saving) -> str | None:
    """The cause that a change removes; None if it tests none, or for several changes."""
    return factors(Scope.STEP).get(saving.factor)


def _saved(saving: Saving) -> float:
    largest = saving.largest
    return largest[1].value if largest else 0.0
