"""What is kept of the recording of a rank: small tables of whole numbers that add up.

`combine` of the reductions of some recordings is the reduction of all of them, in any order and grouping, to the last
nanosecond: every column is a sum or a minimum of int64, and the pieces of one rank add up as ranks do. The size of
`parts` and `collectives` depends on the program, not on how many ranks run it; `steps`, `terms` and `calls` have some
rows for each rank. Text stands once, in `names`, under a hash that every machine computes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

KERNELS, COMMUNICATION, IDLE = "kernels", "communication", "idle"
_RANK_BITS = 20  # room for a million ranks beside 2.4 hours of nanoseconds


@dataclass(frozen=True)
class Sums:
    """How a table adds up: the columns that name a row, and how the others combine."""

    keys: tuple[str, ...]
    added: tuple[str, ...] = ()
    least: tuple[str, ...] = ()


TABLES = {
    # one row per rank: kernels and steps seen, and sends and receives
    "ranks": Sums(("rank", "node", "local_rank"), ("kernels", "steps", "sends")),
    # one row per rank and step; wall_ns is the step's, idle_ns and communication_ns are exclusive
    "steps": Sums(("rank", "step"), ("wall_ns", "communication_ns", "idle_ns")),
    # time of each term (layer, phase, kind) of a rank
    "terms": Sums(("rank", "term"), ("exclusive_ns",)),
    # time of each part (layer, phase, kind, kernel) in each step, over all ranks
    "parts": Sums(("step", "part"), ("exclusive_ns",)),
    # collectives of a rank in a step, by channel
    "calls": Sums(("rank", "step", "channel"), ("calls", "duration_ns")),
    # each collective of a step, over all ranks that took part: the shortest duration, and whose it was
    "collectives": Sums(("step", "channel", "occurrence", "operation"), ("ranks", "duration_ns"), ("shortest",)),
}
_NAMES = pa.schema(
    [("id", pa.int64()), ("term", pa.int64())] + [(name, pa.string()) for name in ("layer", "phase", "kind", "name")]
)


@dataclass(frozen=True)
class Reduction:
    """Tables of some ranks, each as `TABLES` says, in the order of its keys.

    Attributes:
        tables: by name; int64 columns.
        names: id, and what it stands for: layer, phase, kind and kernel name of a part, whose own `term` is that of
            the same without the kernel; a term; or a channel or an operation, whose kind says so.
        unreadable: (place, reason) of recordings that could not be reduced, in order.
    """

    tables: dict[str, pa.Table]
    names: pa.Table
    unreadable: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    def column(self, table: str, name: str) -> Ints:
        """A column as numpy."""
        return np.asarray(self.tables[table][name].to_numpy(), np.int64)

    def named(self) -> dict[int, tuple[str | None, str | None, str, str | None, int]]:
        """By id: layer, phase, kind, name, and the id of the term."""
        columns = (self.names[c].to_pylist() for c in ("id", "layer", "phase", "kind", "name", "term"))
        return {i: (layer, phase, kind, name, term) for i, layer, phase, kind, name, term in zip(*columns, strict=True)}

    @property
    def size_bytes(self) -> int:
        """What the tables hold in memory."""
        return sum(int(table.nbytes) for table in (*self.tables.values(), self.names))


def combine(reductions: Sequence[Reduction]) -> Reduction:
    """The reduction of all their recordings; of none, the empty one."""
    tables = {name: _summed(sums, [r.tables[name] for r in reductions]) for name, sums in TABLES.items()}
    names = pa.concat_tables([_NAMES.empty_table(), *(r.names for r in reductions)])
    _, first = np.unique(names["id"].to_numpy(), return_index=True)
    unreadable = sorted({entry for r in reductions for entry in r.unreadable})
    return Reduction(tables, names.take(pa.array(first)), tuple(unreadable))


def unreadable(place: str, reason: str) -> Reduction:
    """What stands for a recording that could not be reduced."""
    empty = combine([])
    return Reduction(empty.tables, empty.names, ((place, reason),))


def _summed(sums: Sums, pieces: Sequence[pa.Table]) -> pa.Table:
    columns = [*sums.keys, *sums.added, *sums.least]
    schema = pa.schema([(name, pa.int64()) for name in columns])
    joined = pa.concat_tables([schema.empty_table(), *pieces])
    wanted = [(name, "sum") for name in sums.added] + [(name, "min") for name in sums.least]
    grouped = joined.group_by(list(sums.keys), use_threads=False).aggregate(wanted)
    renamed = {f"{name}_{how}": name for name, how in wanted}
    grouped = grouped.rename_columns([renamed.get(name, name) for name in grouped.column_names])
    ordered = grouped.select(columns).sort_by([(name, "ascending") for name in sums.keys])
    return ordered.combine_chunks()


def shortest(duration_ns: Ints, rank: int) -> Ints:
    """Durations with the rank they are of, so that the least tells both; equal durations are told by the lower rank."""
    return (duration_ns << _RANK_BITS) | rank


def shortest_of(values: Ints) -> tuple[Ints, Ints]:
    """The durations and the ranks in such values."""
    return values >> _RANK_BITS, values & ((1 << _RANK_BITS) - 1)


def identify(*texts: str | None) -> int:
    """The id of some text: 63 bits of a hash, the same everywhere."""
    joined = "\x1f".join("\x00" if text is None else text for text in texts)
    return int.from_bytes(blake2b(joined.encode(), digest_size=8).digest(), "little") >> 1


def name_table(rows: Sequence[tuple[int, int, str | None, str | None, str, str | None]]) -> pa.Table:
    """Rows (id, term, layer, phase, kind, name) as the `names` of a reduction, each id once, in order."""
    unique = {row[0]: row for row in rows}
    ordered = [unique[key] for key in sorted(unique)]
    return pa.table([list(column) for column in zip(*ordered, strict=True)] if ordered else [[]] * 6, schema=_NAMES)
