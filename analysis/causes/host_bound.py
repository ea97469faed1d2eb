"""Launch- or host-bound: the device waits for the host, between kernels, in synchronous copies, or for input."""

from __future__ import annotations

from .case import Case, Claim, Evidence, Intervention, seen
from .single_profile import ProfiledStep, Suggestion, fact, gap_ms, host_gaps

CAUSE = "launch- or host-bound"
INTERVENTION = Intervention(
    expected="With the step as one CUDA graph, compiled, or without the code between its operators, idle shrinks.",
    step=("cuda_graph", "replayed_operators", "compiled"),
)
_COPY = "Memcpy HtoD"  # the beginning of names, e.g. of "Memcpy HtoD (Pinned -> Device)"
# A smaller idle share of the step is no cause.
_LEAST_IDLE = 0.02


def weigh(case: Case) -> Claim | None:
    """Claim idle time, or input copies."""
    if case.share.key.kind == "idle":
        return _idle(case)
    copies = [use for use in case.uses if use.name.startswith(_COPY)]
    if not copies:
        return None
    times = [sum(use.time_ms for use in copies if use.batch == batch) for batch in case.sides]
    evidence = (seen("host-to-device copies per step", times, "ms", "memory.duration_ns"),)
    refutation = "With the input already on the device, the time of the copies stays in the step."
    return Claim(CAUSE, sum(use.share for use in copies), 0.85, evidence, refutation)


def _idle(case: Case) -> Claim | None:
    before, after = case.facts[case.before], case.facts[case.after]
    shares = [
        facts.idle_ms / (facts.idle_ms + facts.kernel_ms) if facts.idle_ms > 0 else 0.0
        for facts in (before, after)
    ]
    if max(shares) < _LEAST_IDLE:
        return None
    kernel_us = [
        1e3 * one.kernel_ms / one.kernel_calls if one.kernel_calls else None
        for one in (before, after)
    ]
    evidence = [
        Evidence(
            "idle per step",
            before.idle_ms,
            after.idle_ms,
            "ms",
            "kernels.start_ns, steps.duration_ns",
        ),
        seen("share of the profiled step", shares, "1", "the same"),
        Evidence("kernels per step", before.kernel_calls, after.kernel_calls, "", "kernels"),
        seen("mean time of a kernel", kernel_us, "µs", "kernels.duration_ns"),
    ]
    for kind in ("synchronous copy", "synchronisation", "launch"):
        low, high = before.host.get(kind), after.host.get(kind)
        if high is not None:
            spent = (low.time_ms if low else 0.0, high.time_ms)
            evidence.append(seen(f"{kind} calls per step", spent, "ms", "api_calls.duration_ns"))
    waits = [
        facts.host_use.run_queue_wait_ms if facts.host_use else None for facts in (before, after)
    ]
    if waits[1]:
        evidence.append(
            seen("threads waiting for a core per step", waits, "ms", "steps.run_queue_wait_ns")
        )
    refutation = (
        "With the step replayed as one CUDA graph, or its input prefetched, idle does not shrink."
    )
    amount = sum(use.share for use in case.uses)
    return Claim(CAUSE, amount, 0.6, tuple(evidence), refutation)


_LONGEST_SHORT_NS = 1_000_000  # a longer gap has a reason of its own
_MOST_KERNEL_MS = 0.1  # mean time of a kernel up to which launching it may be what takes long


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest one launch for many kernels, where the device is idle between short kernels."""
    if step.on_host or step.is_capture or not step.knows_reasons:
        return None
    if len(step.calls) and step.calls["name"].str.contains("GraphLaunch").any():
        return None
    gaps = host_gaps(step)
    long = gaps[gaps["end_ns"] - gaps["begin_ns"] > _LONGEST_SHORT_NS] if len(gaps) else gaps
    short_ms = step.idle_ms - gap_ms(long, step.steps)
    calls = float(step.groups["calls"].sum())
    kernel_ms = float(step.groups["own_ms"].sum()) / calls if calls else 0.0
    if not step.enough(short_ms) or not 0 < kernel_ms <= _MOST_KERNEL_MS:
        return None
    evidence = (
        fact("idle time in gaps of at most 1 ms, per step", short_ms, "ms", "kernels.start_ns"),
        fact("kernels and copies per step", calls, "", "kernels"),
        fact("their mean time", 1e3 * kernel_ms, "µs", "kernels.duration_ns"),
    )
    return Suggestion(
        cause=CAUSE,
        what="launches short kernels more slowly than the device runs them",
        at_most_ms=short_ms,
        evidence=evidence,
        where=None,
        factors=("cuda_graph", "compiled"),
    )
