"""List the tools on this machine, and how to get missing ones.

`--list networks` lists the networks that are known by name, and `--list devices` the GPUs of the
table of devices. `--card gtx1080` prints one of these GPUs, each number with its source.

`--completion bash` prints a script that completes commands, options, networks, GPUs and recordings:
`curvescope doctor --completion bash > ~/.local/share/bash-completion/completions/curvescope`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from rich.text import Text

from ... import options
from ...analysis.render import terminal
from ...analysis.render.tables import Indented
from ...base.counted import counted
from ...base.errors import BackendMissingError
from ...base.numbers import quantity
from ...base.programs import find_program
from ...base.torch_runtime import describe_cuda, import_torch, pick_device
from ...gpu_checks import Check, check_gpus
from ...parsers import refuse_given

_TORCH, _CUDA = "PyTorch", "CUDA device"
_INSTALL_TORCH = "pip install 'curvescope[torch]'"


@dataclass(frozen=True)
class DoctorDocument:
    """What this machine has: `doctor`."""

    checks: Sequence[Check]  # one per item


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", choices=("devices", "networks"), help="what to list instead")
    parser.add_argument("--card", metavar="GPU", help="GPU whose numbers to print, e.g. gtx1080")
    parser.add_argument(
        "--completion", choices=("bash", "zsh"), help="print the script of completion for a shell"
    )
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    if args.completion is not None:
        from ...completion import script_for

        refuse_given(args, "--completion prints a script alone", "--list", "--card", "--json")
        print(script_for(args.completion), end="")
        return 0
    if args.list == "networks":
        refuse_given(args, "Networks have no GPU", "--card")
        from .networks import list_networks

        list_networks(as_json=args.json)
        return 0
    if args.list == "devices" or args.card is not None:
        from .devices import list_devices

        list_devices(args.card, as_json=args.json)
        return 0
    return _check(args)


def _check(args: argparse.Namespace) -> int:
    """Look at this machine, and print present and missing items, and the next commands."""
    findings = [look() for look in _CHECKS]
    findings += check_gpus()
    if args.json:
        from ...analysis.render.documents import print_document

        print_document(DoctorDocument(findings))
        return 0

    console = terminal.console()
    for finding in findings:
        mark = Text("found    ", "green") if finding.found else Text("missing  ", "yellow")
        console.print(Indented(Text(f"{finding.name}: {finding.detail}"), label=mark))
        if finding.remedy and not finding.found:
            console.print(Indented(Text(finding.remedy, "dim"), label=" " * len(mark)))
    terminal.print_below(console, Text("Next:"))
    terminal.print_commands(console, *_next_steps(findings))
    return 0


def _next_steps(findings: Sequence[Check]) -> list[str]:
    """The commands that get missing items that matter, then a first answer."""
    missing = [finding for finding in findings if not finding.found]
    steps = [f"{finding.command}  # {finding.name}" for finding in missing if finding.command]
    names = {finding.name for finding in missing}
    if _TORCH not in names:
        device = "CPU" if _CUDA in names else "GPU"
        steps.append(f"curvescope diagnose alexnet --quick  # measures this machine's {device}")
    steps.append("curvescope explain FILE  # a profile that you have; needs none of these")
    return steps


def _cpu() -> Check:
    from ...profiling.hardware.host import describe_host

    host = describe_host()
    governor = host["governor"] or "not reported by the kernel"
    load = "unknown" if host["load_average_1min"] is None else host["load_average_1min"]
    cores = counted(host["usable_cores"], "core")
    detail = f"{host['cpu']}, {cores} usable, governor {governor}, load {load}"
    return Check("CPU", True, detail)


def _torch() -> Check:
    try:
        torch = import_torch()
    except BackendMissingError as error:
        return Check(_TORCH, False, "needed by diagnose", str(error), _INSTALL_TORCH)
    modules = {"oneDNN": torch.backends.mkldnn, "MKL": torch.backends.mkl}
    libraries = [name for name, module in modules.items() if module.is_available()]
    kernels = " and ".join(libraries) or "torch itself"
    return Check(_TORCH, True, f"{torch.__version__}, CPU kernels from {kernels}")


def _cuda() -> Check:
    remedy = "optional: without a GPU the CPU is measured"
    try:
        return Check(_CUDA, *describe_cuda(), remedy)
    except ImportError:
        return Check(_CUDA, False, "PyTorch is not installed", remedy)


def _native() -> Check:
    from ...profiling import native

    try:
        native.clock_ns()
    except AttributeError:
        older, remedy = "older than the Python code", "reinstall with `pip install .`"
        return Check("native library", False, older, remedy, "pip install .")
    except (BackendMissingError, OSError) as error:
        return Check("native library", False, "needed by the collector", str(error))
    return Check("native library", True, native.LIBRARY_NAME)


def _nvrtc() -> Check:
    from ...kernels.compile import compilers

    versions = []
    for compiler in compilers():
        first, *_, last = compiler.architectures
        versions.append(f"{compiler.version_text} (sm_{first} to sm_{last})")
    detail = ", ".join(versions) or "compiles the CUDA kernels of bench"
    remedy = "pip install nvidia-cuda-nvrtc-cu11 (Kepler to Hopper, Linux x86-64)"
    return Check("NVRTC", bool(versions), detail, remedy)


def _tool(name: str, use: str) -> Check:
    path = find_program(name)
    detail = use if path is None else f"{_version(path)}, {path}"
    return Check(name, path is not None, detail, "in NVIDIA's CUDA toolkit, or a separate download")


def _version(program: str) -> str:
    """The version that one of NVIDIA's tools prints."""
    try:
        ended = subprocess.run(  # noqa: S603
            [program, "--version"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "version unknown"
    match = re.search(r"(?:[Vv]ersion|release) (\d[\w.-]*)", ended.stdout)
    return f"version {match[1]}" if match else "version unknown"


def _package(name: str, extra: str, use: str) -> Check:
    installed = find_spec(name) is not None
    detail = "installed" if installed else use
    return Check(name, installed, detail, f"pip install 'curvescope[{extra}]'")


def _ceilings() -> Check:
    from ...profiling.hardware.ceilings import load
    from ...profiling.hardware.host import describe_device

    remedy = "`curvescope bench ceilings` measures them in a minute or two"
    try:
        device = load(describe_device(pick_device(None)))
    except BackendMissingError as error:
        return Check("ceilings", False, "PyTorch is needed to measure them", str(error))
    if device is None:
        measure = "curvescope bench ceilings"
        return Check("ceilings", False, "not measured on this device", remedy, measure)
    limits = []
    if "fp32" in device.compute:
        fp32 = quantity(device.compute["fp32"].per_s, "FLOP/s")
        limits.append(f"fp32 {fp32}")
    limits += [f"{name} {quantity(limit.per_s, 'B/s')}" for name, limit in device.bandwidth.items()]
    return Check("ceilings", True, f"{', '.join(limits)}, measured {device.measured_utc[:10]}")


def _energy() -> Check:
    from ...profiling.hardware.energy import describe_energy

    energy = describe_energy("cpu")
    detail = energy.get("missing") or f"{energy['name']}, {energy['scope']}"
    remedy = "optional: `curvescope diagnose --of energy` needs it on a CPU"
    return Check("energy of the CPU", "name" in energy, detail, remedy)


def _store() -> Check:
    free = quantity(shutil.disk_usage(".").free, "B")
    remedy, name = "the folder is read-only: choose another with -o DIR", "folder for recordings"
    return Check(name, os.access(".", os.W_OK), f"./runs, {free} free", remedy, "cd ~")


_CHECKS: tuple[Callable[[], Check], ...] = (
    _cpu,
    _torch,
    _cuda,
    _native,
    _nvrtc,
    partial(_tool, "nsys", "reads and records Nsight Systems profiles"),
    partial(_tool, "ncu", "measures DRAM traffic and FLOPs per kernel"),
    partial(_tool, "nvprof", "NVIDIA's profiler for Kepler to Volta"),
    partial(
        _package,
        "numba",
        "numba",
        "measures memory, load latency and the arithmetic peak of a CPU in `bench`",
    ),
    partial(_package, "cupy", "cuda12", "runs Curvescope's CUDA kernels in `bench`"),
    partial(_package, "pycuda", "pycuda", "runs Curvescope's CUDA kernels in `bench`"),
    partial(
        _package, "mcp", "mcp", "answers questions of agents about recordings (`curvescope mcp`)"
    ),
    _ceilings,
    _energy,
    _store,
)
