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
        workspace = np.broadcast_to(workspace_bytes, time_s.shape)
        return cls(time_s, launches, workspace, np.broadcast_to(possible, time_s.shape))

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
        # Published for cuBLAS 7.5 and early 8.0: outputs over 1024 on both sides, unless the depth
        # is a multiple of 1024.
        large = (np.minimum(problems.m, problems.n) > 1024) & (problems.k % 1024 != 0)
        slow = problems.transposed & large
        slowdown = np.where(slow, machine.constants["transposed_old"], 1.0)
    grid = problems.m, problems.n, problems.count
    main, added, workspace = split_depth(
        machine, "sgemm", machine.constants["product"], grid, problems.k,
        problems.touched_bytes, slowdown, tiles, split_from, "product_dram",
    )  # fmt: skip
    return CostEstimate.of(main, added, workspace_bytes=workspace)


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
    best: tuple[ModelledLaunch, ModelledLaunch, Floats] | None = None
    rows, columns, count = grid
    outputs = rows * columns * count * ITEM_BYTES
    for splits in SPLITS:
        is_deep = (depth / splits >= LEAST_SPLIT_DEPTH) & (depth >= split_from)
        possible = is_deep | (splits == 1)
        if not possible.any():
            break
        sums = outputs * splits if splits > 1 else np.zeros_like(outputs)
        each = rows, columns, count * splits
        main = machine.run_tiles(
            name, share, each, np.ceil(depth / splits), dram_bytes + sums,
            tiles=tiles, slowdown=slowdown, dram=dram,
        )  # fmt: skip
        added = machine.transforming("add splits", sums * machine.constants["split"])
        if splits == 1:
            added = replace(added, time_s=np.zeros_like(outputs), blocks=np.zeros_like(outputs))
        if best is None:
            best = main, added, sums
            continue
        best_main, best_added, best_sums = best
        better = possible & (main.time_s + added.time_s < best_main.time_s + best_added.time_s)
        main, added = choose(better, main, best_main), choose(better, added, best_added)
        best = main, added, np.where(better, sums, best_sums)
    assert best is not None
    return best
