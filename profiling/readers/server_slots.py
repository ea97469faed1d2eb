"""Running requests of a server that prints when each begins and ends: which numbers of requests a
rate or time that it prints is of.
"""

from __future__ import annotations

import re
from array import array

import numpy as np

from ...base.budget import Budget
from ..attribution.nesting import Ints

_STEADY = 0.05  # relative change of the requests in a time, above which it is of no one number
_STEADY_SHARE = 0.9  # of the time of a request in which the load was as steady
# minutes, seconds, ms and µs since a server's start, or seconds since 1970
_CLOCK = re.compile(r"\b(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3})(?= [A-Z] )")
_SECONDS = re.compile(r"\btimestamp(?:=|\":)(\d{10})\b")


class Load:
    """How many requests ran when; a level holds from the change that made it to the next one."""

    def __init__(self, budget: Budget) -> None:
        self.elapsed_us = 0  # by the lines that told the time
        self._budget = budget
        self._levels = array("q", [0])  # numbers of requests
        self._begins_us = array("q", [0])

    @property
    def at(self) -> int:
        """The index of the level of now."""
        return len(self._levels) - 1

    def change(self, requests: int) -> None:
        """Note that so many run from now on."""
        self._levels.append(requests)
        self._begins_us.append(self.elapsed_us)

    def reach(self, us: int, last: int) -> None:
        """Let it be a later time; levels from one index on began no earlier."""
        self._budget.take_steps(len(self._levels) - last)
        self.elapsed_us = max(self.elapsed_us, us)
        for level in range(last, len(self._levels)):
            self._begins_us[level] = max(self._begins_us[level], self.elapsed_us)

    def between(self, first: int, begin_us: int, last: int, end_us: int) -> tuple[Ints, Ints]:
        """Each level from one index to another, and for how long it held after one time and before
        another. A request looks at all levels of its life, so a log is charged for them.
        """
        self._budget.take_steps(last + 1 - first)
        levels = np.array(self._levels[first : last + 1], np.int64)
        begins_us = np.array(self._begins_us[first + 1 : last + 1], np.int64)
        return levels, np.diff(begins_us, prepend=begin_us, append=end_us)


class Together:
    """How many requests ran while one request did, itself included."""

    def __init__(self, load: Load) -> None:
        """Begin at the level of now."""
        self.is_told = False  # whether lines told its rate while it ran
        self._load = load
        self._first = load.at
        self._begin_us = load.elapsed_us
        self._end: tuple[int, int] | None = None  # last level and time; None while it runs

    def end(self) -> None:
        """End at the level of now."""
        self._end = self._load.at, self._load.elapsed_us

    def end_after(self, us: int) -> None:
        """Let it have run for so long, which sets the clock of a log without times."""
        last = self._load.at if self._end is None else self._end[0] + 1
        self._load.reach(self._begin_us + us, last)
        if self._end is not None:
            self._end = self._end[0], self._load.elapsed_us

    def steady(self) -> int | None:
        """The number that the request ran with; None if it changed too much. A place that is free
        for an instant between two requests weighs as much as that instant.
        """
        last, end_us = self._end or (self._load.at, self._load.elapsed_us)
        requests, us = self._load.between(self._first, self._begin_us, last, end_us)
        total_us = int(us.sum())
        if not total_us:
            most = int(requests.max())
            least = int(requests.min())
            if most - least <= margin(most):
                return most
            return None
        weighted_us = requests * us.astype(np.float64)
        mean = round(float(weighted_us.sum()) / total_us)
        is_near = np.abs(requests - mean) <= margin(mean)
        near_us = int(us[is_near].sum())
        return mean if near_us >= _STEADY_SHARE * total_us else None


def margin(requests: int) -> float:
    """By how much the requests may change for a time to count as one of a steady load."""
    return max(1, _STEADY * requests)


class Slots:
    """The running requests of a server that prints when each begins and ends."""

    def __init__(self, budget: Budget) -> None:
        self.running: dict[str, Together] = {}  # by slot
        # what ran beside each request since its rate was printed last
        self.since: dict[str, Together] = {}
        self.last: dict[str, Together] = {}  # of requests that have ended
        self.ended = ""  # slot of the request whose times are printed
        self._load = Load(budget)
        self._now_us: int | None = None  # of the last line that told the time

    def tell_time(self, line: str) -> None:
        """Let the requests that run have run until the time of a line, if it tells one."""
        if (match := _CLOCK.search(line)) is not None:
            minutes, seconds, ms, us = map(int, match.groups())
            now_us = ((minutes * 60 + seconds) * 1000 + ms) * 1000 + us
        elif (match := _SECONDS.search(line)) is not None:
            now_us = int(match[1]) * 1_000_000
        else:
            return
        if self._now_us is not None:
            self._load.elapsed_us += max(0, now_us - self._now_us)
        self._now_us = now_us

    def launch(self, slot: str) -> None:
        """A request begins."""
        self.running.pop(slot, None)  # one whose end was not printed
        self._load.change(len(self.running) + 1)
        self.running[slot] = Together(self._load)
        self.since[slot] = Together(self._load)

    def progress(self, slot: str) -> Together | None:
        """A rate is printed: what ran beside the request meanwhile; None if its begin was not
        printed, and then it begins here.
        """
        if slot not in self.running:
            self.launch(slot)
            return None
        before = self.since[slot]
        before.end()
        self.since[slot] = Together(self._load)
        self.running[slot].is_told = True
        return before

    def release(self, slot: str) -> None:
        """A request ends; its times may follow."""
        if (together := self.running.pop(slot, None)) is not None:
            together.end()
            self.last[slot] = together
            del self.since[slot]
            self._load.change(len(self.running))

    def tell_duration(self, ms: float) -> None:
        """The time of the tokens of the request whose times are printed. Where no line tells the
        time, it is the clock: requests that begin with none between them begin together.
        """
        together = self.while_running()
        if self._now_us is None and together is not None and not together.is_told:
            together.end_after(round(1e3 * ms))

    def while_running(self) -> Together | None:
        """What ran beside the request whose times are printed; None if its begin was not."""
        return self.running.get(self.ended) or self.last.get(self.ended)
