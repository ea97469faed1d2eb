"""The clocks of several nodes on one axis: by exchanging readings, as NTP does (Mills, IEEE Trans.

Comm. 39, 1991).

Of several exchanges the shortest counts, and its offset is known to half the round trip. In between
it is interpolated, and its change is added to the error. Processes of one machine share
CLOCK_MONOTONIC: offset and error are 0.
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

# Drift of one clock relative to another, seconds per second: a kernel slews its own clock by at
# most 500 parts per million.
_LARGEST_DRIFT = 1e-3
EXCHANGES = 30  # the shortest counts; a busy network delays most of them


@dataclass(frozen=True)
class Reading:
    """One exchange."""

    at_ns: int  # on the other rank's clock
    offset_ns: int  # reference clock minus the other rank's clock
    round_trip_ns: int  # from request to reply, on the reference clock


@dataclass(frozen=True)
class ClockAlignment:
    """Conversion of one rank's times to rank 0's clock."""

    readings: tuple[Reading, ...] = ()  # in order of time; empty if the rank shares rank 0's clock

    def offset_ns(self, at_ns: int) -> int:
        """Offset to add to a time of this rank."""
        if not self.readings:
            return 0
        before, after = self._around(at_ns)
        if before.at_ns == after.at_ns:
            return before.offset_ns
        drift = (after.offset_ns - before.offset_ns) / (after.at_ns - before.at_ns)
        return before.offset_ns + round(
            drift * (min(max(at_ns, before.at_ns), after.at_ns) - before.at_ns)
        )

    def error_ns(self, at_ns: int) -> int:
        """Largest error of that offset: half the longer round trip around it, plus the drift
        between the two.

        Before the first reading and after the last the drift is unknown: the largest possible drift
        is added.
        """
        if not self.readings:
            return 0
        before, after = self._around(at_ns)
        outside_ns = max(self.readings[0].at_ns - at_ns, at_ns - self.readings[-1].at_ns, 0)
        drift_ns = abs(after.offset_ns - before.offset_ns) + math.ceil(_LARGEST_DRIFT * outside_ns)
        return max(before.round_trip_ns, after.round_trip_ns) // 2 + 1 + drift_ns

    def entry(self) -> dict[str, Any]:
        """Its entry in `recording.json`."""
        return {"readings": [asdict(reading) for reading in self.readings]}

    def _around(self, at_ns: int) -> tuple[Reading, Reading]:
        index = bisect_right([reading.at_ns for reading in self.readings], at_ns)
        return self.readings[max(index - 1, 0)], self.readings[min(index, len(self.readings) - 1)]


def alignment_of(entry: Mapping[str, Any] | None) -> ClockAlignment:
    """The alignment in a recording; without an entry, that of a shared clock."""
    return ClockAlignment(
        tuple(Reading(**reading) for reading in (entry or {}).get("readings", ()))
    )


def read_clock(
    request: Callable[[], int],
    now_ns: Callable[[], int] = time.monotonic_ns,
    exchanges: int = EXCHANGES,
) -> Reading:
    """The clock of another process, which `request` reads in ns now, beside this process's clock,
    the reference.
    """

    def exchange() -> Reading:
        sent_ns = now_ns()
        at_ns = request()
        round_trip_ns = now_ns() - sent_ns
        return Reading(at_ns, sent_ns + round_trip_ns // 2 - at_ns, round_trip_ns)

    return min((exchange() for _ in range(exchanges)), key=lambda reading: reading.round_trip_ns)


def clock_identity() -> str:
    """A text that names the boot of the machine and the time namespace, which share
    CLOCK_MONOTONIC; never stored.
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
