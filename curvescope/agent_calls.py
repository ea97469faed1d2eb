"""Runs the commands that agents ask for: two at once, each in a process with limits, which ends
with the server; and the server ends with its client.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .base.errors import CurvescopeError
from .base.own_process import end_with_parent, python_command

if TYPE_CHECKING:
    import anyio.abc
    from mcp.server.mcpserver import MCPServer

LONGEST_S = 600  # of experiments in one call
_VIEW_S = 300  # of any other command, on a busy machine
_AT_ONCE = 2
_MOST_WAITING = 16
# Memory of a command that reads: as much as `explain` of a large recording takes, several times
# over. Libraries take some more for each thread that they start.
_MOST_BYTES = 4 << 30
_THREAD_BYTES = 64 << 20
_EXPERIMENTS = "confirm"  # the command that runs a user's own step, as large as it is
_FAILED_CHECK = 1  # exit code of a command whose answer is a failed check
_LOOK_S = 1.0


class Turns:
    """Lets two calls run at once, and some others wait."""

    def __init__(self) -> None:
        self._running: anyio.Semaphore | None = None
        self._calls = 0  # that run or wait

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait for a turn. CurvescopeError: too many wait already."""
        import anyio

        if self._running is None:
            self._running = anyio.Semaphore(_AT_ONCE)
        if self._calls >= _AT_ONCE + _MOST_WAITING:
            raise CurvescopeError(
                f"{_AT_ONCE} calls run and {_MOST_WAITING} wait: ask again after an answer."
            )
        self._calls += 1
        try:
            async with self._running:
                yield
        finally:
            self._calls -= 1


async def ask_command(command: str, *options: str, paths: Sequence[str]) -> dict[str, Any]:
    """Run a command in a process of its own; a refusal has its own message."""
    line = python_command(__name__, "answer", command, *options, "--json", "--", *paths)
    limit_s = _VIEW_S + (LONGEST_S if command == _EXPERIMENTS else 0)
    code, out, err = await run_limited(line, f"curvescope {command}", limit_s)
    if code not in (0, _FAILED_CHECK) or not out:
        said = err.decode(errors="replace").strip().splitlines() or ["no message"]
        if code < 0 or said[-1].startswith("MemoryError"):
            raise CurvescopeError(
                f"`curvescope {command}` ended without an answer: it may need more than the "
                f"{_MOST_BYTES >> 30} GiB of memory that an agent's question may take."
            )
        raise CurvescopeError(said[-1].removeprefix("curvescope: "))
    document: dict[str, Any] = json.loads(out)
    return document


async def run_limited(line: Sequence[str], name: str, limit_s: float) -> tuple[int, bytes, bytes]:
    """Run a command line to its end; returns its exit code and output.

    The process ends where the call is given up. CurvescopeError: it takes too long.
    """
    import anyio

    try:
        with anyio.fail_after(limit_s):
            return await _run(line)
    except TimeoutError:
        raise CurvescopeError(f"`{name}` did not end within {limit_s:g} s.") from None


async def _run(line: Sequence[str]) -> tuple[int, bytes, bytes]:
    import anyio

    # A start that is given up midway would leave its process and pipes open.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(line, stdin=subprocess.DEVNULL)
    out, err = bytearray(), bytearray()
    async with process, anyio.create_task_group() as tasks:
        for stream, read in ((process.stdout, out), (process.stderr, err)):
            if stream is not None:
                tasks.start_soon(_read_all, stream, read)
        code = await process.wait()
    return code, bytes(out), bytes(err)


async def _read_all(stream: anyio.abc.ByteReceiveStream, read: bytearray) -> None:
    async for piece in stream:
        read.extend(piece)


def answer(command: str, *words: str) -> None:
    """Run a command as this process's own: it ends with the server, and what reads has a limit of
    memory.
    """
    end_with_parent()
    if command != _EXPERIMENTS and sys.platform != "win32":
        resource = importlib.import_module("resource")  # which Windows lacks
        most = _MOST_BYTES + _THREAD_BYTES * (os.cpu_count() or 1)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    from .cli import exit_with

    exit_with(command, *words)


def serve(server: MCPServer) -> None:
    """Answer on standard input and output until the client closes them or is gone."""
    gone = threading.Thread(target=_end_with_client, args=(os.getppid(),), daemon=True)
    gone.start()
    try:
        server.run("stdio")
    except BaseException as error:
        if not _is_closed(error):
            raise
    # A thread may still wait for the next line of a client that is gone.
    sys.stderr.flush()
    os._exit(0)


def _end_with_client(client: int) -> None:
    """End this process once the process that started it is gone: its standard input may stay open
    in another one.
    """
    while os.getppid() == client:
        time.sleep(_LOOK_S)
    os._exit(0)


def _is_closed(error: BaseException) -> bool:
    """Whether an error, or every one of a group, says that the client reads no more."""
    errors = getattr(error, "exceptions", ())
    return all(map(_is_closed, errors)) if errors else isinstance(error, BrokenPipeError)
