"""Runs the user's command under a recorder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from ..errors import CurvescopeError


def require_program(name: str) -> None:
    """Check that a program can be run.

    Raises:
        CurvescopeError: it is not on PATH, or not executable.
    """
    if shutil.which(name) is None:
        raise CurvescopeError(f"{name} is not a program that can be run; check its spelling and PATH.")


def run_command(
    command: Sequence[str], grace_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, bool]:
    """Run a command and wait for its end.

    Args:
        command: program and arguments.
        grace_s: seconds that the command may take to end after Ctrl-C, which reaches it too, before it is killed.
        environment: environment of the command; default: that of this process.

    Returns:
        The exit code, or 128 + signal number after a signal, like in shells; and whether Ctrl-C ended the command.

    Raises:
        CurvescopeError: the program cannot be run.
    """
    interrupted = False
    try:
        process = subprocess.Popen(list(command), env=environment)  # noqa: S603 - the user's own command
    except OSError as error:
        raise CurvescopeError(f"{command[0]} cannot be run ({error.strerror}).") from error
    try:
        code = process.wait()
    except KeyboardInterrupt:
        interrupted = True
        try:
            code = process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    return (code if code >= 0 else 128 - code), interrupted
