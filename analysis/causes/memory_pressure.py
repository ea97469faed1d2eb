"""Memory pressure: the step fills the device's memory, so allocations, frees and retries happen inside it.

For kernels: an algorithm switch where the faster algorithm's workspace may not have fitted.
"""

from __future__ import annotations

from . import algorithm_switch
from .case import Case, Claim, Evidence, HostCalls, Intervention, seen
from .single_profile import ProfiledStep, Suggestion, fact

CAUSE = "memory pressure"
INTERVENTION = Intervention(
    expected=(
        "With memory as full as at the largest size, the smaller ones slow down by as much; with a small "
        "workspace, or an allocator that does not break up the memory, the effect goes away."
    ),
    term=("small_workspace",),
    step=("smaller_memory", "cudnn_workspace", "expandable_segments", "malloc_async"),
)
_FULL = 0.85


def weigh(case: Case) -> Claim | None:
    """Claim allocation time in idle, or a switch at full memory."""
    if case.share.key.kind == "idle":
        return _allocations(case)
    if case.hardware.kind == "cpu":
        return None
    switch = algorithm_switch.weigh(case)
    full = _fullness(case, case.after)
    if (
        switch is None
        or full is None
        or full < _FULL
        or (_fullness(case, case.before) or 0) >= _FULL
    ):
        return None
    refutation = "On a device with more memory, or with a smaller workspace limit at both sizes, the switch stays."
    return Claim(CAUSE, switch.amount, 0.97, (*memory_evidence(case), *switch.evidence), refutation)


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
    refutation = "With free memory (smaller model, larger device, or a warm allocator cache), idle does not shrink."
    return Claim(CAUSE, amount, 0.9, evidence, refutation)


def _fullness(case: Case, batch: int) -> float | None:
    peak, capacity = case.facts[batch].peak_memory_bytes, case.hardware.memory_bytes
    return None if peak is None or capacity is None else peak / capacity


def memory_evidence(case: Case) -> list[Evidence]:
    """Peak memory and allocator retries, where known."""
    facts = [case.facts[batch] for batch in case.sides]
    found = (
        seen(
            "peak memory", (one.peak_memory_bytes for one in facts), "B", "steps.peak_memory_bytes"
        ),
        seen(
            "share of the device's memory",
            (_fullness(case, b) for b in case.sides),
            "1",
            "steps.peak_memory_bytes",
        ),
        seen(
            "allocator retries",
            (one.allocator_retries for one in facts),
            "",
            "steps.allocator_retries",
        ),
    )
    return [one for one in found if one.after or (one.unit and one.after is not None)]


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to keep memory, where the host allocates it from the driver while nothing runs."""
    calls = (
        step.calls[step.calls["kind"].eq("allocation") & step.calls["in_used"]]
        if len(step.calls)
        else step.calls
    )
    if calls.empty:
        return None
    names = set(calls["name"])
    waits_ms = step.idle_because(lambda reason: reason.removeprefix("host in ") in names)
    if not step.enough(waits_ms):
        return None
    most = calls.groupby("name").size().sort_values(ascending=False)
    evidence = (
        fact(
            "idle time in allocations and frees of the driver, per step",
            waits_ms,
            "ms",
            "api_calls",
        ),
        fact(
            f"calls of {most.index[0]}, per step", most.iloc[0] / step.steps, "", "api_calls.name"
        ),
    )
    return Suggestion(
        cause=CAUSE,
        what="allocates the device's memory from the driver",
        at_most_ms=waits_ms,
        evidence=evidence,
        where=str(most.index[0]),
        factors=("expandable_segments", "malloc_async"),
        remedy="let the caching allocator keep the memory: warm up once with the largest shape",
        how="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; no torch.cuda.empty_cache() in the loop; in the first "
        "steps of a program allocations are usual",
    )
