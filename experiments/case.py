"""What a target, with one of its terms or with complete steps, may get of each stage of
experiments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..analysis import causes
from ..analysis.decompose.functionals import FIXED_COST
from ..analysis.decompose.repeated_layers import is_of_experts
from ..analysis.decompose.terms import Share
from ..analysis.verdicts.outcome import Outcome, subject
from ..analysis.verdicts.proof import about, decisive, reproduces
from ..analysis.verdicts.rule import SCREENED_SAVING, TOO_WIDE
from ..analysis.verdicts.words import Reproduction, Verdict
from ..profiling.hardware.locked_clocks import NOT_ASKED, may_lock_clocks
from ..profiling.recording.experiments import Experiment, Scope, Stage, Wave
from .budget import rounds_of, starts_of, with_more_rounds
from .factors import FACTORS, names_of
from .factors.batches import FILLED_WAVE
from .promising import is_confirmed, most_promising, promising
from .situation import Situation, is_of_steps

if TYPE_CHECKING:
    from ..analysis.diagnosis.explanation import Explanation

# Least share of a target that a cause claims, for its factors to come first; more for those with a
# long set-up.
_SUGGESTED = 0.03
_OUTBID = 0.2  # the same for a cause whose claims others outbid
_LEAST_SCREENED = 3  # factors of one screen of a term, however long it takes
# longest time for the fewest rounds of a screen of a term, as a factor on its usual time
_LONG_SCREEN = 3.0
_MOST_STEP_FACTORS = 3  # of one screen on complete steps, each in a process of its own
# longest pass of an experiment on a term that tests several targets, as a factor on that for one
_ALSO_COSTS = 2.0
_GRID_SIZES = 9


@dataclass(frozen=True)
class TermCase:
    """A target and one of its terms, or complete steps: what is known of it, and
    experiments on it.
    """

    situation: Situation
    target: Explanation
    terms: Sequence[Share]
    share: Share | None  # the term; None for complete steps

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Outcomes of earlier experiments on it."""
        return about(self.situation.diagnosis.outcomes, self.target.functional, self.share)

    @cached_property
    def confirmed(self) -> bool:
        """Whether a factor is confirmed on it."""
        return is_confirmed(self.outcomes)

    @cached_property
    def shown(self) -> str | None:
        """Whether the term alone shows its share, see `Reproduction`."""
        return reproduces(self.outcomes, self.term)

    @property
    def screened(self) -> bool:
        """Whether factors of it were screened."""
        return bool(self.earlier(Stage.SCREEN))

    @property
    def shows(self) -> bool:
        """Whether the term alone shows its share, at least partly."""
        return self.shown in (Reproduction.REPRODUCES, Reproduction.PARTLY)

    @property
    def term(self) -> Share:
        """The term, of a case that is not of complete steps."""
        assert self.share is not None
        return self.share

    @cached_property
    def claiming(self) -> list[str]:
        """Causes that explain some of the term, or are suspected to, the largest total first."""
        terms = [(total, term) for total in self.target.causes for term in total.terms]
        return [
            term.claim.cause if term.claim else total.cause
            for total, term in terms
            if term.label == self.term.label
        ]

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
        return is_of_steps(
            max(
                self.amounts, key=lambda cause: abs(self.amounts[cause]), default=causes.UNEXPLAINED
            )
        )

    @property
    def is_in_context(self) -> bool:
        """Whether no cause of the target is confirmed, and its largest term alone does not show its
        share.
        """
        first = (replace(self, share=share) for share in self.terms[:1])
        shown = any(case.shown == Reproduction.REPRODUCES for case in first)
        return not shown and not is_confirmed(self.target.causes)

    def earlier(self, *stages: Stage) -> list[Experiment]:
        """Earlier experiments on it in these stages; one that was interrupted may be made once
        more.
        """
        own = subject(self.experiment(stages[0]))
        same = [
            experiment
            for experiment in self.situation.made
            if experiment.stage in stages and own in map(subject, experiment.by_functional())
        ]
        unfinished = [experiment for experiment in same if not experiment.done]
        return (
            same if len(unfinished) > 1 else [experiment for experiment in same if experiment.done]
        )

    def experiment(self, stage: Stage, factors: Iterable[str] = ()) -> Experiment:
        """An experiment with the usual rounds.

        On a term it tests all targets that the term makes and that do not make it much longer, on
        complete steps all that need no further batch sizes.
        """
        situation, target, share, names = self.situation, self.target, self.share, tuple(factors)
        scope = Scope.STEP if share is None else Scope.TERM
        batches = set(target.functional.conditions)
        most_ms = (
            0.0 if share is None else _ALSO_COSTS * situation.budget.pass_ms(share.key, batches)
        )
        also: list[Explanation] = []
        for other, terms in situation.targets:
            wider = batches | set(other.functional.conditions)
            if share is None:
                fits = wider == batches
            else:
                made = stage != Stage.GRID and any(term.key == share.key for term in terms)
                fits = made and situation.budget.pass_ms(share.key, wider) <= most_ms
            if other is not target and fits:
                also.append(other)
                batches = wider
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
            also=tuple(
                (explanation.functional.kind, explanation.functional.weights)
                for explanation in also
            ),
            waves=self._waves([target, *also]) if FILLED_WAVE.name in names else (),
            rounds=rounds_of(stage, scope, in_turns=in_turns),
            starts=starts_of(stage, scope),
        )

    def _clearly_larger(self, batch: float) -> float:
        """The first batch size whose step takes twice as long, else the largest: it says what a
        sample costs.
        """
        curve = self.situation.diagnosis.curve
        times_ms = {
            float(p.condition): p.time_ms.value for p in curve.points if p.condition >= batch
        }
        twice_ms = 2 * times_ms[batch]
        return next(
            (size for size, time_ms in times_ms.items() if time_ms >= twice_ms), max(times_ms)
        )

    def _waves(self, targets: Iterable[Explanation]) -> tuple[Wave, ...]:
        waves: dict[int, Wave] = {}
        for target in targets:
            of_term = (
                case for case in target.cases if self.share and case.share.label == self.share.label
            )
            for case in of_term:
                filled = causes.fillings(case) or causes.filled_blocks(case)
                waves = {wave.batch: wave for wave in filled} | waves
        return tuple(waves.values())

    def suggested(
        self, *, costly: bool = False, least_of_step: float = 0.0
    ) -> Iterator[Experiment]:
        """Complete steps with the factors that the recording suggests and no term can be tested
        with alone.

        `costly` asks for factors with a long set-up, instead of the others; `least_of_step` is the
        least share of the step, at the last batch size, that the cause of a factor claims.
        """
        situation, target = self.situation, self.target
        whole = target.value.value
        of_step = whole / situation.diagnosis.curve.at(target.functional.last).time_ms.value
        names: dict[str, float] = {}
        for cause, intervention in causes.interventions().items():
            # A cause that others outbid in every term may still be the right one: only an
            # experiment tells.
            share = self.amounts.get(cause, 0.0) / whole
            outbid = causes.claimed(target.cases, cause, whole) / whole
            for name in (name for name in intervention.step if name not in intervention.term):
                setup = situation.budget.setup_s(name) / situation.budget.start_s
                wanted = max(share / _SUGGESTED, outbid / _OUTBID) >= max(1.0, setup)
                if (
                    wanted
                    and max(share, 0.0) * abs(of_step) >= least_of_step
                    and (setup > 1.0) == costly
                ):
                    names[name] = max(share, outbid)
        yield from self.on_steps(Stage.CONFIRM, sorted(names, key=lambda name: -names[name]))

    def on_steps(self, stage: Stage, names: Iterable[str]) -> Iterator[Experiment]:
        """Complete steps with the factors not yet tried so; those that do not apply come along and
        say why.
        """
        tried = {
            name
            for experiment in self.earlier(stage)
            for name in experiment.factors
            if not (may_lock_clocks() and experiment.untested.get(name) == NOT_ASKED)
        }
        new = [name for name in dict.fromkeys(names) if name not in tried]
        applicable = [name for name in new if self.situation.budget.setup_s(name)][
            :_MOST_STEP_FACTORS
        ]
        if applicable:
            yield self.experiment(
                stage,
                (*applicable, *(name for name in new if not self.situation.budget.setup_s(name))),
            )

    def alone(self) -> Iterator[Experiment]:
        """The term without a change; once more if that stayed undecided."""
        tries = len(self.earlier(Stage.ALONE, Stage.CONFIRM))
        alone = self.experiment(Stage.ALONE)
        if tries == 0 or (self.shown == Reproduction.UNDECIDED and tries == 1):
            yield with_more_rounds(alone) if tries else alone

    def screen(self) -> Iterator[Experiment]:
        """A screen of the term with as many of the factors not yet tried as it has time for."""
        situation, screen = self.situation, self.experiment(Stage.SCREEN, self._ordered())
        tried = {
            name for experiment in self.earlier(Stage.SCREEN) for name in experiment.factors
        } | situation.confirmed_on_steps
        names = tuple(name for name in self._ordered() if name not in tried)
        most_s = _LONG_SCREEN * situation.budget.usual_s(screen)
        while (
            len(names) > _LEAST_SCREENED
            and situation.budget.shortest_s(replace(screen, factors=names)) > most_s
        ):
            names = names[:-1]
        if names:
            yield replace(screen, factors=names)

    def _ordered(self) -> list[str]:
        """The factors of terms: first those of causes that claim some of the term, last those of
        other devices.
        """
        owner = causes.factors(Scope.TERM, self.claiming)
        ranks = {cause: self.claiming.index(cause) for cause in self.claiming}
        changes = {
            name: change
            for name in names_of(Scope.TERM)
            if (change := FACTORS[name].term) is not None
        }
        usual = {name: change.screen for name, change in changes.items() if change.screen}
        last = len(ranks), max(usual.values()) + 1
        evident = [
            name
            for name, change in changes.items()
            if not change.needs_evidence or owner.get(name) in ranks
        ]
        recorded = self.situation.diagnosis.recorded
        on_cpu = recorded is not None and recorded.hardware.kind == "cpu"
        if on_cpu and not self._waves([self.target]):  # few terms of a CPU have blocks
            evident = [name for name in evident if name != FILLED_WAVE.name]
        return sorted(
            (name for name in owner if name in evident),
            key=lambda name: (
                self.situation.budget.refused(name),
                ranks.get(owner[name], last[0]),
                usual.get(name, last[1]),
            ),
        )

    def promising(self) -> tuple[str, ...]:
        """What screens of the term suggest."""
        return tuple(
            name
            for name in promising(self.outcomes)
            if name not in self.situation.confirmed_on_steps
        )

    def promising_elsewhere(self) -> tuple[str, ...]:
        """What screens of the term suggest for the other targets that it makes, alone too."""
        names: list[str] = []
        for other, terms in self.situation.targets:
            of_term = next((share for share in terms if share.key == self.term.key), None)
            if other is self.target or of_term is None:
                continue
            case = TermCase(self.situation, other, terms, of_term)
            if case.shows:
                telling = [
                    outcome
                    for outcome in case.outcomes
                    if outcome.taken is None or np.isfinite(outcome.taken.low)
                ]
                names += [
                    name
                    for name in promising(telling)
                    if name not in self.situation.confirmed_on_steps
                ]
        return tuple(names)

    def confirm(self) -> Iterator[Experiment]:
        """Fresh rounds for what a screen suggests; more rounds, once, for what stayed undecided."""
        own, before = self.promising(), self.earlier(Stage.CONFIRM)
        if not own and before:
            yield from self._again(before)
        if names := most_promising(own, self.promising_elsewhere()):
            yield self.experiment(Stage.CONFIRM, names)

    def proven_elsewhere(self) -> Iterator[Experiment]:
        """Fresh rounds with what confirmed the same cause in a term with the same operators."""
        situation, replayable = self.situation, self.situation.replayable
        owner = causes.factors(Scope.TERM, self.claiming)
        operators = set(replayable[self.term.key.layer, self.term.key.phase])
        names = {
            outcome.factor: None
            for outcome in situation.diagnosis.outcomes
            if outcome.experiment.scope == Scope.TERM
            and outcome.factor
            and owner.get(outcome.factor) in self.claiming
            if outcome.verdict == Verdict.CONFIRMED
            and outcome.factor not in situation.confirmed_on_steps
            if not operators.isdisjoint(
                replayable.get((outcome.experiment.layer, outcome.experiment.phase), ())
            )
        }
        if names:
            yield self.experiment(Stage.CONFIRM, most_promising(tuple(names)))

    def grid(self) -> Iterator[Experiment]:
        """More batch sizes around the bend of the term."""
        grid = self.experiment(Stage.GRID)
        sizes = _between(grid.batches)
        bends = grid.functional_kind != FIXED_COST and len(sizes) > max(len(grid.batches), 3)
        if bends and not self.earlier(Stage.GRID):
            yield replace(grid, batches=sizes)

    def remedy(self) -> Iterator[Experiment]:
        """Complete steps with what made a term faster alone."""
        made = self.situation.made
        tried = {
            name
            for experiment in made
            if experiment.scope == Scope.STEP and experiment.stage != Stage.SCREEN
            for name in experiment.factors
        }
        names: dict[str, float] = {}
        for share in self.terms:
            for name, outcome in decisive(replace(self, share=share).outcomes).items():
                gain = outcome.gain
                fresh = outcome.experiment.stage == Stage.CONFIRM
                if (
                    fresh
                    and gain
                    and gain.low > 0
                    and gain.value >= SCREENED_SAVING
                    and FACTORS[name].step
                ):
                    names[name] = max(names.get(name, 0.0), gain.value)
        new = [
            name
            for name in sorted(names, key=lambda name: (-names[name], name))
            if name not in tried
        ]
        if new:
            remedy = self.experiment(Stage.REMEDY, new[:_MOST_STEP_FACTORS])
            largest = int(self.situation.diagnosis.curve.conditions[-1])
            yield replace(remedy, batches=tuple(sorted({*remedy.batches, largest})))

    def steps_again(self) -> Iterator[Experiment]:
        """More starts, once, of complete steps with the factors that stayed undecided."""
        totals = self.target.causes
        of_cause = {
            cause: {total.verdict for total in totals if total.cause == cause}
            for cause in self.amounts
        }
        confirmed = {
            name
            for name, cause in causes.factors(Scope.STEP).items()
            if of_cause.get(cause) == {Verdict.CONFIRMED}
        }
        if before := self.earlier(Stage.CONFIRM):
            yield from self._again(before, confirmed)

    def _again(
        self, before: Sequence[Experiment], confirmed: Container[str] = ()
    ) -> Iterator[Experiment]:
        """More rounds, once, for undecided factors of causes that are not confirmed."""
        deciding = decisive(self.outcomes)
        of_first = (
            [deciding[name] for name in before[0].factors if name in deciding]
            if len(before) == 1
            else []
        )
        undecided = [o.factor for o in of_first if o.reason == TOO_WIDE]
        of_term = self.share is not None and is_confirmed(of_first)
        if names := [name for name in undecided if name and name not in confirmed and not of_term]:
            yield with_more_rounds(self.experiment(Stage.CONFIRM, names))

    def context(self) -> Iterator[Experiment]:
        """A screen of complete steps with factors that were not tried on the target; then what it
        suggests.
        """
        if self.earlier(Stage.SCREEN):
            yield from self.on_steps(Stage.CONFIRM, promising(self.outcomes))
            return
        on_steps, own = (
            (experiment for experiment in self.situation.made if experiment.scope == Scope.STEP),
            self.target.functional.weights,
        )
        tried = {
            name
            for experiment in on_steps
            if experiment.functional == own
            for name in experiment.factors
        }
        changes = (
            (name, FACTORS[name].step)
            for name in names_of(Scope.STEP)
            if not self.situation.budget.refused(name)
        )
        usual = {
            n: c.screen
            for n, c in changes
            if c and c.screen and self.situation.budget.device in c.screen_on
        }
        yield from self.on_steps(
            Stage.SCREEN,
            [name for name in sorted(usual, key=usual.__getitem__) if name not in tried],
        )


def _between(batches: Sequence[int]) -> tuple[int, ...]:
    """Evenly spread from the smallest to the largest, with those of the functional."""
    even = np.linspace(batches[0], batches[-1], _GRID_SIZES).round().astype(int)
    return tuple(sorted({*batches, *map(int, even)}))
