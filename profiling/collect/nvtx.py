"""NVTX events of one process as ranges: matches pushes with pops and starts with ends, and adds
marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .chunk_tables import Integers
from .chunks import END, EVENT, MARK, POP, POP_UNMATCHED, PUSH, START, ProcessChunks

# NVTX's payload types by number, and the types with the same bits.
_PAYLOADS = {1: np.uint64, 2: np.int64, 3: np.float64, 4: np.uint32, 5: np.int32, 6: np.float32}


@dataclass
class RangeCounts:
    """Numbers of ranges left open, and of ends without a recorded begin; the tables do not contain
    them.
    """

    unclosed: int = 0
    unopened: int = 0


def to_ranges(process: ProcessChunks, counts: RangeCounts) -> Iterator[pa.Table]:
    """Ranges as input of `attribution.assemble`: one table per thread, one for start/end ranges."""
    for thread, events in process.threads.items():
        begins, ends = match_push_pop(events)
        marks = np.flatnonzero(events["kind"] == MARK)
        rows = np.concatenate([begins, marks])
        stops = np.concatenate([ends, marks])
        order = np.argsort(rows)
        first = events[rows[order]]
        last = events[stops[order]]
        yield _table(process, first, last["time_ns"], np.full(len(first), thread))
        counts.unclosed += int(np.count_nonzero(events["kind"] == PUSH)) - len(begins)
        counts.unopened += int(np.count_nonzero(events["kind"] == POP_UNMATCHED))
    starts, ends_ns, threads = _match_start_end(process, counts)
    if len(starts):
        yield _table(process, starts, ends_ns, threads)


def empty_ranges() -> pa.Table:
    """A table with all columns and no row."""
    none = np.zeros(0, np.int64)
    return _table(ProcessChunks(), np.zeros(0, EVENT), none, none)


def _table(
    process: ProcessChunks,
    first: npt.NDArray[np.void],
    ends_ns: npt.NDArray[np.int64],
    threads: Integers,
) -> pa.Table:
    kinds = np.select([first["kind"] == MARK, first["kind"] == START], [1, 2], 0)
    return pa.table(
        {
            "name": process.text(first["name"]),
            "start_ns": first["time_ns"],
            "end_ns": ends_ns,
            "process": np.full(len(first), process.process),
            "thread": threads,
            "thread_key": process.thread_key(threads),
            "domain": process.text(first["domain"], first["domain"] == 0),
            "category": _categories(process, first),
            "kind": pa.array(["push_pop", "mark", "start_end"]).take(pa.array(kinds)),
            "color_argb": pa.array(
                first["color_argb"].astype(np.int64), mask=first["has_color"] == 0
            ),
            "payload": _payloads(first),
            "source": pa.repeat("nvtx", len(first)),
        }
    )


def _categories(process: ProcessChunks, events: npt.NDArray[np.void]) -> pa.Array:
    """The name of each category, or its number if the program did not name it."""
    if not events["category"].any():
        return pa.nulls(len(events), pa.string())
    names = {
        (domain, number): process.names[name]
        for what, domain, number, name in process.numbers
        if process.names[what] == "category"
    }
    pairs = zip(events["domain"].tolist(), events["category"].tolist(), strict=True)
    return pa.array(
        [names.get(pair, str(pair[1])) if pair[1] else None for pair in pairs], pa.string()
    )


def _payloads(events: npt.NDArray[np.void]) -> pa.Array:
    if not events["payload_type"].any():
        return pa.nulls(len(events), pa.string())
    texts = np.full(len(events), None, object)
    for number, dtype in _PAYLOADS.items():
        chosen = events["payload_type"] == number
        bits = np.ascontiguousarray(events["payload"][chosen])
        # A narrow payload occupies the first bytes of the union.
        texts[chosen] = [
            str(value) for value in bits.view(dtype)[:: 8 // np.dtype(dtype).itemsize].tolist()
        ]
    return pa.array(texts, pa.string())


def _match_start_end(
    process: ProcessChunks, counts: RangeCounts
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64], Integers]:
    """Starts with an end, the times of the ends, and the threads of the starts; an end may be on
    another thread.
    """
    of_starts = {
        thread: events[events["kind"] == START] for thread, events in process.threads.items()
    }
    starts = np.concatenate([np.zeros(0, EVENT), *of_starts.values()])
    threads = np.repeat(
        np.array(list(of_starts), np.int64), [len(events) for events in of_starts.values()]
    )
    ends = np.concatenate(
        [
            np.zeros(0, EVENT),
            *(events[events["kind"] == END] for events in process.threads.values()),
        ]
    )
    _, of_start, of_end = np.intersect1d(starts["range"], ends["range"], return_indices=True)
    counts.unclosed += len(starts) - len(of_start)
    counts.unopened += len(ends) - len(of_end)
    order = np.argsort(starts["time_ns"][of_start], kind="stable")
    chosen = of_start[order]
    return starts[chosen], ends["time_ns"][of_end[order]], threads[chosen]


def match_push_pop(
    events: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of each push and its pop in a thread's events (dtype `EVENT`); NVTX has one stack per
    domain.

    At one depth of a stack they alternate, so after a stable sort by stack and depth each pop
    follows its push.
    """
    assert events.dtype == EVENT
    at = np.flatnonzero((events["kind"] == PUSH) | (events["kind"] == POP))
    at = at[np.argsort(events["domain"][at], kind="stable")]
    domain = events["domain"][at].astype(np.int64)
    is_push = events["kind"][at] == PUSH
    depth = np.cumsum(np.where(is_push, 1, -1))
    # The running sum starts from the previous domain's, whose open ranges shift it by a constant:
    # harmless.
    depth = np.where(is_push, depth, depth + 1)
    order = np.lexsort((np.arange(len(at)), depth, domain))
    at = at[order]
    domain = domain[order]
    depth = depth[order]
    is_push = is_push[order]
    pair = is_push[:-1] & ~is_push[1:] & (domain[:-1] == domain[1:]) & (depth[:-1] == depth[1:])
    where = np.flatnonzero(pair)
    return at[where], at[where + 1]
