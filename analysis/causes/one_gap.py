"""One long gap: code of the host that runs once in a step, or once in the profile, while the device is idle."""

from __future__ import annotations

from . import waiting_for_input
from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact, gap_ms, host_gaps, stack_of

CAUSE = "host code in one gap"
INTERVENTION = Intervention(
    expected="With that code before the step, or beside the device's work, the gap closes.",
    untested="no factor moves code of the program",
)
_LEAST_SHARE = 0.1  # of the step, of one gap
_CALL = "host in "
_RANGE = "host in range "


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to move the code of the longest gap, unless an API call or the input explains it."""
    gaps = host_gaps(step)
    if gaps.empty or step.is_capture:
        return None
    gaps = gaps[gaps["reason"].notna()]  # else it may be anything
    reason = gaps["reason"].fillna("")
    named = reason.str.startswith(_CALL) & ~reason.str.startswith(_RANGE)
    of_input = reason.map(lambda text: waiting_for_input.INPUT.search(text) is not None)
    gaps = gaps[~named & ~of_input.astype(bool)]
    longest, code = step.longest_gap(gaps)
    if longest is None:
        return None
    length_ms = float(longest["end_ns"] - longest["begin_ns"]) / 1e6
    # In a mean of several steps a gap counts with the share that it has in all of them.
    alike = gaps[(gaps["end_ns"] - gaps["begin_ns"]) >= 0.5 * length_ms * 1e6]
    per_step_ms = gap_ms(alike, step.steps)
    if length_ms < _LEAST_SHARE * step.time_ms or not step.enough(per_step_ms):
        return None
    told = str(longest["reason"] or "")
    where = told.removeprefix(_RANGE) if told.startswith(_RANGE) else None
    what = f"waits for code of the host in {'one long gap' if len(alike) <= step.steps else 'a few long gaps'}"
    what += ", not in every step" if len(alike) < step.steps else ""
    evidence = [fact("longest time without a kernel", length_ms, "ms", "kernels.start_ns")]
    evidence += [
        fact(
            "times of at least half its length, per step",
            len(alike) / step.steps,
            "",
            "kernels.start_ns",
        )
    ]
    if code is not None and code.own_ms:
        name, own_ms = code.own_ms[0]
        evidence.append(fact(f"own time of {name} in it", own_ms, "ms", "functions"))
    return Suggestion(
        cause=CAUSE,
        what=what,
        at_most_ms=per_step_ms,
        evidence=tuple(evidence),
        where=where,
        stack=stack_of(code),
        remedy="run that code before the step, or in another thread or process beside it",
        how=None
        if code is not None
        else "record call stacks to see it: torch.profiler.profile(with_stack=True)",
    )
