"""Processes that run functions for this one, and end with it. What runs out of memory or crashes there is a result.

They are forked from a server that has torch loaded and has never used a device, or are interpreters of their own.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import prepare_libraries
from . import preloading
from .loop import Empty
from .visit import FAILED, OUT_OF_MEMORY, memory_ran_out

KILLED = "killed"
_POLL_S = 0.5
# Optimizers and the profiler import torch._dynamo, 1.5 s of CPU for every process, and MKL measures the clock of the
# CPU, up to 1 s. None of these modules opens a device or starts a thread; neither would survive a fork.
PRELOADED = ("torch", "torch._dynamo", "torch.profiler", "curvescope.profiling.collect.mkl_clock")
# Of an interpreter: it loads this Curvescope, whichever its environment has, and nothing else from beside it.
_MAIN = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
folder, file = sys.argv[1:]
spec = spec_from_file_location("curvescope", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["curvescope"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["curvescope"])
from curvescope.profiling.measure.processes import serve_file
serve_file(int(file))
"""


class ChildProcess:
    """A process that makes an object and calls its methods for this process, one at a time."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Start the process, in which a function of a module makes the object; its error answers every call."""
        prepare_libraries()  # the server inherits this environment, and loads torch with it
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, f"{__package__}.visit_processes", preloading.__name__])
        self._connection, there = context.Pipe()
        self._process: Any = context.Process(target=_serve, args=(there, make, arguments))
        with preloading.named(), _empty_main():
            self._process.start()
        there.close()

    def call(self, method: str, *arguments: Any, while_waiting: Callable[[], object] = lambda: None) -> Any:
        """Call a method of the object; returns its result, or an `Empty` for an error or the end of the process.

        `while_waiting` is called twice a second; its errors are passed on.
        """
        try:
            self._connection.send((method, arguments))
            while not self._connection.poll(_POLL_S):
                while_waiting()
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return _describe_exit(self._process.exitcode)

    def end(self) -> None:
        """End the process and those that it started, e.g. for loading data; also in the middle of a call."""
        if self._process.is_alive() and self._process.pid is not None:
            with suppress(ProcessLookupError):  # it ended before it made its group
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._connection.close()


class Interpreter(ChildProcess):
    """The same in a new interpreter, which loads libraries itself, e.g. with other variables or those of a checkout."""

    def __init__(
        self, python: str, folder: Path, variables: Mapping[str, str], make: Callable[..., Any], *arguments: Any
    ) -> None:
        """Start an interpreter with packages that Curvescope needs, in a folder that is first searched for modules."""
        command = [python, "-c", _MAIN, str(Path(__file__).parents[2])]
        self._process, self._connection = start_with_socket(
            command, _Popen, cwd=folder, env={**os.environ, **variables}
        )
        with suppress(OSError):  # it ended; the first call says how
            self._connection.send((make, arguments))


class _Popen(subprocess.Popen[bytes]):
    """A process with the methods of those of multiprocessing."""

    def is_alive(self) -> bool:
        return self.poll() is None

    def join(self) -> None:
        self.wait()

    @property
    def exitcode(self) -> int | None:
        return self.returncode


def start_with_socket(
    command: Sequence[str], start: Callable[..., Any] = subprocess.Popen, **how: Any
) -> tuple[Any, Connection]:
    """Start a command with the file descriptor of a socket as last argument; returns its process and our end."""
    ours, theirs = socket.socketpair()
    with theirs:
        file = theirs.fileno()
        process = start([*command, str(file)], stdin=subprocess.DEVNULL, pass_fds=[file], **how)
    return process, Connection(ours.detach())


def serve_file(file: int) -> None:
    """In an interpreter that was started with a socket: serve the object that the other end names first."""
    os.set_inheritable(file, False)
    connection = Connection(file)
    with suppress(EOFError):
        _serve(connection, *connection.recv())


@contextmanager
def _empty_main() -> Iterator[None]:
    """Keep a new process from importing the main module: a script without a guard would run once more."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _describe_exit(exitcode: int | None) -> Empty:
    """The outcome of a process that ended without a result."""
    if exitcode == -signal.SIGKILL:
        return Empty(KILLED, "SIGKILL, which the system sends when memory runs out")
    if exitcode is not None and exitcode < 0:
        return Empty(KILLED, signal.Signals(-exitcode).name)
    return Empty(KILLED, f"its process ended with exit code {exitcode}")


def _serve(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the new process: make the object and call its methods, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends this process
    os.setpgrp()
    os.dup2(2, 1)  # standard output is the parent's, for results
    end_with_parent()
    # Processes that a step starts must be children of this one: those of the server would outlive it.
    usual = multiprocessing.get_all_start_methods()[0]
    multiprocessing.set_start_method("spawn" if usual == "forkserver" else usual, force=True)
    served = _attempt(make, *arguments)
    with suppress(EOFError):
        while True:
            method, arguments = connection.recv()
            failed = isinstance(served, Empty)
            connection.send(served if failed else _attempt(getattr(served, method), *arguments))


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; an error is a result."""
    try:
        return function(*arguments)
    except CurvescopeError as error:
        return Empty(FAILED, str(error))
    except Exception as error:  # any error of a network costs this call alone
        if memory_ran_out(error):
            return Empty(OUT_OF_MEMORY, (str(error).strip() or "the system gave no more memory").splitlines()[0])
        return Empty(FAILED, f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0])


def end_with_parent(by: signal.Signals | None = None) -> None:
    """Make the system send this process a signal (SIGKILL) when its parent ends: a killed run leaves no process."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, by or signal.SIGKILL)
