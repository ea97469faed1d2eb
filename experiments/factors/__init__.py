"""The catalogue of factors: each module here describes one kind, and is found by its place."""

from __future__ import annotations

import importlib
import pkgutil

from ...profiling.recording.experiments import FactorFacts, Scope, members
from ...profiling.recording.store import Recording
from ..factor import USUAL_SETUP_S, Factor, StepChange, TermChange, together


def _read_factors() -> dict[str, Factor]:
    """Every factor by name, in the order of the alphabet."""
    factors = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f".{module.name}", __name__)).values():
            if isinstance(value, Factor):
                factors[value.name] = value
    return dict(sorted(factors.items()))


FACTORS = _read_factors()
COMMON: dict[str, StepChange] = {}  # changes that commonly help complete steps
for _factor in FACTORS.values():
    if _factor.step is not None and _factor.step.common is not None:
        COMMON[_factor.name] = _factor.step


def term_change(name: str | None) -> TermChange:
    """How a factor of terms changes them; no change without a name.

    KeyError: it changes no terms.
    """
    change = TermChange() if name is None else FACTORS[name].term
    if change is None:
        raise KeyError(name)
    return change


def factor_of(name: str) -> Factor | None:
    """A factor by its name, or several that are changed together by theirs, see `members`; None if
    there is none.
    """
    factors = [FACTORS.get(member) for member in members(name)]
    existing = [factor for factor in factors if factor is not None]
    if len(existing) < len(factors):
        return None
    return existing[0] if len(existing) == 1 else together(name, existing)


def step_change(name: str | None) -> StepChange:
    """How a factor of complete steps, or several together, change them; no change without a name.

    KeyError: none do.
    """
    if name is None:
        return StepChange()
    factor = factor_of(name)
    change = None if factor is None else factor.step
    if change is None:
        raise KeyError(name)
    return change


def is_costly(name: str) -> bool:
    """Whether the set-up of complete steps with a factor takes longer than their usual start; False
    for no factor.
    """
    factor = factor_of(name)
    return factor is not None and factor.step is not None and factor.step.setup_s > USUAL_SETUP_S


def names_of(scope: str) -> list[str]:
    """The names of the factors of a scope, in the order of the alphabet."""
    kind = "term" if scope == Scope.TERM else "step"
    return [name for name, factor in FACTORS.items() if getattr(factor, kind) is not None]


def facts_for(recording: Recording) -> dict[str, FactorFacts]:
    """The facts on every factor of complete steps, by name, in the words of what recorded them."""
    return all_facts(Scope.STEP, "cpu" if recording.on_host else "cuda")


def all_facts(scope: str, device: str = "cpu") -> dict[str, FactorFacts]:
    """The facts on every factor of a scope, by name; see `Factor.facts`."""
    return {name: FACTORS[name].facts(scope, device) for name in names_of(scope)}
