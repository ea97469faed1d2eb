"""What can be said of a curve whose times have no interval: the largest difference, and where it
is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from ...profiling.recording.store import Recording
from ..decompose.breakdown import recorded_breakdown
from ..decompose.functionals import Condition
from ..decompose.idle import explain_idle
from ..decompose.kernel_times import device_work
from ..decompose.terms import IDLE, Terms


@dataclass(frozen=True)
class Difference:
    """The adjacent batch sizes whose times differ most, measured so rarely that whether it repeats
    is unknown.
    """

    at: Condition
    to: Condition
    times_ms: tuple[float, float]
    label: str | None  # term with the most of the difference; None if no step was profiled
    label_ms: float  # its part
    # what the host did for most of the idle time at `to`; None if the term is not idle, or unknown
    host: str | None
    host_ms: float
    unit: str  # what the times are of, see `Recording.unit`


def largest_difference(
    recording: Recording, times_ms: dict[Condition, float], terms: Terms | None
) -> Difference:
    """The adjacent pair of batch sizes that costs most beyond proportion; else the pair that
    differs most.
    """

    def size(pair: tuple[Condition, Condition]) -> tuple[bool, float]:
        at, to = pair
        excess = times_ms[to] - to / at * times_ms[at]
        return excess > 0, excess / times_ms[to] if excess > 0 else abs(times_ms[to] - times_ms[at])

    at, to = max(pairwise(times_ms), key=size)
    label, label_ms, host, host_ms = None, math.nan, None, math.nan
    if terms is not None and {at, to} <= set(terms.conditions):
        before, after = (
            terms.values_ms[terms.conditions.index(condition)] for condition in (at, to)
        )
        change = after - before
        most = int((change * (times_ms[to] - times_ms[at])).argmax())
        label, label_ms = terms.keys[most].label, float(change[most])
        if terms.keys[most].kind == IDLE:
            breakdown = recorded_breakdown(recording, "layer", to)
            longest = next(iter(explain_idle(recording, device_work(recording), breakdown)), None)
            host, host_ms = (longest.reason, longest.time_ms) if longest else (None, math.nan)
    return Difference(
        at, to, (times_ms[at], times_ms[to]), label, label_ms, host, host_ms, recording.unit
    )
