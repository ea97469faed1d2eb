"""Waits of the host: a call waits for the device, which then runs out of work until the host launches again."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact, gap_ms, host_gaps, stack_of

CAUSE = "host waits for the device"
INTERVENTION = Intervention(
    expected="Without the wait the host launches ahead, and the gap after it closes.",
    untested="no factor takes reads of results out of a program",
)
_NEAR_NS = 200_000  # between the return of a wait and a gap that follows from it
_IN_TORCH = (
    "no .item(), .cpu(), print or boolean test of a tensor in the step; add losses up on the device; copy with "
    "non_blocking=True; torch.cuda.set_sync_debug_mode('warn') names each place"
)
_IN_CUDA = "work of one stream runs in order without a wait of the host; let events, and only the last read, wait"
_READS = (
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::is_nonzero",
    "aten::equal",
)


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest to avoid reads of results, where the device runs dry after them.

    Without a wait the host goes on earlier by its time, so that no gap shrinks by more.
    """
    waits = step.calls[step.calls["waits"]] if len(step.calls) else step.calls
    gaps = host_gaps(step, ("DataLoader",))
    if waits.empty or gaps.empty:
        return None
    dry, saved_ms = _dry(gaps, waits, step.steps)
    used = waits[waits["in_used"]]
    if not step.enough(saved_ms) or used.empty:
        return None
    names = used.groupby("name").size().sort_values(ascending=False)
    operators = step.groups[step.groups["op"].isin(_READS)] if len(step.groups) else pd.DataFrame()
    _, code = step.longest_gap(dry)
    evidence = [
        fact(
            "gaps that follow a wait of the host, per step",
            gap_ms(dry, step.steps),
            "ms",
            "kernels.start_ns",
        ),
        fact("time of these waits, up to the gap after each", saved_ms, "ms", "api_calls"),
        fact("calls that wait for the device, per step", len(used) / step.steps, "", "api_calls"),
        fact(
            "most of them",
            f"{names.index[0]} ({names.iloc[0] / step.steps:g} per step)",
            "",
            "api_calls.name",
        ),
    ]
    if len(operators):
        reads = ", ".join(sorted(set(operators["op"].dropna())))
        evidence.append(fact("operators that read results", reads, "", "kernels.op"))
    return Suggestion(
        cause=CAUSE,
        what="lets the host wait for results, so that the device runs out of work",
        at_most_ms=saved_ms,
        evidence=tuple(evidence),
        where=str(names.index[0]),
        stack=stack_of(code),
        remedy="read results of the device less often, or later",
        how=_IN_TORCH if step.knows_operators else _IN_CUDA,
    )


def _dry(gaps: pd.DataFrame, waits: pd.DataFrame, steps: int) -> tuple[pd.DataFrame, float]:
    """The gaps that a wait precedes or ends in, and the time of the waits up to that of their gap, per step in ms."""
    begin, end = (gaps[name].to_numpy(np.int64) for name in ("begin_ns", "end_ns"))
    ordered = waits.sort_values("end_ns")
    returned = ordered["end_ns"].to_numpy(np.int64)
    waited = np.append(0, np.cumsum(returned - ordered["start_ns"].to_numpy(np.int64)))
    first = np.searchsorted(returned, begin - _NEAR_NS)
    last = np.searchsorted(returned, end)
    saved_ns = np.minimum(waited[last] - waited[first], end - begin)
    return gaps[last > first], float(saved_ns.sum()) / 1e6 / steps
