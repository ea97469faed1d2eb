"""Causes in memory: a cache that is too small, a full device, and fresh pages."""

from __future__ import annotations

import math

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
    """Steps whose kernels move no more than the cache holds have all their data there; True if that
    is not known.
    """
    del amount
    moved = max(case.facts[batch].kernel_bytes for batch in case.functional.conditions)
    return case.hardware.cache_bytes is None or not moved or moved > case.hardware.cache_bytes


def weigh_cache_capacity(case: Case) -> Claim | None:
    """Claim the time that kernels lose when their data no longer fits the cache."""
    cache = case.hardware.cache_bytes
    if cache is None or case.share.key.kind != "kernels":
        return None
    amount = 0.0
    evidence: list[Evidence] = []
    for name in case.common_names():
        low, high = case.at(case.before, name), case.at(case.after, name)
        before_bytes, after_bytes = total(low, "bytes_compulsory"), total(high, "bytes_compulsory")
        before_ms, after_ms = case.time_ms(case.before, name), case.time_ms(case.after, name)
        if not before_bytes or not after_bytes or before_ms <= 0 or after_ms <= 0:
            continue
        sets = (before_bytes / sum(u.calls for u in low), after_bytes / sum(u.calls for u in high))
        bandwidth = (before_bytes / before_ms / 1e6, after_bytes / after_ms / 1e6)
        if not sets[0] <= cache < sets[1] or bandwidth[1] > _FALLEN * bandwidth[0]:
            continue
        measured = (sum_counted(low, "dram_bytes"), sum_counted(high, "dram_bytes"))
        traffic = None
        if measured[0] is not None and measured[1] is not None:
            traffic = (measured[0] / before_bytes, measured[1] / after_bytes)
            if traffic[1] < _RISEN * traffic[0]:
                continue
        amount += case.coefficient(case.after) * (after_ms - after_bytes / bandwidth[0] / 1e6)
        evidence += [
            cite(
                f"bytes of one launch of {short_name(name)}", sets, "B", "kernels.bytes_compulsory"
            ),
            Evidence("the cache", float(cache), float(cache), "B", "recording.json"),
            cite("its bandwidth", bandwidth, "GB/s", "kernels.bytes_compulsory, duration_ns"),
        ]
        if traffic is not None:
            evidence.append(
                cite(
                    "its measured DRAM bytes per compulsory byte",
                    traffic,
                    "1",
                    "kernels.dram_bytes",
                )
            )
    if not evidence:
        return None
    refutation = (
        "Sizes that both fit the cache, or both exceed it, show the same drop in bandwidth."
    )
    return Claim(CACHE_CAPACITY, amount, Strength.SIGN, tuple(evidence), refutation)


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
    full = _fullness(case, case.after)
    if (
        switch is None
        or full is None
        or full < _FULL
        or (_fullness(case, case.before) or 0) >= _FULL
    ):
        return None
    refutation = (
        "On a device with more memory, or with a smaller workspace limit at both sizes, the switch "
        "stays."
    )
    return Claim(
        MEMORY_PRESSURE,
        switch.amount,
        Strength.FACT,
        (*memory_evidence(case), *switch.evidence),
        refutation,
    )


