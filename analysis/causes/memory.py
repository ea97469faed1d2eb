"""Causes in memory: a cache that is too small, a full device, and fresh pages."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...profiling.attribution.kernel_names import short_name
from ...profiling.hardware.heap import FEW_FAULTS
from .case import (
    BatchFacts,
    Case,
    Cause,
    HostCalls,
    Intervention,
    MeanHostUse,
    sum_counted,
    total,
)
from .evidence import Claim, Evidence, Strength, cite
from .kernel_choice import weigh_algorithm_switch
from .single_profile import ProfiledStep, Suggestion, context_calls, fact, in_gaps

# Cache capacity: a kernel's data fits the cache (L2; the last level of a CPU) at one size and not
# at the other.
#
# The working set is the compulsory bytes of one launch, a lower bound.

CACHE_CAPACITY = "cache capacity"
# A claim needs bandwidth to fall to this share: cache and DRAM differ by far more, noise by less.
_FALLEN = 0.9
# Measured traffic per compulsory byte must rise by this factor: what no longer fits the cache comes
# from DRAM again.
_RISEN = 1.1


def cache_capacity_possible(case: Case, amount: float) -> bool:
    """Steps whose kernels move no more than the cache holds have all their data there, and a cache
    that is outgrown makes no size slower than a larger one: half of the amount must be left where
    each takes as long as the fastest larger one. True where it is not known.
    """
    sizes = case.functional.conditions
    moved = max(case.facts[batch].kernel_bytes for batch in sizes)
    cache = case.hardware.cache_bytes
    if cache is not None and moved and moved <= cache:
        return False
    if not case.uses:
        return True

    def least_ms(batch: int) -> float:
        return min(case.time_ms(size) for size in sizes if size >= batch)

    return case.evaluate(least_ms) * math.copysign(1.0, amount) >= abs(amount) / 2


def weigh_cache_capacity(case: Case) -> Claim | None:
    """Claim the time that kernels lose when their data no longer fits the cache."""
    cache = case.hardware.cache_bytes
    if cache is None or case.share.key.kind != "kernels":
        return None
    amount = 0.0
    evidence: list[Evidence] = []
    for name in case.common_names():
        low, high = (_read_traffic(case, batch, name) for batch in case.sides)
        if low is None or high is None or not low.set_bytes <= cache < high.set_bytes:
            continue
        if high.gb_per_s > _FALLEN * low.gb_per_s:
            continue
        measured = low.dram is not None and high.dram is not None
        if measured and high.dram < _RISEN * low.dram:  # type: ignore[operator]
            continue
        amount += case.coefficient(case.after) * (high.time_ms - high.size / low.gb_per_s / 1e6)
        sets, bandwidth = (low.set_bytes, high.set_bytes), (low.gb_per_s, high.gb_per_s)
        of_launch = f"bytes of one launch of {short_name(name)}"
        evidence += [
            cite(of_launch, sets, "B", "kernels.bytes_compulsory"),
            Evidence("the cache", float(cache), float(cache), "B", "recording.json"),
            cite("its bandwidth", bandwidth, "GB/s", "kernels.bytes_compulsory, duration_ns"),
        ]
        if measured:
            what = "its measured DRAM bytes per compulsory byte"
            evidence.append(cite(what, (low.dram, high.dram), "1", "kernels.dram_bytes"))
    if not evidence:
        return None
    refutation = (
        "Sizes that both fit the cache, or both exceed it, show the same drop in bandwidth."
    )
    return Claim(CACHE_CAPACITY, amount, Strength.SIGN, tuple(evidence), refutation)


class _Traffic(NamedTuple):
    """The bytes that a kernel moves at one batch size."""

    size: float  # compulsory bytes per step
    time_ms: float
    set_bytes: float  # of one launch
    gb_per_s: float
    dram: float | None  # measured DRAM bytes per compulsory byte; None unless all were measured


def _read_traffic(case: Case, batch: int, name: str) -> _Traffic | None:
    uses, time_ms = case.at(batch, name), case.time_ms(batch, name)
    size = total(uses, "bytes_compulsory")
    if not size or time_ms <= 0:
        return None
    measured = sum_counted(uses, "dram_bytes")
    dram = None if measured is None else measured / size
    return _Traffic(
        size, time_ms, size / sum(use.calls for use in uses), size / time_ms / 1e6, dram
    )


cache_capacity = Cause(
    name=CACHE_CAPACITY,
    weigh=weigh_cache_capacity,
    possible=cache_capacity_possible,
    intervention=Intervention(
        expected="With cold caches the smaller sizes are as slow per byte as the larger ones.",
        term=("cold_caches",),
    ),
)


# Memory pressure: the step fills the device's memory, so allocations, frees and retries happen
# inside it.
#
# For kernels: an algorithm switch where the faster algorithm's workspace may not have fitted.

MEMORY_PRESSURE = "memory pressure"
_FULL = 0.85


def weigh_memory_pressure(case: Case) -> Claim | None:
    """Claim allocation time in idle, or a switch at full memory."""
    if case.share.key.kind == "idle":
        return _allocations(case)
    if case.hardware.kind == "cpu":
        return None
    switch = weigh_algorithm_switch(case)
    before, after = (_fullness(case, batch) or 0.0 for batch in case.sides)
    if switch is None or after < _FULL or before >= _FULL:
        return None
    refutation = (
        "On a device with more memory, or with a smaller workspace limit at both sizes, the switch "
        "stays."
    )
    evidence = (*memory_evidence(case), *switch.evidence)
    return Claim(MEMORY_PRESSURE, switch.amount, Strength.FACT, evidence, refutation)


def _allocations(case: Case) -> Claim | None:
    amount = 0.0
    for batch, coefficient in case.functional.coefficients:
        calls, idle_ms = case.facts[batch].host.get("allocation"), case.facts[batch].idle_ms
        if calls and idle_ms:  # where in the idle time they are is unknown
            amount += coefficient * min(calls.time_ms, idle_ms) * case.time_ms(batch) / idle_ms
    none = HostCalls(0.0, 0.0)
    before, after = (case.facts[batch].host.get("allocation", none) for batch in case.sides)
    if after.calls <= before.calls:
        return None
    number, times_ms = (before.calls, after.calls), (before.time_ms, after.time_ms)
    evidence = (
        cite("allocations and frees per step", number, "calls", "api_calls.name"),
        cite("their time per step", times_ms, "ms", "api_calls.duration_ns"),
        *memory_evidence(case),
    )
    refutation = (
        "With free memory (smaller model, larger device, or a warm allocator cache), idle does not "
        "shrink."
    )
    return Claim(MEMORY_PRESSURE, amount, Strength.FACT, evidence, refutation)


def _fullness(case: Case, batch: int) -> float | None:
    peak, capacity = case.facts[batch].peak_memory_bytes, case.hardware.memory_bytes
    return None if peak is None or capacity is None else peak / capacity


def memory_evidence(case: Case) -> list[Evidence]:
    """Peak memory and allocator retries, where known."""
    peaks = [case.facts[batch].peak_memory_bytes for batch in case.sides]
    retries = [case.facts[batch].allocator_retries for batch in case.sides]
    full = [_fullness(case, batch) for batch in case.sides]
    evidence = (
        cite("peak memory", peaks, "B", "steps.peak_memory_bytes"),
        cite("share of the device's memory", full, "1", "steps.peak_memory_bytes"),
        cite("allocator retries", retries, "", "steps.allocator_retries"),
    )
    return [line for line in evidence if line.after or (line.unit and line.after is not None)]


def suggest_memory_pressure(step: ProfiledStep) -> Suggestion | None:
    """Suggest to keep memory, where the host allocates it from the driver while nothing runs."""
    calls = step.calls
    if len(calls):
        calls = calls[calls["kind"].eq("allocation") & calls["in_used"]]
    contexts = context_calls(step)
    calls = calls.drop(index=contexts.index, errors="ignore")
    if calls.empty:
        return None
    names = set(calls["name"])
    waits_ms = step.idle_because(lambda reason: reason.removeprefix("host in ") in names)
    waits_ms -= float(in_gaps(step, contexts[contexts["name"].isin(names)]).sum())
    if not step.enough(waits_ms):
        return None
    main = [*in_gaps(step, calls).index, *calls["name"]][0]
    per_step = int(calls["name"].eq(main).sum()) / step.steps
    idle = "idle time in allocations and frees of the driver, per step"
    evidence = (
        fact(idle, waits_ms, "ms", "api_calls"),
        fact(f"calls of {main}, per step", per_step, "", "api_calls.name"),
    )
    return Suggestion(
        cause=MEMORY_PRESSURE,
        what="allocates or frees memory in calls of the driver",
        at_most_ms=waits_ms,
        evidence=evidence,
        where=main,
        factors=("expandable_segments", "malloc_async"),
        remedy="let the caching allocator keep the memory: warm up once with the largest shape",
        how="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; no torch.cuda.empty_cache() in the "
        "loop; in the first "
        "steps of a program allocations are usual",
    )


memory_pressure = Cause(
    name=MEMORY_PRESSURE,
    weigh=weigh_memory_pressure,
    suggest=suggest_memory_pressure,
    intervention=Intervention(
        expected=(
            "With memory as full as at the largest size, the smaller ones slow down by as much; "
            "with a small workspace, or an allocator that does not break up the memory, the effect "
            "goes away."
        ),
        term=("small_workspace",),
        step=("smaller_memory", "cudnn_workspace", "expandable_segments", "malloc_async"),
    ),
)


# Page faults: steps use fresh memory, which the operating system allocates at first access. CPU
# only.
#
# Faults that grow faster than the batch make an excess; faults that do not grow with it are a part
# of the fixed cost.

PAGE_FAULTS = "page faults"
COUNTED_FAULTS = "page faults per step"  # name of the evidence that counts them
# A virtual machine took 1.7 µs for a fault and the first write to its page (AMD EPYC); no fault
# takes much more.
_MOST_MS = 0.005


def page_faults_possible(case: Case, amount: float) -> bool:
    """Steps that count fewer faults than a half of the amount needs have another cause; True if
    none are counted.
    """
    faults = _functional(case)
    return faults is None or _MOST_MS * abs(faults) >= abs(amount) / 2


def weigh_page_faults(case: Case) -> Claim | None:
    """Claim the time of page faults."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    faults = _functional(case)
    if faults is None or abs(faults) < FEW_FAULTS:
        return None
    share_of, of_what, table = _share_of_bytes, "bytes", "kernels.bytes_compulsory"
    if any(case.facts[batch].term_faults is not None for batch in case.functional.conditions):
        share_of, of_what, table = _share_of_faults, "page faults", "operators.page_faults"
    own = sum(
        weight * share_of(case, batch) * _use(case, batch).page_faults
        for batch, weight in case.functional.coefficients
    )
    amount = own * _ms_of_a_fault(case)
    if not amount:
        return None
    shares = [share_of(case, batch) for batch in case.sides]
    counts = [_use(case, batch).page_faults for batch in case.sides]
    system_ms = [_use(case, batch).system_ms for batch in case.sides]
    evidence = (
        cite(COUNTED_FAULTS, counts, "", "steps.page_faults"),
        cite("time in the system per step", system_ms, "ms", "steps.system_time_ns"),
        cite(f"share of the term in the step's {of_what}", shares, "1", table),
        *memory_evidence(case),
    )
    refutation = (
        "With an allocator that keeps freed memory (larger MALLOC_TRIM_THRESHOLD_ and "
        "MALLOC_MMAP_THRESHOLD_, or another one), the term keeps its value."
    )
    # If other kernels run too, the fresh memory may be theirs: the switch is the more likely cause.
    strength = Strength.SIGN if case.is_switched else Strength.FACT
    return Claim(PAGE_FAULTS, amount, strength, evidence, refutation)


