"""The experiments that a target, with a term or with complete steps, may get: a function a stage,
which `plan` lists.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..analysis import causes
from ..analysis.decompose.functionals import FIXED_COST
from ..analysis.verdicts.outcome import Outcome
from ..analysis.verdicts.proof import decisive
from ..analysis.verdicts.rule import SCREENED_SAVING, TOO_WIDE
from ..analysis.verdicts.words import Reproduction, Verdict
from ..profiling.hardware.locked_clocks import NOT_ASKED, may_lock_clocks
from ..profiling.recording.experiments import Experiment, Scope, Stage
from .budget import with_more_rounds
from .case import TermCase
from .factors import FACTORS, names_of
from .factors.batches import FILLED_WAVE
from .promising import is_confirmed, most_promising, promising

# Least share of a target that a cause claims, for its factors to come first; more for those with a
# long set-up.
_SUGGESTED = 0.03
_OUTBID = 0.2  # the same for a cause whose claims others outbid
_LEAST_SCREENED = 3  # factors of one screen of a term, however long it takes
# longest time for the fewest rounds of a screen of a term, as a factor on its usual time
_LONG_SCREEN = 3.0
_MOST_STEP_FACTORS = 3  # of one screen on complete steps, each in a process of its own
_GRID_SIZES = 9


def suggest(
    case: TermCase, *, costly: bool = False, least_of_step: float = 0.0
) -> Iterator[Experiment]:
    """Complete steps with the factors that the recording suggests and no term can be tested with
    alone.

    `costly` asks for factors with a long set-up, instead of the others. The cause of a factor
    claims at least the share `least_of_step` of the step, at the last batch size.
    """
    situation, target = case.situation, case.target
    budget, whole = situation.budget, target.value.value
    step_ms = situation.diagnosis.curve.at(target.functional.last).time_ms.value
    of_step = abs(whole / step_ms)
    names: dict[str, float] = {}
    for cause, intervention in causes.interventions().items():
        # A cause that others outbid in every term may still be the right one: only an experiment
        # tells.
        share = case.amounts.get(cause, 0.0) / whole
        outbid = causes.sum_claims(target.terms, cause, whole) / whole
        evidence = max(share / _SUGGESTED, outbid / _OUTBID)
        if max(share, 0.0) * of_step < least_of_step:
            continue
        for name in intervention.step:
            setup = budget.setup_s(name) / budget.start_s
            is_costly = setup > 1.0
            if name in intervention.term or is_costly != costly:
                continue
            if evidence >= max(1.0, setup):
                names[name] = max(share, outbid)
    yield from _on_steps(case, Stage.CONFIRM, sorted(names, key=lambda name: -names[name]))


def _on_steps(case: TermCase, stage: Stage, names: Iterable[str]) -> Iterator[Experiment]:
    """Complete steps with the factors not yet tried so; those that do not apply come along and say
    why.
    """
    tried: set[str] = set()
    for experiment in case.earlier(stage):
        for name in experiment.factors:
            may_ask = may_lock_clocks() and experiment.untested.get(name) == NOT_ASKED
            if not may_ask:
                tried.add(name)
    applicable: list[str] = []
    others: list[str] = []
    for name in dict.fromkeys(names):
        if name not in tried:
            applies = case.situation.budget.setup_s(name)
            (applicable if applies else others).append(name)
    if applicable:
        yield case.experiment(stage, (*applicable[:_MOST_STEP_FACTORS], *others))


def run_alone(case: TermCase) -> Iterator[Experiment]:
    """The term without a change; once more if that stayed undecided."""
    tries = len(case.earlier(Stage.ALONE, Stage.CONFIRM))
    alone = case.experiment(Stage.ALONE)
    if tries == 0:
        yield alone
    elif tries == 1 and case.reproduction == Reproduction.UNDECIDED:
        yield with_more_rounds(alone)


def screen(case: TermCase) -> Iterator[Experiment]:
    """A screen of the term with as many of the factors not yet tried as it has time for."""
    budget, ordered = case.situation.budget, _order_factors(case)
    whole = case.experiment(Stage.SCREEN, ordered)
    tried = case.factors_of(Stage.SCREEN) | case.situation.confirmed_on_steps
    names = tuple(name for name in ordered if name not in tried)
    most_s = _LONG_SCREEN * budget.usual_s(whole)
    while len(names) > _LEAST_SCREENED:
        if budget.shortest_s(replace(whole, factors=names)) <= most_s:
            break
        names = names[:-1]
    if names:
        yield replace(whole, factors=names)


def _order_factors(case: TermCase) -> list[str]:
    """The factors of terms: causes that claim some of the term come first, other devices last."""
    owner = causes.factors(Scope.TERM, case.claiming)
    ranks = {cause: case.claiming.index(cause) for cause in case.claiming}
    changes = {}
    for name in names_of(Scope.TERM):
        change = FACTORS[name].term
        if change is not None:
            changes[name] = change
    usual = {name: change.screen for name, change in changes.items() if change.screen}
    last = max(usual.values()) + 1
    on_cpu = case.situation.diagnosis.recorded.hardware.kind == "cpu"
    # few terms of a CPU have blocks
    has_waves = not on_cpu or bool(case.waves([case.target]))

    def place(name: str) -> tuple[bool, int, int]:
        refused = case.situation.budget.refuses(name)
        return refused, ranks.get(owner[name], len(ranks)), usual.get(name, last)

    evident = []
    for name in owner:
        if name not in changes or (name == FILLED_WAVE.name and not has_waves):
            continue
        if owner[name] in ranks or not changes[name].needs_evidence:
            evident.append(name)
    return sorted(evident, key=place)


def confirm(case: TermCase) -> Iterator[Experiment]:
    """Fresh rounds for a screen's suggestions; more rounds, once, for what stayed undecided."""
    own, before = case.promising(), case.earlier(Stage.CONFIRM)
    if not own and before:
        yield from _repeat(case, before)
    if names := most_promising(own, case.promising_elsewhere()):
        yield case.experiment(Stage.CONFIRM, names)


