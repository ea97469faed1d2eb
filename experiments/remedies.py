"""The plan of remedies: what commonly helps is tried on complete steps, whether there is an anomaly
or not.

A few rounds for all say which changes lead. Fresh rounds measure these, and how they add to each
other. What adds is a set, which fresh rounds measure together with its members. Each experiment has
processes of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import exp, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from ..analysis import causes
from ..analysis.decompose.curve import UNKNOWN
from ..analysis.verdicts.words import Verdict
from ..base.arguments import device_kind
from ..base.errors import CurvescopeError
from ..profiling.measure.configuration import configuration_of
from ..profiling.recording.experiments import (
    TIME,
    TIME_IS_UP,
    Experiment,
    Scope,
    Stage,
    members,
    name_together,
)
from .budget import FILLED_SCREEN, rounds_of, starts_of
from .factors import COMMON, FACTORS, is_costly
from .recorded_steps import target_of

if TYPE_CHECKING:
    from ..analysis.decompose.statistics import Estimate
    from ..analysis.verdicts.outcome import Outcome
    from ..analysis.verdicts.savings import Saving
    from ..profiling.recording.store import Recording
    from .known import Known

_LEADS = 0.02  # least saving in a screen that is worth fresh rounds
# least part of the step that a change saves beyond the changes before it, to join them
_ADDS = 0.01
# the same in standard errors; a set is measured anew, so that chance costs only time
_ADDS_ERRORS = 1.5
_MOST_LEADERS = 3
# least share of a step that the cause of a change claims, for the change to come first
_SUGGESTED = 0.03
# the same of a program, for the change to get fresh rounds without a screen
_SUGGESTED_ALONE = 0.05
_PROVING_STARTS = 4  # with fewer, only large savings are proven
_RULED_OUT = 0.03  # of the step: a change that saves less is not worth further starts
_COSTS_MUCH = 0.1  # of the step: what cost as much in its only start gets none to be ruled out
_MOST_RULING_OUT = 4  # experiments on fresh rounds of a change that is to be ruled out
_LEAST_FRESH = 2  # experiments on fresh rounds that a change gets; starts of one with a long set-up
_MOST_TRIES = 2  # of a change that the time did not reach
# of all the time, that is kept for this plan while causes are tested
_LEAST_OF_TIME, _MOST_OF_TIME = (
    0.35,
    0.6,
)
# least part of fresh rounds at the largest size that those at the smallest take, where both are
# mostly starts of processes
_MOSTLY_STARTS = 0.9
_FOLLOWS = 2.5  # time of the rest of this plan, as a factor on its next experiment


@dataclass(frozen=True)
class RemedyPlan:
    """What is still to be tried on complete steps."""

    known: Known

    def candidates(self) -> Iterator[Experiment]:
        """The experiments that fit the time, the best first; what leads a first screen comes before
        a second one.
        """
        screen, fresh = self._screen(), self._confirm()
        yield from self._fitting(self._suggested())
        yield from self._fitting(*((fresh, screen) if self._made else (screen, fresh)))

    def together(self) -> Iterator[Experiment]:
        """The changes that add to each other, on fresh rounds together; where nothing saves, what
        rules out that the others do.
        """
        yield from self._fitting(self._together(), self._ruling_out())

    def further(self) -> Iterator[Experiment]:
        """What may follow where time is left: more rounds of what is open, and changes with a long
        set-up.
        """
        yield from self._fitting(self._again(), self._costly())

    def _fitting(self, *experiments: Experiment | None) -> Iterator[Experiment]:
        for wanted in experiments if self._sizes else ():
            for batches in self._batches(wanted):
                if wanted and (fitting := self._fitted(self._at(wanted, batches))):
                    yield from fitting
                    break

    def _at(self, wanted: Experiment, batches: tuple[int, ...]) -> Experiment:
        """An experiment at some batch sizes, with the rounds and starts that their steps need."""
        at = replace(wanted, batches=batches)
        if not self.known.budget.fills_visits(batches):
            return at
        if wanted.stage == Stage.SCREEN:
            rounds, starts = FILLED_SCREEN
            return replace(at, rounds=rounds, starts=starts)
        rounds_of_start = self.known.budget.rounds_of_start(batches)
        return replace(at, rounds=(rounds_of_start, rounds_of_start))

    def _fitted(self, wanted: Experiment) -> list[Experiment]:
        """An experiment that fits the time, in a list; where few starts do, fewer changes have more
        of them.

        Two starts of three changes prove nothing of any.
        """
        fitting = list(self.known.budget.fitting(wanted))
        if wanted.stage == Stage.SCREEN or not fitting:
            return fitting
        best = fitting
        for count in range(len(fitting[0].factors) - 1, 0, -1):
            if best[0].starts >= _PROVING_STARTS:
                break
            fewer = replace(wanted, factors=wanted.factors[:count])
            of_fewer = list(self.known.budget.fitting(fewer))
            best = of_fewer if of_fewer and of_fewer[0].starts > best[0].starts else best
        return best

    def needed_s(self) -> float:
        """Expected seconds of what is still to be tried, but for changes with a long set-up."""
        if not self._sizes:
            return 0.0
        wanted = self._screen() or self._confirm() or self._together() or self._ruling_out()
        return _FOLLOWS * self.known.budget.shortest_s(wanted) if wanted else 0.0

    def at_largest_s(self) -> float:
        """Expected seconds of fresh rounds of one change at the largest batch size; 0 if they were
        made, if nothing leads, or if starts of processes make most of it, as at any other size.
        """
        names = self._leaders if self._made else list(COMMON)
        if not self._sizes or not names or any(self._ran(Stage.CONFIRM, one) for one in names):
            return 0.0
        one = self._experiment(Stage.CONFIRM, names[:1])
        sizes = self._sizes[-1:], self._sizes[:1]
        largest_s, smallest_s = (
            self.known.budget.shortest_s(self._at(one, batches)) for batches in sizes
        )
        return largest_s if smallest_s < _MOSTLY_STARTS * largest_s else 0.0

    def reserved_s(self) -> float:
        """Seconds that tests of causes leave to this plan."""
        total_s, needed_s = (
            max(self.known.budget.total_s, self.known.budget.time_left_s),
            self.needed_s(),
        )
        return (
            min(max(needed_s, _LEAST_OF_TIME * total_s), _MOST_OF_TIME * total_s)
            if needed_s
            else 0.0
        )

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        sizes = sorted(
            int(condition)
            for condition in self.known.diagnosis.curve.conditions
            if condition != UNKNOWN and condition not in self.known.probed
        )
        return tuple(dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1]))) if sizes else ()

    def _batches(self, wanted: Experiment | None) -> list[tuple[int, ...]]:
        """The batch sizes that an experiment may have, the best first: one trains at
        the largest.
        """
        if wanted is None:
            return []
        first, *_, last = (*self._sizes, self._sizes[-1])
        screens = wanted.stage == Stage.SCREEN or not self._leaders
        one = last if screens else self._leading_size(self._leaders[0])
        if one == last and self.is_of_largest:
            return [(last,)]
        choices = [*([] if wanted.stage == Stage.SCREEN else [self._sizes]), (first, last), (one,)]
        unique = dict.fromkeys(tuple(sorted(set(choice))) for choice in choices)
        # Of a program every further size costs starts, and what follows needs them too.
        budget = self.known.budget
        limit_s = budget.time_left_s / (1.0 if budget.run_s is None else _FOLLOWS)
        whole = [
            choice
            for choice in unique
            if self.known.budget.shortest_s(replace(wanted, batches=choice)) <= limit_s
        ]
        return [*whole, (one,), (last,), (first,)]

    @cached_property
    def is_of_largest(self) -> bool:
        """Whether steps of the largest size are so slow that this plan has no other size."""
        return bool(self._sizes) and self.known.budget.fills_visits(self._sizes[-1:])

    @cached_property
    def _made(self) -> list[Experiment]:
        return [one for one in self.known.made if one.functional_kind == TIME]

    @cached_property
    def _saving(self) -> dict[str, Saving]:
        remedies = self.known.diagnosis.remedies
        return {one.factor: one for one in (*remedies.savings, *remedies.sets)}

    def _experiment(self, stage: Stage, names: Iterable[str]) -> Experiment:
        # then every round has processes of its own
        turns = self.known.budget.takes_turns(self._sizes)
        return Experiment(
            number=self.known.next_number,
            stage=stage,
            scope=Scope.STEP,
            functional=(),
            functional_kind=TIME,
            batches=self._sizes,
            factors=tuple(names),
            rounds=rounds_of(stage, Scope.STEP, in_turns=turns),
            starts=starts_of(stage, Scope.STEP),
        )

    def _screen(self) -> Experiment | None:
        """A few rounds of every change that was not tried; those that do not apply come along and
        say why.
        """
        names = [name for name in self._ordered(costly=False) if self._is_new(name)]
        return self._experiment(Stage.SCREEN, names) if names else None

    def _suggested(self) -> Experiment | None:
        """Fresh rounds of the change of a program that its profile suggests most.

        The profile chose it before anything ran, and not luck: a screen would only take the time
        of its runs, each of which is a start.
        """
        if self.known.budget.run_s is None or self._made:
            return None
        first = next(iter(self._ordered(costly=False)), None)
        if first is None or self.known.suggested.get(first, 0.0) < _SUGGESTED_ALONE:
            return None
        return (
            None if self.known.budget.refused(first) else self._experiment(Stage.CONFIRM, [first])
        )

    def _confirm(self) -> Experiment | None:
        """Fresh rounds of the leaders, and of each with those before it."""
        names = [
            name
            for name in (*self._leaders, *self._chain[1:])
            if not self._ran(Stage.CONFIRM, name)
        ]
        return self._experiment(Stage.CONFIRM, names) if names else None

    def _together(self) -> Experiment | None:
        """Fresh rounds of the changes that add to each other, together, and of leaders that help.

        A single change gets them until two experiments had it on fresh rounds: processes differ.
        """
        helping = [
            name
            for name in self._leaders
            if self._gain(name) >= _ADDS and self._fresh(name) < _LEAST_FRESH
        ]
        names = [*([name_together(self._set)] if len(self._set) > 1 else []), *helping]
        new = [name for name in names if not self._ran(Stage.REMEDY, name)]
        return self._experiment(Stage.REMEDY, new) if new else None

    def _ruling_out(self) -> Experiment | None:
        """More starts of what may still save something at the largest size, where nothing is shown
        to: that nothing does is an answer too.
        """
        if not self.is_of_largest or any(self._is_proven(name) for name in self._saving):
            return None
        open_ = [
            name
            for name in self._ordered(costly=False)
            if self._may_save(name) and self._fresh(name) < _MOST_RULING_OUT
        ]
        return self._experiment(Stage.REMEDY, open_) if open_ else None

    def _is_proven(self, name: str) -> bool:
        return self._sizes[-1] in self._saving[name].proven

    def _may_save(self, name: str) -> bool:
        """Whether a change that ran at the largest size may save something there; of one that cost
        much in its only start, what other changes show of starts will tell.
        """
        gain = self._at_largest(name)
        return gain is not None and gain.high >= _RULED_OUT and gain.value > -_COSTS_MUCH

    def _at_largest(self, name: str) -> Estimate | None:
        saving = self._saving.get(name)
        return dict(saving.gains).get(self._sizes[-1]) if saving else None

    def _fresh(self, name: str) -> int:
        outcomes = (
            outcome
            for outcome in self.known.diagnosis.outcomes
            if _is_of_steps(outcome, name) and outcome.gains
        )
        return len(
            {
                outcome.experiment.number
                for outcome in outcomes
                if outcome.experiment.stage != Stage.SCREEN
            }
        )

    def _again(self) -> Experiment | None:
        """More starts, once, of the set and of leaders that are not yet proven."""
        made = [one for one in self._made if one.stage == Stage.REMEDY]
        open_ = [name for one in made[:1] for name in one.factors if self._is_open(name)]
        return self._experiment(Stage.REMEDY, open_) if open_ and len(made) == 1 else None

    def _is_open(self, name: str) -> bool:
        saving = self._saving.get(name)
        return (
            saving is not None and saving.verdict == Verdict.UNDECIDED and self._gain(name) >= _ADDS
        )

    def _costly(self) -> Experiment | None:
        """Fresh rounds of a change with a long set-up, and of the set with it."""
        new = [name for name in self._ordered(costly=True) if self._is_new(name)][:1]
        whole = [name_together((*self._set, name)) for name in new if self._set]
        return (
            replace(self._experiment(Stage.CONFIRM, [*new, *whole]), starts=_LEAST_FRESH)
            if new
            else None
        )

    def _ordered(self, *, costly: bool) -> list[str]:
        device = self.known.budget.device
        claimed = self._claimed()

        def place(name: str) -> tuple[bool, float, int]:
            share = claimed[name] if claimed[name] >= _SUGGESTED else 0.0
            return FACTORS[name].refusal(device) is not None, -share, COMMON[name].common or 0

        names = (
            name
            for name in COMMON
            if is_costly(name) == costly and self.known.budget.fits(Scope.STEP, name)
        )
        return sorted(names, key=place)

    def _claimed(self) -> dict[str, float]:
        owner = causes.factors(Scope.STEP)
        claimed = defaultdict[str, float](float, self.known.suggested)
        for target, _ in self.known.targets:
            step_ms = self.known.diagnosis.curve.at(target.functional.last).time_ms.value
            for total in target.causes:
                for name in (name for name, cause in owner.items() if cause == total.cause):
                    claimed[name] = max(claimed[name], abs(total.amount) / step_ms)
        return claimed

    def _is_new(self, name: str) -> bool:
        """Whether a change was not measured on complete steps, of the sizes of this plan,
        nor refused.
        """
        saving = self._saving.get(name)
        tries = [one for one in self._made if name in one.factors and self._counts(one)]
        reached = [
            one
            for one in tries
            if one.untested.get(name) != TIME_IS_UP and (one.done or name in one.untested)
        ]
        if self.is_of_largest:
            measured = self._at_largest(name) is not None
        else:
            measured = saving is not None and saving.verdict != Verdict.UNTESTED
        return not measured and not reached and len(tries) < _MOST_TRIES

    def _ran(self, stage: Stage, name: str) -> bool:
        """Whether an experiment of this plan had a change in a stage, or tried to often enough."""
        tries = [one for one in self._made if one.stage == stage and name in one.factors]
        return len(tries) >= _MOST_TRIES or any(one.done or one.setup_s.get(name) for one in tries)

    def _counts(self, experiment: Experiment) -> bool:
        """Whether an experiment was at a size that this plan is of."""
        return not self.is_of_largest or self._sizes[-1] in experiment.batches

    @cached_property
    def _leaders(self) -> list[str]:
        """The changes that lead so far, the best first: one trains at the largest batch size."""
        tried = (one.factor for one in self.known.diagnosis.remedies.tried)
        gains = {name: self._first_gains(name) for name in tried if name in COMMON}
        leading = [
            name for name, of_name in gains.items() if max(of_name.values(), default=0.0) >= _LEADS
        ]

        def place(name: str) -> tuple[float, float, str]:
            at_largest = gains[name].get(self._sizes[-1], 0.0)
            return -at_largest if at_largest >= _LEADS else 0.0, -max(gains[name].values()), name

        return sorted(leading, key=place)[:_MOST_LEADERS]

    def _leading_size(self, name: str) -> int:
        """The largest batch size if a change leads there, else the one where it saves most."""
        gains, largest = self._first_gains(name), self._sizes[-1]
        at_largest = gains.get(largest, 0.0) >= _LEADS
        return largest if at_largest else max(gains, key=lambda batch: gains[batch])

    def _first_gains(self, name: str) -> dict[int, float]:
        """What a change saves in its first experiment on complete steps, which suggests it; empty
        where it did not run at the size that this plan is of.
        """
        first = next(
            (
                outcome
                for outcome in self.known.diagnosis.outcomes
                if _is_of_steps(outcome, name)
                and outcome.ratios
                and self._counts(outcome.experiment)
            ),
            None,
        )
        if first is None:
            return {}
        logs = zip(*first.ratios, strict=True)
        return {
            batch: 1 - exp(fmean(of_batch))
            for batch, of_batch in zip(first.batches, logs, strict=True)
        }

    @cached_property
    def _chain(self) -> list[str]:
        """The best leader, then that with the second, and so on; none changes results, or sets what
        another does.
        """
        joined: list[str] = []
        for name in self._leaders:
            taken = {FACTORS[one].sets for one in joined} - {None}
            if self._saving[name].changed_results is None and FACTORS[name].sets not in taken:
                joined.append(name)
        return [name_together(joined[: index + 1]) for index in range(len(joined))]

    @cached_property
    def _set(self) -> tuple[str, ...]:
        """The leaders that add to those before them, on fresh rounds; empty before they
        had these.
        """
        chosen = [members(name)[-1] for name in self._chain[:1] if self._gain(name) >= _ADDS]
        chosen += [
            members(name)[-1] for before, name in pairwise(self._chain) if self._adds(before, name)
        ]
        return tuple(chosen)

    def _adds(self, before: str, name: str) -> bool:
        """Whether changes save more than those before, by the mean over batch sizes in the starts
        that had both.
        """
        outcomes = {
            (outcome.experiment.number, outcome.factor): outcome.ratios
            for outcome in self.known.diagnosis.outcomes
            if outcome.experiment.functional_kind == TIME
            and outcome.experiment.stage != Stage.SCREEN
            and outcome.ratios
        }
        differences = [
            fmean(after) - fmean(earlier)
            for number, factor in outcomes
            if factor == name
            for after, earlier in zip(
                outcomes[number, name], outcomes.get((number, before), ()), strict=False
            )
        ]
        if len(differences) < 2:
            return False
        added = -fmean(differences)
        return added >= max(_ADDS, _ADDS_ERRORS * stdev(differences) / sqrt(len(differences)))

    def _gain(self, name: str) -> float:
        saving = self._saving.get(name)
        return fmean(gain.value for _, gain in saving.gains) if saving and saving.fresh else 0.0


def impossible(recording: Recording) -> frozenset[str]:
    """The changes that the steps of a recording are known to refuse, of those that
    commonly help.
    """
    try:
        target = target_of(recording, configuration_of(recording.meta), ())
    except CurvescopeError:  # its steps cannot be built at all
        return frozenset()
    tried = [name for name in COMMON if FACTORS[name].refusal(device_kind(recording.meta)) is None]
    return frozenset(name for name in tried if COMMON[name].reason_against(target) is not None)


def _is_of_steps(outcome: Outcome, name: str) -> bool:
    return outcome.factor == name and outcome.experiment.scope == Scope.STEP
