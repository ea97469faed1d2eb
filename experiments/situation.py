"""The basis of a plan of experiments: the diagnosis, the experiments so far, and the time left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..analysis import causes
from ..analysis.decompose.terms import KERNELS, Share
from ..profiling.recording.experiments import Experiment, Scope
from .budget import Budget

if TYPE_CHECKING:
    from ..analysis.diagnosis.explanation import Explanation
    from ..analysis.diagnosis.result import Diagnosis

_MOST = 0.8  # share of a target that the tested terms make
_MOST_TERMS = 4


@dataclass(frozen=True)
class Situation:
    """The basis of a plan."""

    diagnosis: Diagnosis
    made: tuple[Experiment, ...]
    # names of operators of a layer and phase
    replayable: Mapping[tuple[str | None, str | None], Collection[str]]
    budget: Budget
    # sizes that the sweep found between those that the user asked for, and behind them
    probed: frozenset[int] = frozenset()
    # share of a step that each factor saves at most, by what its profile suggests; of one size, or
    # of a program
    suggested: Mapping[str, float] = field(default_factory=dict)

    @property
    def next_number(self) -> int:
        """Number of the next experiment."""
        return max((experiment.number for experiment in self.made), default=-1) + 1

    @cached_property
    def targets(self) -> list[tuple[Explanation, list[Share]]]:
        """Anomalies with the terms to test, in the order of the answers; then the fixed cost, which
        is usual.
        """
        targets = list(self.diagnosis.explanations)
        if self.diagnosis.fixed_cost is not None:
            targets.append(self.diagnosis.fixed_cost)
        return [(target, self._terms(target)) for target in targets if not target.noise]

    def _terms(self, target: Explanation) -> list[Share]:
        """The terms with kernels that make most of the target in its direction, the largest first.

        If complete steps confirmed a part of a term, it is explained, and counts as made.
        """
        sign = np.sign(target.value.value)
        explained: dict[str, float] = defaultdict(float)
        for total in target.causes:
            if total.confirmed_on_steps:
                for term in total.terms:
                    explained[term.label] += sign * term.amount
        left: dict[str, float] = {}
        agreeing = []
        agreeing_ms = 0.0
        for share in target.shares:
            amount = sign * share.value.value
            if share.key.kind == KERNELS and amount > 0:
                agreeing.append(share)
                agreeing_ms += amount
                left[share.label] = max(amount - explained[share.label], 0.0)
        agreeing.sort(key=lambda share: (-left[share.label], share.label))
        terms: list[Share] = []
        for share in agreeing[:_MOST_TERMS]:
            if sum(left.values()) <= (1.0 - _MOST) * agreeing_ms:
                break
            del left[share.label]
            terms.append(share)
        return [share for share in terms if (share.key.layer, share.key.phase) in self.replayable]

    @cached_property
    def confirmed_on_steps(self) -> frozenset[str]:
        """The factors of terms for causes that complete steps test, and have confirmed: a term
        would say it again.
        """
        confirmed: set[str] = set()
        for target, _ in self.targets:
            confirmed.update(total.cause for total in target.causes if total.confirmed_on_steps)
        return frozenset(
            name
            for name, cause in causes.factors(Scope.TERM).items()
            if cause in confirmed and is_of_steps(cause)
        )


def is_of_steps(cause: str) -> bool:
    """Whether complete steps can test a cause by a factor that no term alone has."""
    intervention = causes.interventions().get(cause)
    return intervention is not None and not set(intervention.step) <= set(intervention.term)