def _allocations(case: Case) -> Claim | None:
    amount = 0.0
    for batch, coefficient in case.functional.coefficients:
        calls, idle_ms = case.facts[batch].host.get("allocation"), case.facts[batch].idle_ms
        if calls and idle_ms:  # where in the idle time they are is unknown
            amount += coefficient * min(calls.time_ms, idle_ms) * case.time_ms(batch) / idle_ms
    before, after = (case.facts[b].host.get("allocation", HostCalls(0.0, 0.0)) for b in case.sides)
    if after.calls <= before.calls:
        return None
    evidence = (
        Evidence(
            "allocations and frees per step", before.calls, after.calls, "calls", "api_calls.name"
        ),
        Evidence(
            "their time per step", before.time_ms, after.time_ms, "ms", "api_calls.duration_ns"
        ),
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
    facts = [case.facts[batch] for batch in case.sides]
    evidence = (
        cite(
            "peak memory",
            (of_side.peak_memory_bytes for of_side in facts),
            "B",
            "steps.peak_memory_bytes",
        ),
        cite(
            "share of the device's memory",
            (_fullness(case, b) for b in case.sides),
            "1",
            "steps.peak_memory_bytes",
        ),
        cite(
            "allocator retries",
            (of_side.allocator_retries for of_side in facts),
            "",
            "steps.allocator_retries",
        ),
    )
    return [line for line in evidence if line.after or (line.unit and line.after is not None)]


def suggest_memory_pressure(step: ProfiledStep) -> Suggestion | None:
    """Suggest to keep memory, where the host allocates it from the driver while nothing runs."""
    calls = (
        step.calls[step.calls["kind"].eq("allocation") & step.calls["in_used"]]
        if len(step.calls)
        else step.calls
    )
    contexts = context_calls(step)
    calls = calls.drop(index=contexts.index, errors="ignore")
    if calls.empty:
        return None
    names = set(calls["name"])
    waits_ms = step.idle_because(lambda reason: reason.removeprefix("host in ") in names)
    waits_ms -= float(in_gaps(step, contexts[contexts["name"].isin(names)]).sum())
    if not step.enough(waits_ms):
        return None
    main = next(iter([*in_gaps(step, calls).index, *calls["name"]]))
    evidence = (
        fact(
            "idle time in allocations and frees of the driver, per step",
            waits_ms,
            "ms",
            "api_calls",
        ),
        fact(
            f"calls of {main}, per step",
            int(calls["name"].eq(main).sum()) / step.steps,
            "",
            "api_calls.name",
        ),
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
    before, after = (_use(case, batch) for batch in case.sides)
    counted = any(case.facts[batch].term_faults is not None for batch in case.functional.conditions)
    share_of, of_what, table = (
        (_share_of_faults, "page faults", "operators.page_faults")
        if counted
        else (_share_of_bytes, "bytes", "kernels.bytes_compulsory")
    )
    own = sum(
        c * share_of(case, batch) * _use(case, batch).page_faults
        for batch, c in case.functional.coefficients
    )
    amount = own * _ms_of_a_fault(case)
    if not amount:
        return None
    shares = [share_of(case, batch) for batch in case.sides]
    evidence = (
        Evidence(COUNTED_FAULTS, before.page_faults, after.page_faults, "", "steps.page_faults"),
        Evidence(
            "time in the system per step",
            before.system_ms,
            after.system_ms,
            "ms",
            "steps.system_time_ns",
        ),
        cite(f"share of the term in the step's {of_what}", shares, "1", table),
        *memory_evidence(case),
    )
    refutation = (
        "With an allocator that keeps freed memory (larger MALLOC_TRIM_THRESHOLD_ and "
        "MALLOC_MMAP_THRESHOLD_, or another one), the term keeps its value."
    )
    # If other kernels run too, the fresh memory may be theirs: the switch is the more likely cause.
    strength = Strength.SIGN if case.switched else Strength.FACT
    return Claim(PAGE_FAULTS, amount, strength, evidence, refutation)


def _use(case: Case, batch: int) -> MeanHostUse:
    use = case.facts[batch].host_use
    assert use is not None, "weigh() refuses steps without counts"
    return use


def _functional(case: Case) -> float | None:
    """The functional of the page faults of steps; None unless all its batch sizes have counts."""
    used = [(case.facts[batch].host_use, c) for batch, c in case.functional.coefficients]
    faults = [c * use.page_faults for use, c in used if use is not None]
    return math.fsum(faults) if len(faults) == len(used) else None


def _ms_of_a_fault(case: Case) -> float:
    """Wall time of a fault: the time in the kernel is sampled, so that single batch sizes tell it
    badly.
    """
    batches = case.functional.conditions
    faults = sum(_use(case, batch).page_faults for batch in batches)
    return sum(system_wall_ms(case.facts[batch]) for batch in batches) / faults if faults else 0.0


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
    return (
        use.system_ms / max(side_by_side, use.pace or 1.0)
        if side_by_side < 1
        else use.system_ms / side_by_side
    )


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
