"""The interface of readers and recorders to attribution: neutral tables of a profile, and the
user's options.

A column that a format lacks may be absent. Times are `start_ns` and `end_ns`. Names are
dictionary-encoded, all batches of one table with one dictionary.

- ranges: name, start_ns, end_ns, process, thread, thread_key (unique over processes), domain,
  category, kind, color_argb, payload; `shown`, false for ranges that only place the work in them,
  e.g. a framework's operators. For operators: `role` (see `range_names`), sequence and
  forward_thread (see `placement.HostSpans`), and shapes, concrete, dtypes and strides of their
  arguments, as JSON. For calls of communication libraries collective, message_bytes, group_size and
  communicator, as of `kernels`.
- launches: name, start_ns, end_ns, process, thread, thread_key, correlation_id, return_value.
- kernels: name and columns of the `kernels` table; memory (memcpys and memsets): columns of the
  `memory` table; both: start_ns, end_ns, process, device, context, stream, correlation_id. Work
  that the host itself does has a thread_key instead of a launch.
- each may have `source`, if it differs from the profile's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...base.errors import CurvescopeError
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter
from .memory_peak import Allocations
from .range_names import RangeNames

_TEXTS = frozenset({"name", "layer", "phase", "op", "kind", "memcpy_kind", "role"})
_BATCH_ROWS = 1 << 18

# Ways to find steps.
AUTO = "auto"
WHOLE = "whole"
REPETITION = "repetition"

# takes the names of the needed columns; None for all
Batches = Callable[[Sequence[str] | None], Iterator[pa.Table]]


@dataclass(frozen=True)
class Options:
    """The user's options for a profile."""

    batch: int | None = None  # samples per step; default: from marks or shapes
    # regular expression for `RangeNames`; default: known conventions
    range_pattern: str | None = None
    is_stored: bool = False  # whether a file names the pattern, and not this user
    # or `WHOLE`, `REPETITION`, `marks:` and a regular expression for names of ranges that mark
    # steps
    steps: str = AUTO
    device: int | None = None  # number of the only device whose work is read; None for all
    # number of the process of a merged trace, from 0; None for the first
    process: int | None = None
    # trace of the capture of the CUDA graphs that the profile replays; None without one
    capture: Path | None = None
    report: Callable[[str, int, int], None] = lambda _what, _done, _total: None  # shows progress

    @property
    def names(self) -> RangeNames:
        """The rules for range names."""
        return RangeNames(self.range_pattern, stored=self.is_stored)

    @property
    def step_pattern(self) -> re.Pattern[str] | None:
        """The pattern for names of step marks; None without one.

        CurvescopeError: neither way nor pattern.
        """
        how, _, pattern = self.steps.partition(":")
        if self.steps in (AUTO, WHOLE, REPETITION):
            return None
        if how != "marks" or not pattern:
            raise CurvescopeError(
                f"--steps {self.steps}: write {AUTO}, {WHOLE}, {REPETITION} or marks:REGEX."
            )
        try:
            return re.compile(pattern)
        except re.error as error:
            raise CurvescopeError(
                f"--steps {self.steps}: this is no regular expression ({error})."
            ) from error


@dataclass
class Profile:
    """Tables of a profile."""

    source: str  # value of the `source` columns
    ranges: pa.Table  # all ranges
    launches: Callable[[], Iterator[pa.Table]]  # function that reads API calls, batch by batch
    # reads kernels; called twice if no range marks the steps or if operators have shapes
    kernels: Batches
    memory: Batches  # function that reads memcpys and memsets, batch by batch
    count: int  # number of launches, kernels, memcpys and memsets, for the progress report
    # whether kernels were replayed for metrics: times are not those of normal execution
    replayed: bool = False
    # those of one device, with the ranges' threads; None if the format has none
    allocations: Allocations | None = None
    batch: int | None = None  # samples per step that the profile itself states; None if it does not


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a neutral table: texts and whole numbers; a missing value is null."""
    columns = {"name": _encode([row.get("name") for row in rows])}
    for name in ("start_ns", "end_ns", "kind", *chain.from_iterable(rows)):
        if name not in columns:
            dtype = pa.string() if name in _TEXTS else pa.int64()
            columns[name] = pa.array([row.get(name) for row in rows], dtype)
    return pa.table(columns)


def _encode(texts: Sequence[str | None]) -> pa.DictionaryArray:
    """Texts with each distinct one once: thousands of rows may share one of 64 kB."""
    numbers: dict[str, int] = {}
    codes = [None if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    indices = pa.array(codes, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(numbers), pa.string()))


def profile_of_tables(
    source: str, ranges: pa.Table, launches: pa.Table, kernels: pa.Table, memory: pa.Table
) -> Profile:
    """A profile from complete tables."""

    def slices(table: pa.Table) -> Iterator[pa.Table]:
        return (table.slice(first, _BATCH_ROWS) for first in range(0, table.num_rows, _BATCH_ROWS))

    count = launches.num_rows + kernels.num_rows + memory.num_rows
    return Profile(
        source,
        ranges,
        lambda: slices(launches),
        lambda _: slices(kernels),
        lambda _: slices(memory),
        count,
    )


def describe_steps(
    writer: RecordingWriter, rows: list[dict[str, Any]], steps_from: str | None
) -> None:
    """Write the steps, and how they were found (`steps_from`)."""
    short = sum(row["duration_ns"] < 1 for row in rows)
    writer.count_lost("steps_without_length", short)
    rows = [{**row, "duration_ns": max(row["duration_ns"], 1)} for row in rows]
    if rows:
        writer.write("steps", pa.Table.from_pylist(rows, TABLES["steps"].arrow))
    batches = {row["batch"] for row in rows if row["batch"] is not None}
    if batches:
        unknown = sum(row["batch"] is None for row in rows)
        writer.count_lost("steps_without_batch", unknown)
    writer.update(batches=sorted(batches) or None, steps_from=steps_from)
