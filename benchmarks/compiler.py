"""A compiler that works beside a measurement, as on a machine on which somebody builds.

Where others work beside it anyway, a run says so, and starts nothing.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import killpg
from pathlib import Path

NOTHING, COMPILER, OTHERS = WHAT = "nothing", "compiler", "other work"
_NATIVE = Path(__file__).parents[1] / "native"
_LOOP = (
    f"while :; do g++ -std=c++20 -O2 -I{_NATIVE}/include -c -o /dev/null "
    f"{_NATIVE}/src/chunk_writer.cpp; done"
)


@contextmanager
def beside(what: str) -> Iterator[None]:
    """Nothing, or a compiler in a loop on one core, beside what runs in the block."""
    if what != COMPILER:
        yield
        return
    loop = subprocess.Popen(["/bin/sh", "-c", _LOOP], start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            killpg(loop.pid, signal.SIGKILL)
        loop.wait()
