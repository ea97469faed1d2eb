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
        workspace_bytes, possible = (
            np.broadcast_to(array, time_s.shape) for array in (workspace_bytes, possible)
        )
        return cls(time_s, launches, workspace_bytes, possible)


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
    # Published for cuBLAS 7.5 and early 8.0: outputs over 1024 on both sides, unless the depth is a
    # multiple of 1024.
    large = (np.minimum(problems.m, problems.n) > 1024) & (problems.k % 1024 != 0)
    slowdown = np.where(
        problems.transposed & large & slow_transposed, machine.constants["transposed_old"], 1.0
    )
    main, added, workspace = split_depth(
        machine, "sgemm", machine.constants["product"], (problems.m, problems.n, problems.count), problems.k,  # noqa: E501
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
        possible = ((depth / splits >= LEAST_SPLIT_DEPTH) & (depth >= split_from)) | (splits == 1)
        if not possible.any():
            break
        sums = outputs * splits if splits > 1 else np.zeros_like(outputs)
        main = machine.run_tiles(
            name, share, (rows, columns, count * splits), np.ceil(depth / splits), dram_bytes + sums,  # noqa: E501
            tiles=tiles, slowdown=slowdown, dram=dram,
        )  # fmt: skip
        added = machine.transforming("add splits", sums * machine.constants["split"])
        if splits == 1:
            added = replace(added, time_s=np.zeros_like(outputs), blocks=np.zeros_like(outputs))
        if best is None:
            best = (main, added, sums)
            continue
        better = possible & (main.time_s + added.time_s < best[0].time_s + best[1].time_s)
        best = (
            choose(better, main, best[0]),
            choose(better, added, best[1]),
            np.where(better, sums, best[2]),
        )
    assert best is not None
    return best
