"""Processes that run functions for this one, and end with it.

What runs out of memory or crashes there is a result.

They are forked from a server that has torch loaded and has never used a device, or are interpreters
of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from ...base.errors import CurvescopeError
from ...base.own_process import end_with_parent, in_pythons_folder, python_command
from ...base.torch_runtime import prepare_libraries
from ..frameworks import memory_ran_out
from . import preloading
from .visits import FAILED, KILLED, OUT_OF_MEMORY, Empty

_POLL_S = 0.5
# Optimizers and the profiler import torch._dynamo, 1.5 s of CPU for every process, and MKL measures
# the clock of the CPU, up to 1 s. None of these modules opens a device or starts a thread; neither
# would survive a fork.
PRELOADED = ("torch", "torch._dynamo", "torch.profiler", "curvescope.profiling.collect.mkl_clock")
_SITES = (f"{__package__}.sites.machines", f"{__package__}.sites.process")
# Of an interpreter of a version: it loads this Curvescope, whichever the version has, and nothing
# else from beside it.
_MAIN = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
folder, file = sys.argv[1:]
spec = spec_from_file_location("curvescope", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["curvescope"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["curvescope"])
from curvescope.profiling.measure.processes import serve_file
serve_file(file)
"""  # noqa: E501


class ChildProcess:
    """A process that makes an object and calls its methods for this process, one at a time."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Start the process, in which a function of a module makes the object; its error answers
        every call.
        """
        prepare_libraries()  # the server inherits this environment, and loads torch with it
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, *_SITES, preloading.__name__])
        self._connection, there = context.Pipe()
        self._process: Any = context.Process(target=_serve, args=(there, make, arguments))
        with preloading.name_loaded_modules(), _empty_main():
            with in_pythons_folder():
                forkserver.ensure_running()
            self._process.start()
        there.close()

    def call(
        self, method: str, *arguments: Any, while_waiting: Callable[[], object] = lambda: None
    ) -> Any:
        """Call a method of the object; returns its result, or an `Empty` for an error or the end of
        the process.

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
        """End the process and those that it started, e.g. for loading data; also in the middle of a
        call.
        """
        if self._process.is_alive() and self._process.pid is not None:
            with suppress(ProcessLookupError):  # it ended before it made its group
                os.killpg(self._process.pid, signal.SIGKILL)
        self.kill()
        self._process.join()
        self._connection.close()

    def kill(self) -> None:
        """From another thread: end the process; a running call gives an `Empty`."""
        self._process.kill()


class Interpreter(ChildProcess):
    """The same in a new interpreter, which loads libraries itself, e.g. with other variables."""

    def __init__(
        self, variables: Mapping[str, str], make: Callable[..., Any], *arguments: Any
    ) -> None:
        """Start this interpreter with other variables."""
        self._start(python_command(__name__, "serve_file"), variables, None, (make, arguments))

    def _start(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        folder: Path | None,
        served: object,
    ) -> None:
        self._process, self._connection = start_with_socket(
            command, _Popen, cwd=folder, env={**os.environ, **variables}
        )
        with suppress(OSError):  # it ended; the first call says how
            self._connection.send(served)


def call_many(
    function: Callable[[Any], Any], items: Sequence[Any], processes: int
) -> Iterator[tuple[Any, Any]]:
    """Call a module's function on items in several new interpreters, the first item first.

    Yields each item with its result, or with an `Empty` as `ChildProcess.call` returns it, in the
    order of completion. An item that ended its interpreter is not tried again. Closing the iterator
    ends all interpreters.
    """
    here = threading.local()
    started: list[Interpreter] = []
    closed = threading.Event()

    def call(item: Any) -> Any:
        if getattr(here, "child", None) is None:
            here.child = Interpreter({}, _Function, function)
            started.append(here.child)
        if closed.is_set():  # what closed it may not have seen this interpreter
            return None
        result = here.child.call("call", item)
        if isinstance(result, Empty) and result.why == KILLED:
            here.child = None
        return result

    pool = ThreadPoolExecutor(max(1, min(processes, len(items))))
    futures = {pool.submit(call, item): item for item in items}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        closed.set()
        for child in list(started):
            child.kill()  # its thread sees the end
        pool.shutdown(cancel_futures=True)
        for child in started:
            child.end()


class _Function:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.call = function


class InterpreterOfVersion(Interpreter):
    """The same with the modules of a version of the user's code."""

    def __init__(
        self,
        python: str,
        folder: Path,
        variables: Mapping[str, str],
        make: Callable[..., Any],
        *arguments: Any,
    ) -> None:
        """Start an interpreter with packages that Curvescope needs, in a folder that is first
        searched for modules.
        """
        command = [python, "-c", _MAIN, str(Path(__file__).parents[2])]
        self._start(command, variables, folder, (make, arguments))


class _Popen(subprocess.Popen[bytes]):
    """A process with the methods of multiprocessing's."""

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
    """Start a command with the file descriptor of a socket as last argument; returns its process
    and our end.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        file = theirs.fileno()
        process = start([*command, str(file)], stdin=subprocess.DEVNULL, pass_fds=[file], **how)
    return process, Connection(ours.detach())


def connection_of(file: str) -> Connection:
    """In a process that was started with a socket: the connection, by the last argument."""
    os.set_inheritable(int(file), False)
    return Connection(int(file))


def serve_file(file: str) -> None:
    """In an interpreter that was started with a socket: serve the object that the other end names
    first.
    """
    connection = connection_of(file)
    with suppress(EOFError):
        _serve(connection, *connection.recv())


@contextmanager
def _empty_main() -> Iterator[None]:
    """Keep a new process from importing the main module: a script without a guard would run once
    more.
    """
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
    _leave_endings_to_parent()
    os.setpgrp()
    os.dup2(2, 1)  # standard output is the parent's, for results
    end_with_parent()
    # Processes that a step starts must be children of this one: those of the server would outlive
    # it.
    usual = multiprocessing.get_all_start_methods()[0]
    multiprocessing.set_start_method("spawn" if usual == "forkserver" else usual, force=True)
    served = _attempt(make, *arguments)
    with suppress(
        EOFError, ConnectionError
    ):  # the parent ended, also while this process measured for it
        while True:
            method, arguments = connection.recv()
            failed = isinstance(served, Empty)
            connection.send(served if failed else _attempt(getattr(served, method), *arguments))


def _leave_endings_to_parent() -> None:
    """Ignore what asks a whole group or job to end: the parent gets it too, keeps the finished
    work, and ends this process.

    Else this process would end first, and a visit be recorded as killed. Processes that a step
    starts are asked alone, e.g. by `terminate`, and end. A handler in Python does nothing after
    exec, but would lose a signal right after fork.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    own = os.getpid()

    def ignore_here(number: int, _: Any) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def handle(handler: Any) -> None:
        if os.getpid() == own:
            with suppress(ValueError):  # not in the main thread
                for number in numbers:
                    signal.signal(number, handler)

    handle(ignore_here)
    if hasattr(os, "register_at_fork"):
        end_here = partial(handle, signal.SIG_DFL)
        survive_here = partial(handle, ignore_here)
        os.register_at_fork(before=end_here, after_in_parent=survive_here)


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; an error is a result."""
    try:
        return function(*arguments)
    except CurvescopeError as error:
        return Empty(FAILED, str(error))
    except Exception as error:  # any error of a network costs this call alone
        if memory_ran_out(error):
            return Empty(
                OUT_OF_MEMORY,
                (str(error).strip() or "the system gave no more memory").splitlines()[0],
            )
        return Empty(
            FAILED, f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]
        )
