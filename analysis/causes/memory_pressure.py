"""Memory pressure: the step fills the device's memory, so allocations, frees and retries happen inside it.

Amount: for idle, the time of allocation calls inside the profiled steps; for kernels, the contribution of an algorithm
switch if memory is so full that the faster algorithm's workspace may not have fitted. On a CPU, first access allocates
memory: if page faults grow faster than the batch, the amount is the term's share (by compulsory bytes) of the time that
the timed steps spent in the kernel.
"""

from __future__ import annotations

import numpy as np

from . import algorithm_switch
from .case import BatchFacts, Case, Claim, Evidence, HostCalls, seen

CAUSE = "memory pressure"
_FULL = 0.85
# A step causes some hundred page faults anyway; 1024 of 4 KiB are one large tensor.
_LEAST_FAULTS = 1024


def weigh(case: Case) -> Claim | None:
    """Claim allocation time in idle, page faults in a CPU's kernels, or a switch at full memory."""
    if case.share.key.kind == "idle":
        return _allocations(case)
    if case.hardware.kind == "cpu":
        return _page_faults(case)
    switch = algorithm_switch.weigh(case)
    full = _fullness(case, case.after)
    if switch is None or full is None or full < _FULL or (_fullness(case, case.before) or 0) >= _FULL:
        return None
    refutation = "On a device with more memory, or with a smaller workspace limit at both sizes, the switch stays."
    return Claim(CAUSE, switch.amount, 0.97, (*_memory(case), *switch.evidence), refutation)


def _allocations(case: Case) -> Claim | None:
    amount = 0.0
    for batch, coefficient in case.functional.coefficients:
        calls = case.facts[batch].host.get("allocation")
        amount += coefficient * min(calls.time_ms, case.facts[batch].idle_ms) if calls else 0.0
    before, after = (case.facts[b].host.get("allocation", HostCalls(0.0, 0.0)) for b in (case.before, case.after))
    if after.calls <= before.calls:
        return None
    evidence = (
        Evidence("allocations and frees per step", before.calls, after.calls, "calls", "api_calls.name"),
        Evidence("their time per step", before.time_ms, after.time_ms, "ms", "api_calls.duration_ns"),
        *_memory(case),
    )
    refutation = "With free memory (smaller model, larger device, or a warm allocator cache), idle does not shrink."
    return Claim(CAUSE, amount, 0.9, evidence, refutation)


def _page_faults(case: Case) -> Claim | None:
    before, after = case.facts[case.before].host_use, case.facts[case.after].host_use
    if case.share.key.kind != "kernels" or before is None or after is None:
        return None
    if after.page_faults - case.factor * before.page_faults < _LEAST_FAULTS:
        return None
    amount = sum(
        c * _share(case, batch) * system_wall_ms(case.facts[batch]) for batch, c in case.functional.coefficients
    )
    shares = [_share(case, batch) for batch in (case.before, case.after)]
    evidence = (
        Evidence("page faults per step", before.page_faults, after.page_faults, "", "steps.page_faults"),
        Evidence("time in the system per step", before.system_ms, after.system_ms, "ms", "steps.system_time_ns"),
        seen("share of the term in the step's bytes", shares, "1", "kernels.bytes_compulsory"),
        *_memory(case),
    )
    refutation = (
        "If the process keeps freed memory (a larger MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, or another "
        "allocator), the term keeps its value."
    )
    # If other kernels run too, the fresh memory may be theirs: the switch is the more likely cause.
    switched = case.main_kernel(case.before) != case.main_kernel(case.after)
    return Claim(CAUSE, amount, 0.8 if switched else 0.9, evidence, refutation)


def _share(case: Case, batch: int) -> float:
    """Share of the term in the step's compulsory bytes; in its time if no bytes are known."""
    facts = case.facts[batch]
    if facts.kernel_bytes:
        return sum(use.bytes_compulsory or 0.0 for use in case.at(batch)) / facts.kernel_bytes
    return case.time_ms(batch) / facts.kernel_ms if facts.kernel_ms else 0.0


def system_wall_ms(facts: BatchFacts) -> float:
    """Wall time in the operating system's kernel.

    Threads are assumed to be in the kernel concurrently, and to wait for cores there as elsewhere in the step; time in
    which a step sleeps does not count.
    """
    use = facts.host_use
    if use is None or use.cpu_ms <= 0 or not len(facts.timed_ms):
        return 0.0
    side_by_side = use.cpu_ms / float(np.median(facts.timed_ms))
    return use.system_ms / max(side_by_side, use.pace or 1.0) if side_by_side < 1 else use.system_ms / side_by_side


def _fullness(case: Case, batch: int) -> float | None:
    peak, capacity = case.facts[batch].peak_memory_bytes, case.hardware.memory_bytes
    return None if peak is None or capacity is None else peak / capacity


def _memory(case: Case) -> list[Evidence]:
    before, after = case.facts[case.before], case.facts[case.after]
    found = []
    if after.peak_memory_bytes is not None:
        found.append(
            Evidence("peak memory", before.peak_memory_bytes, after.peak_memory_bytes, "B", "steps.peak_memory_bytes")
        )
        if (full := _fullness(case, case.after)) is not None:
            found.append(
                Evidence(
                    "share of the device's memory", _fullness(case, case.before), full, "1", "steps.peak_memory_bytes"
                )
            )
    if after.allocator_retries:
        found.append(
            Evidence(
                "allocator retries", before.allocator_retries, after.allocator_retries, "", "steps.allocator_retries"
            )
        )
    return found
