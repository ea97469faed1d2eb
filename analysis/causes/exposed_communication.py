"""Communication that no computation hides: the step waits for messages, or for the last rank."""

from __future__ import annotations

from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact

CAUSE = "exposed communication"
INTERVENTION = Intervention(
    expected="With communication beside the backward pass, its exposed time leaves the step.",
    untested="no factor moves communication in a step",
)
_WAITS = 3.0  # bus rate of the fastest call over the mean one, from which calls mostly wait for another rank


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to overlap communication, or to look for the late rank."""
    told = step.communication
    if told is None or not step.enough(told.exposed_ms):
        return None
    main = told.collectives[0]
    evidence = [
        fact(
            "communication in which no other kernel runs, per step",
            told.exposed_ms,
            "ms",
            "kernels.start_ns",
        ),
        fact("all communication, per step", told.time_ms, "ms", "kernels.duration_ns"),
        fact("most of it", f"{main.name}, {main.calls:g} calls", "", "kernels.collective"),
    ]
    mean, fastest = main.bus_gb_per_s, main.fastest_bus_gb_per_s
    late = mean is not None and fastest is not None and fastest >= _WAITS * mean
    if late:
        ratio = fastest / mean  # type: ignore[operator]
        about = "bus rate of the fastest call over that of the mean"
        evidence.append(fact(about, ratio, "", "kernels"))
    remedy = "run communication beside other work"
    if late:
        remedy += "; its calls wait for another rank: compare all ranks' profiles"
    return Suggestion(
        cause=CAUSE,
        what="communicates while nothing else runs",
        at_most_ms=told.exposed_ms,
        evidence=tuple(evidence),
        where=main.name,
        remedy=remedy,
        how="DistributedDataParallel(bucket_cap_mb=..., gradient_as_bucket_view=True); FSDP with backward_prefetch and "
        "forward_prefetch" + ("; curvescope ranks FILE FILE ..." if late else ""),
    )
