"""Commands of a campaign as forks of a process that has imported what most of them import.

A command of the campaign is a Python of its own, and two thirds of a short one are its imports.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn


def end_quickly(code: int = 0) -> NoReturn:
    """End this process without taking Python apart, which takes half a second with torch; what C
    registers for its end still runs.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)
    raise AssertionError


def fork_commands(running: Any) -> None:
    """Let a module start this Python's commands as forks; other commands are processes as before.

    Args:
        running: the module, which calls `subprocess.Popen` and waits for the end of each command
            before the next.
    """
    here, there = Pipe()
    if not os.fork():
        here.close()
        _serve(there)
    there.close()

    def start(command: Sequence[str], **how: Any) -> Any:
        own = command[0] == sys.executable
        return Forked(here, command[1:], **how) if own else subprocess.Popen(command, **how)

    running.subprocess = SimpleNamespace(Popen=start, TimeoutExpired=subprocess.TimeoutExpired)


class Forked:
    """A command with what the campaign asks of a `subprocess.Popen`."""

    def __init__(
        self,
        server: Connection,
        arguments: Sequence[str],
        cwd: Path,
        stdout: IO[str],
        stderr: IO[str],
        env: Mapping[str, str],
        start_new_session: bool,
    ) -> None:
        assert start_new_session
        outputs = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (stdout, stderr)]
        self._server = server
        server.send((list(arguments), str(cwd), outputs, dict(env)))
        self.pid: int = server.recv()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code."""
        assert timeout is None
        code: int = self._server.recv()
        return code


def _serve(connection: Connection) -> NoReturn:
    """In the process that is forked: start commands until the campaign ends."""
    while True:
        try:
            arguments, folder, outputs, environment = connection.recv()
        except EOFError:
            os._exit(0)
        if not (child := os.fork()):
            _become(folder, outputs, environment)
            end_quickly(_code_of(arguments))
        connection.send(child)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _become(folder: str, outputs: Sequence[str], environment: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)


def _code_of(arguments: Sequence[str]) -> int:
    """Run a command as Python would; returns its exit code."""
    try:
        if arguments[:2] == ["-m", "curvescope.cli"]:
            from curvescope.cli import main

            return main(arguments[2:])
        sys.argv[:] = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as exited:
        if isinstance(exited.code, str):
            print(exited.code, file=sys.stderr)
        return exited.code if isinstance(exited.code, int) else int(exited.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
