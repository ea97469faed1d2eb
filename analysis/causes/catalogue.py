"""The catalogue of causes: every module of a cause, built-in or of a plugin, with the experiment that tests it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from ...base import plugins
from ...profiling.recording.experiments import Scope
from ..verdicts.outcome import Outcome
from ..verdicts.rule import makes_faster
from ..verdicts.words import Verdict
from . import call_size, more_work, not_significant, slow_call
from .case import Case, Claim, Intervention
from .single_profile import ProfiledStep, Suggestion

UNEXPLAINED = "unexplained"
NOT_SIGNIFICANT = not_significant.CAUSE
MORE_WORK = more_work.CAUSE
_NAMES = (
    *(
        "more_work",
        "algorithm_switch",
        "more_calls",
        "quantisation",
        "graph_padding",
        "memory_pressure",
        "page_faults",
    ),
    *(
        "host_bound",
        "cache_capacity",
        "roof_change",
        "throttling",
        "beside_communication",
        "cpu_contention",
    ),
    *(
        "idle_threads",
        "threads_begin",
        "values",
        "copies",
        "precision",
        "slow_call",
        "call_size",
        "weights",
    ),
    *("optimizer", "not_significant", "fixed_cost", "overhead"),
)
# Causes that one profile tells: of idle time and copies, which a sweep has as terms of their own.
_OF_PROFILES = (
    *(
        "waiting_for_input",
        "one_gap",
        "host_copies",
        "host_waits",
        "exposed_communication",
        "first_use",
    ),
    *("compilation",),
)
_MODULES = [import_module(f".{name}", __package__) for name in _NAMES]
_SUGGESTING = [
    module
    for module in (*_MODULES, *(import_module(f".{name}", __package__) for name in _OF_PROFILES))
    if hasattr(module, "suggest")
]
CAUSES = (*(module.CAUSE for module in _MODULES), UNEXPLAINED)
# Splitting removes every excess, whatever causes it: a more telling experiment goes before.
LAST_OF_CONFIRMED = (call_size.CAUSE,)
# Evidence suggests these only: without a confirmation, what they claim is unexplained.
ONLY_CONFIRMED = (slow_call.CAUSE,)
_SCOPES = (Scope.TERM, Scope.STEP)


@cache
def interventions() -> dict[str, Intervention]:
    """The experiment of every cause that names one, built-in causes first."""
    named = {
        module.CAUSE: module.INTERVENTION for module in _MODULES if hasattr(module, "INTERVENTION")
    }
    taken = {pair for intervention in named.values() for pair in _factors(intervention)}
    for plugin in plugins.plugins(plugins.CAUSES):
        intervention = getattr(plugin.module, "INTERVENTION", None)
        if intervention is None:
            continue
        if not isinstance(intervention, Intervention):
            plugins.report_broken(plugin.name, plugin.package, "INTERVENTION is no Intervention")
            continue
        if both := _factors(intervention) & taken:
            names = ", ".join(sorted(name for _, name in both))
            plugins.report_broken(
                plugin.name, plugin.package, f"another cause has its factors: {names}"
            )
        else:
            taken |= _factors(intervention)
            named[plugin.module.CAUSE] = intervention
    return named


def _factors(intervention: Intervention) -> set[tuple[str, str]]:
    return {(scope, name) for scope in _SCOPES for name in getattr(intervention, scope)}


def interventions_with(
    evident: Collection[str], outcomes: Iterable[Outcome] = ()
) -> dict[str, Intervention]:
    """The experiment of every cause in a term where some have evidence: those get the factors that they share.

    A cause that slows what it is in gets them also by the outcomes of experiments that they confirm.
    """
    named = interventions()
    fast = {
        one.factor for one in outcomes if one.verdict == Verdict.CONFIRMED and makes_faster(one)
    }
    taker = {
        name: cause
        for cause, intervention in named.items()
        for name in intervention.shared
        if cause in evident or (intervention.slows and name in fast)
    }
    if not taker:
        return named

    def names(cause: str, scope: str) -> tuple[str, ...]:
        kept = [name for name in getattr(named[cause], scope) if taker.get(name, cause) == cause]
        return (
            *kept,
            *(name for name in factors(scope) if taker.get(name) == cause and name not in kept),
        )

    return {
        cause: replace(i, term=names(cause, Scope.TERM), step=names(cause, Scope.STEP))
        for cause, i in named.items()
    }


def factors(scope: str, evident: Collection[str] = ()) -> dict[str, str]:
    """The factors of a `Scope`, with the cause that each removes, see `interventions_with`."""
    named = interventions_with(evident).items()
    return {name: cause for cause, intervention in named for name in getattr(intervention, scope)}


def possible(cause: str, case: Case, amount: float) -> bool:
    """Whether a cause can make an amount at all in a term, by what was recorded of the step."""
    judges = (
        module.possible
        for module in _MODULES
        if cause == module.CAUSE and hasattr(module, "possible")
    )
    return all(judge(case, amount) for judge in judges)


@cache
def weighing() -> tuple[Callable[[Case], Claim | None], ...]:
    """The `weigh` functions of the built-in causes, then of plugins."""
    return *(module.weigh for module in _MODULES), *map(_guarded, plugins.plugins(plugins.CAUSES))


def _guarded(plugin: plugins.Plugin) -> Callable[[Case], Claim | None]:
    """A plugin's `weigh`; if it fails, it claims nothing and is reported."""

    def weigh(case: Case) -> Claim | None:
        try:
            claim = plugin.module.weigh(case)
            if claim is None or (
                isinstance(claim, Claim) and claim.evidence and math.isfinite(claim.amount)
            ):
                return claim
            why = "weigh() returned no Claim with evidence and a finite amount"
        except Exception as error:  # third-party code may raise anything; the other causes continue
            why = f"weigh() failed ({type(error).__name__}: {error})"
        plugins.report_broken(plugin.name, plugin.package, why)
        return None

    return weigh


def suggestions(step: ProfiledStep) -> tuple[Suggestion, ...]:
    """What the causes suggest of a profiled step, the largest bound first."""
    found = (module.suggest(step) for module in _SUGGESTING)
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.at_most_ms))


@dataclass(frozen=True)
class Weighed:
    """One term with what the causes claim of it, by cause, which experiments do not change."""

    label: str
    case: Case
    claims: Mapping[str, Claim]


def weigh_causes(label: str, case: Case) -> Weighed:
    """Ask every cause what it claims of a term."""
    claims = filter(None, (weigh(case) for weigh in weighing()))
    return Weighed(label, case, {claim.cause: claim for claim in claims})


def claimed(weighed: Iterable[Weighed], cause: str, value: float) -> float:
    """What a cause claims of all terms in the direction of an anomaly, up to its value, whatever other causes claim."""
    amounts = [
        math.copysign(min(abs(term.claims[cause].amount), abs(share)), share)
        for term in weighed
        if cause in term.claims
        and term.claims[cause].amount * (share := term.case.share.value.value) > 0
    ]
    amount = math.fsum(amounts)
    return math.copysign(min(abs(amount), abs(value)), value) if amount * value > 0 else 0.0
