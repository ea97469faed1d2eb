"""A process that measures for a worker: each worker has one, which runs every visit in a process of
its own.

A worker of a Dask cluster must not start processes that start others, and its libraries are already
loaded. The server and its worker share a pair of sockets, so nobody else can reach it; it ends with
its worker, and its processes with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ...base.own_process import python_command
from .processes import connection_of, start_with_socket
from .sites.machines import LocalMeasurer


class ServerEnded(Exception):  # noqa: N818 - an event, not an error of the caller
    """The server and its running process ended."""


class Server:
    """A server process, and this side of its socket."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it, with other variables of the environment."""
        command = python_command(__name__, "serve_file")
        environment = {**os.environ, **(variables or {})}
        self.process, self._connection = start_with_socket(command, env=environment)
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of its `LocalMeasurer`.

        Raises:
            ServerEnded: it ended before or meanwhile.
        """
        with self._lock:
            try:
                self._connection.send((name, arguments))
                return self._connection.recv()
            except (EOFError, OSError) as error:
                raise ServerEnded(f"exit code {self.process.wait()}") from error

    def end(self) -> None:
        """End it and the running process; a call in another thread raises ServerEnded."""
        self.process.kill()  # it notices the end of its worker by itself, but not at once
        self.process.wait()


_server: Server | None = None
_starting = threading.Lock()


def call(name: str, *arguments: Any) -> Any:
    """On a worker of Dask: call a method of the server's `LocalMeasurer`; a new server follows one
    that ended.
    """
    global _server
    with _starting:
        if _server is None:
            _server = Server()
        server = _server
    try:
        return server.call(name, *arguments)
    except ServerEnded:
        with _starting:
            _server = None
        raise


def end() -> None:
    """On a worker of Dask: end its server and the running process."""
    with _starting:
        if _server is not None:
            _server.end()


def serve_file(file: str) -> None:
    """In the server: handle calls until the worker closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker is interrupted, and ends this process
    serve(connection_of(file))


def serve(connection: Connection) -> None:
    """Handle calls until the worker closes the connection."""

    def check() -> None:
        if connection.poll():  # during a call the worker sends nothing: the connection is closed
            sys.exit()

    with LocalMeasurer(check) as measurer, suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            connection.send(getattr(measurer, name)(*arguments))
