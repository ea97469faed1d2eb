"""Causes of time that does not grow with the batch size: weights, the optimizer, and the rest of a
fixed cost.
"""

from __future__ import annotations

import math
import re

import numpy as np

from ..decompose.statistics import LEVEL, Floats
from ..decompose.terms import OPTIMIZER as OPTIMIZER_PHASE
from ..decompose.terms import OVERHEAD, SLOW_STEPS
from .case import Case, Cause, Intervention, total
from .evidence import Claim, Evidence, Strength, cite
from .single_profile import ProfiledStep, Suggestion, fact, in_gaps

# Weights read every step: bytes that do not depend on the batch size are moved once per step.
#
# Amount: their time at the DRAM roof, else at the bandwidth of the smaller size, an upper bound; a
# bend has none.

WEIGHTS = "weights read every step"
_LEAST_OF_BYTES = 0.2  # of the bytes at the smaller size that do not grow
_ROUNDING = 1e-9  # of coefficients
_MEMORY_BOUND = 0.3  # least share of the time that moving the bytes takes


def weights_possible(case: Case, amount: float) -> bool:
    """Weights make a fixed cost, and neither a bend nor a positive excess; without bytes that stay
    there are none.
    """
    of_constant = math.fsum(weight for _, weight in case.functional.coefficients)
    if of_constant * amount <= 0 or abs(of_constant) <= _ROUNDING:
        return False
    before, after = (total(case.at(batch), "bytes_compulsory") for batch in case.sides)
    if not before or not after:
        return True
    return _estimate_fixed_bytes(case, before, after) >= _LEAST_OF_BYTES * before


def weigh_weights(case: Case) -> Claim | None:
    """Claim the time of bytes that do not grow with the batch."""
    if case.share.key.kind != "kernels" or case.share.key.phase == "optimizer":
        return None
    before, after = (total(case.at(batch), "bytes_compulsory") or 0.0 for batch in case.sides)
    time_ms = case.time_ms(case.before)
    fixed = _estimate_fixed_bytes(case, before, after)
    if before <= 0 or after <= 0 or time_ms <= 0 or fixed < _LEAST_OF_BYTES * before:
        return None
    dram, compute = case.hardware.roof("DRAM"), case.hardware.roof("compute")
    per_ms = before / time_ms if dram is None else dram.per_s / 1e3
    moving_ms = before / per_ms
    if moving_ms < _MEMORY_BOUND * time_ms:
        return None
    flops = total(case.at(case.before), "flops") or 0.0
    if compute and moving_ms < 1e3 * flops / compute.per_s:
        return None
    # Kernels cannot spend more on their bytes than they take.
    fixed_ms = min(fixed / per_ms, *map(case.time_ms, case.functional.conditions))
    amount = fixed_ms * math.fsum(weight for _, weight in case.functional.coefficients)
    times = map(case.time_ms, case.sides)
    evidence = (
        cite("compulsory bytes per step", (before, after), "B", "kernels.bytes_compulsory"),
        Evidence("bytes that do not grow", fixed, fixed, "B", "the two above"),
        cite("time per step", times, "ms", "kernels.duration_ns"),
    )
    refutation = "With weights of half as many bytes, the term keeps its value."
    return Claim(WEIGHTS, amount, Strength.HINT, evidence, refutation)


def _estimate_fixed_bytes(case: Case, before: float, after: float) -> float:
    """Bytes that do not grow with the batch, from the bytes of the smaller and of the larger
    size.
    """
    return (case.factor * before - after) / (case.factor - 1)


weights = Cause(
    name=WEIGHTS,
    weigh=weigh_weights,
    possible=weights_possible,
    intervention=Intervention(
        expected="With operands that stay in the caches, the share shrinks.",
        term=("warm_caches",),
    ),
)


# Optimizer work: the optimizer updates every weight once per step, whatever the batch size.

OPTIMIZER = "optimizer work"
# Its time may vary a little with the batch size, e.g. by what the caches still have.
_GROWN = 1.2


def weigh_optimizer(case: Case) -> Claim | None:
    """Claim terms of the optimizer whose time does not grow with the batch."""
    if case.share.key.kind != "kernels" or case.share.key.phase != "optimizer":
        return None
    times = [case.time_ms(batch) for batch in case.sides]
    if times[0] <= 0 or times[1] > _GROWN * times[0]:
        return None
    evidence = (cite("time per step", times, "ms", "kernels.duration_ns"),)
    refutation = "At other sizes its time grows with them."
    return Claim(OPTIMIZER, case.share.value.value, Strength.HINT, evidence, refutation)


_FUSED = re.compile(
    r"fused_?(adam|sgd|adagrad|lamb|optim)|FusedAdam|FusedSgd|_fused_|LAMB", re.IGNORECASE
)
_LISTS = re.compile(r"multi_tensor_apply|_foreach_", re.IGNORECASE)


def suggest_optimizer(step: ProfiledStep) -> Suggestion | None:
    """Suggest a fused optimizer, where the optimizer runs many kernels."""
    mine = step.groups[step.groups["phase"].eq(OPTIMIZER_PHASE)]
    idle = in_gaps(step, step.ranges_named(lambda name: "Optimizer.step" in name))
    whole_ms = float(mine["ms"].sum()) + float(idle.sum())
    texts = [*mine["name"].dropna(), *mine["op"].dropna()]
    if not step.enough(whole_ms) or mine.empty or any(map(_FUSED.search, texts)):
        return None
    factors = ["fused_optimizer"]
    form = "lists of parameters"
    if not any(map(_LISTS.search, texts)):
        factors.append("foreach_optimizer")
        form = "one parameter after another"
    what = "its operators" if step.on_host else "its kernels"
    evidence = (
        fact("time of the optimizer, per step", whole_ms, "ms", "kernels.phase"),
        fact(what, float(mine["calls"].sum()), "", "kernels"),
        fact("its form", form, "", "kernels.name"),
    )
    return Suggestion(
        cause=OPTIMIZER,
        what="spends its time in an optimizer that is not fused",
        at_most_ms=whole_ms,
        evidence=evidence,
        where="optimizer",
        factors=tuple(factors),
    )


