"""Causes in the processor: idle threads, threads that begin, other programs, and the clock."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .case import Case, Cause, Intervention, sum_counted
from .evidence import Claim, Evidence, Strength, cite

# Idle threads: fewer threads work at one batch size than at another, as work is small or unevenly
# divided. CPU only.
#
# Amount: the time beyond what as many threads as at the best size would have needed: an upper
# bound.

IDLE_THREADS = "idle threads"
# Threads wait briefly for each other in every step.
_FALLEN_OF_IDLE_THREADS = 0.9


def weigh_idle_threads(case: Case) -> Claim | None:
    """Claim the time explained by fewer working threads."""
    busy = threads_at_work(case)
    best = max(busy.values(), default=0.0)
    if min(busy.values(), default=0.0) > _FALLEN_OF_IDLE_THREADS * best or not busy:
        return None
    amount = 0.0
    for batch, threads in busy.items():
        amount += case.coefficient(batch) * case.time_ms(batch) * (1 - threads / best)
    evidence = evidence_of_threads(case, busy)
    refutation = "On one thread the term keeps its value."
    return Claim(IDLE_THREADS, amount, Strength.HINT, evidence, refutation)


def threads_at_work(case: Case, *, with_core: bool = False) -> dict[int, float]:
    """Mean number of threads of a step that work, by batch size; empty if unknown, with one thread,
    and on a GPU.

    `with_core` leaves out threads that have work and wait for a core.
    """
    busy: dict[int, float] = {}
    hardware = case.hardware
    if case.share.key.kind != "kernels" or hardware.kind != "cpu" or hardware.threads == 1:
        return busy
    for batch in case.functional.conditions:
        use, timed_ms = case.facts[batch].host_use, case.facts[batch].timed_ms
        if use is None or use.cpu_ms <= 0 or not len(timed_ms):
            return {}
        # Threads that wait for a core have work.
        waiting_ms = 0.0 if with_core else use.run_queue_wait_ms or 0.0
        busy[batch] = (use.cpu_ms + waiting_ms) / float(np.median(timed_ms))
    return busy


def evidence_of_threads(case: Case, busy: Mapping[int, float]) -> tuple[Evidence, ...]:
    """The threads at work and the time of the term at both batch sizes."""
    threads, times = map(busy.get, case.sides), map(case.time_ms, case.sides)
    return (
        cite("threads at work", threads, "threads", _COLUMNS),
        cite("time per step", times, "ms", "kernels.duration_ns"),
    )


idle_threads = Cause(
    name=IDLE_THREADS,
    weigh=weigh_idle_threads,
    intervention=Intervention(
        expected="On one thread, which waits for no other, the term's share goes away.",
        term=("one_thread",),
        step=("one_thread",),
    ),
)


# Start of threads: from some size on an operator runs on more threads, which costs more than it
# saves. CPU only.
#
# PyTorch divides an elementwise operator from 32,768 elements on. The amount is an upper bound.
# Threads that sleep until they begin are no evidence of themselves: they look idle. What one thread
# makes faster shows them.

THREADS_BEGIN = "start of threads"
# Threads at work; one thread alone has at most one core, whatever it waits for.
_ABOUT_ONE = 1.25


def weigh_threads_begin(case: Case) -> Claim | None:
    """Claim the time beyond that with fewer threads."""
    busy = threads_at_work(case, with_core=True)
    if not busy:
        return None
    amount = case.beyond_fastest(lambda batch, fastest: busy[fastest] <= _ABOUT_ONE < busy[batch])
    if not amount:
        return None
    evidence = evidence_of_threads(case, busy)
    refutation = "On one thread the larger sizes take as long."
    return Claim(THREADS_BEGIN, amount, Strength.HINT, evidence, refutation)


threads_begin = Cause(
    name=THREADS_BEGIN,
    weigh=weigh_threads_begin,
    intervention=Intervention(
        expected="On one thread, or on fewer of them, the larger sizes get faster.",
        step=("half_threads",),
        shared=("one_thread",),
        slows=True,
    ),
)


# CPU contention: threads waited for a core that other work had: a busy neighbour, a quota, or fewer
# cores.
#
# Amounts are upper bounds. Threads of the step that wait for each other look the same, so the
# evidence is weak where the share of runnable time with a core does not change; the experiment
# tells them apart.

CPU_CONTENTION = "CPU contention"
_COLUMNS = "steps.cpu_time_ns, run_queue_wait_ns"
# A few threads always wait briefly for each other's cores.
_FALLEN_OF_CPU_CONTENTION = 0.95


def weigh_cpu_contention(case: Case) -> Claim | None:
    """Claim the time explained by missing cores."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    paces, cpu_ms, waits_ms = {}, {}, {}
    for batch in case.functional.conditions:
        use = case.facts[batch].host_use
        if use is None or use.pace is None:
            return None
        paces[batch] = use.pace
        cpu_ms[batch], waits_ms[batch] = use.cpu_ms, use.run_queue_wait_ms
    best = max(paces.values())
    falls = min(paces.values()) <= _FALLEN_OF_CPU_CONTENTION * best
    if not falls and best > _FALLEN_OF_CPU_CONTENTION:
        return None
    usual = best if falls else 1.0
    waits = map(waits_ms.get, case.sides)
    evidence = (
        cite("share of runnable time with a core", map(paces.get, case.sides), "1", _COLUMNS),
        cite("CPU time per step", map(cpu_ms.get, case.sides), "ms", "steps.cpu_time_ns"),
        cite("wait for a core per step", waits, "ms", "steps.run_queue_wait_ns"),
    )
    amount = case.evaluate(lambda batch: case.time_ms(batch) * (1 - paces[batch] / usual))
    strength = Strength.SIGN if falls else Strength.HINT
    refutation = "At a raised priority the excess is as large."
    return Claim(CPU_CONTENTION, amount, strength, evidence, refutation)


