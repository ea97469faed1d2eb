"""Measures for a worker of a cluster: `python -m curvescope.profiling.measure.worker_server FD`.

FD is the socket over which the worker asks.

A worker may not start processes that start others, and holds libraries of its own; so each has such a server beside it,
which runs every visit in a process of its own. It ends with its worker, and what it runs ends with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from .visit_processes import LocalMeasurer


class ServerEnded(Exception):  # noqa: N818 - what happened
    """The server ended, and with it what it ran."""


class _Server:
    """One server, and this side of its socket."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and our own module
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self._lock = threading.Lock()

    def ask(self, name: str, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            try:
                self._connection.send((name, arguments))
                return self._connection.recv()
            except (EOFError, OSError) as error:
                raise ServerEnded(f"exit code {self._process.wait()}") from error

    def end(self) -> None:
        self._process.kill()  # it notices the end of a worker itself, but not at once
        self._process.wait()


_server: _Server | None = None
_making = threading.Lock()


def ask(name: str, *arguments: Any) -> Any:
    """On a worker: what that method of its server's measurer returns.

    Raises:
        ServerEnded: it did; the next call starts another.
    """
    global _server
    with _making:
        if _server is None:
            _server = _Server()
        server = _server
    try:
        return server.ask(name, arguments)
    except ServerEnded:
        with _making:
            _server = None
        raise


def end() -> None:
    """On a worker: end its server, whatever that runs."""
    with _making:
        if _server is not None:
            _server.end()


def serve(connection: Connection) -> None:
    """Answer until the other side is gone."""

    def look() -> None:
        if connection.poll():  # nobody asks while an answer is due: this is the end
            sys.exit()

    with LocalMeasurer(look) as measurer, suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            connection.send(getattr(measurer, name)(*arguments))


if __name__ == "__main__":
    file = int(sys.argv[1])
    os.set_inheritable(file, False)
    serve(Connection(file))
