"""What can be said of a curve whose times have no interval: the largest difference, and where it
is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...profiling.recording.store import Recording
from ..decompose.breakdown import break_down_recording
from ..decompose.curve import Curve
from ..decompose.findings import Finding, FindingVerdict
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


def find_difference(
    recording: Recording | None, curve: Curve, terms: Terms | None, findings: Sequence[Finding]
) -> Difference | None:
    """The largest difference between adjacent batch sizes, where no test is possible; None if some
    are, or with a single size.
    """
    untested = all(finding.verdict == FindingVerdict.UNKNOWN for finding in findings)
    if recording is None or not untested or len(curve.points) < 2:
        return None
    times_ms = {point.condition: point.time_ms.value for point in curve.points}
    at, to = max(pairwise(times_ms), key=lambda pair: _size(times_ms, pair))
    change_ms = times_ms[to] - times_ms[at]
    label, label_ms, host, host_ms = None, math.nan, None, math.nan
    if terms is not None and {at, to} <= set(terms.conditions):
        index = terms.conditions.index
        changes_ms = terms.values_ms[index(to)] - terms.values_ms[index(at)]
        most = int((changes_ms * change_ms).argmax())
        label, label_ms = terms.keys[most].label, float(changes_ms[most])
        if terms.keys[most].kind == IDLE:
            host, host_ms = _longest_idle(recording, to)
    return Difference(
        at, to, (times_ms[at], times_ms[to]), label, label_ms, host, host_ms, recording.unit
    )


def _size(
    times_ms: Mapping[Condition, float], pair: tuple[Condition, Condition]
) -> tuple[bool, float]:
    """The cost of a pair beyond proportion; of pairs that cost less, how much they differ."""
    at, to = pair
    excess_ms = times_ms[to] - to / at * times_ms[at]
    if excess_ms > 0:
        return True, excess_ms / times_ms[to]
    return False, abs(times_ms[to] - times_ms[at])


def _longest_idle(recording: Recording, batch: Condition) -> tuple[str | None, float]:
    """What the host did for most of the idle time of a batch size, and how long, ms."""
    breakdown = break_down_recording(recording, "layer", batch)
    for longest in explain_idle(recording, device_work(recording), breakdown):
        return longest.reason, longest.time_ms
    return None, math.nan
