"""Page faults: steps use fresh memory, which the operating system allocates at first access. CPU only.

Faults that grow faster than the batch make an excess; faults that do not grow with it are a part of the fixed cost.
"""

from __future__ import annotations

import math

import numpy as np

from ...profiling.hardware.heap import FEW_FAULTS
from .case import BatchFacts, Case, Claim, Evidence, Intervention, MeanHostUse, seen
from .memory_pressure import memory_evidence

CAUSE = "page faults"
COUNT = "page faults per step"  # name of the evidence that counts them
INTERVENTION = Intervention(
    expected="With an allocator that keeps freed memory, the faults and their time go away.",
    term=("reused_memory",),
    step=("kept_memory",),
)
# A virtual machine took 1.7 µs for a fault and the first write to its page (AMD EPYC); no fault takes much more.
_MOST_MS = 0.005


def possible(case: Case, amount: float) -> bool:
    """Steps that count fewer faults than a half of the amount needs have another cause; True if none are counted."""
    faults = _functional(case)
    return faults is None or _MOST_MS * abs(faults) >= abs(amount) / 2


def weigh(case: Case) -> Claim | None:
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
        Evidence(COUNT, before.page_faults, after.page_faults, "", "steps.page_faults"),
        Evidence(
            "time in the system per step",
            before.system_ms,
            after.system_ms,
            "ms",
            "steps.system_time_ns",
        ),
        seen(f"share of the term in the step's {of_what}", shares, "1", table),
        *memory_evidence(case),
    )
    refutation = (
        "With an allocator that keeps freed memory (larger MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, or "
        "another one), the term keeps its value."
    )
    # If other kernels run too, the fresh memory may be theirs: the switch is the more likely cause.
    return Claim(CAUSE, amount, 0.8 if case.switched else 0.9, evidence, refutation)


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
    """Wall time of a fault: the time in the kernel is sampled, so that single batch sizes tell it badly."""
    batches = case.functional.conditions
    faults = sum(_use(case, batch).page_faults for batch in batches)
    return sum(system_wall_ms(case.facts[batch]) for batch in batches) / faults if faults else 0.0


def _share_of_faults(case: Case, batch: int) -> float:
    """Share of the term in the page faults of a step; 0 at batch sizes with so few that they were not counted."""
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

    Threads are assumed to be in the kernel concurrently, and to wait for cores there as elsewhere in the step; time in
    which a step sleeps does not count.
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
