"""The catalogue of factors: each module here describes one as `FACTOR`, and is found by its place."""

from __future__ import annotations

import importlib
import pkgutil

from ...profiling.recording.experiments import FactorFacts, Scope
from ..factor import Factor, StepChange, TermChange

FACTORS: dict[str, Factor] = {
    found.name: importlib.import_module(f".{found.name}", __name__).FACTOR for found in pkgutil.iter_modules(__path__)
}


def term_change(name: str | None) -> TermChange:
    """How a factor of terms changes them; no change without a name.

    Raises:
        KeyError: the factor changes no terms.
    """
    change = TermChange() if name is None else FACTORS[name].term
    if change is None:
        raise KeyError(name)
    return change


def step_change(name: str | None) -> StepChange:
    """How a factor of complete steps changes them; no change without a name.

    Raises:
        KeyError: the factor changes no complete steps.
    """
    change = StepChange() if name is None else FACTORS[name].step
    if change is None:
        raise KeyError(name)
    return change


def names_of(scope: str) -> list[str]:
    """The names of the factors of a scope, in the order of the alphabet."""
    return [name for name, factor in FACTORS.items() if (factor.term if scope == Scope.TERM else factor.step)]


def all_facts(scope: str, device: str = "cpu") -> dict[str, FactorFacts]:
    """The facts on every factor of a scope, by name; see `Factor.facts`."""
    return {name: FACTORS[name].facts(scope, device) for name in names_of(scope)}
