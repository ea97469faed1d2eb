"""The next experiment worth its time, from the diagnosis and the experiments made so far.

Every anomaly is a target, in the order of the answers, and last the fixed cost. `_PLAN` says in
turns what each target may get. The first experiment that fits the time is the next one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from ..analysis import causes
from ..analysis.decompose.functionals import FIXED_COST
from ..analysis.decompose.repeated_layers import group_of
from ..analysis.decompose.terms import work_label
from ..analysis.ran_by import framework_beside_torch
from ..base.arguments import device_kind
from ..profiling.recording.experiments import TIME, Experiment, Scope, experiments_of
from ..profiling.recording.probes import find_probed
from ..profiling.recording.store import Recording
from . import stages
from .budget import Budget
from .case import TermCase
from .factors import is_costly
from .recorded_steps import compiling_s, fullness
from .remedies import RemedyPlan, impossible
from .situation import Situation

if TYPE_CHECKING:
    from ..analysis.decompose.terms import Share
    from ..analysis.diagnosis.result import Diagnosis

# share of a complete step that a cause claims, for its factors to come before all else
_LARGE = 0.15
_OPEN = 0.2  # share of an anomaly that terms not distinguished from 0 may make
_RUN_ENDS_S = 1.0  # what the end of a run of a program takes
# of the time that is left, that a test of the fixed cost and then fresh rounds of one change at the
# largest size take, for that test to come first: the rest is for a screen
_MOST_OF_TIME = 0.75
_LEAST_TERM = 0.05  # of an anomaly; a smaller term is not worth rounds


@dataclass(frozen=True)
class _Row:
    turn: int  # all targets get their turn before the next turn begins
    part: slice | None  # what of a target has the row: its terms in this slice, or complete steps
    when: Callable[[TermCase], bool]  # whether it gets the experiments
    # the experiments, before they are fitted to the time
    what: Callable[[TermCase], Iterable[Experiment]]


_STEP, _FIRST, _OTHERS, _EACH = None, slice(1), slice(1, None), slice(None)


def _always(_: TermCase) -> bool:
    return True


def _waits_for_steps(case: TermCase) -> bool:
    return case.waits_for_steps


def _is_in_context(case: TermCase) -> bool:
    return case.is_in_context


def _may_be_screened(case: TermCase) -> bool:
    return case.shows and not case.was_screened and not case.has_confirmed


def _is_screened(case: TermCase) -> bool:
    return case.shows and case.was_screened


def _is_open(case: TermCase) -> bool:
    return case.was_screened and not case.has_confirmed


def _has_no_outcome(case: TermCase) -> bool:
    return not case.outcomes


def _stages_of_terms(turn: int, part: slice) -> tuple[_Row, ...]:
    return (
        # A term that does not show its share in isolation suggests no factor.
        _Row(turn, part, _always, stages.run_alone),
        # A few rounds for every factor, first those of causes with evidence, say which are worth
        # fresh rounds.
        _Row(turn, part, _may_be_screened, stages.screen),
        # A screen of many factors finds by luck too.
        _Row(turn, part, _is_screened, stages.confirm),
    )


_PLAN = (
    # What a large part of the step waits for outweighs any bend.
    _Row(1, _STEP, _always, partial(stages.suggest, least_of_step=_LARGE)),
    # No term alone can test the largest cause.
    _Row(2, _STEP, _waits_for_steps, stages.suggest),
    *_stages_of_terms(2, _FIRST),
    # What is proven in a term needs no screen in the next one with the same operators.
    _Row(2, _EACH, _has_no_outcome, stages.confirm_as_elsewhere),
    # Complete steps give the gain as well, but take longer.
    _Row(2, _STEP, _always, stages.suggest),
    # An answer is worth what it saves of the step.
    _Row(3, _STEP, _always, stages.try_remedy),
    # More rounds decide what is nearly decided.
    _Row(4, _STEP, _always, stages.repeat_steps),
    *_stages_of_terms(5, _OTHERS),
    # A finer grid shows where the curve of a term bends, and proves nothing.
    _Row(6, _EACH, _is_screened, stages.refine_grid),
    # The factors that a long screen left out.
    _Row(7, _EACH, _is_open, stages.screen),
    # A long set-up takes the time of all others.
    _Row(8, _STEP, _always, partial(stages.suggest, costly=True)),
    # What no term shows alone comes from the rest of the step.
    _Row(9, _STEP, _is_in_context, stages.screen_context),
)


def next_experiment(
    recording: Recording,
    time_left_s: float,
    diagnosis: Diagnosis | None = None,
    total_s: float = 0.0,
) -> Experiment | None:
    """The next experiment to run; None if nothing is left to test, or nothing of it fits the time.

    It looks at the entries and rows of earlier experiments. So append the returned experiment to
    the entries of `recording.json` and run it. Write its rows, open the recording anew and ask
    again.
    """
    situation = _situation(recording, time_left_s, diagnosis, total_s)
    return next(candidates(situation), None)


@dataclass(frozen=True)
class Rest:
    """The experiments that a longer time limit would allow now."""

    seconds: float  # expected seconds, at least: some experiments depend on the outcome of others
    # labels of the terms, and names of the changes of complete steps, that it is about
    what: tuple[str, ...]
    of: tuple[str, ...]  # labels of the anomalies, and of the fixed cost, whose causes it tests
    changes: int  # number of changes whose savings it measures

    @property
    def entry(self) -> dict[str, Any] | None:
        """Its entry of `recording.json`; None if nothing is left."""
        return {**asdict(self), "seconds": round(self.seconds, 1)} if self.what else None


def rest(recording: Recording, diagnosis: Diagnosis | None = None) -> Rest:
    """The experiments that a longer time limit would allow; arguments as of `next_experiment`."""
    situation = _situation(recording, math.inf, diagnosis)
    budget = situation.budget
    unique: dict[tuple[object, ...], Experiment] = {}
    for candidate in candidates(situation):
        place = (candidate.scope, candidate.layer, candidate.phase)
        unique[place, candidate.stage, candidate.factors] = candidate
    labels = {target.functional.weights: target.functional.label for target, _ in situation.targets}
    what: list[str] = []
    tested: list[str] = []
    changes: set[str] = set()
    for experiment in unique.values():
        useful = [name for name in experiment.factors if not budget.refuses(name)]
        if experiment.scope == Scope.TERM:
            what.append(work_label(experiment.layer, experiment.phase))
        else:
            what += useful
        if experiment.functional_kind == TIME:
            changes.update(useful)
        for test in experiment.by_functional():
            if test.functional in labels:
                tested.append(labels[test.functional])
    seconds = sum(map(budget.shortest_s, unique.values()))
    return Rest(seconds, _unique(what), _unique(tested), len(changes))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _situation(
    recording: Recording, time_left_s: float, diagnosis: Diagnosis | None, total_s: float = 0.0
) -> Situation:
    from ..analysis.diagnosis.explain import explain
    from ..analysis.diagnosis.suggested import suggest_shares

    meta = recording.meta
    diagnosis = diagnosis or explain(recording)
    replayable = defaultdict[tuple[str | None, str | None], set[str]](set)
    names = group_of(diagnosis.recorded.groups)
    for row in recording.rows("operators", ["layer", "phase", "op"]):
        layer = names.get(row["layer"] or "", row["layer"])
        replayable[layer, row["phase"]].add(row["op"])
    made = experiments_of(meta)
    starts_s: list[float] = []
    for experiment in made:
        setups = experiment.setup_s.items()
        starts_s += [seconds for name, seconds in setups if not is_costly(name)]
    budget = Budget(
        diagnosis,
        device_kind(meta),
        time_left_s,
        starts_s=tuple(starts_s),
        impossible=impossible(recording),
        fullness=fullness(recording),
        total_s=total_s,
        run_s=_run_s(recording),
        framework=framework_beside_torch(recording),
        paces=paces_of(diagnosis),
        compiling_s=compiling_s(recording),
    )
    # Without a curve nothing is attributed, and one profile says what to try first; of a program
    # too, whose every try takes seconds.
    one_profile = len(diagnosis.curve.points) == 1 or budget.run_s is not None
    suggested = suggest_shares(recording) if one_profile else {}
    return Situation(diagnosis, made, dict(replayable), budget, find_probed(meta), suggested)


def paces_of(diagnosis: Diagnosis) -> dict[str, float]:
    """Time of complete steps with each factor, as a multiple of the unmodified ones; the last
    experiment counts.
    """
    paces = {}
    for outcome in diagnosis.outcomes:
        if outcome.experiment.scope == Scope.STEP and outcome.factor and outcome.changed_ms:
            changed_ms = sum(time.value for time in outcome.changed_ms)
            paces[outcome.factor] = changed_ms / sum(time.value for time in outcome.times_ms)
    return paces


def _run_s(recording: Recording) -> float | None:
    """Known seconds of a run of a program beside its steps; None if no program ran the steps."""
    if recording.meta.get("program") is None:
        return None
    startup_s: dict[str, float] = recording.meta.get("startup_s") or {"": 0.0}
    return median(startup_s.values()) + _RUN_ENDS_S


def candidates(situation: Situation) -> Iterator[Experiment]:
    """Experiments that fit the time, the best first; later ones assume nothing of earlier ones.

    Causes of anomalies come first, but leave time to the plan of remedies. Where a step of the
    largest size is slow, only large parts of the step come before that plan. The same holds of the
    fixed cost, which is usual: its rest comes before further rounds of the plan. It waits where it
    would leave too little to the largest size, where one trains.
    """
    remedies = RemedyPlan(situation)
    first = [row for row in _PLAN if row.turn == 1]
    usual = _PLAN if situation.diagnosis.explanations else first
    yield from _before_remedies(situation, remedies, first if remedies.is_of_largest else usual)
    yield from remedies.candidates()
    if remedies.is_of_largest:
        yield from _before_remedies(situation, remedies, usual)
    yield from _of_causes(situation, first)
    yield from remedies.together()
    yield from _of_causes(situation, _PLAN)
    yield from remedies.further()


def _before_remedies(
    situation: Situation, remedies: RemedyPlan, plan: Iterable[_Row]
) -> Iterator[Experiment]:
    """Experiments on causes that leave time to the plan of remedies."""
    budget = situation.budget
    left_s = budget.time_left_s - remedies.reserved_s()
    leaving_time = replace(situation, budget=replace(budget, time_left_s=left_s))
    for experiment in _of_causes(leaving_time, plan):
        needed_s = budget.shortest_s(experiment) + remedies.at_largest_s()
        is_usual = experiment.functional_kind == FIXED_COST
        if not is_usual or needed_s <= _MOST_OF_TIME * budget.time_left_s:
            yield experiment


def _of_causes(situation: Situation, plan: Iterable[_Row]) -> Iterator[Experiment]:
    for case, rows in _list_cases(situation, plan):
        for row in rows:
            if row.when(case):
                for experiment in row.what(case):
                    yield from situation.budget.fitting(experiment)


def _list_cases(
    situation: Situation, plan: Iterable[_Row]
) -> Iterator[tuple[TermCase, list[_Row]]]:
    """Every case with its rows of a turn, one turn after the other."""
    for _, turn in groupby(plan, key=lambda row: row.turn):
        groups = [(part, list(rows)) for part, rows in groupby(turn, key=lambda row: row.part)]
        for target, terms in situation.targets:
            for part, rows in groups:
                for share in [None] if part is None else terms[part]:
                    yield TermCase(situation, target, terms, share), rows


def open_terms(diagnosis: Diagnosis) -> tuple[Share, ...]:
    """The large terms of the largest anomaly that are not yet told from 0; none if they make under
    20 %.
    """
    if not diagnosis.explanations:
        return ()
    largest = diagnosis.explanations[0]
    size = abs(largest.value.value)
    unclear: set[str] = set()
    for total in largest.causes:
        if total.cause == causes.NOT_SIGNIFICANT:
            terms = total.terms
            unclear.update(t.label for t in terms if abs(t.amount) >= _LEAST_TERM * size)
    shares = tuple(share for share in largest.shares if share.label in unclear)
    together = sum(abs(share.value.value) for share in shares)
    return shares if together >= _OPEN * size else ()
