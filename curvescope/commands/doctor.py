"""What this machine offers, what is missing and how to get it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple


class Finding(NamedTuple):
    """One thing looked for: whether it is here, what was found, and how to get it if it is not."""

    name: str
    found: bool
    detail: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Look, and print a line each."""
    findings = [look() for look in _CHECKS]
    if args.json:
        print(json.dumps([finding._asdict() for finding in findings]))
        return 0

    from rich.text import Text

    from ..analysis.render import terminal

    console = terminal.console()
    for finding in findings:
        mark = Text("found    ", "green") if finding.found else Text("not here ", "yellow")
        console.print(mark + Text(f"{finding.name}: {finding.detail}"))
        if finding.remedy and not finding.found:
            console.print(Text(f"         {finding.remedy}", "dim"))
    return 0


def _cpu() -> Finding:
    from ..profiling.hardware.host import describe_host

    host = describe_host()
    governor = host["governor"] or "not told by the kernel"
    return Finding(
        "CPU",
        True,
        f"{host['cpu']}, {host['usable_cores']} cores usable, governor {governor}, load {host['load_average_1min']}",
    )


def _torch() -> Finding:
    from ..profiling.errors import BackendMissingError
    from ..profiling.workload.network_step import import_torch

    try:
        torch = import_torch()
    except BackendMissingError as error:
        return Finding("PyTorch", False, "diagnose needs it", str(error))
    libraries = [
        name
        for name, module in (("oneDNN", torch.backends.mkldnn), ("MKL", torch.backends.mkl))
        if module.is_available()
    ]
    return Finding("PyTorch", True, f"{torch.__version__}, CPU kernels by {' and '.join(libraries) or 'itself alone'}")


def _cuda() -> Finding:
    remedy = "without one the CPU is measured; that is a normal state"
    try:
        from ..profiling.workload.network_step import describe_cuda

        return Finding("CUDA device", *describe_cuda(), remedy)
    except ImportError:
        return Finding("CUDA device", False, "PyTorch is not installed", remedy)


def _native() -> Finding:
    from ..profiling import native
    from ..profiling.errors import BackendMissingError

    try:
        native.clock_ns()
    except AttributeError:
        return Finding(
            "native library", False, "an older build than this Python code", "reinstall with `pip install .`"
        )
    except (BackendMissingError, OSError) as error:
        return Finding("native library", False, "the collector needs it", str(error))
    return Finding("native library", True, native.LIBRARY_NAME)


def _nvrtc() -> Finding:
    from ..kernels.compile import compilers

    found = [f"{each.version_text} (sm_{each.architectures[0]} to sm_{each.architectures[-1]})" for each in compilers()]
    return Finding(
        "NVRTC",
        bool(found),
        ", ".join(found) or "bench compile needs it",
        "pip install nvidia-cuda-nvrtc-cu11 (Kepler to Hopper, Linux x86-64)",
    )


def _nvdisasm() -> Finding:
    from ..kernels.disassembly import GET_NVDISASM, find_disassemblers

    tools = find_disassemblers()
    return Finding(
        "nvdisasm", bool(tools), ", ".join(tools) or "counts the instructions of compiled kernels", GET_NVDISASM
    )


def _tool(name: str, use: str) -> Callable[[], Finding]:
    def look() -> Finding:
        path = shutil.which(name)
        return Finding(name, path is not None, path or use, "part of NVIDIA's CUDA toolkit or its own download")

    return look


def _package(name: str, extra: str, use: str) -> Callable[[], Finding]:
    def look() -> Finding:
        from importlib.util import find_spec

        found = find_spec(name) is not None
        return Finding(name, found, "installed" if found else use, f"pip install 'curvescope[{extra}]'")

    return look


def _ceilings() -> Finding:
    from ..profiling.errors import BackendMissingError
    from ..profiling.hardware.ceilings import load
    from ..profiling.hardware.host import describe_device
    from ..profiling.workload.network_step import pick_device

    remedy = "`curvescope bench ceilings` measures them in a minute or two"
    try:
        found = load(describe_device(pick_device(None)))
    except BackendMissingError as error:
        return Finding("ceilings", False, "measuring them needs PyTorch", str(error))
    if found is None:
        return Finding("ceilings", False, "utilisations have no measured limit of this device", remedy)
    limits = [f"{name} {ceiling.per_s / 1e9:.4g} GFLOP/s" for name, ceiling in found.compute.items() if name == "fp32"]
    limits += [f"{name} {ceiling.per_s / 1e9:.4g} GB/s" for name, ceiling in found.bandwidth.items()]
    return Finding("ceilings", True, f"{', '.join(limits)}, measured {found.measured_utc[:10]}")


def _store() -> Finding:
    writable = os.access(".", os.W_OK)
    free_gb = shutil.disk_usage(".").free / 1e9
    return Finding(
        "place for recordings",
        writable,
        f"./runs, {free_gb:.0f} GB free",
        "this folder is read-only: record with -o DIR",
    )


_CHECKS: tuple[Callable[[], Any], ...] = (
    _cpu,
    _torch,
    _cuda,
    _native,
    _nvrtc,
    _nvdisasm,
    _tool("nsys", "reads and records Nsight Systems profiles"),
    _tool("ncu", "measures DRAM traffic and FLOPs per kernel"),
    _tool("nvprof", "the profiler of Kepler to Volta"),
    _package("numba", "numba", "measures memory, load latency and the arithmetic peak of a CPU in `bench`"),
    _package("cupy", "cuda12", "launches our CUDA kernels in `bench`"),
    _package("pycuda", "pycuda", "launches our CUDA kernels in `bench`"),
    _ceilings,
    _store,
)
