"""Notes when the steps of a recorded program of JAX, TensorFlow or Keras end, by the same marks as
of one that is measured.

The program's own Python loads this file by path, after `program_steps.py`, so it needs only the
standard library. A line is written at once, so that a program may end in any way.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import Any

from _curvescope_program_steps import Marks, name_of  # type: ignore[import-not-found]

VERSION = 1


class Notes(Marks):  # type: ignore[misc]
    """A file of this process: what marks its steps, then the moment of each mark, in lines."""

    def __init__(self, folder: Any) -> None:
        """Prepare a file in a folder, which begins with the first mark."""
        super().__init__()
        self._folder = folder
        self._file = -1
        self._path = ""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._lock = threading.RLock()
        self._source = None
        self._file = -1

    def _restart(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
                os.remove(self._path)
        self._file = -1

    def _count(self, started: Any) -> None:  # noqa: ARG002
        now = time.monotonic_ns()
        with suppress(OSError):  # of a full disk: the recording says which steps it has
            if self._file < 0:
                self._begin()
            os.write(self._file, b"%d\n" % now)

    def _begin(self) -> None:
        self._path = os.path.join(self._folder, f"{os.getpid()}.marks")
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        about: dict[str, Any] = {"version": VERSION, "process": os.getpid()}
        about["thread"] = threading.get_native_id()
        about |= {"source": self._source, "mark": name_of(self._mark)}
        os.write(self._file, json.dumps(about, default=str).encode() + b"\n")
