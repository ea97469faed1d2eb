"""Signals that ask this process to end: SIGTERM and SIGHUP end it like Ctrl-C, and commands still
answer.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from .errors import CurvescopeError

_NAMES = ("SIGTERM", "SIGHUP")
# in which a second signal is the same request: `timeout` signals its child and then the child's
# group
_TWICE_S = 1.0


@contextmanager
def end_like_ctrl_c() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in the block for signals that would end this process; yields those
    that came, in order.

    It changes nothing outside the main thread, and for a signal that is ignored (by nohup) or has a
    handler.
    """
    came: list[int] = []
    last_s = 0.0

    def interrupt(number: int, _: FrameType | None) -> None:
        nonlocal last_s
        repeated = bool(came) and time.monotonic() - last_s < _TWICE_S
        last_s = time.monotonic()
        came.append(number)
        if not repeated:
            raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.getsignal(number) for number in numbers}
    mine = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def answer_if_interrupted(show: Callable[[], object]) -> Iterator[None]:
    """Where the block is interrupted, show the results so far, if they are enough for an answer;
    the interrupt goes on.
    """
    try:
        yield
    except KeyboardInterrupt:
        with suppress(CurvescopeError):
            show()
        raise