def _use(case: Case, batch: int) -> MeanHostUse:
    use = case.facts[batch].host_use
    assert use is not None, "weigh() refuses steps without counts"
    return use


def _functional(case: Case) -> float | None:
    """The functional of the page faults of steps; None unless all its batch sizes have counts."""
    faults = []
    for batch, weight in case.functional.coefficients:
        use = case.facts[batch].host_use
        if use is None:
            return None
        faults.append(weight * use.page_faults)
    return math.fsum(faults)


def _ms_of_a_fault(case: Case) -> float:
    """Wall time of a fault: the time in the kernel is sampled, so that single batch sizes tell it
    badly.
    """
    batches = case.functional.conditions
    faults = sum(_use(case, batch).page_faults for batch in batches)
    time_ms = sum(system_wall_ms(case.facts[batch]) for batch in batches)
    return time_ms / faults if faults else 0.0


def _share_of_faults(case: Case, batch: int) -> float:
    """Share of the term in the page faults of a step; 0 at batch sizes with so few that they were
    not counted.
    """
    facts = case.facts[batch]
    if facts.term_faults is None or facts.host_use is None:
        return 0.0
    # Faults outside the operators belong to no term.
    of_step = max(facts.host_use.page_faults, sum(facts.term_faults.values()))
    return facts.term_faults.get(case.share.key, 0.0) / of_step if of_step else 0.0


