"""Runs the commands of one stage in its folder, within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stages import Command, Stage

GRACE_S = 20  # for the end of a command that was interrupted
OUTCOMES = ("ok", "failed", "skipped", "timed out")
_MISSING_CODE = 2  # something is missing here; a GPU machine has it, or the command says what it needs
_MOST_REASON = 200  # characters


def run_stage(stage: Stage, folder: Path, data: Path, limit_s: float, *, rehearsal: bool) -> dict[str, Any]:
    """Run the commands of a stage.

    Args:
        stage: the stage.
        folder: folder to make and to fill.
        data: folder that the commands keep ceilings in, for later stages.
        limit_s: seconds after which no command of the stage runs any more.
        rehearsal: whether this is a CPU.

    Returns:
        What `done.json` in the folder says: the outcome of every command, and how many there are of each.
    """
    folder.mkdir(parents=True)
    began_s, results = time.monotonic(), []
    with (folder / "log.txt").open("w") as log:
        for command in stage.commands:
            started_s = time.monotonic()
            left_s = limit_s - min(GRACE_S, limit_s / 10) - (started_s - began_s)
            outcome = run_command(command, folder, data, log, left_s, rehearsal=rehearsal)
            took_s = round(time.monotonic() - started_s, 1)
            settings = dict(command.environment)
            results.append(
                {"command": command.line, "environment": settings, "outcome": outcome, "seconds": took_s},
            )
    outcomes = [result["outcome"].split(":")[0] for result in results]
    done = {
        "stage": stage.name,
        "says": stage.says,
        "rehearsal": rehearsal,
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began_s, 1),
        "outcomes": {what: outcomes.count(what) for what in OUTCOMES},
        "commands": results,
    }
    (folder / "done.json").write_text(json.dumps(done, indent=1))
    return done


def run_command(command: Command, folder: Path, data: Path, log: Any, left_s: float, *, rehearsal: bool) -> str:
    """Run one command; returns ok, or failed, skipped or timed out with the reason after a colon."""
    print(f"$ {command.line}", file=log, flush=True)
    if command.cuda and rehearsal:
        return "skipped: needs a GPU"
    if command.needs and shutil.which(command.needs) is None:
        return f"skipped: {command.needs} is not on PATH"
    if command.package and find_spec(command.package) is None:
        return f"skipped: the Python package {command.package} is not installed"
    if left_s <= 0:
        return "timed out: the time of the stage was over"
    with (folder / command.output).open("w") if command.output else os.fdopen(os.dup(log.fileno()), "w") as out:
        waiting: list[int] = []  # a SIGTERM while the command starts would leave it running
        handler = signal.signal(signal.SIGTERM, lambda number, _: waiting.append(number))
        try:
            process = subprocess.Popen(
                command.argv,
                cwd=folder,
                stdout=out,
                stderr=log,
                # Ceilings are kept with the results, for later stages, and nothing in the user's own folder.
                env={**os.environ, "CURVESCOPE_DATA": str(data.resolve()), **command.environment},
                start_new_session=True,
            )
        except BaseException:
            signal.signal(signal.SIGTERM, handler)
            raise
        try:
            signal.signal(signal.SIGTERM, handler)
            if waiting:
                signal.raise_signal(signal.SIGTERM)
            code = process.wait(timeout=left_s)
        except BaseException as error:
            stop(process)
            if isinstance(error, subprocess.TimeoutExpired):
                return "timed out: the time of the stage was over"
            raise
    if code == 0:
        return "ok"
    if code == _MISSING_CODE and rehearsal:
        return f"skipped: {last_line(folder)}"
    return f"failed: {code}, {last_line(folder)}"


def last_line(folder: Path) -> str:
    """The last line of a stage's log: what the command said when it ended."""
    lines = [line for line in (folder / "log.txt").read_text(errors="replace").splitlines() if line.strip()]
    return "it said nothing" if lines[-1].startswith("$ ") else lines[-1].strip()[:_MOST_REASON]


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children; interrupt it first, so that its recording stays readable."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
