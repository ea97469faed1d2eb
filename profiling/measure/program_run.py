"""One run of a user's program: started, watched until it has the steps that are wanted,
and ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from ...base.errors import CurvescopeError
from ..collect.inject import startup_path, with_startup
from ..collect.startup.program_steps import are_enough
from ..recording.inside import open_folder
from ..workload.program import Program, line_pattern

VARIABLE = "CURVESCOPE_PROGRAM"  # for `collect/startup/program_steps.py`: JSON of what is wanted
_POLL_S = 0.02
_PATIENCE_S = 5.0  # after an interrupt, and after SIGTERM; then it is killed
NO_STEP_S = 180.0  # without a step, after which a run is ended
_KEPT_LINES = 200_000  # of the output, in memory
_SHOWN_LINES = 12  # of an error
_CHUNK_BYTES = 1 << 16
# A progress bar ends its lines with \r alone, and only the next byte tells it from \r\n.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
_VERSION = 1  # of `program_steps`


@dataclass
class Found:
    """The output of a run."""

    code: int | None  # exit code before it was asked to end; None if it was asked
    began_ns: int  # when it was started, on the monotonic clock
    seconds: float  # until it was asked to end, or ended
    lines: list[tuple[int, str]] = field(default_factory=list)  # of its output: time, ns, and text
    was_followed: bool = False  # a Python of it ran `startup`
    was_in_vain: bool = False  # it was ended as no step ended for a long time
    # of its Python processes, see `program_steps.write`
    processes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps(self) -> dict[str, Any] | None:
        """What the process with the steps wrote: of several the first rank; None if none wrote
        anything.
        """
        order = sorted(
            self.processes,
            key=lambda report: (
                not report["complete"],
                report["rank"] not in (None, "0"),
                -report["seen"],
            ),
        )
        return order[0] if order else None

    def count_changes(self, name: str) -> int:
        """How often its processes made a change of `program_changes`."""
        return sum(report["changes"].get(name, 0) for report in self.processes)

    @property
    def last_lines(self) -> str:
        """The last lines of its output."""
        return "\n".join(line for _, line in self.lines[-_SHOWN_LINES:])


def run_program(
    program: Program,
    values: Mapping[str, int],
    wanted: Mapping[str, Any],
    folder: Path,
    *,
    variables: Mapping[str, str] | None = None,
    log: Path | None = None,
    while_running: Callable[[], object] = lambda: None,
) -> Found:
    """Run the command until it has the steps that are wanted, and end it: by an interrupt, else by
    a signal that kills.

    Args:
        program: command, and how its steps are found.
        values: values of the axes in the command.
        wanted: what `program_steps` is asked for: `discarded` steps, `steps` to time (least, most),
            seconds for them as `visit_s`, `profiled` steps; and `patience_s`, seconds without a
            step after which the run is ended.
        folder: folder for what its processes write.
        variables: further variables of its environment.
        log: file for its output; None for none.
        while_running: function that is called all the time.

    Raises:
        CurvescopeError: it cannot be run.
    """
    request = {**wanted, "folder": str(folder)}
    request |= {"range": program.step_range, "function": program.step_function}
    own = {"PYTHONPATH": startup_path(), VARIABLE: json.dumps(request)}
    environment = {**os.environ, **(variables or {}), **own}
    environment["PYTHONUNBUFFERED"] = "1"  # its lines arrive when they are written
    words = with_startup(program.words(values))
    began_ns = time.monotonic_ns()
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            words,
            env=environment,
            cwd=_own_folder(program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # all its processes are ended together
        )
    except OSError as error:
        raise CurvescopeError(f"{words[0]} cannot be run ({error.strerror}).") from error
    reading = _Output(process, program.step_line, wanted, log)
    run = Found(None, began_ns, 0.0, reading.lines)
    try:
        while run.code is None and not (reading.complete or _is_complete(folder)):
            run.code = process.poll()
            last_ns = max(began_ns, reading.last_ns, _last_sign_ns(folder))
            waited_s = (time.monotonic_ns() - last_ns) / 1e9
            if run.code is None and waited_s > wanted.get("patience_s", NO_STEP_S):
                run.was_in_vain = True
                break
            while_running()
            time.sleep(_POLL_S)
        run.seconds = (time.monotonic_ns() - began_ns) / 1e9
    finally:
        _end(process)
        reading.join()
    run.processes = _read(folder)
    run.was_followed = any(folder.glob("*.python"))
    return run


def _own_folder(program: Program) -> str | None:
    """A new folder for a run, in the one of `--workdir`."""
    if program.workdir is None:
        return None
    for number in range(1_000_000):
        path = Path(program.workdir, f"run{number:04d}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return str(path)
    raise CurvescopeError(f"--workdir {program.workdir}: it is full of runs; name another folder.")


class _Output:
    """Reads the output of a program in a thread, and counts its step lines."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        step_line: str | None,
        wanted: Mapping[str, Any],
        log: Path | None,
    ) -> None:
        self.lines: list[tuple[int, str]] = []
        self.complete = False
        self._process = process
        self._wanted = wanted
        self._log = log
        self._pattern = None if step_line is None else line_pattern(step_line)
        self._moments: list[int] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def last_ns(self) -> int:
        """When the last step line came, on the monotonic clock; 0 if none did."""
        return self._moments[-1] if self._moments else 0

    def join(self) -> None:
        """Wait until all is read: a process that outlives its group may hold the output open."""
        self._thread.join(1.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output, _open_log(self._log) as log:
            unended = b""
            came_ns = 0
            while chunk := output.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
                log.write(chunk)
                log.flush()
                came_ns = came_ns if unended else time.monotonic_ns()
                *ended, rest = _LINE_END.split(unended + chunk)
                if len(rest) > _CHUNK_BYTES:  # of an output without lines
                    ended = [*ended, rest]
                    rest = b""
                for at, raw in enumerate(ended):
                    was_there = at == 0 and len(raw) <= len(unended)
                    # Lines that are read together come one after the other.
                    self._note(came_ns if was_there else time.monotonic_ns(), raw)
                unended = rest
                came_ns = time.monotonic_ns()
            if unended:
                self._note(came_ns, unended)

    def _note(self, came_ns: int, raw: bytes) -> None:
        """Note a line, which came when its last letter did; none of a program that is ended, as its
        traceback may hold the words of a step.
        """
        if self.complete:
            return
        line = raw.decode("utf-8", "replace").rstrip("\r")
        self.lines.append((came_ns, line))
        del self.lines[:-_KEPT_LINES]
        if self._pattern is not None and self._pattern.search(line):
            self._moments.append(came_ns)
            self.complete = self._are_enough()

    def _are_enough(self) -> bool:
        moments = self._moments[self._wanted["discarded"] :]
        durations_ns = [after - before for before, after in pairwise(moments)]
        return are_enough(durations_ns, self._wanted["steps"], self._wanted["visit_s"])


@contextmanager
def _open_log(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        with open(os.devnull, "wb") as log:
            yield log
        return
    with open_folder(path.parent) as folder, folder.append(path.name) as log:
        yield log


def _last_sign_ns(folder: Path) -> int:
    """When a process last showed that it has steps, on the monotonic clock; 0 if none did."""
    age_ns = time.time_ns() - time.monotonic_ns()
    signs = [0]
    for path in folder.glob("*.seen"):
        with suppress(OSError):
            signs.append(path.stat().st_mtime_ns - age_ns)
    return max(signs)


def _is_complete(folder: Path) -> bool:
    """Whether a process wrote that it has all steps, the first rank if it knows one."""
    return any(
        bool(report["complete"]) and report["rank"] in (None, "0") for report in _read(folder)
    )


def _read(folder: Path) -> list[dict[str, Any]]:
    reports = []
    for path in sorted(folder.glob("*.steps")):
        with suppress(OSError, ValueError):
            document = json.loads(path.read_bytes())
            if document.get("version") == _VERSION:
                reports.append(document)
    return reports


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started: an interrupt, SIGTERM, then a kill."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            _signal_group(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)
    # also what is left of the group, e.g. loaders of data
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def last_words(lines: Sequence[tuple[int, str]]) -> str:
    """The last line of an output that says something, e.g. an error."""
    return next((line.strip() for _, line in reversed(lines) if line.strip()), "it printed nothing")