cpu_contention = Cause(
    name=CPU_CONTENTION,
    weigh=weigh_cpu_contention,
    intervention=Intervention(
        expected="At a raised priority, which leaves next to nothing to other work on the cores, "
        "the excess goes away.",
        step=("priority",),
    ),
)


# Throttling: the clock, a mean over the steps, which they count themselves, was lower during the
# larger batch.
#
# All of the time is taken to depend on the clock: an upper bound for kernels that wait for memory.
# Measured cycles of the term's kernels per recorded time give its own clock, which decides, or
# stands in for one that is missing.

THROTTLING = "throttling"
# Clocks fluctuate; a smaller difference is no change.
_FALLEN_OF_THROTTLING = 0.97


def weigh_throttling(case: Case) -> Claim | None:
    """Claim the time explained by a lower clock."""
    if case.share.key.kind != "kernels":
        return None
    before, after = case.facts[case.before], case.facts[case.after]
    own_before, own_after = (_own_clock(case, batch) for batch in case.sides)
    sources = (
        ("SM clock", before.sm_clock_hz, after.sm_clock_hz, "steps.sm_clock_hz"),
        ("SM clock by cycles", own_before, own_after, "kernels.sm_cycles"),
    )
    evidence, ratio = [], 1.0
    for what, low, high, table in sources:
        if low and high:
            ratio = high / low
            evidence.append(Evidence(what, low / 1e6, high / 1e6, "MHz", table))
            if ratio > _FALLEN_OF_THROTTLING:
                return None
    if not evidence:
        return None
    strength = Strength.SIGN
    if after.throttle_reasons - before.throttle_reasons:
        strength = Strength.FACT
        old, new = (
            ", ".join(sorted(facts.throttle_reasons)) or "none" for facts in (before, after)
        )
        evidence.append(Evidence("throttle reasons", old, new, "", "clocks.throttle_reasons"))
    amount = case.coefficient(case.after) * case.time_ms(case.after) * (1 - ratio)
    refutation = "With the clock locked below that of all sizes, the excess is as large."
    return Claim(THROTTLING, amount, strength, tuple(evidence), refutation)


def _own_clock(case: Case, batch: int) -> float | None:
    """Measured cycles of the term's kernels over their recorded time, Hz; None unless all of them
    have cycles.
    """
    cycles, time_ms = sum_counted(case.at(batch), "sm_cycles"), case.time_ms(batch)
    return None if cycles is None or time_ms <= 0 else cycles / time_ms * 1e3


throttling = Cause(
    name=THROTTLING,
    weigh=weigh_throttling,
    intervention=Intervention(
        expected=(
            "With the clock locked to one value below that of all sizes, or with pauses between "
            "the steps, the excess goes away."
        ),
        step=("locked_clock", "pauses"),
    ),
)
