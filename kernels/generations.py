"""Resources of each kernel on each GPU generation, from cubins alone; needs no GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import BackendMissingError
from ..profiling.hardware.occupancy import (
    LIMITS,
    Occupancy,
    block_sizes_with_more,
    occupancy,
    registers_for_more,
)
from .compile import Compiled
from .cubin import KernelResources, read_cubin
from .disassembly import list_instructions, pair_sections

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class KernelBuild:
    """One kernel on one architecture."""

    source: str
    architecture: int
    nvrtc: str
    resources: KernelResources
    # per thread, stored and loaded back; None if ptxas says nothing
    spilled_bytes: tuple[int, int] | None
    block_threads: int  # block size that the occupancy refers to
    occupancy: Occupancy | None  # None if the architecture's limits are unknown
    block_sizes_with_more: Mapping[int, float]  # occupancy by block size, up to the launch bounds
    # most registers per thread with a higher occupancy at this block size
    registers_for_more: int | None
    # number of each in the code; None if not requested or unavailable
    instructions: Mapping[str, int] | None
    instructions_missing: str | None  # why they are unavailable, and how to get a disassembler


def describe_builds(
    compiled: Compiled, block_threads: int | None = None, mix: bool = False
) -> list[KernelBuild]:
    """Describe every kernel of a cubin; `mix` counts instructions as well.

    A launch of `block_threads` is capped by the launch bounds; its default is the launch bounds, or
    256 without them.
    """
    spills = _read_spills(compiled.log)
    instructions: Mapping[str, Mapping[str, int]] = {}
    missing = None
    architecture = compiled.architecture
    if mix:
        try:
            listed = list_instructions(compiled.cubin, architecture)
            instructions = {name: Counter(of_kernel) for name, of_kernel in listed.items()}
        except BackendMissingError as error:
            missing = str(error)
    builds = []
    for kernel in read_cubin(compiled.cubin):
        most_threads = kernel.max_threads or 1024
        threads = min(block_threads or kernel.max_threads or 256, most_threads)
        launch = (architecture, threads, kernel.registers_per_thread, kernel.shared_bytes)
        has_limits = architecture in LIMITS
        more = block_sizes_with_more(*launch, most_threads) if has_limits else {}
        build = KernelBuild(
            source=compiled.source,
            architecture=architecture,
            nvrtc=compiled.nvrtc,
            resources=kernel,
            spilled_bytes=spills.get(kernel.name),
            block_threads=threads,
            occupancy=occupancy(*launch) if has_limits else None,
            block_sizes_with_more=more,
            registers_for_more=registers_for_more(*launch) if has_limits else None,
            instructions=instructions.get(kernel.name),
            instructions_missing=missing,
        )
        builds.append(build)
    return builds


def _read_spills(log: str) -> dict[str, tuple[int, int]]:
    """Bytes per thread that each kernel spills and loads back, from the log of ptxas -v."""
    spills = {}
    for name, text in pair_sections(_ENTRY, log):
        if match := _SPILLS.search(text):
            spills[name] = (int(match[1]), int(match[2]))
    return spills