def _share_of_bytes(case: Case, batch: int) -> float:
    """Share of the term in the step's compulsory bytes; in its time if no bytes are known."""
    facts = case.facts[batch]
    if facts.kernel_bytes:
        return sum(use.bytes_compulsory or 0.0 for use in case.at(batch)) / facts.kernel_bytes
    return case.time_ms(batch) / facts.kernel_ms if facts.kernel_ms else 0.0


def system_wall_ms(facts: BatchFacts) -> float:
    """Wall time in the operating system's kernel.

    Threads are assumed to be in the kernel concurrently, and to wait for cores there as elsewhere
    in the step; time in which a step sleeps does not count.
    """
    use = facts.host_use
    if use is None or use.cpu_ms <= 0 or not len(facts.timed_ms):
        return 0.0
    side_by_side = use.cpu_ms / float(np.median(facts.timed_ms))
    if side_by_side < 1:
        side_by_side = max(side_by_side, use.pace or 1.0)
    return use.system_ms / side_by_side


page_faults = Cause(
    name=PAGE_FAULTS,
    weigh=weigh_page_faults,
    possible=page_faults_possible,
    intervention=Intervention(
        expected="With an allocator that keeps freed memory, the faults and their time go away.",
        term=("reused_memory",),
        step=("kept_memory",),
    ),
)
