"""Runs programs as forks of a Python that has imported what they import; most of a short program is
its imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

_LONGEST_S = 600  # against a deadlock; a busy machine takes 30 s
# What programs that are recorded import. Nothing of NVTX or CUPTI is among it.
_USUAL = (
    "pandas",
    "pyarrow.parquet",
    "curvescope.profiling.collect.inject",
    "curvescope.profiling.collect.merge",
)
# The server is the main program, so that a child ends as any Python does.
_SERVER = """
import gc, importlib, json, os, sys

for module in sys.argv[1:]:
    importlib.import_module(module)
# No program looks again at what is imported here: each would get a copy of its pages.
gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[1:1] = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(name, os.O_RDWR), number)
    exec(compile(asked["program"], "<program>", "exec"), {"__name__": "__main__"})
    break
"""


class WarmPython:
    """A server of programs; a context manager.

    Args:
        libraries: folders in which they find shared libraries; a process cannot change its own.
        imports: modules that the server imports.
        environment: variables of the server, beside the usual ones.
    """

    def __init__(
        self,
        libraries: str,
        imports: Sequence[str] = _USUAL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._command = [sys.executable, "-c", _SERVER, *imports]
        self._variables = {**os.environ, **(environment or {}), "LD_LIBRARY_PATH": libraries}
        self._server = self._start()

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=self._variables,
            start_new_session=True,
        )

    def run(
        self, program: str, cwd: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, in a folder and with these variables alone."""
        out, err = (Path(self._folder.name, name) for name in ("out", "err"))
        for path in (out, err):
            path.write_text("")
        asked = {"program": textwrap.dedent(program), "cwd": str(cwd), "environment": environment}
        assert self._server.stdin is not None and self._server.stdout is not None  # noqa: PT018
        print(
            json.dumps({**asked, "out": str(out), "err": str(err)}),
            file=self._server.stdin,
            flush=True,
        )
        if not select.select([self._server.stdout], [], [], _LONGEST_S)[0]:
            # The answer may still come, and would be taken for that of the next program.
            self._end()
            self._server = self._start()
            raise AssertionError(f"the program hangs: {err.read_text()}")
        code = int(self._server.stdout.readline())
        return subprocess.CompletedProcess(program, code, out.read_text(), err.read_text())

    def __enter__(self) -> WarmPython:
        return self

    def _end(self) -> None:
        """End the server and a program that still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()
