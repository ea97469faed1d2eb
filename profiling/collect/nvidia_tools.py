"""Runs a command under Nsight Systems, Nsight Compute or nvprof with suitable options, then imports the profile."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendMissingError, CurvescopeError
from ..hardware.host import describe_environment
from ..masking import without_secrets
from ..readers import Imported, Options, import_profile, metrics
from ..readers.nsight_reports import printed_by
from ..recording.remote_store import AnyPath
from .command import require_program, run_command

# Output of the tools if only administrators may read performance counters.
_NO_PERMISSION = ("ERR_NVGPUCTRPERM", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "does not have permission")
_PERMISSION = (
    "only administrators may read performance counters (ERR_NVGPUCTRPERM). Run it as root, or load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)
_GRACE_S = 60  # for a tool to write its file after Ctrl-C
_TOO_NEW = "not supported on devices with compute capability"


@dataclass(frozen=True)
class Tool:
    """One of NVIDIA's command-line profilers.

    Attributes:
        name: name of the program.
        where: instructions to get it.
        outputs: files that it may write; the first existing one is imported.
        arguments: its command line before the user's command, from the output folder and whether metrics are requested.
    """

    name: str
    where: str
    outputs: tuple[str, ...]
    arguments: Callable[[Path, bool], list[str]]


def _nsys(folder: Path, _metrics: bool) -> list[str]:
    arguments = ["profile", "--trace=cuda,nvtx", "--sample=none", "--export=sqlite", "--force-overwrite=true"]
    # Versions before 2021 lack these options; without them a graph is one row, and the CPU is sampled needlessly.
    known = _help_of("nsys", "profile")
    arguments += [o for o in ("--cuda-graph-trace=node", "--cpuctxsw=none") if o.partition("=")[0] in known]
    return [*arguments, f"--output={folder / 'profile'}"]


def _ncu(folder: Path, _metrics: bool) -> list[str]:
    listed = ",".join(metrics.wanted("ncu"))
    return [
        "--csv",
        "--page=raw",
        "--target-processes=all",
        # By default it locks the clocks to the base clock, unlike in normal steps, and others may share the GPU.
        "--clock-control=none",
        f"--metrics={listed}",
        f"--log-file={folder / 'profile.csv'}",
    ]


def _nvprof(folder: Path, with_metrics: bool) -> list[str]:
    if with_metrics:
        return ["--csv", f"--metrics={','.join(metrics.wanted('nvprof'))}", f"--log-file={folder / 'profile.csv'}"]
    return [f"--export-profile={folder / 'profile.nvprof'}", f"--log-file={folder / 'log'}"]


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("nsys", "install Nsight Systems (in the CUDA toolkit)", ("profile.sqlite",), _nsys),
        Tool("ncu", "install Nsight Compute (in the CUDA toolkit)", ("profile.csv",), _ncu),
        Tool("nvprof", "install CUDA 12 or older (the last with nvprof)", ("profile.nvprof", "profile.csv"), _nvprof),
    )
}


def record_with(
    name: str, command: Sequence[str], path: AnyPath, options: Options | None = None, *, with_metrics: bool = False
) -> tuple[int, Imported]:
    """Run the command under the tool and import the profile; after Ctrl-C, import what the tool still wrote.

    Args:
        name: nsys, ncu or nvprof.
        command: program and arguments.
        path: folder of the recording to create.
        options: options of the import.
        with_metrics: whether nvprof replays kernels for metrics instead of recording a timeline; ncu always does.

    Returns:
        The exit code (128 + signal number after a signal), and the import.

    Raises:
        BackendMissingError: the tool is not on PATH.
        CurvescopeError: the program cannot be run, the tool wrote nothing, or the recording cannot be created.
    """
    tool = TOOLS[name]
    program = shutil.which(tool.name)
    if program is None:
        raise BackendMissingError(f"{tool.name} is not on PATH: {tool.where}, or add its folder to PATH.")
    require_program(command[0])
    if path.exists() and any(path.iterdir()):
        raise CurvescopeError(f"{path} is not empty; nothing is overwritten. Choose another -o DIR.")
    with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
        profiled = [program, *tool.arguments(Path(folder), with_metrics), *command]
        code, interrupted = run_command(profiled, _GRACE_S)
        log = "".join(_read(file) for file in sorted(Path(folder).iterdir()) if file.name in ("log", "profile.csv"))
        found = next((Path(folder) / file for file in tool.outputs if (Path(folder) / file).exists()), None)
        _refuse_failure(tool, log, code, found)
        assert found is not None
        meta = {"recorder": tool.name, "argv": without_secrets(command), **describe_environment()}
        done = import_profile(found, path, options, meta)
    if interrupted:
        raise KeyboardInterrupt
    return code, done


def _refuse_failure(tool: Tool, log: str, code: int, found: Path | None) -> None:
    if any(words in log for words in _NO_PERMISSION):
        raise CurvescopeError(f"{tool.name}: {_PERMISSION}")
    if tool.name == "nvprof" and _TOO_NEW in log:
        raise CurvescopeError(
            "nvprof does not support this GPU (it supports capabilities up to 7.5): record with `--with nsys`."
        )
    if found is None or not found.stat().st_size:
        raise CurvescopeError(
            f"{tool.name} wrote no profile (exit code {code}); see its output above. Nothing was recorded."
        )


def _help_of(*command: str) -> str:
    printed = printed_by([*command, "--help"])
    return "" if printed is None else printed.decode(errors="replace")


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(1 << 20).decode(errors="replace")
