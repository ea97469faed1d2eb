"""Measures for a worker of a cluster: `python -m curvescope.profiling.measure.worker_server SOCKET`.

A worker must not start processes that start others, and its libraries are already loaded; so each worker has such a
server, which runs every visit in its own process. The server ends with its worker, and its processes end with the
server.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from .processes import start_with_socket
from .visit_processes import LocalMeasurer


class ServerEnded(Exception):  # noqa: N818 - an event, not an error of the caller
    """The server and its running process ended."""


class _Server:
    """A server process, and this side of its socket."""

    def __init__(self) -> None:
        self._process, self._connection = start_with_socket([sys.executable, "-m", __name__])
        self._lock = threading.Lock()

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            try:
                self._connection.send((name, arguments))
                return self._connection.recv()
            except (EOFError, OSError) as error:
                raise ServerEnded(f"exit code {self._process.wait()}") from error

    def end(self) -> None:
        self._process.kill()  # it notices the end of its worker by itself, but not at once
        self._process.wait()


_server: _Server | None = None
_starting = threading.Lock()


def call(name: str, *arguments: Any) -> Any:
    """On a worker: call a method of the server's `LocalMeasurer`; if the server ended, the next call starts another."""
    global _server
    with _starting:
        if _server is None:
            _server = _Server()
        server = _server
    try:
        return server.call(name, arguments)
    except ServerEnded:
        with _starting:
            _server = None
        raise


def end() -> None:
    """On a worker: end its server and the running process."""
    with _starting:
        if _server is not None:
            _server.end()


def serve(connection: Connection) -> None:
    """Handle calls until the worker closes the connection."""

    def check() -> None:
        if connection.poll():  # during a call the worker sends nothing: the connection is closed
            sys.exit()

    with LocalMeasurer(check) as measurer, suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            connection.send(getattr(measurer, name)(*arguments))


if __name__ == "__main__":
    file = int(sys.argv[1])
    os.set_inheritable(file, False)
    serve(Connection(file))
