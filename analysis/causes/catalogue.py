"""The catalogue of causes, built-in or of plugins, with the experiments that test them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache

from ...base import plugins
from ...profiling.recording.experiments import Scope
from ..verdicts.outcome import Outcome
from ..verdicts.rule import makes_faster
from ..verdicts.words import Verdict
from . import (
    compilation,
    experts,
    fixed,
    fusion,
    host,
    kernel_choice,
    memory,
    numbers,
    padding,
    slow_steps,
    threads,
    transfers,
    work,
)
from .case import Case, Cause, Intervention, WeighedTerm
from .evidence import Claim, Strength
from .single_profile import ProfiledStep, Suggestion

UNEXPLAINED = "unexplained"
NOT_SIGNIFICANT = fixed.NOT_SIGNIFICANT
MORE_WORK = work.MORE_WORK
# In the order in which causes take their amounts of a term, where their evidence is equally strong.
_OF_TERMS: tuple[Cause, ...] = (
    work.more_work,  # counted, so no other cause has it
    fixed.not_significant,  # noise has no cause
    compilation.recompile_limit,  # other kernels, more of them and idle time follow from it
    numbers.precision,  # other kernels follow from it
    memory.memory_pressure,  # a switch for want of memory is not the library's choice
    host.host_bound,  # times tell that the device waits, names only that kernels differ
    kernel_choice.algorithm_switch,  # other kernels: what is said of the same ones comes after
    kernel_choice.graph_padding,  # quantisation would see the padded rows as blocks
    experts.experts,  # it says why there are more calls, and which weights are read
    threads.throttling,
    work.more_calls,
    memory.page_faults,
    kernel_choice.quantisation,
    threads.cpu_contention,
    transfers.beside_communication,
    transfers.host_copies,
    memory.cache_capacity,
    padding.padding,  # times alone: the grid and the bytes say more
    kernel_choice.roof_change,
    slow_steps.slow_steps,
    fixed.overhead,
    work.copies,
    numbers.values,
    fixed.weights,
    fixed.optimizer,
    compilation.dynamic_shapes,
    threads.idle_threads,
    threads.threads_begin,
    work.slow_call,  # any cause of a low rate says more
    work.call_size,
    fixed.fixed_cost,  # any cause says more about why the time does not grow
)
# Causes that one profile tells: of idle time, which a sweep has as terms of their own.
OF_PROFILES: tuple[Cause, ...] = (
    host.waiting_for_input,
    host.one_gap,
    host.host_waits,
    transfers.exposed_communication,
    transfers.migration,
    host.first_use,
    host.compilation,
    fusion.attention_in_parts,
    fusion.pointwise_in_a_row,
)
CAUSES = (*(cause.name for cause in _OF_TERMS), UNEXPLAINED)
# Splitting removes every excess, whatever causes it: a more telling experiment goes before.
LAST_OF_CONFIRMED = (work.CALL_SIZE,)
# Evidence suggests these only: without a confirmation, what they claim is unexplained.
ONLY_CONFIRMED = (work.SLOW_CALL,)
_SCOPES = (Scope.TERM, Scope.STEP)


@cache
def interventions() -> dict[str, Intervention]:
    """The experiment of every cause that names one, built-in causes first."""
    named = {}
    taken: set[tuple[str, str]] = set()
    for cause in _OF_TERMS:
        if cause.intervention is not None:
            named[cause.name] = cause.intervention
            taken |= _factors(cause.intervention)
    for plugin in plugins.plugins(plugins.CAUSES):
        intervention = getattr(plugin.module, "INTERVENTION", None)
        if intervention is None:
            continue
        if not isinstance(intervention, Intervention):
            plugins.report_broken(plugin.name, plugin.package, "INTERVENTION is no Intervention")
            continue
        both = _factors(intervention) & taken
        if both:
            names = ", ".join(sorted(name for _, name in both))
            why = f"another cause has its factors: {names}"
            plugins.report_broken(plugin.name, plugin.package, why)
        else:
            taken |= _factors(intervention)
            named[plugin.module.CAUSE] = intervention
    return named


def _factors(intervention: Intervention) -> set[tuple[str, str]]:
    return {(scope, name) for scope in _SCOPES for name in getattr(intervention, scope)}


def interventions_with(
    evident: Collection[str], outcomes: Iterable[Outcome] = ()
) -> dict[str, Intervention]:
    """The experiment of every cause in a term where some have evidence: those get the factors that
    they share.

    A cause that slows its term gets them also by the outcomes of experiments that they confirm.
    """
    named = interventions()
    fast = set()
    for outcome in outcomes:
        if outcome.verdict == Verdict.CONFIRMED and makes_faster(outcome):
            fast.add(outcome.factor)
    taker = {}
    for cause, intervention in named.items():
        for name in intervention.shared:
            if cause in evident or (intervention.slows and name in fast):
                taker[name] = cause
    if not taker:
        return named

    def names(cause: str, scope: str) -> tuple[str, ...]:
        kept = [name for name in getattr(named[cause], scope) if taker.get(name, cause) == cause]
        gained = [name for name in factors(scope) if taker.get(name) == cause]
        return (*kept, *(name for name in gained if name not in kept))

    changed = {}
    for cause, intervention in named.items():
        term, step = names(cause, Scope.TERM), names(cause, Scope.STEP)
        changed[cause] = replace(intervention, term=term, step=step)
    return changed


def factors(scope: str, evident: Collection[str] = ()) -> dict[str, str]:
    """The factors of a `Scope`, with the cause that each removes, see `interventions_with`."""
    causes = {}
    for cause, intervention in interventions_with(evident).items():
        for name in getattr(intervention, scope):
            causes[name] = cause
    return causes


def possible(cause: str, case: Case, amount: float) -> bool:
    """Whether a cause can make an amount at all in a term, by the recording of the step."""
    judges = [each.possible for each in _OF_TERMS if each.name == cause]
    return all(judge(case, amount) for judge in judges if judge is not None)


@cache
def weighers() -> tuple[Callable[[Case], Claim | None], ...]:
    """The `weigh` functions of the built-in causes, then of plugins."""
    built_in = (cause.weigh for cause in _OF_TERMS if cause.weigh is not None)
    return *built_in, *map(_guard, plugins.plugins(plugins.CAUSES))


def _guard(plugin: plugins.Plugin) -> Callable[[Case], Claim | None]:
    """A plugin's `weigh`; if it fails, it claims nothing and is reported."""

    def weigh(case: Case) -> Claim | None:
        try:
            claim = plugin.module.weigh(case)
            if claim is None or _is_sound(claim):
                return claim  # type: ignore[no-any-return]
            why = "weigh() returned no Claim with evidence and a finite amount"
        except Exception as error:  # third-party code may raise anything; the other causes continue
            why = f"weigh() failed ({type(error).__name__}: {error})"
        plugins.report_broken(plugin.name, plugin.package, why)
        return None

    return weigh


