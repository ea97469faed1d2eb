"""Memory pressure: the step fills the device's memory, and allocations, frees and retries land inside it.

Amount: of idle, the time of allocation calls inside the profiled steps; of kernels, what an algorithm switch
contributes where memory is so full that the faster one's workspace may not have fitted.
"""

from __future__ import annotations

from . import algorithm_switch
from .case import Case, Claim, Evidence, HostCalls

CAUSE = "memory pressure"
_FULL = 0.85


def weigh(case: Case) -> Claim | None:
    """Claim allocation time in idle, or a switch at full memory."""
    if case.part.kind == "idle":
        return _allocations(case)
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
        Evidence("allocations and frees per step", before.calls, after.calls, "calls", "launches.name"),
        Evidence("their time per step", before.time_ms, after.time_ms, "ms", "launches.duration_ns"),
        *_memory(case),
    )
    refutation = "With memory to spare (smaller model, larger device, or allocator cache kept warm) idle stays as long."
    return Claim(CAUSE, amount, 0.9, evidence, refutation)


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
                Evidence("of the device's memory", _fullness(case, case.before), full, "1", "steps.peak_memory_bytes")
            )
    if after.allocator_retries:
        found.append(
            Evidence(
                "allocator retries", before.allocator_retries, after.allocator_retries, "", "steps.allocator_retries"
            )
        )
    return found