optimizer = Cause(
    name=OPTIMIZER,
    weigh=weigh_optimizer,
    suggest=suggest_optimizer,
    intervention=Intervention(
        expected="Without its updates the optimizer's share goes away; with a fused one, or on "
        "lists, it shrinks.",
        step=("no_update", "fused_optimizer", "foreach_optimizer"),
    ),
)


# Fixed cost amortised: time that does not grow with the batch makes an excess negative, which is no
# anomaly.
#
# The implied fixed time, excess/(1 - k), must not exceed the smaller size's time.

FIXED_COST = "fixed cost amortised"


def weigh_fixed_cost(case: Case) -> Claim | None:
    """Claim negative terms of an excess."""
    value = case.share.value.value
    measured = case.share.key.kind in (OVERHEAD, SLOW_STEPS)
    if case.functional.kind != "excess" or value >= 0 or measured:
        return None
    times = [case.time_ms(batch) for batch in case.sides]
    fixed_ms = -value / (case.factor - 1)
    if fixed_ms > times[0] * 1.05:
        return None
    fixed_part = "fixed part, if the rest is proportional"
    evidence = (
        cite("time per step", times, "ms", "kernels.duration_ns"),
        Evidence(fixed_part, fixed_ms, fixed_ms, "ms", "the two above"),
    )
    refutation = "At other sizes the term does not lie on the same straight line."
    return Claim(FIXED_COST, value, Strength.HINT, evidence, refutation)


fixed_cost = Cause(
    name=FIXED_COST,
    weigh=weigh_fixed_cost,
    intervention=Intervention(
        expected="At other sizes the term lies on the same straight line.",
        untested="the causes of the fixed cost itself are tested instead",
    ),
)


# Profiling overhead: the profiler slowed the two sizes differently. Amount: its term, which is
# measured.

OVERHEAD = OVERHEAD


def weigh_overhead(case: Case) -> Claim | None:
    """Claim the term of the profiling overhead."""
    if case.share.key.kind != OVERHEAD:
        return None
    timed, profiled = [], []
    for batch in case.sides:
        facts = case.facts[batch]
        timed.append(float(np.median(facts.timed_ms)) if len(facts.timed_ms) else None)
        profiled.append(facts.idle_ms + facts.kernel_ms)
    evidence = (
        cite("unprofiled step", timed, "ms", "steps.duration_ns"),
        cite("profiled step", profiled, "ms", "steps.duration_ns"),
    )
    refutation = "With a recorder of lower overhead, the term stays as large."
    return Claim(OVERHEAD, case.share.value.value, Strength.SIGN, evidence, refutation)


overhead = Cause(
    name=OVERHEAD,
    weigh=weigh_overhead,
    intervention=Intervention(
        expected="With a recorder of lower overhead, the term goes away.",
        untested="it is measured directly, by steps without the profiler",
    ),
)


# Not significant: statistics cannot tell the term from nothing, so no physical cause is named for
# it.
#
# Steps of a batch size that fall into two groups are further evidence that its overhead is noise.

NOT_SIGNIFICANT = "not significant"


def weigh_not_significant(case: Case) -> Claim | None:
    """Claim terms with an interval that contains 0."""
    value = case.share.value
    if not math.isfinite(value.low) or value.p < LEVEL:
        return None
    what = "95 % interval of the term contains 0"
    interval = value.low, value.high
    evidence = [cite(what, interval, case.functional.unit, "kernels, steps")]
    for batch in case.sides if case.share.key.kind == OVERHEAD else ():
        groups = two_groups(case.facts[batch].timed_ms)
        if groups:
            what = f"steps at {batch} fall into two groups"
            evidence.append(cite(what, groups, "ms", "steps.duration_ns"))
    refutation = "A narrower interval excludes 0."
    return Claim(NOT_SIGNIFICANT, value.value, Strength.FACT, tuple(evidence), refutation)


def two_groups(times_ms: Floats) -> tuple[float, float] | None:
    """The medians of two groups in the times; None if one group describes them.

    Split at the widest gap that leaves at least a fifth, and three, on each side: two groups if the
    gap is wider than 4 times the larger group's interquartile range and than 5 % of the median.
    """
    times = np.sort(times_ms)
    least = max(3, math.ceil(len(times) / 5))
    if len(times) < 2 * least:
        return None
    gaps = np.diff(times)[least - 1 : len(times) - least]
    place = int(np.argmax(gaps)) + least
    low, high = times[:place], times[place:]
    quartiles = np.percentile(low, [75, 25]), np.percentile(high, [75, 25])
    spread = max(float(upper - lower) for upper, lower in quartiles)
    gap = float(high[0] - low[-1])
    if gap <= 4 * spread or gap <= 0.05 * float(np.median(times)):
        return None
    return float(np.median(low)), float(np.median(high))


not_significant = Cause(
    name=NOT_SIGNIFICANT,
    weigh=weigh_not_significant,
)
