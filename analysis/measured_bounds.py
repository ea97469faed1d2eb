"""Each kernel's bound, by throughputs that Nsight Compute measured. The throughputs of the SMs and
the memory are over the most that the device sustains.

A unit that is 60 % busy or more bounds the kernel, as in Nsight Compute's own guidance. Where none
is, the kernel waits: for too few blocks, for too few warps, or for its own latency. The limit of
its occupancy says what would make room for more warps, and the largest stall names their wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..profiling.hardware.limits import Hardware, hardware_of
from ..profiling.hardware.occupancy import Occupancy
from ..profiling.recording.store import Recording
from .decompose.kernel_times import KERNEL_IDENTITY, device_work, kernel_totals
from .likely_bounds import fit_on_sm, plain_rows

USES = ("sm_use", "memory_use", "dram_use", "l2_use", "achieved_occupancy")
_BUSY = 0.6  # share of its throughput from which a unit bounds a kernel
_FEW_WARPS = 0.5  # occupancy below which more warps may hide the latency
_MOST_OF_ROOM = 0.8  # of the theoretical occupancy, below which that is not what limits
_LARGE_STALL = 0.3  # share of a warp's cycles from which a stall is named, as Nsight Compute does

COMPUTE, DRAM, L2, PIPES = "compute", "DRAM", "L2", "L1 or shared memory"
FEW_BLOCKS, FEW_WARPS, LATENCY = "few blocks", "few warps", "latency"
WHAT_TO_TRY = {
    COMPUTE: "fewer instructions, or those of tensor cores and of shorter types",
    DRAM: "move fewer bytes: fuse it with its neighbours, use shorter types, read each value once",
    L2: "keep what is read again in shared memory or registers, and read whole sectors",
    PIPES: "coalesce accesses, avoid bank conflicts, keep values in registers",
    FEW_BLOCKS: "more blocks than the device has SMs, e.g. smaller tiles or a split sum",
    FEW_WARPS: "more warps on each SM at a time",
    LATENCY: "more independent work in each thread",
}
# What makes room for more warps, by what limits the blocks of an SM.
_MORE_ROOM = {
    "registers": "fewer registers: __launch_bounds__, or less kept in each thread",
    "shared memory": "less shared memory in each block",
    "blocks": "larger blocks",
    "warps": "blocks that take equally long: the SM has room for more warps than are active",
}
# Of a stall, what its warps wait for, and what to try.
_STALLS = {
    "stall_memory": ("global memory", "load earlier, or from shared memory and caches"),
    "stall_memory_queue": ("the queue to memory", "fewer and wider accesses"),
    "stall_shared": ("shared memory", "avoid bank conflicts, keep values in registers"),
    "stall_shared_queue": ("the queue to shared memory", "fewer and wider accesses to it"),
    "stall_barrier": ("barriers", "smaller blocks, or equal work in all warps of one"),
    "stall_math": ("busy arithmetic", WHAT_TO_TRY[COMPUTE]),
    "stall_dependency": ("the last instruction", WHAT_TO_TRY[LATENCY]),
    "stall_code": ("instructions", "smaller kernels: unroll and inline less"),
}
_ISSUE = "issue_cycles"
_READ = (*USES, _ISSUE, *_STALLS)


@dataclass(frozen=True, kw_only=True)
class MeasuredBound:
    """What bounds the launches of one kernel with one geometry; shares are of the most that the
    device sustains, and null if they were not measured.
    """

    kernel: str  # name of the kernel
    calls: int  # its launches
    time_ms: float  # their time
    sm_use: float | None  # throughput of the SMs
    memory_use: float | None  # throughput of the memory: of its busiest unit
    dram_use: float | None  # that of DRAM
    l2_use: float | None  # that of L2
    achieved_occupancy: float | None  # active warps over the most that an SM holds
    occupancy: float | None  # the most that its launch allows; null if unknown
    # what allows no more: warps, blocks, registers, shared memory; empty if unknown
    limited_by: tuple[str, ...]
    stall: str | None  # what its warps mostly wait for; null if unknown, or nothing stands out
    stall_share: float | None  # share of their cycles in that wait
    # compute, DRAM, L2, L1 or shared memory; or few blocks, few warps or latency where none is busy
    bound: str
    do: str  # what to try


def measured_bounds(recording: Recording) -> tuple[MeasuredBound, ...]:
    """The bound of every kernel whose throughputs were measured, the longest first."""
    hardware = hardware_of(recording.meta)
    rows = plain_rows(kernel_totals(device_work(recording), KERNEL_IDENTITY, _READ))
    bounds = (_bound(row, hardware) for row in rows if _share(row, "sm_use") is not None)
    return tuple(sorted(bounds, key=lambda bound: -bound.time_ms))


def _bound(row: Any, hardware: Hardware) -> MeasuredBound:
    shares = {name: _share(row, name) for name in USES}
    memory = [shares[name] for name in ("memory_use", "dram_use", "l2_use")]
    shares["memory_use"] = max((use for use in memory if use is not None), default=None)
    bound = _name_bound(shares, _blocks(row), hardware.sm_count)
    fits = fit_on_sm(row, hardware)
    occupancy: float | None = None
    limiters: tuple[str, ...] = ()
    if fits is not None:
        occupancy, limiters = fits.fraction, fits.limiters
    stall, stall_share = _find_stall(row)
    waits_for = None if stall is None else _STALLS[stall][0]
    do = _choose_what_to_try(bound, stall, fits, shares["achieved_occupancy"])
    return MeasuredBound(
        kernel=str(row.name),
        calls=int(row.calls),
        time_ms=float(row.exclusive_ms),
        occupancy=occupancy,
        limited_by=limiters,
        stall=waits_for,
        stall_share=stall_share,
        bound=bound,
        do=do,
        **shares,
    )


def _choose_what_to_try(
    bound: str, stall: str | None, fits: Occupancy | None, active: float | None
) -> str:
    """The change that the bound asks for; of a kernel that waits, what its limit or stall asks."""
    if bound == LATENCY and stall is not None:
        return _STALLS[stall][1]
    if bound != FEW_WARPS or fits is None or active is None:
        return WHAT_TO_TRY[bound]
    has_room = active < _MOST_OF_ROOM * fits.fraction
    return _MORE_ROOM["warps" if has_room else fits.limiters[-1]]


def _find_stall(row: Any) -> tuple[str | None, float | None]:
    """The column of the largest stall, and its share of a warp's cycles."""
    whole = _share(row, _ISSUE)
    cycles = {name: _share(row, name) or 0.0 for name in _STALLS}
    largest = max(cycles, key=cycles.__getitem__)
    if not whole or cycles[largest] < _LARGE_STALL * whole:
        return None, None
    return largest, min(cycles[largest] / whole, 1.0)


def _name_bound(shares: dict[str, float | None], blocks: int | None, sm_count: int | None) -> str:
    sm = shares["sm_use"] or 0.0
    memory = shares["memory_use"] or 0.0
    dram = shares["dram_use"] or 0.0
    l2 = shares["l2_use"] or 0.0
    if max(sm, memory) >= _BUSY:
        if sm >= memory:
            return COMPUTE
        if dram >= _BUSY:
            return DRAM
        if l2 >= _BUSY:
            return L2
        return PIPES
    if blocks is not None and sm_count is not None and blocks < sm_count:
        return FEW_BLOCKS
    occupancy = shares["achieved_occupancy"]
    if occupancy is not None and occupancy < _FEW_WARPS:
        return FEW_WARPS
    return LATENCY


def _blocks(row: Any) -> int | None:
    sizes = [getattr(row, f"grid_{axis}") for axis in "xyz"]
    return None if None in sizes else math.prod(sizes)


def _share(row: Any, name: str) -> float | None:
    value = getattr(row, name)
    return None if value is None else float(value)
