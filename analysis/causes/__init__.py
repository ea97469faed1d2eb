"""The causes of an anomaly's terms: competing causes, each scored by evidence in the recording.

Every cause is a module with `CAUSE` and `weigh(case) -> Claim | None`. For each term, the best-scored claim takes the
amount that it explains, then the next, as long as an amount is left and the signs agree. The rest is *unexplained*, a
cause with an amount of its own. So the amounts of all causes over all terms add up to the anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from ...profiling import plugins
from ..decompose.functionals import Functional
from ..decompose.statistics import LEVEL, Estimate
from ..experiments.outcome import Verdict
from . import (
    algorithm_switch,
    cache_capacity,
    cpu_contention,
    fixed_cost,
    host_bound,
    memory_pressure,
    not_significant,
    overhead,
    page_faults,
    quantisation,
    roof_change,
    throttling,
)
from .case import Case, Claim, Evidence

UNEXPLAINED = "unexplained"
NOT_SIGNIFICANT = not_significant.CAUSE
_MODULES = (
    algorithm_switch,
    quantisation,
    memory_pressure,
    page_faults,
    host_bound,
    cache_capacity,
    roof_change,
    throttling,
    cpu_contention,
    not_significant,
    fixed_cost,
    overhead,
)
CAUSES = (*(module.CAUSE for module in _MODULES), UNEXPLAINED)
# A smaller claim, as a share of its term, is not worth a line; its amount stays unexplained.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class TermCause:
    """The part of one term that one cause explains.

    Attributes:
        label: label of the term.
        amount: explained amount, in the functional's unit.
        claim: claim of the cause; None for unexplained.
        rivals: claims of other causes on the same term, the best first, whatever they explain.
        verdict: what experiments say of the cause in this term, see `experiments.outcome.Verdict`.
    """

    label: str
    amount: float
    claim: Claim | None
    rivals: tuple[Claim, ...]
    verdict: str = Verdict.UNTESTED


@dataclass(frozen=True)
class CauseTotal:
    """One cause summed over all terms.

    Attributes:
        cause: name of the cause.
        amount: its amount, in the functional's unit.
        terms: what it explains of each term, the largest first.
        verdict: what experiments say of it, see `experiments.outcome.Verdict`: that of its largest tested term.
        measured: amount that an experiment measured on the complete step, with its interval; None without one.
        untested: why it is untested, as a clause without a full stop; None if it was tested or nobody tried.
    """

    cause: str
    amount: float
    terms: tuple[TermCause, ...]
    verdict: str = Verdict.UNTESTED
    measured: Estimate | None = None
    untested: str | None = None


@dataclass(frozen=True)
class Attribution:
    """The causes of one anomaly; their amounts add up to it.

    Attributes:
        functional: the explained anomaly.
        value: its value, in its unit.
        noise: whether the anomaly is smaller than its noise.
        causes: the largest first, and last, apart from them, what is not significant.
    """

    functional: Functional
    value: float
    noise: bool
    causes: tuple[CauseTotal, ...]

    @property
    def verdict(self) -> CauseTotal | None:
        """The cause of most of the anomaly in the anomaly's direction; None for an anomaly of 0.

        What is less than its own noise is not significant, whatever its terms are; of an anomaly that is, the terms
        that are not significant alone stand in for a cause only where there is nothing else.
        """
        if self.noise:
            unstable = (c for c in self.causes if c.cause == NOT_SIGNIFICANT)
            return next(unstable, CauseTotal(NOT_SIGNIFICANT, 0.0, ()))
        agreeing = [c for c in self.causes if c.amount * self.value > 0]
        return max(agreeing, key=lambda c: (c.cause != NOT_SIGNIFICANT, abs(c.amount)), default=None)


def attribute(functional: Functional, value: Estimate, cases: Iterable[tuple[str, Case]]) -> Attribution:
    """Attribute every term of an anomaly to causes.

    Args:
        functional: the anomaly.
        value: its value and interval.
        cases: every term with its label; their values add up to `value`.
    """
    taken: dict[str, list[TermCause]] = {}
    for label, case in cases:
        for cause, share in share_out(label, case):
            taken.setdefault(cause, []).append(share)
    totals = [
        CauseTotal(cause, math.fsum(s.amount for s in shares), tuple(sorted(shares, key=lambda s: -abs(s.amount))))
        for cause, shares in taken.items()
    ]
    noise = math.isfinite(value.low) and value.p >= LEVEL
    return Attribution(functional, value.value, noise, tuple(sorted(totals, key=_in_order)))


def _in_order(total: CauseTotal) -> tuple[bool, float]:
    return total.cause == NOT_SIGNIFICANT, -abs(total.amount)


@cache
def _weigh() -> tuple[Callable[[Case], Claim | None], ...]:
    """The `weigh` functions of the built-in causes, then of plugins."""
    return (
        *(module.weigh for module in _MODULES),
        *(_guarded(plugin) for plugin in plugins.plugins(plugins.CAUSES)),
    )


def _guarded(plugin: plugins.Plugin) -> Callable[[Case], Claim | None]:
    """A plugin's `weigh`; if it fails, it claims nothing and is reported."""

    def weigh(case: Case) -> Claim | None:
        try:
            claim = plugin.module.weigh(case)
            if claim is None or (isinstance(claim, Claim) and claim.evidence and math.isfinite(claim.amount)):
                return claim
            why = "weigh() returned no Claim with evidence and a finite amount"
        except Exception as error:  # third-party code may raise anything; the other causes continue
            why = f"weigh() failed ({type(error).__name__}: {error})"
        plugins.report_broken(plugin.name, plugin.package, why)
        return None

    return weigh


def share_out(label: str, case: Case) -> list[tuple[str, TermCause]]:
    """The causes of one term, the best-scored first; their amounts add up to the term."""
    value = case.share.value.value
    claims = sorted(filter(None, (weigh(case) for weigh in _weigh())), key=lambda c: (-c.score, c.cause))
    left, shares = value, []
    for claim in claims:
        amount = min(abs(left), abs(claim.amount)) if claim.amount * value > 0 and left * value > 0 else 0.0
        if amount < _LEAST_SHARE * abs(value) or not amount:
            continue
        amount = math.copysign(amount, value)
        rivals = tuple(rival for rival in claims if rival is not claim)
        shares.append((claim.cause, TermCause(label, amount, claim, rivals)))
        left -= amount
    if left or not shares:
        shares.append((UNEXPLAINED, TermCause(label, left, None, tuple(claims))))
    return shares


__all__ = [
    "CAUSES",
    "NOT_SIGNIFICANT",
    "UNEXPLAINED",
    "Attribution",
    "Case",
    "CauseTotal",
    "Claim",
    "Evidence",
    "TermCause",
    "attribute",
]
