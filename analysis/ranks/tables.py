"""Reductions of the recordings of ranks: small tables of whole numbers that add up.

`combine` of the reductions of some recordings is the reduction of all of them, in any order and
grouping, to the last nanosecond: every column is a sum or a minimum of int64. The size of
`kernel_times` and `collectives` depends on the program, not on the number of ranks. Each text is
stored once, under a hash that is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..decompose.statistics import Ints

_RANK_BITS = 20  # room for a million ranks beside 2.4 hours of nanoseconds


@dataclass(frozen=True)
class Sums:
    """Rules by which a table adds up: columns that identify a row, summed columns, and columns of
    minima.
    """

    keys: tuple[str, ...]
    added: tuple[str, ...] = ()
    least: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """All columns, in order."""
        return [*self.keys, *self.added, *self.least]


TABLES = {
    # one row per rank: kernels and steps seen, and sends and receives
    "ranks": Sums(("rank", "node", "local_rank"), ("kernels", "steps", "sends")),
    # one row per rank and step; idle_ns and communication_ns are exclusive
    "steps": Sums(("rank", "step"), ("wall_ns", "communication_ns", "idle_ns")),
    # time of each term (layer, phase, kind) of a rank
    "terms": Sums(("rank", "term"), ("exclusive_ns",)),
    # time of each layer, phase, kind and kernel in each step, summed over ranks; `key` is an id of
    # `names`
    "kernel_times": Sums(("step", "key"), ("exclusive_ns",)),
    # collectives of a rank in a step, by channel
    "calls": Sums(("rank", "step", "channel"), ("calls", "duration_ns")),
    # each collective of a step, over all its ranks; `shortest` holds the shortest duration and its
    # rank
    "collectives": Sums(
        ("step", "channel", "occurrence", "operation"), ("ranks", "duration_ns"), ("shortest",)
    ),
}
_NAMES = pa.schema(
    {
        "id": pa.int64(),
        "term": pa.int64(),
        "layer": pa.string(),
        "phase": pa.string(),
        "kind": pa.string(),
        "name": pa.string(),
    }
)


class Name(NamedTuple):
    """A row of `names`."""

    id: int
    term: int  # id of the same without the kernel
    layer: str | None
    phase: str | None
    kind: str
    name: str | None


@dataclass(frozen=True)
class Reduction:
    """Tables of some ranks with the columns of `TABLES`, sorted by their keys."""

    tables: dict[str, pa.Table]  # tables by name; int64 columns
    # rows of `Name`: a kernel's; a term; or, by kind, a channel or an operation
    names: pa.Table
    # (path, reason) of recordings that could not be reduced, sorted
    unreadable: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    def column(self, table: str, name: str) -> Ints:
        """A column as numpy."""
        values = self.tables[table][name].to_numpy()
        return np.asarray(values, np.int64)

    def rows(self, table: str, *columns: str) -> Iterator[tuple[int, ...]]:
        """The rows of some columns, as numbers of Python."""
        values = [self.column(table, name).tolist() for name in columns]
        return zip(*values, strict=True)

    def read_names(self) -> dict[int, Name]:
        """The names by id."""
        names = {}
        for row in self.names.to_pylist():
            names[row["id"]] = Name(**row)
        return names


def combine(reductions: Sequence[Reduction]) -> Reduction:
    """Combine reductions into the reduction of all their recordings; without any, into the empty
    one.
    """
    tables = {}
    for name, sums in TABLES.items():
        pieces = [reduction.tables[name] for reduction in reductions]
        tables[name] = _sum_up(sums, pieces)
    name_tables = [_NAMES.empty_table()]
    unreadable: set[tuple[str, str]] = set()
    for reduction in reductions:
        name_tables.append(reduction.names)
        unreadable.update(reduction.unreadable)
    names = pa.concat_tables(name_tables)
    _, first = np.unique(names["id"].to_numpy(), return_index=True)
    return Reduction(tables, names.take(pa.array(first)), tuple(sorted(unreadable)))


def unreadable(path: str, reason: str) -> Reduction:
    """An empty reduction that lists one unreadable recording."""
    return replace(combine([]), unreadable=((path, reason),))


def _sum_up(sums: Sums, pieces: Sequence[pa.Table]) -> pa.Table:
    schema = pa.schema(dict.fromkeys(sums.columns, pa.int64()))
    joined = pa.concat_tables([schema.empty_table(), *pieces])
    wanted = []
    for name in sums.added:
        wanted.append((name, "sum"))
    for name in sums.least:
        wanted.append((name, "min"))
    aggregated = [f"{name}_{how}" for name, how in wanted]
    order = [(name, "ascending") for name in sums.keys]
    grouped = joined.group_by(list(sums.keys), use_threads=False)
    sums_up = grouped.aggregate(wanted)
    selected = sums_up.select([*sums.keys, *aggregated])
    named = selected.rename_columns(sums.columns)
    return named.sort_by(order).combine_chunks()


def shortest(duration_ns: Ints, rank: int) -> Ints:
    """Durations packed with their rank, so that the minimum holds both; of equal durations the
    lower rank counts.
    """
    return (duration_ns << _RANK_BITS) | rank


def shortest_of(values: Ints) -> tuple[Ints, Ints]:
    """Durations and ranks of values packed by `shortest`."""
    rank_mask = (1 << _RANK_BITS) - 1
    return values >> _RANK_BITS, values & rank_mask


def identify(*texts: str | None) -> int:
    """The id of a text: 63 bits of a hash, the same on every machine."""
    parts = ["\x00" if text is None else text for text in texts]
    joined = "\x1f".join(parts)
    digest = blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def name_table(names: Sequence[Name]) -> pa.Table:
    """Table `names` of a reduction: each id once, sorted."""
    rows = {name.id: name._asdict() for name in names}
    ordered = [rows[number] for number in sorted(rows)]
    return pa.Table.from_pylist(ordered, schema=_NAMES)
