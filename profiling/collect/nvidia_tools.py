"""Runs a command under Nsight Systems, Nsight Compute or nvprof with suitable options, then imports
the profile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...base.errors import BackendMissingError, CurvescopeError
from ...base.masking import without_secrets
from ...base.programs import find_program
from ..hardware.host import describe_environment
from ..readers import ImportDocument, Options, import_profile, metrics
from ..readers.nsight_reports import read_output
from ..recording.remote_store import AnyPath
from .command import require_program, run_command

# Output of the tools if only administrators may read performance counters.
_REFUSALS = ("ERR_NVGPUCTRPERM", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "does not have permission")
NO_PERMISSION = (
    "only administrators may read performance counters (ERR_NVGPUCTRPERM). Run it as root, or load "
    "the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)
_NO_KERNEL = "No kernels were profiled"
_TOO_NEW = "not supported on devices with compute capability"


@dataclass(frozen=True)
class Request:
    """The data that a tool shall record."""

    # for nvprof: metrics of every kernel instead of a timeline; ncu always measures metrics
    with_metrics: bool = False
    # for ncu: name of a start/end range to measure inside of; None: everywhere
    nvtx_range: str | None = None
    # for ncu: compute capability of the device, e.g. 9.0, which names its metrics
    capability: str | None = None


@dataclass(frozen=True)
class Tool:
    """One of NVIDIA's command-line profilers."""

    name: str
    where: str
    outputs: tuple[str, ...]  # files that it may write; the first existing one is imported
    arguments: Callable[[Path, Request], list[str]]  # its command line before the user's command
    meta: Mapping[str, str] = field(default_factory=dict)  # conditions, for `recording.json`


def _nsys(folder: Path, _request: Request) -> list[str]:
    arguments = [
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--export=sqlite",
        "--force-overwrite=true",
    ]
    # Versions before 2021 lack these options; without them a graph is one row, and the CPU is
    # sampled needlessly.
    help_text = _help_of("nsys", "profile")
    arguments += [
        o
        for o in ("--cuda-graph-trace=node", "--cpuctxsw=none")
        if o.partition("=")[0] in help_text
    ]
    return [*arguments, f"--output={folder / 'profile'}"]


# By default ncu locks the clocks to the base clock and flushes the caches before each kernel,
# unlike in normal steps.
NCU_CONDITIONS = {"clock_control": "none", "cache_control": "none"}


def _ncu(folder: Path, request: Request) -> list[str]:
    listed = ",".join(metrics.choose_metrics("ncu", request.capability))
    # Without a slash the name is that of a start/end range. A push/pop range holds the kernels of
    # its own thread only, and torch launches those of the backward pass from another one.
    only = [] if request.nvtx_range is None else ["--nvtx", f"--nvtx-include={request.nvtx_range}"]
    return [
        "--csv",
        "--page=raw",
        "--target-processes=all",
        *(f"--{name.replace('_', '-')}={value}" for name, value in NCU_CONDITIONS.items()),
        *only,
        f"--metrics={listed}",
        f"--log-file={folder / 'profile.csv'}",
    ]


def _nvprof(folder: Path, request: Request) -> list[str]:
    if request.with_metrics:
        return [
            "--csv",
            f"--metrics={','.join(metrics.choose_metrics('nvprof'))}",
            f"--log-file={folder / 'profile.csv'}",
        ]
    return [f"--export-profile={folder / 'profile.nvprof'}", f"--log-file={folder / 'log'}"]


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("nsys", "install Nsight Systems (in the CUDA toolkit)", ("profile.sqlite",), _nsys),
        Tool(
            "ncu",
            "install Nsight Compute (in the CUDA toolkit)",
            ("profile.csv",),
            _ncu,
            NCU_CONDITIONS,
        ),
        Tool(
            "nvprof",
            "install CUDA 12 or older (the last with nvprof)",
            ("profile.nvprof", "profile.csv"),
            _nvprof,
        ),
    )
}


def find_tool(name: str) -> str:
    """The path of a tool's program. BackendMissingError: it is not on PATH."""
    program = find_program(name)
    if program is None:
        raise BackendMissingError(
            f"{name} is not on PATH: {TOOLS[name].where}, or add its folder to PATH."
        )
    return program


def record_with(
    name: str,
    command: Sequence[str],
    path: AnyPath,
    options: Options | None = None,
    request: Request | None = None,
) -> tuple[int, ImportDocument]:
    """Run the command under nsys, ncu or nvprof and import the profile; after Ctrl-C, import what
    was still written.

    Returns:
        The exit code (128 + signal number after a signal), and the import.
    """
    tool = TOOLS[name]
    program = find_tool(name)
    require_program(command[0])
    if path.exists() and any(path.iterdir()):
        raise CurvescopeError(
            f"{path} is not empty; nothing is overwritten. Choose another -o DIR."
        )
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        profiled = [program, *tool.arguments(Path(folder), request or Request()), *command]
        code, ended_by = run_command(profiled)
        log = "".join(
            _read(file)
            for file in sorted(Path(folder).iterdir())
            if file.name in ("log", "profile.csv")
        )
        output = next(
            (Path(folder) / file for file in tool.outputs if (Path(folder) / file).exists()), None
        )
        _refuse_failure(tool, log, code, output)
        assert output is not None
        meta = {
            "recorder": tool.name,
            "argv": without_secrets(command),
            **tool.meta,
            **describe_environment(),
        }
        meta |= {} if ended_by is None else {"ended_by": ended_by}
        done = import_profile(output, path, options, meta)
    return code, done


def _refuse_failure(tool: Tool, log: str, code: int, output: Path | None) -> None:
    if any(words in log for words in _REFUSALS):
        raise CurvescopeError(f"{tool.name}: {NO_PERMISSION}")
    if tool.name == "nvprof" and _TOO_NEW in log:
        raise CurvescopeError(
            "nvprof does not support this GPU (it supports capabilities up to 7.5): record with "
            "`--with nsys`."
        )
    if _NO_KERNEL in log:
        raise CurvescopeError(
            f"{tool.name} profiled no kernel: the command launched none, or none that it was told "
            "to profile."
        )
    if output is None or not output.stat().st_size:
        raise CurvescopeError(
            f"{tool.name} wrote no profile (exit code {code}); see its output above. Nothing was "
            "recorded."
        )


def _help_of(*command: str) -> str:
    printed = read_output([*command, "--help"])
    return "" if printed is None else printed.decode(errors="replace")


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(1 << 20).decode(errors="replace")
