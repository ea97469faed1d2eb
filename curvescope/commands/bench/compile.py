"""Compile Curvescope's CUDA kernels for every GPU generation and print their resources.

Needs no GPU.

Per kernel and architecture: registers per thread, static shared memory per block, bytes of spill
stores, theoretical occupancy at the kernel's block size, every resource that limits it, and changes
that would raise it: other block sizes up to the kernel's launch bounds, or fewer registers. All of
it is computed from the cubin; nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from ...analysis.render import terminal
from ...analysis.render.tables import TextTable, table
from ...analysis.render.terminal import progress_bars
from ...base.counted import counted
from ...base.errors import BackendMissingError, CurvescopeError
from ...options import add

if TYPE_CHECKING:
    from ...kernels.compile import Compiled, CudaSource
    from ...kernels.generations import KernelBuild
    from .documents import CompiledKernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="a Curvescope source (gemm, peak, ...) or a .cu file; default: all of Curvescope's",
    )
    parser.add_argument(
        "--arch",
        metavar="LIST",
        help="architectures, e.g. sm_35,sm_80 (default: sm_35 to sm_90, all twelve)",
    )
    parser.add_argument(
        "--block",
        type=int,
        metavar="THREADS",
        help="threads per block (default: the kernel's launch bounds)",
    )
    parser.add_argument(
        "--mix",
        action="store_true",
        help="count instructions, if nvdisasm supports the architecture",
    )
    add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ...kernels.compile import cache_folder, parse_architectures
    from ...kernels.generations import describe_builds

    if args.block is not None and not 1 <= args.block <= 1024:
        raise CurvescopeError(f"--block {args.block}: a block must have 1 to 1024 threads.")
    architectures = parse_architectures(args.arch) if args.arch else _known_architectures()
    compiled = _compile(_sources(args.sources), architectures)
    builds = [build for each in compiled for build in describe_builds(each, args.block, args.mix)]
    if args.json:
        from ...analysis.render.documents import print_document
        from .documents import CompileDocument

        print_document(
            CompileDocument(
                cache=str(cache_folder()),
                cubins=len(compiled),
                from_cache=sum(each.from_cache for each in compiled),
                kernels=[_describe_build(build) for build in builds],
            )
        )
        return 0
    _print(builds, compiled, args.mix)
    return 0


def _known_architectures() -> tuple[int, ...]:
    """The default architectures that an installed NVRTC supports.

    Prints those left out; raises if none remains.
    """
    from ...kernels.compile import ARCHITECTURES, compiler_for, compilers

    supported = {
        architecture for compiler in compilers() for architecture in compiler.architectures
    }
    compiled = tuple(architecture for architecture in ARCHITECTURES if architecture in supported)
    missing = [architecture for architecture in ARCHITECTURES if architecture not in supported]
    if missing:
        try:
            compiler_for(missing[0])
        except BackendMissingError as error:
            if not compiled:
                raise
            print(
                f"curvescope: {', '.join(f'sm_{each}' for each in missing)} skipped. {error}",
                file=sys.stderr,
            )
    return compiled


def _sources(names: Sequence[str]) -> list[CudaSource]:
    from ...kernels.compile import own_sources, read_source

    ours = {source.name: source for source in own_sources()}
    if not names:
        return list(ours.values())
    for name in names:
        if name not in ours and not name.endswith(".cu"):
            raise CurvescopeError(f"{name}: write a .cu file, or one of {', '.join(ours)}.")
    return [ours[name] if name in ours else read_source(Path(name)) for name in names]


def _compile(sources: Sequence[CudaSource], architectures: Sequence[int]) -> list[Compiled]:
    """Compile all, in the order of source and architecture, with progress on standard error."""
    from ...kernels.compile import compile_many

    pairs = [(source, architecture) for source in sources for architecture in architectures]
    cubins = []
    with progress_bars(24, counted=True) as bars:
        task = bars.add_task("compiling", total=len(pairs))
        for compiled in compile_many(pairs):
            cubins.append(compiled)
            bars.update(
                task, advance=1, description=f"{compiled.source} for sm_{compiled.architecture}"
            )
    return sorted(cubins, key=lambda compiled: (compiled.source, compiled.architecture))


def _describe_build(build: KernelBuild) -> CompiledKernel:
    from ...kernels.disassembly import instruction_mix
    from .documents import CompiledKernel

    resources, occupancy = asdict(build.resources), build.occupancy
    stores, loads = build.spilled_bytes or (None, None)
    return CompiledKernel(
        source=build.source,
        kernel=resources.pop("name"),
        architecture=f"sm_{build.architecture}",
        nvrtc=build.nvrtc,
        **resources,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        block_threads=build.block_threads,
        occupancy=occupancy.fraction if occupancy else None,
        blocks_per_sm=occupancy.blocks if occupancy else None,
        limiters=occupancy.limiters if occupancy else None,
        block_sizes_with_more=build.block_sizes_with_more if occupancy else None,
        registers_for_more=build.registers_for_more,
        instructions=build.instructions,
        instruction_mix=None if build.instructions is None else instruction_mix(build.instructions),
        instructions_missing=build.instructions_missing,
    )


def _print(builds: Sequence[KernelBuild], compiled: Sequence[Compiled], mix: bool) -> None:

    console = terminal.console()

    def kernel(build: KernelBuild) -> tuple[str, str]:
        return build.source, build.resources.name

    for (source, name), of_kernel in (
        (key, list(group)) for key, group in groupby(sorted(builds, key=kernel), kernel)
    ):
        blocks = sorted({build.block_threads for build in of_kernel})
        console.print(
            Text.assemble((name, "bold"), f"  {source}.cu, blocks of {'/'.join(map(str, blocks))}")
        )
        console.print(_resource_table(of_kernel))
        if mix:
            console.print(_mix_table(of_kernel))
        console.print()
    cached = sum(each.from_cache for each in compiled)
    versions = sorted({each.nvrtc for each in compiled})
    console.print(
        f"{counted(len(compiled), 'cubin')} by NVRTC {', '.join(versions)}, {cached} of them "
        "cached; nothing was run. Registers per thread; shared memory and spill stores in bytes, "
        "per block and per thread; occupancy is theoretical. `more with` is computed: the code may "
        "depend on its block size.",
        style="dim",
    )
    for reason in dict.fromkeys(
        build.instructions_missing for build in builds if build.instructions_missing
    ):
        console.print(reason, style="yellow")


def _resource_table(builds: Sequence[KernelBuild]) -> TextTable:
    """One row per group of architectures with equal values."""
    rows = table(
        "sm_",
        "regs",
        "shared",
        "spilled",
        "occup.",
        "limited by",
        "more with",
        whole=("sm_",),
        words=("limited by", "more with"),
    )
    for columns, architectures in _merge_rows(
        {build.architecture: _columns(build) for build in builds}
    ):
        rows.add_row(architectures, *columns)
    return rows


def _columns(build: KernelBuild) -> tuple[str, ...]:
    occupancy = build.occupancy
    full = occupancy is not None and occupancy.fraction == 1
    return (
        str(build.resources.registers_per_thread),
        f"{build.resources.shared_bytes:,}",
        "?" if build.spilled_bytes is None else f"{build.spilled_bytes[0]:,}",
        f"{occupancy.fraction:.0%}" if occupancy else "no table",
        "" if occupancy is None or full else ", ".join(occupancy.limiters),
        "" if full else _remedy(build),
    )


def _remedy(build: KernelBuild) -> str:
    """Block sizes with the highest occupancy, else the number of registers that would raise it."""
    more = build.block_sizes_with_more
    if more:
        best = max(more.values())
        sizes = [size for size, fraction in more.items() if fraction == best]
        shown = ", ".join(map(str, sizes[:3])) + (" …" if len(sizes) > 3 else "")
        return f"block {shown}: {best:.0%}"
    if build.registers_for_more is not None:
        return f"≤ {build.registers_for_more} registers"
    return ""


def _mix_table(builds: Sequence[KernelBuild]) -> TextTable:
    """Instructions in the code per class (not executed instructions)."""
    from ...kernels.disassembly import instruction_mix

    rows = table(
        "sm_", "instructions in the code", whole=("sm_",), words=("instructions in the code",)
    )
    mixes = {}
    for build in builds:
        if build.instructions is not None:
            mix = instruction_mix(build.instructions)
            mixes[build.architecture] = (
                ", ".join(f"{kind} {count}" for kind, count in mix.items()),
            )
    for columns, architectures in _merge_rows(mixes):
        rows.add_row(architectures, *columns)
    return rows


def _merge_rows(rows: Mapping[int, tuple[str, ...]]) -> list[tuple[tuple[str, ...], str]]:
    """Each row with its successive architectures; `50..61` means all requested architectures in
    that range.
    """
    merged = []
    for row, group in groupby(sorted(rows.items()), lambda entry: entry[1]):
        first, *others = (architecture for architecture, _ in group)
        merged.append((row, f"{first}..{others[-1]}" if others else str(first)))
    return merged
