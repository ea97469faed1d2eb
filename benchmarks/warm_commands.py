"""Commands started as forks of a process that has imported what they import, so that they begin
with their work.

Most of a short command is the start of Python and imports, in which nothing is written. A signal at
a random moment of a command started here falls into its work.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path

PRELOADED = (
    "curvescope.cli",
    *(
        f"curvescope.commands.{name}"
        for name in ("record", "sweep", "import_", "report", "compare", "diagnose")
    ),
    "curvescope.commands.bench",
    "curvescope.experiments.confirming",
    "curvescope.experiments.plan",
    "curvescope.analysis.render.show",
    "curvescope.profiling.readers.pytorch_json",
    "curvescope.profiling.collect.merge",
    "curvescope.analysis.render.html",
    "rich.progress",
)


class Started:
    """A command that runs as the first process of a group of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        from curvescope.base.torch_runtime import prepare_libraries
        from curvescope.profiling.measure.processes import PRELOADED as OF_VISITS

        prepare_libraries()  # before torch is loaded, as `sweep` does
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, *OF_VISITS, __name__])
        self._said = folder / "said"
        self._process = context.Process(target=_run, args=(arguments, folder))
        self._process.start()
        while self._process.exitcode is None and not self._said.exists():
            time.sleep(0.001)

    def send(self, number: signal.Signals, *, alone: bool = False) -> None:
        assert self._process.pid is not None
        with suppress(ProcessLookupError):
            if alone:
                os.kill(self._process.pid, number)
                return
            for process in self._session():
                with suppress(ProcessLookupError):
                    os.kill(process, number)

    def _session(self) -> list[int]:
        """The processes of the command: those of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state not in "ZX":
                    found.append(int(path.parent.name))
        return found

    def wait_for_all(self, seconds: float) -> bool:
        """Wait for the end of every process that the command started; returns whether all have
        ended.
        """
        until = time.monotonic() + seconds
        while self._session():
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def wait(self, seconds: float) -> int | None:
        self._process.join(seconds)
        return self._process.exitcode

    def said(self) -> str:
        return self._said.read_text(errors="replace") if self._said.exists() else ""


def _run(arguments: list[str], folder: Path) -> None:
    os.setsid()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv[1:] = arguments
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    # It gets its name when all is ready for signals.
    os.dup2(os.open("saying", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    if arguments[0] in ("sweep", "diagnose", "confirm"):
        _start_server_of_visits()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.rename("saying", "said")
        from curvescope.cli import main

        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except KeyboardInterrupt:  # just before or after `main`, where Python ends by the signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _start_server_of_visits() -> None:
    """`sweep`'s server of processes, which would load torch for seconds, as a fork that has it."""
    # What belongs to the server that made this process is not ours.
    forkserver._forkserver.__init__()  # type: ignore[misc, attr-defined]
    forkserver.set_forkserver_preload([])
    resource_tracker.ensure_running()

    def fork(_path: str, arguments: list[str], passed: list[int]) -> int:
        if pid := os.fork():
            return pid
        kept = sorted({0, 1, 2, *passed})
        for first, last in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(first + 1, last)
        with suppress(BaseException):
            exec(arguments[-1])  # what multiprocessing would have given to `python -c`
        os._exit(0)

    executed = util.spawnv_passfds
    util.spawnv_passfds = fork
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = executed
