"""The plan of remedies: common changes are tried on complete steps, with an anomaly or without.

A few rounds for all say which changes lead. Fresh rounds measure these, and how they add to each
other. What adds is a set, which fresh rounds measure together with its members. Each experiment has
processes of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ..analysis import causes
from ..analysis.decompose.curve import UNKNOWN
from ..analysis.decompose.terms import KERNELS, Key
from ..base.arguments import device_kind
from ..base.errors import CurvescopeError
from ..profiling.measure.configuration import configuration_of
from ..profiling.recording.experiments import (
    TIME,
    Experiment,
    Scope,
    Stage,
    members,
    name_together,
)
from .budget import FILLED_SCREEN, rounds_of, starts_of
from .factors import COMMON, FACTORS, is_costly
from .recorded_steps import target_of
from .tried_changes import TriedChange

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording
    from .situation import Situation

_MOST_LEADERS = 3
# least share of a step that the cause of a change claims, for the change to come first
_SUGGESTED = 0.03
# the same of a program, for the change to get fresh rounds without a screen
_SUGGESTED_ALONE = 0.05
_PROVING_STARTS = 4  # with fewer, only large savings are proven
_PROVES_LITTLE = 2  # starts, which say next to nothing of how much starts differ
_MOST_RULING_OUT = 4  # experiments on fresh rounds of a change that is to be ruled out
_LEAST_FRESH = 2  # experiments on fresh rounds that a change gets; starts of one with a long set-up
# of all the time, that is kept for this plan while causes are tested
_LEAST_OF_TIME, _MOST_OF_TIME = 0.35, 0.6
# least part of fresh rounds at the largest size that those at the smallest take, where both are
# mostly starts of processes
_MOSTLY_STARTS = 0.9
_THREADS = "threads"  # what changes of the number of threads set
_FOLLOWS = 2.5  # time of the rest of this plan, as a factor on its next experiment


@dataclass(frozen=True)
class RemedyPlan:
    """The changes that are still to be tried on complete steps."""

    situation: Situation

    def candidates(self) -> Iterator[Experiment]:
        """The experiments that fit the time, the best first; the leaders of a first screen come
        before a second one.
        """
        yield from self._list_fitting(self._test_suggested())
        screen, fresh = self._screen(), self._confirm()
        yield from self._list_fitting(*((fresh, screen) if self._made else (screen, fresh)))

    def together(self) -> Iterator[Experiment]:
        """Fresh rounds of the changes that add to each other; where nothing saves, a test that
        rules out the others.
        """
        yield from self._list_fitting(self._together(), self._rule_out())

    def further(self) -> Iterator[Experiment]:
        """Experiments for time that is left: more rounds of open changes, and changes with a long
        set-up.
        """
        yield from self._list_fitting(self._again(), self._costly())

    def _list_fitting(self, *experiments: Experiment | None) -> Iterator[Experiment]:
        for wanted in filter(None, experiments):
            for batches in self._batches(wanted):
                if fitting := self._fit_at(wanted, batches):
                    yield from fitting
                    break

    def _fit_at(self, wanted: Experiment, batches: tuple[int, ...]) -> list[Experiment]:
        """An experiment at some batch sizes that fits the time, in a list.

        If steps are so slow that at most two starts fit, each of more starts has one round.
        """
        at = self._at(wanted, batches)
        fitting = self._fit(at)
        starts = fitting[0].starts if fitting else 0
        is_fresh = wanted.stage != Stage.SCREEN and self.situation.budget.fills_visits(batches)
        if not is_fresh or starts > _PROVES_LITTLE:
            return fitting
        shorter = self._fit(replace(at, rounds=(1, 1)))
        return shorter if shorter and shorter[0].starts > starts else fitting

    def _at(self, wanted: Experiment, batches: tuple[int, ...]) -> Experiment:
        """An experiment at some batch sizes, with the rounds and starts that their steps need."""
        at = replace(wanted, batches=batches)
        if not self.situation.budget.fills_visits(batches):
            return at
        if wanted.stage == Stage.SCREEN:
            rounds, starts = FILLED_SCREEN
            return replace(at, rounds=rounds, starts=starts)
        rounds_of_start = self.situation.budget.rounds_of_start(batches)
        return replace(at, rounds=(rounds_of_start, rounds_of_start))

    def _fit(self, wanted: Experiment) -> list[Experiment]:
        """An experiment that fits the time, in a list; where few starts do, fewer changes have more
        of them.

        Two starts of three changes prove nothing of any.
        """
        fitting = list(self.situation.budget.fitting(wanted))
        if wanted.stage == Stage.SCREEN or not fitting:
            return fitting
        best = fitting
        for count in range(len(fitting[0].factors) - 1, 0, -1):
            if best[0].starts >= _PROVING_STARTS:
                break
            fewer = replace(wanted, factors=wanted.factors[:count])
            of_fewer = list(self.situation.budget.fitting(fewer))
            if of_fewer and of_fewer[0].starts > best[0].starts:
                best = of_fewer
        return best

    def needed_s(self) -> float:
        """Expected seconds of the tests to come, without changes with a long set-up."""
        if not self._sizes:
            return 0.0
        wanted = self._screen() or self._confirm() or self._together() or self._rule_out()
        return _FOLLOWS * self.situation.budget.shortest_s(wanted) if wanted else 0.0

    def at_largest_s(self) -> float:
        """Expected seconds of fresh rounds of one change at the largest batch size.

        0 if they were made, if nothing leads, or if they are mostly starts of processes, as at any
        other size.
        """
        names = self._leaders if self._made else list(COMMON)
        if not self._sizes or not names:
            return 0.0
        if any(self._change(name).was_in(Stage.CONFIRM) for name in names):
            return 0.0
        fresh = self._experiment(Stage.CONFIRM, names[:1])
        shortest_s = self.situation.budget.shortest_s
        largest_s = shortest_s(self._at(fresh, self._sizes[-1:]))
        smallest_s = shortest_s(self._at(fresh, self._sizes[:1]))
        return largest_s if smallest_s < _MOSTLY_STARTS * largest_s else 0.0

    def reserved_s(self) -> float:
        """Seconds that tests of causes leave to this plan."""
        total_s = max(self.situation.budget.total_s, self.situation.budget.time_left_s)
        needed_s = self.needed_s()
        if not needed_s:
            return 0.0
        return min(max(needed_s, _LEAST_OF_TIME * total_s), _MOST_OF_TIME * total_s)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """The smallest, the middle and the largest batch size of the sweep."""
        conditions = self.situation.diagnosis.curve.conditions
        measured = [int(condition) for condition in conditions if condition != UNKNOWN]
        sizes = sorted(size for size in measured if size not in self.situation.probed)
        if not sizes:
            return ()
        middle = sizes[len(sizes) // 2]
        return tuple(dict.fromkeys((sizes[0], middle, sizes[-1])))

    def _batches(self, wanted: Experiment) -> list[tuple[int, ...]]:
        """The batch sizes that an experiment may have, the best first: one trains at
        the largest.
        """
        if not self._sizes:
            return []
        first, last = self._sizes[0], self._sizes[-1]
        is_screen = wanted.stage == Stage.SCREEN
        alone = last
        if self._leaders and not is_screen:
            alone = self._change(self._leaders[0]).leading_size
        if alone == last and self.is_of_largest:
            return [(last,)]
        choices = [tuple(sorted({first, last})), (alone,)]
        if not is_screen:
            choices.insert(0, self._sizes)
        # Of a program every further size costs starts, and what follows needs them too.
        budget = self.situation.budget
        limit_s = budget.time_left_s / (1.0 if budget.run_s is None else _FOLLOWS)
        whole = []
        for choice in dict.fromkeys(choices):
            if budget.shortest_s(replace(wanted, batches=choice)) <= limit_s:
                whole.append(choice)
        return [*whole, (alone,), (last,), (first,)]

    @cached_property
    def is_of_largest(self) -> bool:
        """Whether steps of the largest size are so slow that this plan has no other size."""
        return bool(self._sizes) and self.situation.budget.fills_visits(self._sizes[-1:])

    @cached_property
    def _made(self) -> list[Experiment]:
        return [made for made in self.situation.made if made.functional_kind == TIME]

    def _change(self, name: str) -> TriedChange:
        """A change, as the experiments so far show it."""
        if name not in self._changes:
            largest = max(self._sizes, default=0)
            self._changes[name] = TriedChange.of(name, self.situation, largest, self.is_of_largest)
        return self._changes[name]

    @cached_property
    def _changes(self) -> dict[str, TriedChange]:
        return {}

    def _experiment(self, stage: Stage, names: Iterable[str]) -> Experiment:
        # then every round has processes of its own
        turns = self.situation.budget.takes_turns(self._sizes)
        return Experiment(
            number=self.situation.next_number,
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
        """A few rounds of every change that was not tried; changes that do not apply come along
        and say why.
        """
        names = [name for name in self._order(costly=False) if self._change(name).is_new]
        return self._some(Stage.SCREEN, names)

    def _some(self, stage: Stage, names: Sequence[str]) -> Experiment | None:
        """The experiment on some changes; None without any."""
        return self._experiment(stage, names) if names else None

    def _test_suggested(self) -> Experiment | None:
        """Fresh rounds of the change of a program that its profile suggests most.

        The profile chose it before anything ran, and not luck. A screen would only take the time of
        its runs, each of which is a start. A program may not run with it, e.g. because its
        operators have no bf16. Then it leaves its place to the next.
        """
        ran = any(set(made.factors) - set(made.untested) for made in self._made)
        if self.situation.budget.run_s is None or ran:
            return None
        new = (name for name in self._order(costly=False) if self._change(name).is_new)
        first = next(new, None)
        if first is None or self.situation.suggested.get(first, 0.0) < _SUGGESTED_ALONE:
            return None
        if self.situation.budget.refuses(first):
            return None
        return self._experiment(Stage.CONFIRM, [first])

    def _confirm(self) -> Experiment | None:
        """Fresh rounds of the leaders, and of each with those before it."""
        names = [*self._leaders, *self._chain[1:]]
        return self._some(Stage.CONFIRM, self._not_in(Stage.CONFIRM, names))

    def _not_in(self, stage: Stage, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self._change(name).was_in(stage)]

    def _together(self) -> Experiment | None:
        """Fresh rounds of the changes that add to each other, together, and of leaders that help.

        A single change gets them until two experiments had it on fresh rounds: processes differ.
        """
        names = [name_together(self._set)] if len(self._set) > 1 else []
        for name in self._leaders:
            change = self._change(name)
            if change.helps and change.fresh_experiments < _LEAST_FRESH:
                names.append(name)
        return self._some(Stage.REMEDY, self._not_in(Stage.REMEDY, names))

    def _rule_out(self) -> Experiment | None:
        """More starts of changes that may still save something at the largest size, where none is
        shown to. That nothing helps is an answer too.
        """
        remedies = self.situation.diagnosis.remedies
        measured = [saving.factor for saving in (*remedies.savings, *remedies.sets)]
        proven = any(self._change(name).is_proven_at_largest for name in measured)
        if proven or not self.is_of_largest:
            return None
        open_ = [name for name in self._order(costly=False) if self._may_be_ruled_out(name)]
        return self._some(Stage.REMEDY, open_)

    def _may_be_ruled_out(self, name: str) -> bool:
        change = self._change(name)
        return change.may_save_at_largest and change.fresh_experiments < _MOST_RULING_OUT

    def _again(self) -> Experiment | None:
        """More starts, once, of the set and of leaders that are not yet proven."""
        made = [made for made in self._made if made.stage == Stage.REMEDY]
        if len(made) != 1:
            return None
        return self._some(
            Stage.REMEDY, [name for name in made[0].factors if self._change(name).is_open]
        )

    def _costly(self) -> Experiment | None:
        """Fresh rounds of a change with a long set-up, and of the set with it."""
        new = [name for name in self._order(costly=True) if self._change(name).is_new]
        if not new:
            return None
        names = new[:1]
        if self._set:
            names.append(name_together((*self._set, new[0])))
        return replace(self._experiment(Stage.CONFIRM, names), starts=_LEAST_FRESH)

    def _order(self, *, costly: bool) -> list[str]:
        budget = self.situation.budget
        claimed = self._collect_claims()
        disturbed = self.situation.diagnosis.disturbances
        # Threads that spin at a barrier wait for one that has no core, for most of the step.
        crowded = disturbed is not None and disturbed.prevail

        def place(name: str) -> tuple[bool, bool, bool, float, int]:
            refused, small = budget.refuses(name), self._saves_little(name)
            frees_cores = crowded and FACTORS[name].sets == _THREADS
            share = claimed[name] if claimed[name] >= _SUGGESTED else 0.0
            return refused, not frees_cores, small, -share, COMMON[name].common or 0

        alike = [name for name in COMMON if is_costly(name) == costly]
        return sorted((name for name in alike if budget.fits(Scope.STEP, name)), key=place)

    def _saves_little(self, name: str) -> bool:
        """Whether all that a change could save at the largest size is known to be little."""
        phase, budget = COMMON[name].phase, self.situation.budget
        if phase is None or not self._sizes:
            return False
        largest = self._sizes[-1:]
        most_ms = budget.pass_ms(Key(None, phase, KERNELS), largest)
        return 0 < most_ms < _SUGGESTED * budget.pass_ms(None, largest)

    def _collect_claims(self) -> dict[str, float]:
        factors = defaultdict[str, list[str]](list)  # by the cause that they test
        for name, cause in causes.factors(Scope.STEP).items():
            factors[cause].append(name)
        claimed = defaultdict[str, float](float, self.situation.suggested)
        for target, _ in self.situation.targets:
            size = self._sizes[-1] if self.is_of_largest else target.functional.last
            step_ms = self.situation.diagnosis.curve.at(size).time_ms.value
            for total in target.causes:
                for name in factors.get(total.cause, ()):
                    claimed[name] = max(claimed[name], abs(total.amount) / step_ms)
        return claimed

    @cached_property
    def _leaders(self) -> list[str]:
        """The changes that lead so far, the best first: one trains at the largest batch size."""
        tried = [saving.factor for saving in self.situation.diagnosis.remedies.attempts]
        changes = [self._change(name) for name in tried if name in COMMON]
        leading = [change for change in changes if change.leads]
        leading.sort(key=lambda change: change.place)
        return [change.name for change in leading[:_MOST_LEADERS]]

    @cached_property
    def _chain(self) -> list[str]:
        """The best leader, then both best, and so on; none changes results, or sets the same as
        another.
        """
        chain: list[str] = []
        joined: list[str] = []
        for name in self._leaders:
            taken = {FACTORS[other].sets for other in joined} - {None}
            if not self._change(name).changes_results and FACTORS[name].sets not in taken:
                joined.append(name)
                chain.append(name_together(joined))
        return chain

    @cached_property
    def _set(self) -> tuple[str, ...]:
        """The leaders that add to those before them, on fresh rounds; empty before they
        had these.
        """
        first = [name for name in self._chain[:1] if self._change(name).helps]
        added = [name for before, name in pairwise(self._chain) if self._adds(before, name)]
        return tuple(members(name)[-1] for name in (*first, *added))

    def _adds(self, before: str, name: str) -> bool:
        return self._change(name).adds_to(self._change(before))


def impossible(recording: Recording) -> frozenset[str]:
    """The common changes that the steps of a recording are known to refuse."""
    try:
        target = target_of(recording, configuration_of(recording.meta), ())
    except CurvescopeError:  # its steps cannot be built at all
        return frozenset()
    device = device_kind(recording.meta)
    tried = [name for name in COMMON if FACTORS[name].refusal(device) is None]
    return frozenset(name for name in tried if COMMON[name].reason_against(target) is not None)
