"""Runs a function of Curvescope in a Python of its own."""

from __future__ import annotations

import sys


def python_command(module: str, function: str, *arguments: object) -> list[str]:
    """The command that calls a function with arguments as texts.

    It imports from where this process does: Python alone would put the current folder first, which may hold anything.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]
