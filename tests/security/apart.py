"""Runs work in a forked process that is held to limits of memory and of CPU time, and says what it
took.
"""

import gc
import os
import resource
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 2 << 30
MOST_CPU_S = 10


@dataclass(frozen=True)
class Spent:
    """What some work took, and what went wrong; of memory, what it held beyond the fork's start."""

    cpu_s: float
    peak_bytes: int
    wrong: str | None
    answer: str  # what it returned


def mapped_and_resident_bytes():
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize()


def run_apart(work):
    """Do the work, which returns a text or None, in a forked process; whatever it raises, and a
    limit that it breaks, is wrong.
    """
    reader, writer = os.pipe()
    mapped, resident = mapped_and_resident_bytes()
    child = os.fork()
    if not child:
        failed = 1
        try:
            os.close(reader)
            gc.freeze()  # inherited garbage may need threads of the parent, which a fork has not
            signal.alarm(300)  # what waits takes no CPU time; a busy machine takes its time
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S + 5, MOST_CPU_S + 10))
            resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_BYTES, -1))
            os.write(writer, (work() or "")[-3000:].encode(errors="replace"))
            failed = 0
        except BaseException:
            os.write(writer, traceback.format_exc(limit=-12)[-3000:].encode())
        os._exit(failed)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    # Tests that ran before in this process may have left it gigabytes, and a fork begins with them.
    peak_bytes = max(0, used.ru_maxrss * 1024 - resident)
    wrong = (said or f"ended with status {status}") if status else None
    if wrong is None and cpu_s > MOST_CPU_S:
        wrong = f"took {cpu_s:.0f} s of CPU time"
    if wrong is None and peak_bytes > MOST_BYTES:
        wrong = f"took {peak_bytes >> 20} MiB"
    return Spent(cpu_s, peak_bytes, wrong, "" if wrong else said)
