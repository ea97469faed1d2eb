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

    def padded(self, batch: int) -> int:
        """The size that is computed at a batch size."""
        return -(-batch // self.size) * self.size


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
    line = _miss(times_ms, {batch: float(batch) for batch in times_ms})[0]
    fits = [(*_fit(times_ms, size), size) for size in SIZES]
    for miss, block_ms, size in sorted(fits):
        flat = list(_flat(times_ms, size, block_ms)) if block_ms > 0 else []
        enough = len(flat) >= (1 if size in tiles else 2)
        if miss <= min(_MISS, line / _BETTER) and enough and not _grows(times_ms, size, block_ms):
            low, high = max(flat, key=lambda pair: pair[1] / pair[0])
            return Block(
                size, block_ms, (low, high), (times_ms[low], times_ms[high]), size in tiles
            )
    return None


def _fit(times_ms: Mapping[int, float], size: int) -> tuple[float, float]:
    return _miss(times_ms, {batch: float(-(-batch // size)) for batch in times_ms})


def _miss(times_ms: Mapping[int, float], amounts: Mapping[int, float]) -> tuple[float, float]:
    """Relative error of a line through times over amounts, and its slope."""
    times = np.array(list(times_ms.values()))
    design = np.column_stack([np.ones(len(times)), [amounts[batch] for batch in times_ms]])
    if np.ptp(design[:, 1]) == 0:
        return float("inf"), 0.0
    (start, slope), *_ = np.linalg.lstsq(design / times[:, None], np.ones(len(times)), rcond=None)
    error = (design @ (start, slope) - times) / times
    return float(np.sqrt(np.mean(error**2))), float(slope)


def _blocks(times_ms: Mapping[int, float], size: int) -> Iterator[list[int]]:
    """The sizes of each block that has several."""
    blocks: dict[int, list[int]] = defaultdict(list)
    for batch in sorted(times_ms):
        blocks[-(-batch // size)].append(batch)
    return (sizes for sizes in blocks.values() if len(sizes) > 1)


def _flat(times_ms: Mapping[int, float], size: int, block_ms: float) -> Iterator[tuple[int, int]]:
    """The smallest and the largest size of each block in which a line would grow clearly."""
    for sizes in _blocks(times_ms, size):
        low, high = sizes[0], sizes[-1]
        if block_ms * (high - low) / size >= _LEAST_PADDED * times_ms[low]:
            yield low, high


def _grows(times_ms: Mapping[int, float], size: int, block_ms: float) -> bool:
    """Whether times grow within blocks, rather than from one to the next."""
    pairs = [pair for sizes in _blocks(times_ms, size) for pair in pairwise(sizes)]
    grown = sum(times_ms[high] - times_ms[low] for low, high in pairs)
    of_line = sum(block_ms * (high - low) / size for low, high in pairs)
    return grown > _GROWN * of_line


def find_blocks(kernel_times: pd.DataFrame, steps: list[int]) -> dict[Key, Block]:
    """The blocks of the products of a whole sweep, by term; `steps` are those to use."""
    rows = kernel_times[kernel_times["kind"].eq(KERNELS) & kernel_times["step"].isin(steps)]
    if rows["batch"].nunique() < _LEAST_POINTS:
        return {}
    steps_of = rows.groupby("batch")["step"].nunique()
    columns = ["layer", "phase", "batch", "name"]
    sums = rows.groupby(columns, dropna=False, observed=True)["exclusive_ms"].sum()
    terms: dict[Key, dict[int, dict[str, float]]] = {}
    for (layer, phase, batch, name), total in sums.items():
        times = terms.setdefault(Key.of(layer, phase, KERNELS), {}).setdefault(int(batch), {})
        times[str(name)] = float(total) / int(steps_of[batch])
    by_term = {key: _of_term(times) for key, times in terms.items()}
    return {key: block for key, block in by_term.items() if block is not None}


def _of_term(times: Mapping[int, Mapping[str, float]]) -> Block | None:
    longest = times[max(times)]
    name = read_name(max(longest, key=lambda kernel: (longest[kernel], kernel)))
    whole = {batch: sum(of_batch.values()) for batch, of_batch in times.items()}
    if name.family not in ALGORITHMS or min(whole.values()) <= 0:
        return None
    return find_block(whole, frozenset(name.tile or ()))
