"""Finds the blocks of samples that a product computes at once, from the times of a whole sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from ...profiling.attribution.kernel_names import ALGORITHMS, read_name
from ..decompose.terms import KERNELS, Key

SIZES = (256, 128, 64, 48, 32, 16, 8, 4, 2)  # of blocks, in samples
_LEAST_POINTS = 4
_LEAST_PADDED = 0.1  # padded part of the smallest size of a block, as a share of its time
_GROWN = 0.25  # most growth within blocks, as a share of that of a line between blocks
_MISS = 0.05  # most relative error of whole blocks
_BETTER = 3.0  # least ratio of the error of a line to it


@dataclass(frozen=True)
class Block:
    """The samples that a term computes at once, by its times at all sizes of a sweep."""

    size: int  # number of samples
    block_ms: float  # time of one block more
    within: tuple[int, int]  # smallest and largest size of the block that shows it best
    times_ms: tuple[float, float]  # at these two
    is_tile: bool  # whether the name of the kernel with the most time has a tile of this size

    def pad(self, batch: int) -> int:
        """The size that is computed at a batch size."""
        return _count_blocks(batch, self.size) * self.size


def _count_blocks(batch: int, size: int) -> int:
    return -(-batch // size)


def find_block(times_ms: Mapping[int, float], tiles: frozenset[int] = frozenset()) -> Block | None:
    """The block whose multiples the times follow best; None if they follow none.

    A line, or a time that is flat below one size only, is no block: two blocks have to be flat
    inside, or one of a size that is a tile of the kernel.

    Args:
        times_ms: times by batch size, each above 0.
        tiles: extents of the tile in the name of the kernel with the most time.
    """
    if len(times_ms) < _LEAST_POINTS:
        return None
    line, _ = _miss(times_ms, list(times_ms))
    fits = []
    for size in SIZES:
        blocks = [_count_blocks(batch, size) for batch in times_ms]
        fits.append((*_miss(times_ms, blocks), size))
    for miss, block_ms, size in sorted(fits):
        if miss > min(_MISS, line / _BETTER) or block_ms <= 0:
            continue
        flat = list(_flat(times_ms, size, block_ms))
        least = 1 if size in tiles else 2
        if len(flat) >= least and not _grows(times_ms, size, block_ms):
            low, high = max(flat, key=lambda pair: pair[1] / pair[0])
            at_ends_ms = times_ms[low], times_ms[high]
            return Block(size, block_ms, (low, high), at_ends_ms, size in tiles)
    return None


def _miss(times_ms: Mapping[int, float], amounts: list[int]) -> tuple[float, float]:
    """Relative error of a line through times over amounts, and its slope."""
    times = np.array(list(times_ms.values()))
    ones = np.ones(len(times))
    design = np.column_stack([ones, np.array(amounts, np.float64)])
    if np.ptp(design[:, 1]) == 0:
        return float("inf"), 0.0
    (start, slope), *_ = np.linalg.lstsq(design / times[:, None], ones, rcond=None)
    error = (design @ (start, slope) - times) / times
    return float(np.sqrt(np.mean(error**2))), float(slope)


def _blocks(times_ms: Mapping[int, float], size: int) -> Iterator[list[int]]:
    """The sizes of each block that has several."""
    blocks: dict[int, list[int]] = defaultdict(list)
    for batch in sorted(times_ms):
        blocks[_count_blocks(batch, size)].append(batch)
    return (sizes for sizes in blocks.values() if len(sizes) > 1)


def _flat(times_ms: Mapping[int, float], size: int, block_ms: float) -> Iterator[tuple[int, int]]:
    """The smallest and the largest size of each block in which a line would grow clearly."""
    for sizes in _blocks(times_ms, size):
        low, high = sizes[0], sizes[-1]
        if block_ms * (high - low) / size >= _LEAST_PADDED * times_ms[low]:
            yield low, high


def _grows(times_ms: Mapping[int, float], size: int, block_ms: float) -> bool:
    """Whether times grow within blocks, rather than from one to the next."""
    grown, of_line = 0.0, 0.0
    for sizes in _blocks(times_ms, size):
        for low, high in pairwise(sizes):
            grown += times_ms[high] - times_ms[low]
            of_line += block_ms * (high - low) / size
    return grown > _GROWN * of_line


def find_blocks(kernel_times: pd.DataFrame, steps: list[int]) -> dict[Key, Block]:
    """The blocks of the products of a whole sweep, by term, from the steps to use."""
    rows = kernel_times[kernel_times["kind"].eq(KERNELS) & kernel_times["step"].isin(steps)]
    if rows["batch"].nunique() < _LEAST_POINTS:
        return {}
    steps_of = rows.groupby("batch")["step"].nunique()
    columns = ["layer", "phase", "batch", "name"]
    sums = rows.groupby(columns, dropna=False, observed=True)["exclusive_ms"].sum()
    terms: dict[Key, dict[int, dict[str, float]]] = {}
    for (layer, phase, batch, name), total in sums.items():
        of_term = terms.setdefault(Key.of(layer, phase, KERNELS), {})
        times = of_term.setdefault(int(batch), {})
        times[str(name)] = float(total) / int(steps_of[batch])
    blocks = {}
    for key, of_batches in terms.items():
        block = _of_term(of_batches)
        if block is not None:
            blocks[key] = block
    return blocks


def _of_term(times: Mapping[int, Mapping[str, float]]) -> Block | None:
    longest = times[max(times)]
    name = read_name(max(longest, key=lambda kernel: (longest[kernel], kernel)))
    whole = {batch: sum(of_batch.values()) for batch, of_batch in times.items()}
    if name.family not in ALGORITHMS or min(whole.values()) <= 0:
        return None
    return find_block(whole, frozenset(name.tile or ()))
