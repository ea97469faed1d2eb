"""Adds the functions of a running program to the recording that is made of it; without one, makes a
recording of them alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ..recording.remote_store import AnyPath
from ..recording.store import new_recording_path
from .inject import describe_run
from .kept_chunks import FOLDER_VARIABLE, begin
from .sampled_functions import announce, sample_functions, write_samples


class Attached(NamedTuple):
    """What became of the functions that were sampled."""

    path: AnyPath  # the recording that has them
    calls: int  # number of calls of functions that were seen
    is_finished: bool  # whether the recording is; else it has them when its program has ended


def attach(process: int, seconds: int, per_s: int, path: AnyPath | None = None) -> Attached:
    """Sample the functions of a running program for some seconds, or until it ends.

    Args:
        process: its process id.
        seconds: time to sample.
        per_s: samples per second.
        path: folder of the recording of a program that is not recorded; default: in `runs/`.

    Raises:
        CurvescopeError: there is no such process, it is recorded and `path` is given, or it cannot
            be sampled.
    """
    folder = find_chunk_folder(process)
    if folder is None:
        return _record_alone(process, seconds, per_s, path)
    if path is not None:
        raise CurvescopeError(
            f"Process {process} is recorded in {folder.parent}, which gets its functions: omit -o."
        )
    try:
        with announce(folder):
            calls = sample_functions(process, seconds, per_s)
            write_samples(folder, process, calls)
    except FileNotFoundError as error:
        raise CurvescopeError(
            f"The recording of process {process} ended before its functions were there; attach to "
            "it earlier."
        ) from error
    return Attached(folder.parent, len(calls), is_finished=False)


def find_chunk_folder(process: int) -> Path | None:
    """The folder of chunk files that a running process records into; None if it is not recorded.

    CurvescopeError: there is no such process, or it belongs to another user.
    """
    wanted = os.fsencode(f"{FOLDER_VARIABLE}=")
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError as error:
        raise CurvescopeError(
            f"Process {process} cannot be read ({error.strerror}): `ps` lists the processes."
        ) from error
    for variable in variables:
        if variable.startswith(wanted):
            return Path(os.fsdecode(variable.removeprefix(wanted)))
    return None


def _record_alone(process: int, seconds: int, per_s: int, path: AnyPath | None) -> Attached:
    argv = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    calls = sample_functions(process, seconds, per_s)
    path = path or new_recording_path(Path((argv or ["program"])[0]).name)
    chunks = begin(path, {**describe_run(), "recorder": "sampler", "argv": without_secrets(argv)})
    write_samples(chunks.folder, process, calls)
    chunks.merge(ends=[])
    return Attached(path, len(calls), is_finished=True)
