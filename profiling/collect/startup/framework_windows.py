"""Records some steps of a JAX or TensorFlow program by its framework's own profiler, which names
operators' scopes.

The program's own Python loads this file by path, so it needs only the standard library and the
framework.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

FOLDER = "framework"  # in the folder of the visit


class Recorder:
    """Records the process from `open_window` to `close_window`; `end_step` says where steps end."""

    discarded = 0  # steps that end after `open_window` and are none of the window
    most = 100  # steps of the window

    def __init__(self, start: Any, stop: Any, range_of_step: Any, folder: Any) -> None:
        """Take functions that start the profiler, in a folder, stop it, and make the range of a
        step by its number.
        """
        self._start = start
        self._stop = stop
        self._range_of_step = range_of_step
        self._folder = folder
        self._number = 0
        self._open: Any = None

    def open_window(self) -> None:
        """Begin here, at the end of a step."""
        self._start(os.path.join(self._folder, FOLDER))
        self._begin_step()

    def _begin_step(self) -> None:
        self._open = self._range_of_step(self._number)
        self._open.__enter__()
        self._number += 1

    def end_step(self) -> None:
        """Note that a step ended, and another begins."""
        self._open.__exit__(None, None, None)
        self._begin_step()

    def close_window(self, then: Any, *, at_once: bool = False) -> None:
        """Write the profile, and call a function."""
        del at_once
        self._open.__exit__(None, None, None)
        self._stop()
        then()

    def give_up(self, why: Any) -> None:
        """Record nothing: the visit has its times."""
        del why
        with suppress(Exception):
            self._stop()


def of_jax(profiler: Any, step_range: Any, folder: Any) -> Recorder:
    """A recorder by jax.profiler; `step_range` is its class of ranges of steps."""
    return Recorder(
        profiler.start_trace,
        profiler.stop_trace,
        lambda number: step_range("step", step_num=number),
        folder,
    )


def of_tensorflow(profiler: Any, folder: Any) -> Recorder:
    """A recorder by tf.profiler.experimental."""
    return Recorder(
        profiler.start,
        profiler.stop,
        lambda number: profiler.Trace("step", step_num=number, _r=1),
        folder,
    )
