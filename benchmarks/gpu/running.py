"""Runs one command of a stage in the stage's folder, within a time limit."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

from campaign import TIMED_OUT
from stages import Command

GRACE_S = 20.0  # for the end of a command that was interrupted; a tenth of a shorter limit
_MOST_REASON = 200  # characters


def run_command(command: Command, folder: Path, data: Path, limit_s: float) -> str:
    """Run one command; returns ok, timed out, or failed or skipped with the reason
    after a colon.
    """
    grace_s = min(GRACE_S, limit_s / 10)
    with (folder / "log.txt").open("a") as log:
        print(f"$ {command.line}", file=log, flush=True)
        if command.needs and shutil.which(command.needs) is None:
            return f"skipped: {command.needs} is not on PATH"
        if command.package and find_spec(command.package) is None:
            return f"skipped: the Python package {command.package} is not installed"
        with (
            (folder / command.output).open("w")
            if command.output
            else os.fdopen(os.dup(log.fileno()), "w") as out
        ):
            waiting: list[int] = []  # a SIGTERM while the command starts would leave it running
            handler = signal.signal(signal.SIGTERM, lambda number, _: waiting.append(number))
            try:
                process = subprocess.Popen(
                    command.argv,
                    cwd=folder,
                    stdout=out,
                    stderr=log,
                    # Ceilings are kept with the results, for later stages, and nothing in the
                    # user's own folder.
                    env={
                        **os.environ,
                        "CURVESCOPE_DATA": str(data.resolve()),
                        **command.environment,
                    },
                    start_new_session=True,
                )
            except BaseException:
                signal.signal(signal.SIGTERM, handler)
                raise
            try:
                signal.signal(signal.SIGTERM, handler)
                if waiting:
                    signal.raise_signal(signal.SIGTERM)
                code = process.wait(None if math.isinf(limit_s) else limit_s - grace_s)
            except BaseException as error:
                stop(process, grace_s)
                if isinstance(error, subprocess.TimeoutExpired):
                    return TIMED_OUT
                raise
    if code == 0:
        return "ok"
    return f"failed: {code}, {last_line(folder)}"


def last_line(folder: Path) -> str:
    lines = [
        line
        for line in (folder / "log.txt").read_text(errors="replace").splitlines()
        if line.strip()
    ]
    return "it said nothing" if lines[-1].startswith("$ ") else lines[-1].strip()[:_MOST_REASON]


def stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a command and its children; interrupt it first, so that its recording stays readable."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
