"""Running requests of a server that prints when each begins and ends: which numbers of requests a
rate or time that it prints is of.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_STEADY = 0.05  # relative change of the requests in a time, above which it is of no one number
_STEADY_SHARE = 0.9  # of the time of a request in which the load was as steady
# minutes, seconds, ms and µs since a server's start, or seconds since 1970
_CLOCK = re.compile(r"\b(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3})(?= [A-Z] )")
_SECONDS = re.compile(r"\btimestamp(?:=|\":)(\d{10})\b")


@dataclass
class Together:
    """How many requests ran while one request did, itself included."""

    least: int
    most: int
    us: Counter[int] = field(default_factory=Counter)  # by their number, if lines tell the time
    is_told: bool = False  # whether lines told its rate while it ran

    def take(self, requests: int, us: int) -> None:
        """Note that so many ran for a time that has passed."""
        self.us[requests] += us

    def count(self, requests: int) -> None:
        """Note that so many run from now on."""
        self.least, self.most = min(self.least, requests), max(self.most, requests)

    def steady(self) -> int | None:
        """The number that the request ran with; None if it changed too much. A place that is free
        for an instant between two requests weighs as much as that instant.
        """
        total_us = sum(self.us.values())
        if not total_us:
            return self.most if self.most - self.least <= margin(self.most) else None
        mean = round(sum(requests * us for requests, us in self.us.items()) / total_us)
        near = (us for requests, us in self.us.items() if abs(requests - mean) <= margin(mean))
        return mean if sum(near) >= _STEADY_SHARE * total_us else None


def margin(requests: int) -> float:
    """By how much the requests may change for a time to count as one of a steady load."""
    return max(1, _STEADY * requests)


@dataclass
class Slots:
    """The running requests of a server that prints when each begins and ends."""

    running: dict[str, Together] = field(default_factory=dict)  # by slot
    # what ran beside each request since its rate was printed last
    since: dict[str, Together] = field(default_factory=dict)
    last: dict[str, Together] = field(default_factory=dict)  # of requests that have ended
    ended: str = ""  # slot of the request whose times are printed
    now_us: int | None = None  # of the last line that told the time

    def tell_time(self, line: str) -> None:
        """Let the requests that run have run until the time of a line, if it tells one."""
        if (match := _CLOCK.search(line)) is not None:
            minutes, seconds, ms, us = map(int, match.groups())
            now_us = ((minutes * 60 + seconds) * 1000 + ms) * 1000 + us
        elif (match := _SECONDS.search(line)) is not None:
            now_us = int(match[1]) * 1_000_000
        else:
            return
        if self.now_us is not None:
            for together in (*self.running.values(), *self.since.values()):
                together.take(len(self.running), max(0, now_us - self.now_us))
        self.now_us = now_us

    def launch(self, slot: str) -> None:
        """A request begins."""
        self.running.pop(slot, None)  # one whose end was not printed
        requests = len(self.running) + 1
        self.running[slot] = Together(requests, requests)
        self.since[slot] = Together(requests, requests)
        self._count()

    def progress(self, slot: str) -> Together | None:
        """A rate is printed: what ran beside the request meanwhile; None if its begin was not
        printed, and then it begins here.
        """
        if slot not in self.running:
            self.launch(slot)
            return None
        requests, before = len(self.running), self.since[slot]
        self.since[slot] = Together(requests, requests)
        self.running[slot].is_told = True
        return before

    def release(self, slot: str) -> None:
        """A request ends; its times may follow."""
        if (together := self.running.pop(slot, None)) is not None:
            self.last[slot] = together
            del self.since[slot]
        self._count()

    def while_running(self) -> Together | None:
        """What ran beside the request whose times are printed; None if its begin was not."""
        return self.running.get(self.ended) or self.last.get(self.ended)

    def _count(self) -> None:
        for together in (*self.running.values(), *self.since.values()):
            together.count(len(self.running))
