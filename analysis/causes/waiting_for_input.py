"""Waiting for input: the device is idle while the program fetches the next batch."""

from __future__ import annotations

import re

from .case import Intervention
from .single_profile import ProfiledStep, Suggestion, fact, stack_of

CAUSE = "waiting for input"
INTERVENTION = Intervention(
    expected="With batches that are ready when the step begins, the wait goes away.",
    untested="no factor changes where a program's batches come from",
)
INPUT = re.compile(
    r"DataLoader|waiting for input|(next|get|load)[_ ]?(batch|data)|data[_ ]?load|phase:input", re.I
)
_LOAD_AHEAD = "load batches ahead in worker processes"
_ONE_PROCESS = "_SingleProcessDataLoaderIter"


def suggest(step: ProfiledStep) -> Suggestion | None:
    """Suggest batches that are loaded ahead, where the device is idle for them."""
    waits_ms = step.idle_because(lambda reason: INPUT.search(reason) is not None)
    if not step.enough(waits_ms):
        return None
    reasons = [time.reason for time in step.idle if time.reason and INPUT.search(time.reason)]
    where = reasons[0].removeprefix("host in range ").removeprefix("host in ")
    mine = step.gaps[step.gaps["reason"].isin(reasons)] if len(step.gaps) else step.gaps
    _, code = step.longest_gap(mine)
    alone = _ONE_PROCESS in where
    evidence = [
        fact(
            "idle time in which the next batch is fetched, per step",
            waits_ms,
            "ms",
            "ranges, kernels",
        )
    ]
    if "DataLoader" in where:
        workers = (
            "none: the loop's own process loads"
            if alone
            else "there are some, and they are too slow"
        )
        evidence.append(fact("workers of the DataLoader", workers, "", "ranges.name"))
    return Suggestion(
        cause=CAUSE,
        what="waits for the next batch",
        at_most_ms=waits_ms,
        evidence=tuple(evidence),
        where=where,
        stack=stack_of(code),
        remedy=_LOAD_AHEAD if alone else "make the loading of a batch faster, or add workers",
        how="DataLoader(..., num_workers=N, persistent_workers=True, pin_memory=True), N up to the number of cores",
    )
