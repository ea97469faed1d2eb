"""Records a command and all its processes, or a block of this process, with the collector in
`native/`.

Environment variables make NVTX and the CUDA driver load the collector into each process. Each
process writes one chunk file, and the files become one recording.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ..hardware.host import describe_environment
from ..native import library_path, load, record_start, record_stop
from ..readers import Options
from ..recording.rank_info import describe_rank
from ..recording.remote_store import AnyPath, RemotePath, as_path
from ..recording.store import Recording, Status, new_recording_path, open_recording
from .command import endings_held, require_program, run_command
from .cupti_turns import find_loaded_collector, profiles_now, take_turns
from .kept_chunks import FOLDER_VARIABLE, NotMergedError, begin
from .merge import PROBE
from .sampled_functions import wait_for_samplers
from .shared_memory import drain_meanwhile, share_memory, wait_for_late_ends

FLUSH_VARIABLE = "CURVESCOPE_FLUSH_DENORMAL"  # for `startup`: torch flushes denormal numbers
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"
CUDA_VARIABLE = "CUDA_INJECTION64_PATH"
CUPTI_FOLDERS_VARIABLE = "CURVESCOPE_CUPTI_FOLDERS"
_CUPTI_FOLDERS = ("cu13/lib", "cuda_cupti/lib")  # of NVIDIA's wheels for CUDA 13, and for 11 and 12
STARTUP = Path(__file__).parent / "startup"  # runs at the start of every Python of the command


class Recorded(NamedTuple):
    """What became of a recorded command."""

    code: int  # exit code of the command, 128 + signal number after a signal
    # why the recording could not be written, and how to finish it
    not_merged: NotMergedError | None


def record_command(
    command: Sequence[str],
    path: AnyPath,
    options: Options | None = None,
) -> Recorded:
    """Run and record the command with the collector; whatever ends it, its data is kept.

    CurvescopeError: the recording cannot be created, or the command cannot be run.
    """
    require_program(command[0])
    library = str(library_path())
    chunks = begin(path, {**describe_run(), "argv": without_secrets(command)}, options)
    folder = chunks.folder
    writer = chunks.writer
    environment = {
        **os.environ,
        NVTX_VARIABLE: library,
        CUDA_VARIABLE: library,
        FOLDER_VARIABLE: str(folder),
    }
    environment[CUPTI_FOLDERS_VARIABLE] = _own_cupti_folders()
    environment["PYTHONPATH"] = startup_path()
    with endings_held(), share_memory(folder) as memory:
        try:
            with drain_meanwhile(folder, memory) as deleted:
                ending = run_command(with_startup(command), environment)
                if memory is not None:
                    wait_for_late_ends(memory)
                wait_for_samplers(folder)
        except CurvescopeError:  # nothing ran
            writer.finish(Status.INTERRUPTED)
            chunks.discard()
            raise
        early = {} if ending.ended_by is None else {"ended_by": ending.ended_by}
        ends = chunks.drain(memory)
        chunks.note(exit_code=ending.code, **early)
        writer.count_lost("chunk_folder_deleted", len(deleted))
        try:
            chunks.merge(ending.ended_by, ends=ends)
        except NotMergedError as error:
            return Recorded(ending.code, error)
    return Recorded(ending.code, None)


def startup_path() -> str:
    """The value of PYTHONPATH with which every Python of a command runs `startup` first."""
    return os.pathsep.join(filter(None, (str(STARTUP), os.environ.get("PYTHONPATH"))))


def with_startup(command: Sequence[str]) -> list[str]:
    """A command whose own setting of PYTHONPATH, as in `env PYTHONPATH=src python train.py`, also
    runs `startup` first.
    """
    setting = "PYTHONPATH="
    return [
        f"{setting}{STARTUP}{os.pathsep}{word.removeprefix(setting)}"
        if word.startswith(setting)
        else word
        for word in command
    ]


@contextmanager
def record(
    path: str | os.PathLike[str] | RemotePath | None = None,
    *,
    batch: int | None = None,
    range_pattern: str | None = None,
) -> Iterator[Recording]:
    """Record this process while the block runs: NVTX ranges of all its threads, and all GPU work.

    The recording is readable after the block; `recording.meta["collectors"]` lists the collectors
    that recorded, and those that could not. Without a GPU it contains the ranges. With a GPU it
    initialises CUDA, if nothing has yet: processes forked later cannot use CUDA then. GPU work that
    torch.profiler records inside the block is missing here, and the facts say how often. A library
    that used NVTX before the first recording of this process emits no ranges any more: run the
    program under `curvescope record` instead.

    Args:
        path: folder or URL of the recording to create; default: a dated folder in `runs/`.
        batch: samples per step; default: read from names of ranges.
        range_pattern: regular expression for names of ranges, with groups named layer, phase, step,
            op or batch; default: known conventions.

    Raises:
        CurvescopeError: this process is being recorded already, torch's profiler records it, or the
            recording cannot be created.
    """
    import nvtx

    torch = sys.modules.get("torch")
    if torch is not None and profiles_now(torch):
        raise CurvescopeError(
            "torch.profiler records this process, and CUPTI serves one profiler at a time: end "
            "that profile first, or leave out curvescope.record()."
        )

    options = Options(batch, range_pattern)
    options.names  # noqa: B018 - refuses a wrong pattern before any work
    if path is None:
        path = new_recording_path("record")
    folder = path if isinstance(path, RemotePath) else as_path(path)
    chunks = begin(folder, describe_run(), options)
    with share_memory(chunks.folder):
        recording = Recording(folder, {})
        before = os.environ.get(NVTX_VARIABLE)
        os.environ[NVTX_VARIABLE] = str(library_path())
        ended_by: str | None = None
        try:
            take_away = _take_turns(torch)
            if not record_start(chunks.folder):
                chunks.writer.finish(Status.INTERRUPTED)
                chunks.discard()
                raise CurvescopeError(
                    "This process is being recorded already: end that recording first, or leave "
                    "out `curvescope record`."
                )
            nvtx.get_domain(PROBE)
            try:
                yield recording
            except BaseException as error:
                ended_by = type(error).__name__
                raise
            finally:
                take_away()
                chunks.give_room()
                record_stop()
                chunks.merge(ended_by, ends=chunks.drain(), probed_process=os.getpid())
        finally:
            if before is None:
                del os.environ[NVTX_VARIABLE]
            else:
                os.environ[NVTX_VARIABLE] = before
    recording.meta.update(open_recording(folder).meta)


def _take_turns(torch: Any) -> Callable[[], None]:
    """Let torch's profiler, idle now, take turns with a recording that begins; returns a function
    that ends it.
    """
    if torch is None or torch.version.cuda is None:
        return lambda: None
    collector = find_loaded_collector(str(load()._name))
    if collector is not None:
        collector.curvescope_cupti_share(1)
    return take_turns(torch.autograd.profiler, lambda: collector)


def _own_cupti_folders() -> str:
    """Folders of libcupti in the packages of this Python, for programs that load none of theirs."""
    folders = (
        Path(site) / "nvidia" / folder for site in sys.path if site for folder in _CUPTI_FOLDERS
    )
    return os.pathsep.join(str(folder) for folder in folders if folder.is_dir())


def describe_run() -> dict[str, Any]:
    """Facts of a recording of a program, for `recording.json`."""
    about = {
        "recording_type": "profile",
        "network": None,
        "device": None,
        "batches": None,
        "protocol": None,
    }
    return {**about, **describe_rank(), "recorder": "cupti", **describe_environment()}
