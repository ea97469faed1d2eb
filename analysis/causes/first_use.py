"""Work of a first use: modules are loaded, contexts and streams made, kernels compiled or chosen by timing."""

from __future__ import annotations

import re

from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact

CAUSE = "work of a first use"
INTERVENTION = Intervention(
    expected="In a later step, or after a warm-up, it does not recur.",
    untested="a sweep warms up before it measures",
)
_CALLS = re.compile(
    r"(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel|FuncGetAttributes|StreamCreate|EventCreate"
    r"|CtxCreate|PrimaryCtxRetain|^cuInit|^hipInit|GetDeviceProperties|LinkComplete|nvrtc|nvPTXCompiler)"
)


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to profile after a warm-up, where the host prepares while nothing runs."""
    waits_ms = step.idle_because(lambda reason: _CALLS.search(reason.removeprefix("host in ")) is not None)
    if not step.enough(waits_ms):
        return None
    reasons = [t.reason.removeprefix("host in ") for t in step.idle if t.reason and _CALLS.search(t.reason)]
    return Suggestion(
        cause=CAUSE,
        what="prepares what is used for the first time",
        at_most_ms=waits_ms,
        evidence=(fact(f"idle time in {', '.join(reasons[:3])}", waits_ms, "ms", "api_calls"),),
        where=reasons[0],
        remedy="warm up before the steps that count, and profile later steps",
        how="run some steps first (torch.profiler.schedule(wait=1, warmup=3, active=3)); in a service run each shape "
        "once at the start; CUDA_MODULE_LOADING=EAGER loads all modules at the start",
    )