def _is_sound(claim: object) -> bool:
    return isinstance(claim, Claim) and bool(claim.evidence) and math.isfinite(claim.amount)


def suggestions(step: ProfiledStep) -> tuple[Suggestion, ...]:
    """The suggestions of the causes for a profiled step, the largest bound first.

    The capture of a graph runs once, and its gaps belong to no step: only the capture is named.
    """
    made = []
    for cause in (host.first_use,) if step.is_capture else (*_OF_TERMS, *OF_PROFILES):
        suggestion = cause.suggest(step) if cause.suggest is not None else None
        if suggestion is not None:
            made.append(suggestion)
    return tuple(sorted(made, key=lambda suggestion: -suggestion.at_most_ms))


def rank(claim: Claim) -> tuple[int, int, str]:
    """The place of a claim among those on a term: facts first, then signs, then hints; of equal
    strength by the list above, plugins last.
    """
    is_built_in = claim.cause in CAUSES
    place = CAUSES.index(claim.cause) if is_built_in else len(CAUSES)
    return list(Strength).index(claim.strength), place, claim.cause


def weigh_term(case: Case) -> WeighedTerm:
    """The term with what every cause claims of it."""
    claims = {}
    for weigh in weighers():
        claim = weigh(case)
        if claim is not None:
            claims[claim.cause] = claim
    return WeighedTerm(case, claims)


def sum_claims(terms: Iterable[WeighedTerm], cause: str, value: float) -> float:
    """The sum of a cause's claims on all terms in the direction of an anomaly, up to its value,
    whatever other causes claim.
    """
    amounts = []
    for term in terms:
        claim = term.claims.get(cause)
        if claim is not None:
            amounts.append(limit_to(claim.amount, term.case.share.value.value))
    return limit_to(math.fsum(amounts), value)


def limit_to(amount: float, whole: float) -> float:
    """An amount in the direction of the whole, up to all of it; 0 against it."""
    if amount * whole <= 0:
        return 0.0
    return math.copysign(min(abs(amount), abs(whole)), whole)
