"""The tables of chunk files that are read, and the columns that a chunk must have.

A recording, and so its chunk files, may come from somebody else: a chunk with a right checksum may
hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..attribution.cupti_names import LAUNCH_SHAPE

Integers = npt.NDArray[np.int64]


_TIMES = ("start_ns", "duration_ns", "timed")
_WORK = (*_TIMES, "device", "context", "stream", "correlation_id", "graph_node_id")
_COMPUTE = ("compute_capability_major", "compute_capability_minor", "sm_clock_khz")
_COLUMNS = {
    "kernels": (*_WORK, *LAUNCH_SHAPE, "shared_memory_bytes", "graph_id"),
    "copies": (*_WORK, "bytes", "copy_kind"),
    "sets": (*_WORK, "bytes"),
    "allocations": (
        *("operation", "time_ns", "bytes", "address", "device", "stream", "correlation_id"),
    ),
    "calls": (*_TIMES, "is_driver", "thread", "correlation_id", "return_value"),
    "waits": ("type", "stream", "correlation_id"),
    "overheads": ("kind", "duration_ns"),
    "devices": (
        *(*_COMPUTE, "device", "sm_count", "memory_bytes", "memory_bandwidth_kbyte_per_s"),
        *("l2_bytes", "shared_memory_per_sm_bytes", "registers_per_sm", "warps_per_sm"),
    ),
    "environment": ("device", "time_ns", "kind", "first", "second", "throttle_reasons"),
    "clock": ("host_ns", "cupti_ns", "error_ns"),
    "graph_nodes": ("node", "original", "time_ns", "thread"),
    "lost": ("count",),
    "facts": (),
}
# Columns whose values are ids of texts. Rows of `lost` and `facts` are read in this order.
_TEXTS = {
    **dict.fromkeys(("kernels", "calls", "devices"), ("name",)),
    "lost": ("what",),
    "facts": ("key", "value"),
}


class Piece(NamedTuple):
    """A column in one chunk in its stored width: values are base + stored, or all equal base if
    `stored` is None.
    """

    rows: int
    base: np.int64
    stored: npt.NDArray[np.unsignedinteger] | None

    def widen(self, out: Integers) -> None:
        """Write the values to `out`."""
        if self.stored is None:
            out[:] = self.base
        else:
            # first: NumPy adds unsigned 64-bit integers in floating point
            out[:] = self.stored.astype(np.int64)
            out += self.base  # modulo 2**64, like the subtraction of the base


def check_table(name: str, columns: Mapping[str, Piece], texts: int) -> None:
    """Refuse a chunk of a table that lacks a column, or names a text that the file does not have;
    `texts` is how many it has. ValueError says which; tables that nothing reads pass.
    """
    if name not in _COLUMNS:
        return
    wanted = (*_TEXTS.get(name, ()), *_COLUMNS[name])
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise ValueError(f"table {name} has no column {missing[0]}")
    if name in ("lost", "facts") and tuple(columns) != wanted:
        raise ValueError(f"table {name} has other columns than {', '.join(wanted)}")
    for column in _TEXTS.get(name, ()):
        for number in _ends(columns[column]):
            if not 0 <= number < texts:
                raise ValueError(f"column {column} of table {name} names text {number}")


def _ends(piece: Piece) -> Iterator[int]:
    """The least and the greatest value of a column."""
    yield int(piece.base)
    if piece.stored is not None and len(piece.stored):
        yield int(piece.base) + int(piece.stored.max())
