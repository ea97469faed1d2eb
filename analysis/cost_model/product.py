"""Models matrix products: tiles over the output, with the depth split if the output alone would
leave SMs idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .launches import TILES, ModelledGpu, ModelledLaunch, Tile, choose
from .problems import ITEM_BYTES, Flags, Floats, Products

SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
LEAST_SPLIT_DEPTH = 64


@dataclass(frozen=True)
class CostEstimate:
    """Cost of one algorithm; arrays of shape (problems,)."""

    time_s: Floats  # time of all its launches
    launches: tuple[ModelledLaunch, ...]  # launches, in order
    workspace_bytes: Floats  # scratch memory
    possible: Flags  # problems for which it can be used

    @classmethod
    def of(
        cls,
        *launches: ModelledLaunch,
        workspace_bytes: Floats | float = 0.0,
        possible: Flags | bool = True,
    ) -> CostEstimate:
        """The cost of launches that follow each other."""
        time_s = np.asarray(sum(launch.time_s for launch in launches))
        shape = time_s.shape
        workspace = np.broadcast_to(workspace_bytes, shape)
        usable = np.broadcast_to(possible, shape)
        return cls(time_s, launches, workspace, usable)

    def where(self, possible: Flags | bool) -> CostEstimate:
        """The same, for fewer problems."""
        return replace(self, possible=self.possible & possible)


def estimate_products(
    problems: Products,
    machine: ModelledGpu,
    *,
    tiles: tuple[Tile, ...] = TILES,
    split_from: int = 0,
    slow_transposed: bool = False,
) -> CostEstimate:
    """Estimate the cost of matrix products with a library's output tiles, and its least depth to
    split.
    """
    slowdown: Floats | float = 1.0
    if slow_transposed:
        slowdown = _slow_transposed(problems, machine)
    share = machine.constants["product"]
    grid = problems.m, problems.n, problems.count
    touched = problems.touched_bytes
    main, added, sums = split_depth(
        machine, "sgemm", share, grid, problems.k, touched, slowdown, tiles, split_from,
        "product_dram",
    )  # fmt: skip
    return CostEstimate.of(main, added, workspace_bytes=sums)


def _slow_transposed(problems: Products, machine: ModelledGpu) -> Floats:
    """Slowdown by a transposed operand.

    Published for cuBLAS 7.5 and early 8.0: outputs over 1024 on both sides, unless the depth is a
    multiple of 1024.
    """
    narrowest = np.minimum(problems.m, problems.n)
    is_slow = problems.transposed & (narrowest > 1024) & (problems.k % 1024 != 0)
    return np.where(is_slow, machine.constants["transposed_old"], 1.0)


def split_depth(
    machine: ModelledGpu,
    name: str,
    share: float,
    grid: tuple[Floats, Floats, Floats],
    depth: Floats,
    dram_bytes: Floats,
    slowdown: Floats | float = 1.0,
    tiles: tuple[Tile, ...] = TILES,
    split_from: int = 0,
    dram: str = "dram",
) -> tuple[ModelledLaunch, ModelledLaunch, Floats]:
    """The fastest split of the depth: the main launch, the launch that adds the sums, and the bytes
    of the sums.

    Without a split the second launch has no blocks and takes no time.
    """
    rows, columns, count = grid
    outputs = rows * columns * count * ITEM_BYTES
    nothing = np.zeros_like(outputs)
    relative_cost = machine.constants["split"]
    best: tuple[ModelledLaunch, ModelledLaunch, Floats] | None = None
    for splits in SPLITS:
        is_deep = (depth / splits >= LEAST_SPLIT_DEPTH) & (depth >= split_from)
        possible = is_deep | (splits == 1)
        if not possible.any():
            break
        sums = outputs * splits if splits > 1 else nothing
        split_grid = rows, columns, count * splits
        part = np.ceil(depth / splits)
        moved = dram_bytes + sums
        main = machine.run_tiles(
            name, share, split_grid, part, moved, tiles=tiles, slowdown=slowdown, dram=dram
        )
        added = machine.reorder("add splits", sums * relative_cost)
        if splits == 1:
            added = replace(added, time_s=nothing, blocks=nothing)
        if best is None:
            best = main, added, sums
            continue
        best_main, best_added, best_sums = best
        time_s = main.time_s + added.time_s
        best_s = best_main.time_s + best_added.time_s
        better = possible & (time_s < best_s)
        main = choose(better, main, best_main)
        added = choose(better, added, best_added)
        best = main, added, np.where(better, sums, best_sums)
    assert best is not None
    return best
