"""Runs the user's command under a recorder, as if the recorder were not there: signals reach it,
its exit code is ours.

A signal that was sent to a whole process group, e.g. by Ctrl-C, `timeout` or Slurm, reaches the
program by itself. One that was sent to Curvescope alone, e.g. by Kubernetes or `kill`, is passed
on.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple

from ...base.errors import CurvescopeError
from ...base.programs import find_program

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")  # ask a program to end
_OTHERS = ("SIGUSR1", "SIGUSR2")  # e.g. Slurm's `--signal`: they would end Curvescope
_PATIENCE_S = 5.0  # after a signal that asks it to end; then a line says what is waited for
_SPREAD_S = 0.3  # in which a signal reaches all processes that it is sent to
_Handler = Callable[[int, FrameType | None], object]


class Ending(NamedTuple):
    """How a program ended."""

    code: int  # its exit code, or 128 + signal number after a signal, like in shells
    # the first signal that asked it to end, e.g. SIGTERM; None if there was none
    ended_by: str | None


def require_program(name: str) -> None:
    """Check that there is a program of this name or path; else CurvescopeError."""
    if find_program(name) is None:
        raise CurvescopeError(
            f"{name} is not a program that can be run; check its spelling and PATH, of which only "
            "absolute folders are searched."
        )


def run_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Ending:
    """Run a command and wait for its end, whatever signals come; they reach it too.

    It is never killed: a program may need its time to end. CurvescopeError: it cannot be run.
    """
    program = _Program(command)
    with _handle_signals((*_ENDING, *_OTHERS), program.on_signal):
        try:
            code = program.run(environment)
        except OSError as error:
            raise CurvescopeError(f"{command[0]} cannot be run ({error.strerror}).") from error
    return Ending(code if code >= 0 else 128 - code, program.ended_by)


@contextmanager
def endings_held() -> Iterator[None]:
    """Go on in the block when asked to end, but by Ctrl-C: who asks gives some time, e.g. Slurm 30
    s.
    """
    with _handle_signals((*_ENDING[1:], *_OTHERS), lambda *_: None):
        yield


@contextmanager
def _handle_signals(names: Sequence[str], handler: _Handler) -> Iterator[None]:
    """Handle signals in the block, but for those that are ignored, e.g. SIGHUP by nohup; only in
    the main thread.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class _Program:
    """A program, and the signals that came while it ran."""

    def __init__(self, command: Sequence[str]) -> None:
        self.ended_by: str | None = None
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came while the program was started
        self._witness: _Witness | None = None

    def run(self, environment: Mapping[str, str] | None) -> int:
        """Start the program and wait for its end; returns the exit code."""
        self._witness = _Witness()
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                list(self._command), executable=find_program(self._command[0]), env=environment
            )
            self._process = process
            while self._early:  # they came when it may not have been there yet
                self._pass_on(self._early.pop())
            return process.wait()
        finally:
            self._witness.end()

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on, unless it reached the program by itself."""
        name = signal.Signals(number).name
        if name in _ENDING and self.ended_by is None:
            self.ended_by = name
            waiting = threading.Timer(_PATIENCE_S, self._say_waiting)
            waiting.daemon = True
            waiting.start()
        if self._process is None or self._witness is None:
            self._early.append(number)
        elif self._process.returncode is None and not self._witness.has_got_it():
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _say_waiting(self) -> None:
        if self._process is not None and self._process.returncode is None:
            number = self._process.pid
            print(
                f"curvescope: waiting for {self._command[0]} to end (process {number}). "
                f"`kill -9 {number}` ends it; what it recorded is kept.",
                file=sys.stderr,
                flush=True,
            )


class _Witness:
    """A process beside the program: if it gets a signal, the program got it too."""

    def __init__(self) -> None:
        self._process = self._start_cat()

    def _start_cat(self) -> subprocess.Popen[bytes] | None:
        quiet = subprocess.DEVNULL
        if (cat := find_program("cat")) is None:
            return None
        try:  # it ends with its standard input, and so with this process
            return subprocess.Popen([cat], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)  # noqa: S603
        except OSError:
            return None

    def has_got_it(self) -> bool:
        """Whether a signal that just came reached it too."""
        if self._process is None:
            return False
        try:
            code = self._process.wait(_SPREAD_S)
        except subprocess.TimeoutExpired:
            return False
        self.end()
        self._process = self._start_cat()
        return code < 0

    def end(self) -> None:
        """End it."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
