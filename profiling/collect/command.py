"""Runs the user's command under a recorder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...base.errors import CurvescopeError


def require_program(name: str) -> None:
    """Check that a program is on PATH and executable; else CurvescopeError."""
    if shutil.which(name) is None:
        raise CurvescopeError(f"{name} is not a program that can be run; check its spelling and PATH.")


def run_command(
    command: Sequence[str], grace_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, bool]:
    """Run a command and wait for its end; Ctrl-C reaches it too, and after `grace_s` it is killed.

    Returns:
        The exit code, or 128 + signal number after a signal, like in shells; and whether Ctrl-C ended the command.
    """
    interrupted, process = False, None
    try:
        with _interrupts_held():
            process = subprocess.Popen(list(command), env=environment)  # noqa: S603 - the user's own command
        code = process.wait()
    except OSError as error:
        raise CurvescopeError(f"{command[0]} cannot be run ({error.strerror}).") from error
    except KeyboardInterrupt:
        if process is None:
            raise
        interrupted = True
        try:
            code = process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    return (code if code >= 0 else 128 - code), interrupted


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Raise an interrupt at the end of the block: inside `Popen` it would leave a process that nobody waits for."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    held = []
    signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if held:
        raise KeyboardInterrupt
