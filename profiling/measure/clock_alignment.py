"""The clocks of several nodes on one axis: by exchanging readings, as NTP does.

A reading asked for over the network was taken at some moment between question and answer. So the offset of the other
clock is known to half the round trip, whatever the two ways took; of several exchanges the quickest counts. Exchanges
before and after a measurement give the offset in between by a straight line; as the clocks' rates are known on average
only, what the offset changed by between the two is added to the error.
Source: Mills, Internet Time Synchronization: the Network Time Protocol, IEEE Trans. Comm. 39 (1991).

Processes of one machine share CLOCK_MONOTONIC and need none of this: their offset and its error are 0.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Of one clock against another, in seconds a second: a kernel slews its own by 500 parts in a million at most.
_LARGEST_DRIFT = 1e-3
EXCHANGES = 30  # of which the quickest counts; a busy network delays most of them


@dataclass(frozen=True)
class Reading:
    """One exchange.

    Attributes:
        at_ns: when, on the clock of the rank that was asked.
        offset_ns: what to add to that clock to get the reference's.
        round_trip_ns: from question to answer, on the reference's clock.
    """

    at_ns: int
    offset_ns: int
    round_trip_ns: int


@dataclass(frozen=True)
class ClockAlignment:
    """How to put times of one rank on the axis of rank 0.

    Attributes:
        readings: in order of time; none where the rank shares rank 0's clock.
    """

    readings: tuple[Reading, ...] = ()

    def offset_ns(self, at_ns: int) -> int:
        """What to add to a time of this rank."""
        if not self.readings:
            return 0
        before, after = self._around(at_ns)
        if before.at_ns == after.at_ns:
            return before.offset_ns
        drift = (after.offset_ns - before.offset_ns) / (after.at_ns - before.at_ns)
        return before.offset_ns + round(drift * (min(max(at_ns, before.at_ns), after.at_ns) - before.at_ns))

    def error_ns(self, at_ns: int) -> int:
        """How far that offset may be wrong: half the longer round trip around it, and the drift between the two.

        Before the first reading and after the last nothing was seen of the drift: the largest possible is added.
        """
        if not self.readings:
            return 0
        before, after = self._around(at_ns)
        outside_ns = max(self.readings[0].at_ns - at_ns, at_ns - self.readings[-1].at_ns, 0)
        drift_ns = abs(after.offset_ns - before.offset_ns) + math.ceil(_LARGEST_DRIFT * outside_ns)
        return max(before.round_trip_ns, after.round_trip_ns) // 2 + 1 + drift_ns

    def entry(self) -> dict[str, Any]:
        """What `recording.json` holds."""
        return {"readings": [asdict(reading) for reading in self.readings]}

    def _around(self, at_ns: int) -> tuple[Reading, Reading]:
        place = bisect_right([reading.at_ns for reading in self.readings], at_ns)
        return self.readings[max(place - 1, 0)], self.readings[min(place, len(self.readings) - 1)]


def alignment_of(entry: Mapping[str, Any] | None) -> ClockAlignment:
    """The alignment that a recording holds; of none, that of a shared clock."""
    return ClockAlignment(tuple(Reading(**reading) for reading in (entry or {}).get("readings", ())))


def read_clock(
    ask: Callable[[], int], now_ns: Callable[[], int] = time.monotonic_ns, exchanges: int = EXCHANGES
) -> Reading:
    """Hold the clock of another process against this one's, which is the reference.

    Args:
        ask: has the other process read its clock now, and returns what it read, in nanoseconds.
        now_ns: the reference.
        exchanges: how many to try; the quickest counts.
    """
    best: Reading | None = None
    for _ in range(exchanges):
        asked = now_ns()
        theirs = ask()
        answered = now_ns()
        if best is None or answered - asked < best.round_trip_ns:
            best = Reading(theirs, asked + (answered - asked) // 2 - theirs, answered - asked)
    assert best is not None
    return best


def clock_identity() -> str:
    """The same text in all processes that share CLOCK_MONOTONIC, another on every other machine.

    Names the boot of the machine and the time namespace; only ever compared, never stored.
    """
    boot, namespace = str(os.getpid()), ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/time")
    return f"{boot} {namespace}"


def number_nodes(identities: Sequence[str]) -> list[int]:
    """The node of every rank, numbered in the order of their first ranks."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(identity, len(numbers)) for identity in identities]
