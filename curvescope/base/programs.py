"""Finds programs by their names: none in the working folder, which may hold anything.

Windows looks there first, before PATH, and so does `shutil.which`; a relative entry of PATH leads
there too.
"""

from __future__ import annotations

import os
import sys

_ENDINGS = ".COM;.EXE;.BAT;.CMD"  # of programs on Windows where PATHEXT is not set


def find_program(name: str) -> str | None:
    """The path of a program, which is found in the absolute folders of PATH or named by a path;
    else None.
    """
    if os.path.dirname(name):
        return _find_in("", name)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder) and (path := _find_in(folder, name)) is not None:
            return path
    return None


def _find_in(folder: str, name: str) -> str | None:
    for ending in _endings():
        path = os.path.join(folder, name + ending)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _endings() -> list[str]:
    """What may follow the name of a program's file."""
    on_windows = sys.platform == "win32"
    return ["", *os.environ.get("PATHEXT", _ENDINGS).split(";")] if on_windows else [""]
