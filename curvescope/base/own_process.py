"""Starts Pythons of Curvescope's own: none runs a file of the current folder, which may hold
anything.

A Python that is started with `-c` or `-m` searches that folder first. A name of the user's, e.g.
after `--step`, adds it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def python_command(module: str, function: str, *arguments: object) -> list[str]:
    """The command that calls a function with arguments as texts.

    It imports from where this process does.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; "
        f"{function}(*sys.argv[1:])"
    )
    return [sys.executable, "-c", code, *map(str, arguments)]


def end_with_parent() -> None:
    """Make the system kill this process when its parent ends: a killed run leaves no process."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@contextmanager
def in_pythons_folder() -> Iterator[None]:
    """Change to the folder of Python's own modules, for what multiprocessing starts with `-c` in
    the current one.
    """
    here = os.open(".", os.O_PATH)
    try:
        os.chdir(os.path.dirname(os.__file__))
        yield
    finally:
        os.fchdir(here)
        os.close(here)
