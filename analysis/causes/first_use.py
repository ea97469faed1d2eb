"""Work of a first use: modules are loaded, contexts and streams made, kernels compiled or chosen by timing."""

from __future__ import annotations

import re

from .case import Evidence, Intervention
from .single_profile import ProfiledStep, Suggestion, fact, gap_ms, host_gaps

CAUSE = "work of a first use"
INTERVENTION = Intervention(
    expected="In a later step, or after a warm-up, it does not recur.",
    untested="a sweep warms up before it measures",
)
_CALLS = re.compile(
    r"(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel|FuncGetAttributes|StreamCreate|EventCreate"
    r"|CtxCreate|PrimaryCtxRetain|^cuInit|^hipInit|GetDeviceProperties|LinkComplete|nvrtc|nvPTXCompiler)"
)
_LAUNCH = re.compile(r"^host in \w*Launch(?:Cooperative)?(?:Kernel|$)")
# A launch takes microseconds. One that takes longer while the device is idle loads the kernel's module.
_LOADS_NS = 5_000_000


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to profile after a warm-up, where the host prepares while nothing runs."""
    if step.is_capture:
        capture = fact("capture of a graph, per step", step.capture_ms, "ms", "api_calls")
        return _suggestion(
            "captures a graph, which a program does once",
            min(step.capture_ms, step.idle_ms),
            capture,
        )
    prepares = {
        t.reason.removeprefix("host in "): t.time_ms
        for t in step.idle
        if t.reason and _CALLS.search(t.reason)
    }
    waits_ms, loads_ms = sum(prepares.values()), _loading_ms(step)
    evidence = []
    if waits_ms:
        evidence.append(
            fact(
                f"idle time in {', '.join([*prepares][:3])}, per step", waits_ms, "ms", "api_calls"
            )
        )
    if loads_ms:
        what = "idle time in launches of at least 5 ms, which load a module, per step"
        evidence.append(fact(what, loads_ms, "ms", "api_calls"))
    if not step.enough(waits_ms + loads_ms):
        return None
    where = next(iter(prepares), None) if waits_ms >= loads_ms else "the first launch of a kernel"
    return _suggestion(
        "prepares what is used for the first time", waits_ms + loads_ms, *evidence, where=where
    )


def _loading_ms(step: ProfiledStep) -> float:
    gaps = host_gaps(step)
    if gaps.empty:
        return 0.0
    long = gaps["end_ns"] - gaps["begin_ns"] >= _LOADS_NS
    return gap_ms(gaps[long & gaps["reason"].str.contains(_LAUNCH, na=False)], step.steps)


def _suggestion(
    what: str, at_most_ms: float, *evidence: Evidence, where: str | None = None
) -> Suggestion:
    return Suggestion(
        cause=CAUSE,
        what=what,
        at_most_ms=at_most_ms,
        evidence=evidence,
        where=where,
        remedy="warm up before the steps that count, and profile later steps",
        how="run some steps first (torch.profiler.schedule(wait=1, warmup=3, active=3)); in a service run each shape "
        "once at the start; with CUDA, CUDA_MODULE_LOADING=EAGER loads all modules at the start",
    )
