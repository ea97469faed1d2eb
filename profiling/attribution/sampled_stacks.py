"""Stacks of functions that a sampler saw, as spans and as own times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from ..recording.schema import SAMPLED
from .library_calls import own_time
from .nesting import nest
from .range_names import scrub

COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("name", "source")),
        *((name, pa.int64()) for name in ("start_ns", "end_ns", "process", "thread")),
    ]
)

Stack = tuple[str, ...]  # names of functions, outermost first
Call = tuple[str, int, int]  # of a function: its name, start and end in ns
Changes = list[tuple[int, Stack]]  # moments in ns, and the stack from each of them on


def find_busiest(threads: Sequence[Changes]) -> Changes:
    """The thread whose stack changes most: others wait for work of the program's own."""
    return max(threads, key=_count_changes, default=[])


def _count_changes(changes: Changes) -> int:
    return sum(before[1] != after[1] for before, after in pairwise(changes))


def tabulate(calls: Iterable[Call], process: int) -> pa.Table:
    """Calls of functions as a table with `COLUMNS`; a process has the id of its main thread."""
    rows = []
    for name, start_ns, end_ns in calls:
        times = {"start_ns": start_ns, "end_ns": end_ns}
        place = {"process": process, "thread": process}
        rows.append({"name": scrub(name), "source": SAMPLED, **times, **place})
    return pa.Table.from_pylist(rows, COLUMNS)


def name_function(file: str, line: int | None, function: str) -> str:
    """A function as call stacks of profilers name it, e.g. `data.py(7): load`."""
    function = function.strip("<>")  # `<module>` would be read as arguments of a template
    if not file:
        return function
    place = "" if line is None else f"({line})"
    return f"{file.rpartition('/')[2]}{place}: {function}"


def list_calls(changes: Changes) -> list[Call]:
    """The calls that stacks show, in order of their starts, outer ones first."""
    calls: list[tuple[int, int, int, str]] = []  # start, end negated, depth, name
    open_: list[tuple[str, int]] = []
    for moment, stack in changes:
        same = 0
        for (name, _), now in zip(open_, stack, strict=False):
            if name != now:
                break
            same += 1
        while len(open_) > same:
            name, start = open_.pop()
            if moment > start:
                calls.append((start, -moment, len(open_), name))
        open_ += [(name, moment) for name in stack[same:]]
    return [(name, start, -end) for start, end, _, name in sorted(calls)]


def function_rows(table: pa.Table) -> pa.Table:
    """Sampled functions as rows of the table `functions`."""
    durations = pc.subtract(table["end_ns"], table["start_ns"])
    return table.drop_columns(["end_ns"]).append_column("duration_ns", durations)


def own_times(table: pa.Table) -> pa.Table:
    """The own times of sampled functions, as operators of the host: input of `assemble`."""
    thread, start, end = (table[name].to_numpy() for name in ("thread", "start_ns", "end_ns"))
    process = table["process"].to_numpy()
    key = (process << 32) + thread
    start, end, span = own_time(nest(key, start, end), end > start)
    rows = table.select(["name", "process", "thread", "source"]).take(pa.array(span))
    columns = {"name": rows["name"], "start_ns": start, "end_ns": end, "stream": rows["thread"]}
    columns |= {name: rows[name] for name in ("process", "thread", "source")}
    return pa.table({**columns, "thread_key": key[span]})
