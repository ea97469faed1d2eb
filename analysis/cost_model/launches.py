"""The time of a launch: blocks in waves over the SMs, and bytes through L2 and DRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...profiling.hardware.devices import Device
from ...profiling.hardware.occupancy import occupancy_of
from .constants import Constants
from .problems import ITEM_BYTES, Floats


class Tile(NamedTuple):
    """Output tile of a block, its threads, and the name of the constant for its time outside the
    main loop.
    """

    rows: int
    columns: int
    threads: int
    edge: str = "product_cycles"


# Tiles of the libraries' fp32 products, from their names (..._128x64_...), with threads per block
# from NeuSight's launches; 32x32 is not among those: according to its name, four slices share the
# depth.
TILES = (
    Tile(128, 128, 256), Tile(128, 64, 128), Tile(64, 128, 128), Tile(64, 64, 64), Tile(128, 32, 256),  # noqa: E501
    Tile(32, 128, 256), Tile(32, 32, 128),
)  # fmt: skip
_STREAM_THREADS = 256  # of a block that only moves bytes
# registers of a thread besides its accumulators: with 8 x 8 of them it has 128
_REGISTERS_BESIDE = 64
_DEPTH_PER_STEP = 8
# The slowest of three overlapping limits decides, but near a tie they interfere: a norm instead of
# a maximum, at most 26 % above it if all three are equal.
_TIE_NORM = 5.0


@dataclass(frozen=True)
class ModelledLaunch:
    """One kernel of every problem; every array of shape (problems,)."""

    name: str  # name in a recording
    time_s: Floats  # time from the end of the previous launch to its end, including its start
    blocks: Floats  # blocks of the grid
    threads: Floats  # threads of a block
    # (rows, columns) of the output tile, shape (problems, 2); 0 for a streaming kernel
    tile: Floats
    flops_executed: Floats  # FLOPs including tile padding
    l2_bytes: Floats  # bytes read from and written to L2
    dram_bytes: Floats  # bytes read from and written to DRAM

    def slow_by(self, factor: Floats | float) -> ModelledLaunch:
        """The same kernel in that many times the time."""
        return replace(self, time_s=self.time_s * factor)


@dataclass(frozen=True)
class ModelledGpu:
    """A device with the constants of its architecture."""

    device: Device
    constants: Constants
    item_bytes: int = ITEM_BYTES  # bytes of a value of an operand

    @property
    def clock_hz(self) -> float:
        """Clock of long kernels, Hz."""
        boost = 1.0
        if self.device.board == "geforce":
            boost = self.constants["gpu_boost"]
        return self.device.sustained_clock_hz * boost

    @property
    def sm_flops_per_s(self) -> float:
        """fp32 peak of one SM at that clock; one FMA is two FLOPs."""
        return 2 * self.device.fp32_lanes_per_sm * self.clock_hz

    @property
    def start_s(self) -> float:
        """Least time of a launch, s."""
        return self.constants["start_us"] * 1e-6

    def stream(self, name: str, dram_bytes: Floats, share: float = 1.0) -> ModelledLaunch:
        """A kernel that only moves bytes, in order, at a share of STREAM's rate."""
        return self._move(name, dram_bytes, share * self.constants["stream"])

    def reorder(self, name: str, dram_bytes: Floats) -> ModelledLaunch:
        """A kernel that reorders bytes, e.g. around a library's products."""
        return self._move(name, dram_bytes, self.constants["dram"])

    def take_fixed_time(self, name: str, time_us: float, dram_bytes: Floats) -> ModelledLaunch:
        """A kernel that takes the same time for every problem."""
        launch = self._move(name, dram_bytes, 1.0)
        return replace(launch, time_s=np.full_like(launch.time_s, time_us * 1e-6))

    def _move(self, name: str, dram_bytes: Floats, share: float) -> ModelledLaunch:
        # One element per thread.
        moved = np.asarray(dram_bytes, np.float64)
        zeros = np.zeros_like(moved)
        block_bytes = 2 * self.item_bytes * _STREAM_THREADS
        rate = self.device.memory_bytes_per_s * share
        return ModelledLaunch(
            name=name,
            time_s=self.start_s + moved / rate,
            blocks=np.ceil(moved / block_bytes),
            threads=zeros + _STREAM_THREADS,
            tile=np.zeros((*moved.shape, 2)),
            flops_executed=zeros,
            l2_bytes=moved,
            dram_bytes=moved,
        )

    def run_tiles(
        self,
        name: str,
        share: float,
        grid: tuple[Floats, Floats, Floats],
        depth: Floats,
        dram_bytes: Floats,
        *,
        tiles: Sequence[Tile] = TILES,
        slowdown: Floats | float = 1.0,
        dram: str = "dram",
        step: str = "step_cycles",
        taken: npt.NDArray[np.int64] | None = None,
    ) -> ModelledLaunch:
        """A kernel of output tiles over a depth; each problem uses its fastest tile, or the one
        whose index is `taken`.

        `share` is the share of the peak that the main loop of a 128 × 128 tile reaches. `grid` is
        (rows, columns, number of such outputs). `dram` and `step` name the constants of the DRAM
        rate and of the least clocks of a step of the depth.
        """
        extents = [np.asarray(extent, np.float64) for extent in grid]
        rows, columns, count = np.broadcast_arrays(*extents)
        outputs = rows * columns * count
        best: ModelledLaunch | None = None
        for index, tile in enumerate(tiles):
            down = np.ceil(rows / tile.rows)
            across = np.ceil(columns / tile.columns)
            blocks = down * across * count
            compute_s = self.blocks_s(share, tile, blocks, depth, step) * slowdown
            read = blocks * (tile.rows + tile.columns) * depth
            l2_bytes = self.item_bytes * (read + outputs)
            launch = ModelledLaunch(
                name=name,
                time_s=self.combine(compute_s, l2_bytes, dram_bytes, dram),
                blocks=blocks,
                threads=np.full_like(blocks, tile.threads),
                tile=repeat_tile(tile, blocks),
                flops_executed=2 * blocks * tile.rows * tile.columns * depth,
                l2_bytes=l2_bytes,
                dram_bytes=dram_bytes + np.zeros_like(blocks),
            )
            if best is None:
                best = launch
                continue
            better = launch.time_s < best.time_s
            if taken is not None:
                better = np.asarray(taken == index)
            best = choose(better, launch, best)
        assert best is not None
        return best

    def blocks_s(
        self, share: float, tile: Tile, blocks: Floats, depth: Floats, step: str = "step_cycles"
    ) -> Floats:
        """Time of the main loops of a grid: waves of resident blocks, with a partial last wave."""
        constants, device = self.constants, self.device
        rows, columns, threads, edge = tile
        accumulators = min(64, rows * columns // threads)
        fitting = occupancy_of(device.sm, threads, _REGISTERS_BESIDE + accumulators)
        resident = max(1, fitting.blocks)
        perimeter = max(1.0, 64 * (1 / rows + 1 / columns))
        loss = 1 + constants["small_tile"] * (perimeter - 1)
        rate = self.sm_flops_per_s * share / loss
        half = constants["half_warps"] * device.fp32_lanes_per_sm / 64

        def occupancy(blocks_per_sm: Floats | float) -> Floats:
            warps = np.asarray(blocks_per_sm) * threads / 32
            return np.asarray(warps / (warps + half))

        full = 16 / (16 + half)  # rate at which `share` is defined: two blocks of 256 threads
        issue_s = 2 * rows * columns * depth / rate
        depth_steps = np.ceil(depth / _DEPTH_PER_STEP)
        latency_s = depth_steps * constants[step] / self.clock_hz
        edge_s = constants[edge] / self.clock_hz
        per_sm = np.ceil(blocks / device.sm_count)
        waves = np.floor(per_sm / resident)
        rest = per_sm - waves * resident
        slower = np.minimum(full / occupancy(resident), 4.0)
        full_wave_s = _combine_limits(resident * issue_s * slower, latency_s) + edge_s
        rest_issue_s = rest * issue_s * full / occupancy(np.maximum(rest, 1))
        rest_s = _combine_limits(rest_issue_s, latency_s) + edge_s
        last_wave_s = np.where(rest > 0, rest_s, 0.0)
        return np.asarray(waves * full_wave_s + last_wave_s)

    def combine(
        self, compute_s: Floats, l2_bytes: Floats, dram_bytes: Floats, dram: str = "dram"
    ) -> Floats:
        """Start plus the slowest of compute, L2 and DRAM; `dram` names the constant of the last."""
        constants, device = self.constants, self.device
        l2_rate = constants["l2_bytes_per_clock"] * device.sm_count * self.clock_hz
        # 128 lanes need twice the L2 bandwidth of 64: the constant is per 64 lanes
        l2_s = l2_bytes / l2_rate * 64 / device.fp32_lanes_per_sm
        dram_rate = device.memory_bytes_per_s * constants[dram]
        dram_s = dram_bytes / dram_rate
        slowest_s = _combine_limits(compute_s, l2_s, dram_s)
        return np.asarray(self.start_s + slowest_s)


def _combine_limits(*limits_s: Floats) -> Floats:
    """The slowest of overlapping limits, and more near a tie."""
    together = sum(limit**_TIE_NORM for limit in limits_s)
    return np.asarray(together ** (1 / _TIE_NORM))


def repeat_tile(tile: Tile, blocks: Floats) -> Floats:
    """The extents of a tile for every problem, shape (problems, 2)."""
    extents = np.array([tile.rows, tile.columns], np.float64)
    return np.broadcast_to(extents, (*blocks.shape, 2))


def choose(
    take: npt.NDArray[np.bool_], left: ModelledLaunch, right: ModelledLaunch
) -> ModelledLaunch:
    """Take `left` where `take` is true, else `right`; both have the same name."""
    chosen = {}
    for field in fields(left):
        if field.name == "name":
            continue
        ours = getattr(left, field.name)
        theirs = getattr(right, field.name)
        where = take
        if ours.ndim > take.ndim:
            where = take[..., None]
        chosen[field.name] = np.where(where, ours, theirs)
    return replace(left, **chosen)
