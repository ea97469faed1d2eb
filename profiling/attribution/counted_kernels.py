"""Joins kernels that a tool counted in one run to those that a recording has of the same step, in
order of launch.

Kernels are equal if their names without template arguments and parameters, which tools print
differently, and their grids and blocks are. Kernels without a counterpart in the same order stay
unjoined.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from .kernel_names import short_name

if TYPE_CHECKING:
    import pandas as pd

GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def launch_keys(kernels: pd.DataFrame, with_geometry: bool) -> list[tuple[object, ...]]:
    """What identifies each kernel (rows with name and the columns of `GEOMETRY`) in a sequence of
    launches.
    """
    names = [short_name(str(name)).partition("<")[0] for name in kernels["name"]]
    columns = [kernels[column].tolist() for column in GEOMETRY] if with_geometry else []
    return list(zip(names, *columns, strict=True))


def has_geometry(kernels: pd.DataFrame) -> bool:
    """Whether every kernel has its grid and block."""
    return bool(kernels[list(GEOMETRY)].notna().all(axis=None))


def align(recorded: Sequence[object], counted: Sequence[object]) -> list[int | None]:
    """The counterpart of each recorded kernel: a position in `counted`, increasing, or None; both
    by `launch_keys`.
    """
    head = 0
    while head < min(len(recorded), len(counted)) and recorded[head] == counted[head]:
        head += 1
    tail = 0
    while (
        tail < min(len(recorded), len(counted)) - head and recorded[-1 - tail] == counted[-1 - tail]
    ):
        tail += 1
    rows: list[int | None] = [None] * len(recorded)
    rows[:head] = range(head)
    rows[len(recorded) - tail :] = range(len(counted) - tail, len(counted))
    middle = recorded[head : len(recorded) - tail], counted[head : len(counted) - tail]
    for block in SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
        first = head + block.a
        rows[first : first + block.size] = range(head + block.b, head + block.b + block.size)
    return rows
