"""Records some steps of a JAX program by JAX's own profiler, which names each operator's scope.

The program's own Python loads this file by path, so it needs only the standard library and JAX.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

FOLDER = "jax"  # in the folder of the visit


class Recorder:
    """Records the process from `open_window` to `close_window`; `end_step` says where steps end."""

    def __init__(self, profiler: Any, step_range: Any, folder: Any) -> None:
        """Take jax.profiler, its class of ranges of steps, and the folder of the visit."""
        self._profiler, self._step_range, self._folder = profiler, step_range, folder
        self._number = 0
        self._open: Any = None

    def open_window(self) -> None:
        """Begin here, at the end of a step."""
        self._profiler.start_trace(os.path.join(self._folder, FOLDER))
        self._begin_step()

    def _begin_step(self) -> None:
        self._open = self._step_range("step", step_num=self._number)
        self._open.__enter__()
        self._number += 1

    def end_step(self) -> None:
        """Note that a step ended, and another begins."""
        self._open.__exit__(None, None, None)
        self._begin_step()

    def close_window(self) -> None:
        """Write the profile."""
        self._open.__exit__(None, None, None)
        self._profiler.stop_trace()

    def give_up(self, why: Any) -> None:
        """Record nothing: the visit has its times."""
        del why
        with suppress(Exception):
            self._profiler.stop_trace()
