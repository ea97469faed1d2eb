"""Compile Curvescope's CUDA kernels for every GPU generation and print their resources.

Needs no GPU: all is computed from the cubins, and nothing is timed.

A line per kernel and architecture has the registers per thread, the static shared memory per block
and the bytes of spill stores. It has the theoretical occupancy at the kernel's block size, and
every resource that limits it. Changes that would raise it follow: other block sizes up to the
kernel's launch bounds, or fewer registers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, product
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
    from ...kernels.compile import parse_architectures
    from ...kernels.generations import describe_builds

    if args.block is not None and not 1 <= args.block <= 1024:
        raise CurvescopeError(f"--block {args.block}: a block must have 1 to 1024 threads.")
    architectures = parse_architectures(args.arch) if args.arch else _list_architectures()
    compiled = _compile(_sources(args.sources), architectures)
    builds: list[KernelBuild] = []
    for each in compiled:
        builds += describe_builds(each, args.block, args.mix)
    if args.json:
        _print_document(builds, compiled)
    else:
        _print(builds, compiled, args.mix)
    return 0


def _print_document(builds: Sequence[KernelBuild], compiled: Sequence[Compiled]) -> None:
    from ...analysis.render.documents import print_document
    from ...kernels.compile import cache_folder
    from .documents import CompileDocument

    document = CompileDocument(
        cache=str(cache_folder()),
        cubins=len(compiled),
        from_cache=sum(each.from_cache for each in compiled),
        kernels=[_describe_build(build) for build in builds],
    )
    print_document(document)


def _list_architectures() -> tuple[int, ...]:
    """The default architectures that an installed NVRTC supports.

    Prints those left out; raises if none remains.
    """
    from ...kernels.compile import ARCHITECTURES, compiler_for, compilers

    supported: set[int] = set()
    for compiler in compilers():
        supported.update(compiler.architectures)
    compiled = tuple(architecture for architecture in ARCHITECTURES if architecture in supported)
    missing = [architecture for architecture in ARCHITECTURES if architecture not in supported]
    if missing:
        try:
            compiler_for(missing[0])
        except BackendMissingError as error:
            if not compiled:
                raise
            skipped = ", ".join(map("sm_{}".format, missing))
            print(f"curvescope: {skipped} skipped. {error}", file=sys.stderr)
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

    pairs = list(product(sources, architectures))
    cubins = []
    with progress_bars(24, counted=True) as bars:
        task = bars.add_task("compiling", total=len(pairs))
        for compiled in compile_many(pairs):
            cubins.append(compiled)
            latest = f"{compiled.source} for sm_{compiled.architecture}"
            bars.update(task, advance=1, description=latest)
    return sorted(cubins, key=lambda compiled: (compiled.source, compiled.architecture))


def _describe_build(build: KernelBuild) -> CompiledKernel:
    from ...kernels.disassembly import instruction_mix
    from .documents import CompiledKernel

    resources, occupancy = asdict(build.resources), build.occupancy
    stores, loads = build.spilled_bytes or (None, None)
    instructions = build.instructions
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
        instructions=instructions,
        instruction_mix=None if instructions is None else instruction_mix(instructions),
        instructions_missing=build.instructions_missing,
    )


def _print(builds: Sequence[KernelBuild], compiled: Sequence[Compiled], mix: bool) -> None:
    console = terminal.console()

    def kernel(build: KernelBuild) -> tuple[str, str]:
        return build.source, build.resources.name

    for (source, name), alike in groupby(sorted(builds, key=kernel), kernel):
        of_kernel = list(alike)
        blocks = sorted({build.block_threads for build in of_kernel})
        listed = "/".join(map(str, blocks))
        console.print(Text.assemble((name, "bold"), f"  {source}.cu, blocks of {listed}"))
        console.print(_resource_table(of_kernel))
        if mix:
            console.print(_mix_table(of_kernel))
        console.print()
    cached = sum(each.from_cache for each in compiled)
    versions = ", ".join(sorted({each.nvrtc for each in compiled}))
    console.print(
        f"{counted(len(compiled), 'cubin')} by NVRTC {versions}, {cached} of them "
        "cached; nothing was run. Registers per thread; shared memory and spill stores in bytes, "
        "per block and per thread; occupancy is theoretical. `more with` is computed: the code may "
        "depend on its block size.",
        style="dim",
    )
    reasons = dict.fromkeys(build.instructions_missing for build in builds)
    for reason in filter(None, reasons):
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
    _add_rows(rows, {build.architecture: _columns(build) for build in builds})
    return rows


def _columns(build: KernelBuild) -> tuple[str, ...]:
    registers = str(build.resources.registers_per_thread)
    shared = f"{build.resources.shared_bytes:,}"
    spilled = "?" if build.spilled_bytes is None else f"{build.spilled_bytes[0]:,}"
    occupancy = build.occupancy
    if occupancy is None:
        return (registers, shared, spilled, "no table", "", _remedy(build))
    limiters, remedy = ", ".join(occupancy.limiters), _remedy(build)
    if occupancy.fraction == 1:
        limiters = remedy = ""
    return (registers, shared, spilled, f"{occupancy.fraction:.0%}", limiters, remedy)


def _remedy(build: KernelBuild) -> str:
    """Block sizes with the highest occupancy, else the number of registers that would raise it."""
    more = build.block_sizes_with_more
    if more:
        best = max(more.values())
        sizes = [str(size) for size, fraction in more.items() if fraction == best]
        shown = ", ".join(sizes[:3])
        if len(sizes) > 3:
            shown += " …"
        return f"block {shown}: {best:.0%}"
    if build.registers_for_more is not None:
        return f"≤ {build.registers_for_more} registers"
    return ""


def _mix_table(builds: Sequence[KernelBuild]) -> TextTable:
    """Instructions in the code per class (not executed instructions)."""
    from ...kernels.disassembly import instruction_mix

    title = "instructions in the code"
    rows = table("sm_", title, whole=("sm_",), words=(title,))
    mixes = {}
    for build in builds:
        if build.instructions is not None:
            mix = instruction_mix(build.instructions)
            counts = [f"{kind} {count}" for kind, count in mix.items()]
            mixes[build.architecture] = (", ".join(counts),)
    _add_rows(rows, mixes)
    return rows


def _add_rows(rows: TextTable, cells: Mapping[int, tuple[str, ...]]) -> None:
    """A row for successive architectures with equal cells: `50..61` means all requested
    architectures in that range.
    """
    for equal, alike in groupby(sorted(cells.items()), lambda entry: entry[1]):
        architectures = [str(architecture) for architecture, _ in alike]
        ends = dict.fromkeys((architectures[0], architectures[-1]))
        rows.add_row("..".join(ends), *equal)
