"""A target of experiments, with a term or with complete steps, and its earlier results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..analysis import causes
from ..analysis.decompose.functionals import FIXED_COST
from ..analysis.decompose.repeated_layers import is_of_experts
from ..analysis.decompose.terms import Share
from ..analysis.verdicts.outcome import Outcome, subject
from ..analysis.verdicts.proof import about, reproduces
from ..analysis.verdicts.words import Reproduction
from ..profiling.recording.experiments import Experiment, Scope, Stage, Wave
from .budget import rounds_of, starts_of
from .factors.batches import FILLED_WAVE
from .promising import is_confirmed, promising
from .situation import Situation, is_of_steps

if TYPE_CHECKING:
    from ..analysis.diagnosis.explanation import Explanation

# longest pass of an experiment on a term that tests several targets, as a factor on that for one
_ALSO_COSTS = 2.0


@dataclass(frozen=True)
class TermCase:
    """A target and one of its terms, or complete steps."""

    situation: Situation
    target: Explanation
    terms: Sequence[Share]
    share: Share | None  # the term; None for complete steps

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Outcomes of earlier experiments on it."""
        return about(self.situation.diagnosis.outcomes, self.target.functional, self.share)

    @cached_property
    def has_confirmed(self) -> bool:
        """Whether a factor is confirmed on it."""
        return is_confirmed(self.outcomes)

    @cached_property
    def reproduction(self) -> str | None:
        """Whether the term alone shows its share, see `Reproduction`."""
        return reproduces(self.outcomes, self.term)

    @property
    def was_screened(self) -> bool:
        """Whether factors of it were screened."""
        return bool(self.earlier(Stage.SCREEN))

    @property
    def shows(self) -> bool:
        """Whether the term alone shows its share, at least partly."""
        return self.reproduction in (Reproduction.REPRODUCES, Reproduction.PARTLY)

    @property
    def term(self) -> Share:
        """The term, of a case that is not of complete steps."""
        assert self.share is not None
        return self.share

    @cached_property
    def claiming(self) -> list[str]:
        """Causes that explain some of the term, or are suspected to, the largest total first."""
        claiming = []
        for total in self.target.causes:
            for term in total.terms:
                if term.label == self.term.label:
                    claiming.append(term.claim.cause if term.claim else total.cause)
        return claiming

    @cached_property
    def amounts(self) -> dict[str, float]:
        """The amount of each cause of the target, confirmed or not."""
        amounts: dict[str, float] = defaultdict(float)
        for total in self.target.causes:
            amounts[total.cause] += total.amount
        return amounts

    @property
    def waits_for_steps(self) -> bool:
        """Whether complete steps can test the largest cause of the target by a factor that no term
        alone has.
        """
        largest = max(self.amounts, key=self._size, default=causes.UNEXPLAINED)
        return is_of_steps(largest)

    def _size(self, cause: str) -> float:
        return abs(self.amounts[cause])

    @property
    def is_in_context(self) -> bool:
        """Whether no cause of the target is confirmed, and its largest term alone does not show its
        share.
        """
        if is_confirmed(self.target.causes):
            return False
        first = [replace(self, share=share) for share in self.terms[:1]]
        return not any(case.reproduction == Reproduction.REPRODUCES for case in first)

    def earlier(self, *stages: Stage) -> list[Experiment]:
        """Earlier experiments on it in these stages; one that was interrupted may be made once
        more.
        """
        own = subject(self.experiment(stages[0]))
        same = []
        for experiment in self.situation.made:
            if experiment.stage in stages and own in map(subject, experiment.by_functional()):
                same.append(experiment)
        done = [experiment for experiment in same if experiment.done]
        return same if len(same) - len(done) > 1 else done

    def experiment(self, stage: Stage, factors: Iterable[str] = ()) -> Experiment:
        """An experiment with the usual rounds.

        On a term it tests all targets that the term makes and that do not make it much longer. On
        complete steps it tests all that need no further batch sizes.
        """
        situation, target, share = self.situation, self.target, self.share
        names, scope = tuple(factors), Scope.STEP if share is None else Scope.TERM
        also = self._list_also(stage)
        batches = set(target.functional.conditions)
        for other in also:
            batches |= set(other.functional.conditions)
        if share is None and target.functional.kind == FIXED_COST:
            batches.add(self._clearly_larger(max(batches)))
        in_turns = share is None and situation.budget.takes_turns(batches)
        layer = "" if share is None else share.key.layer or ""
        # No expert of a mixture stands for the others.
        members = () if is_of_experts(layer) else situation.budget.groups.get(layer, ())
        return Experiment(
            number=situation.next_number,
            stage=stage,
            scope=scope,
            functional=target.functional.weights,
            functional_kind=target.functional.kind,
            batches=tuple(sorted(map(int, batches))),
            factors=names,
            layer=share.key.layer if share else None,
            phase=share.key.phase if share else None,
            member=members[0] if members else None,
            members=max(len(members), 1),
            also=tuple((other.functional.kind, other.functional.weights) for other in also),
            waves=self.waves([target, *also]) if FILLED_WAVE.name in names else (),
            rounds=rounds_of(stage, scope, in_turns=in_turns),
            starts=starts_of(stage, scope),
        )

    def _list_also(self, stage: Stage) -> list[Explanation]:
        """Further targets that an experiment of a stage tests."""
        situation, share = self.situation, self.share
        batches = set(self.target.functional.conditions)
        most_ms = 0.0
        if share is not None:
            most_ms = _ALSO_COSTS * situation.budget.pass_ms(share.key, batches)
        also: list[Explanation] = []
        for other, terms in situation.targets:
            wider = batches | set(other.functional.conditions)
            if share is None:
                fits = wider == batches
            else:
                made = stage != Stage.GRID and any(term.key == share.key for term in terms)
                fits = made and situation.budget.pass_ms(share.key, wider) <= most_ms
            if other is not self.target and fits:
                also.append(other)
                batches = wider
        return also

    def _clearly_larger(self, batch: float) -> float:
        """The first batch size whose step takes twice as long, else the largest, to tell a sample's
        cost.
        """
        times_ms = {}
        for point in self.situation.diagnosis.curve.points:
            if point.condition >= batch:
                times_ms[float(point.condition)] = point.time_ms.value
        for size, time_ms in times_ms.items():
            if time_ms >= 2 * times_ms[batch]:
                return size
        return max(times_ms)

    def waves(self, targets: Iterable[Explanation]) -> tuple[Wave, ...]:
        """The batch sizes at which the last wave of blocks of the term is full."""
        waves: dict[int, Wave] = {}
        for target in targets:
            for case in target.cases:
                if self.share and case.share.label == self.share.label:
                    filled = causes.fillings(case) or causes.find_filled_blocks(case)
                    waves = {wave.batch: wave for wave in filled} | waves
        return tuple(waves.values())

    def factors_of(self, *stages: Stage) -> set[str]:
        """The factors of earlier experiments on it in these stages."""
        return {name for experiment in self.earlier(*stages) for name in experiment.factors}

    def promising(self) -> tuple[str, ...]:
        """What screens of the term suggest."""
        confirmed = self.situation.confirmed_on_steps
        return tuple(name for name in promising(self.outcomes) if name not in confirmed)

    def promising_elsewhere(self) -> tuple[str, ...]:
        """What screens of the term suggest for the other targets that it makes, alone too."""
        names: list[str] = []
        for other, terms in self.situation.targets:
            same = next((share for share in terms if share.key == self.term.key), None)
            if other is self.target or same is None:
                continue
            case = TermCase(self.situation, other, terms, same)
            if case.shows:
                telling = [outcome for outcome in case.outcomes if _is_told(outcome)]
                names += promising(telling)
        confirmed = self.situation.confirmed_on_steps
        return tuple(name for name in names if name not in confirmed)


def _is_told(outcome: Outcome) -> bool:
    """Whether a share removed has an interval, if there is one."""
    return outcome.taken is None or bool(np.isfinite(outcome.taken.low))