def confirm_as_elsewhere(case: TermCase) -> Iterator[Experiment]:
    """Fresh rounds with what confirmed the same cause in a term with the same operators."""
    situation, replayable = case.situation, case.situation.replayable
    owner = causes.factors(Scope.TERM, case.claiming)
    operators = set(replayable[case.term.key.layer, case.term.key.phase])
    names = []
    for outcome in situation.diagnosis.outcomes:
        factor, experiment = outcome.factor, outcome.experiment
        if factor is None or outcome.verdict != Verdict.CONFIRMED:
            continue
        if experiment.scope != Scope.TERM or owner.get(factor) not in case.claiming:
            continue
        same = operators.intersection(replayable.get((experiment.layer, experiment.phase), ()))
        if same and factor not in situation.confirmed_on_steps:
            names.append(factor)
    if names:
        yield case.experiment(Stage.CONFIRM, most_promising(names))


def refine_grid(case: TermCase) -> Iterator[Experiment]:
    """More batch sizes around the bend of the term."""
    grid = case.experiment(Stage.GRID)
    sizes = _between(grid.batches)
    bends = grid.functional_kind != FIXED_COST and len(sizes) > max(len(grid.batches), 3)
    if bends and not case.earlier(Stage.GRID):
        yield replace(grid, batches=sizes)


def _between(batches: Sequence[int]) -> tuple[int, ...]:
    """Evenly spread from the smallest to the largest, and the functional's."""
    even = np.linspace(batches[0], batches[-1], _GRID_SIZES).round().astype(int)
    return tuple(sorted({*batches, *map(int, even)}))


def try_remedy(case: TermCase) -> Iterator[Experiment]:
    """Complete steps with what made a term faster alone."""
    tried: set[str] = set()
    for experiment in case.situation.made:
        if experiment.scope == Scope.STEP and experiment.stage != Stage.SCREEN:
            tried.update(experiment.factors)
    gains: dict[str, float] = {}
    for share in case.terms:
        for name, outcome in decisive(replace(case, share=share).outcomes).items():
            if _is_remedy(outcome) and name not in tried and FACTORS[name].step:
                assert outcome.gain is not None
                gains[name] = max(gains.get(name, 0.0), outcome.gain.value)
    if gains:
        best = sorted(gains, key=lambda name: (-gains[name], name))
        remedy = case.experiment(Stage.REMEDY, best[:_MOST_STEP_FACTORS])
        largest = int(case.situation.diagnosis.curve.conditions[-1])
        yield replace(remedy, batches=tuple(sorted({*remedy.batches, largest})))


def _is_remedy(outcome: Outcome) -> bool:
    """Whether fresh rounds show that a factor makes a term faster by enough."""
    gain = outcome.gain
    if gain is None or outcome.experiment.stage != Stage.CONFIRM:
        return False
    return gain.low > 0 and gain.value >= SCREENED_SAVING


def repeat_steps(case: TermCase) -> Iterator[Experiment]:
    """More starts, once, of complete steps with the factors that stayed undecided."""
    verdicts: dict[str, set[Verdict]] = {}
    for total in case.target.causes:
        verdicts.setdefault(total.cause, set()).add(total.verdict)
    confirmed = set()
    for name, cause in causes.factors(Scope.STEP).items():
        if verdicts.get(cause) == {Verdict.CONFIRMED}:
            confirmed.add(name)
    if before := case.earlier(Stage.CONFIRM):
        yield from _repeat(case, before, confirmed)


def _repeat(
    case: TermCase, before: Sequence[Experiment], confirmed: Container[str] = ()
) -> Iterator[Experiment]:
    """More rounds, once, for undecided factors of causes that are not confirmed."""
    if len(before) != 1:
        return
    deciding = decisive(case.outcomes)
    outcomes = [deciding[name] for name in before[0].factors if name in deciding]
    if case.share is not None and is_confirmed(outcomes):
        return
    names = []
    for outcome in outcomes:
        if outcome.reason == TOO_WIDE and outcome.factor and outcome.factor not in confirmed:
            names.append(outcome.factor)
    if names:
        yield with_more_rounds(case.experiment(Stage.CONFIRM, names))


def screen_context(case: TermCase) -> Iterator[Experiment]:
    """A screen of complete steps with factors that were not tried on the target; then its
    suggestions.
    """
    if case.earlier(Stage.SCREEN):
        yield from _on_steps(case, Stage.CONFIRM, promising(case.outcomes))
        return
    tried: set[str] = set()
    for experiment in case.situation.made:
        is_same = experiment.functional == case.target.functional.weights
        if experiment.scope == Scope.STEP and is_same:
            tried.update(experiment.factors)
    budget = case.situation.budget
    usual = {}
    for name in names_of(Scope.STEP):
        change = FACTORS[name].step
        if change is None or not change.screen or name in tried or budget.refuses(name):
            continue
        if budget.device in change.screen_on:
            usual[name] = change.screen
    yield from _on_steps(case, Stage.SCREEN, sorted(usual, key=usual.__getitem__))
