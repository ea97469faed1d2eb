"""What each kernel takes on each GPU generation: from cubins alone, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..profiling.errors import BackendMissingError
from ..profiling.hardware.occupancy import LIMITS, Occupancy, block_sizes_with_more, occupancy, registers_for_more
from .compile import Compiled
from .cubin import KernelResources, read_cubin
from .disassembly import count_instructions
from .ptxas_log import PtxasReport, read_ptxas_log


@dataclass(frozen=True)
class KernelBuild:
    """One kernel on one architecture.

    Attributes:
        source: that it comes from.
        architecture: as in sm_80, 80.
        nvrtc: version of the compiler.
        resources: what the cubin says.
        spills: what ptxas says, who alone tells spills from other local memory; None: it said nothing.
        block_threads: that the occupancy is for.
        occupancy: None where there is no table for the architecture.
        block_sizes_with_more: block size to occupancy, where it is more, up to the kernel's launch bounds.
        registers_for_more: most registers per thread with which this block size has more; None: fewer would not help.
        instructions: instruction to count in the code; None: not asked for, or see `instructions_missing`.
        instructions_missing: why there is none, and how to get what is missing.
    """

    source: str
    architecture: int
    nvrtc: str
    resources: KernelResources
    spills: PtxasReport | None
    block_threads: int
    occupancy: Occupancy | None
    block_sizes_with_more: Mapping[int, float]
    registers_for_more: int | None
    instructions: Mapping[str, int] | None
    instructions_missing: str | None


def describe_builds(compiled: Compiled, block_threads: int | None = None, mix: bool = False) -> list[KernelBuild]:
    """Every kernel of a cubin.

    Args:
        compiled: the cubin and its log.
        block_threads: of a launch; the launch bounds hold where they are less, and are the default. 256 where there
            are none.
        mix: count instructions as well.
    """
    cubin, said = read_cubin(compiled.cubin), read_ptxas_log(compiled.log)
    counted: Mapping[str, Mapping[str, int]] = {}
    missing = None
    if mix:
        try:
            counted = count_instructions(compiled.cubin, compiled.architecture)
        except BackendMissingError as error:
            missing = str(error)
    return [
        _describe(compiled, kernel, said.get(kernel.name), block_threads, counted.get(kernel.name), missing)
        for kernel in cubin.kernels
    ]


def _describe(
    compiled: Compiled,
    kernel: KernelResources,
    spills: PtxasReport | None,
    block_threads: int | None,
    instructions: Mapping[str, int] | None,
    instructions_missing: str | None,
) -> KernelBuild:
    threads = min(block_threads or kernel.max_threads or 256, kernel.max_threads or 1024)
    known = compiled.architecture in LIMITS
    launch = (compiled.architecture, threads, kernel.registers_per_thread, kernel.shared_bytes)
    return KernelBuild(
        source=compiled.source,
        architecture=compiled.architecture,
        nvrtc=compiled.nvrtc,
        resources=kernel,
        spills=spills,
        block_threads=threads,
        occupancy=occupancy(*launch) if known else None,
        block_sizes_with_more=block_sizes_with_more(*launch, kernel.max_threads or 1024) if known else {},
        registers_for_more=registers_for_more(*launch) if known else None,
        instructions=instructions,
        instructions_missing=instructions_missing,
    )
