"""What the program ran on the host in a gap, by the call stacks of a trace: own times of functions,
and the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...profiling.recording.store import Recording

COLUMNS = ("name", "start_ns", "duration_ns", "thread")
_MOST = 4  # functions that are named
_LEAST_OF_GAP = 0.05  # of the gap, of a function that is named
_AROUND = 0.5  # of the gap that a function of the path is around


_BUILT_IN = re.compile(r"^<built-in (?:method|function) (\S+)(?: of (\S+) object at 0x\w+)?>$")
_NO_TYPE = ("type", "builtins", "PyCapsule")  # objects whose type says nothing of their method


def plain(name: str) -> str:
    """A built-in function without the address of its object, e.g. `Tensor.copy_`; other names as
    they are.
    """
    match = _BUILT_IN.match(name)
    if match is None:
        return name
    method, owner = match.groups()
    kind = (owner or "").rpartition(".")[2]
    if not kind or kind in _NO_TYPE or "pybind11" in kind:
        return method
    return f"{kind}.{method}"


@dataclass(frozen=True)
class HostCode:
    """The functions of the host in a gap."""

    # functions with their own time in it, in ms, without that of functions inside them; the longest
    # first
    own_ms: tuple[tuple[str, float], ...]
    path: tuple[str, ...]  # the functions around at least half of it, outermost first


class HostFunctions:
    """The functions of a recording by thread; without call stacks none."""

    def __init__(self, recording: Recording) -> None:
        table = recording.arrow("functions", list(COLUMNS)).to_pandas()
        table["end_ns"] = table["start_ns"] + table["duration_ns"]
        # Outer functions come before those inside that begin with them.
        ordered = table.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
        plain_of = {name: plain(str(name)) for name in ordered["name"].unique()}
        ordered["name"] = ordered["name"].map(plain_of)
        threads = [rows for _, rows in ordered.groupby("thread", dropna=False)]
        self._threads = sorted(threads, key=len, reverse=True)

    def during(self, begin_ns: int, end_ns: int) -> HostCode | None:
        """The functions in a time, of the thread that runs most functions of all; None if none is
        known.

        Other threads wait for work of the program's own, e.g. for a message, for as long as it
        lasts.
        """
        busiest = self._busiest(begin_ns, end_ns)
        if busiest is None:
            return None
        own: dict[str, int] = {}
        for name, time_ns in _own(busiest, begin_ns, end_ns):
            own[name] = own.get(name, 0) + time_ns
        gap_ns = end_ns - begin_ns
        longest = []
        for name, time_ns in sorted(own.items(), key=lambda item: -item[1])[:_MOST]:
            if time_ns >= _LEAST_OF_GAP * gap_ns:
                longest.append((name, time_ns / 1e6))
        begins = np.maximum(busiest["start_ns"], begin_ns)
        overlap = np.minimum(busiest["end_ns"], end_ns) - begins
        around = busiest.loc[overlap >= _AROUND * gap_ns, "name"]
        return HostCode(tuple(longest), tuple(map(str, around)))

    def _busiest(self, begin_ns: int, end_ns: int) -> pd.DataFrame | None:
        for rows in self._threads:
            inside = rows[(rows["start_ns"] < end_ns) & (rows["end_ns"] > begin_ns)]
            if len(inside):
                return inside
        return None


def _own(rows: pd.DataFrame, begin_ns: int, end_ns: int) -> Iterator[tuple[str, int]]:
    """Each function of one thread, in order, with its own time inside a window."""
    # name, end, own time so far, moment up to which that is known
    open_: list[list[int | str]] = []
    moment = begin_ns

    def pass_time(until: int) -> None:
        nonlocal moment
        if open_ and until > moment:
            open_[-1][2] = int(open_[-1][2]) + until - moment
        moment = max(moment, until)

    columns = [rows[column].tolist() for column in ("name", "start_ns", "end_ns")]
    for name, start, end in zip(*columns, strict=True):
        while open_ and int(open_[-1][1]) <= start:
            pass_time(min(int(open_[-1][1]), end_ns))
            closed = open_.pop()
            yield str(closed[0]), int(closed[2])
        pass_time(min(max(start, begin_ns), end_ns))
        open_.append([name, end, 0])
    while open_:
        pass_time(min(int(open_[-1][1]), end_ns))
        closed = open_.pop()
        yield str(closed[0]), int(closed[2])
