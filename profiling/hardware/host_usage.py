"""Host resources used by a step: CPU time, system time, page faults, pages from a disk, and time in
the run queue.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TASKS = "/proc/self/task"
_LINE_BYTES = 256
_QUIET_S = 0.002
_QUIET_SHARE = 0.1
_LONGEST_S = 0.5


@dataclass(frozen=True)
class HostUse:
    """Totals of this process since it began."""

    cpu_ns: int
    # part of `cpu_ns` in the kernel, which samples it: unreliable for a single short step
    system_ns: int
    page_faults: int
    major_faults: int  # those that waited for a page from a disk, e.g. a swapped one
    # in the run queue, by thread; empty if the kernel does not account for it
    wait_ns: dict[str, int]


def read_page_faults() -> int:
    """Page faults of this process since it began, in a microsecond; 0 on a system that does not
    count them.
    """
    used = _usage()
    return 0 if used is None else _faults(used)


def _usage() -> Any:
    """What the system counts of this process (getrusage(2)); None on a system that does not."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    return resource.getrusage(resource.RUSAGE_SELF)


def _faults(used: Any) -> int:
    return int(used.ru_minflt + used.ru_majflt)


def read_host_use() -> HostUse | None:
    """Read the totals, in some ten microseconds per thread; None on a system without them."""
    used = _usage()
    if used is None:
        return None
    system_ns = round(used.ru_stime * 1e9)
    return HostUse(
        time.process_time_ns(), system_ns, _faults(used), int(used.ru_majflt), read_wait_ns()
    )


def read_wait_ns() -> dict[str, int]:
    """Time of each thread of this process in the run queue, ns; empty if the kernel does not
    account for it.
    """
    waits: dict[str, int] = {}
    # Threads end at any time, and not every kernel has schedstat (proc(5): run time, wait time,
    # slices). Steps are read before and after, so this leaves their caches alone as far as it can:
    # no file objects, no paths.
    with suppress(OSError):
        for task in os.listdir(_TASKS):
            with suppress(OSError, IndexError, ValueError):
                file = os.open(f"{_TASKS}/{task}/schedstat", os.O_RDONLY)
                try:
                    waits[task] = int(os.read(file, _LINE_BYTES).split()[1])
                finally:
                    os.close(file)
    return waits


def host_use_between(before: HostUse | None, after: HostUse | None) -> dict[str, int | None]:
    """Columns of the `steps` table from the totals before and after; threads that ended between
    them are left out.
    """
    if before is None or after is None:
        return {}
    waited = sum(ns - before.wait_ns.get(thread, 0) for thread, ns in after.wait_ns.items())
    return {
        "cpu_time_ns": after.cpu_ns - before.cpu_ns,
        "system_time_ns": after.system_ns - before.system_ns,
        "page_faults": after.page_faults - before.page_faults,
        "major_faults": after.major_faults - before.major_faults,
        "run_queue_wait_ns": waited if after.wait_ns else None,
    }


def wait_until_quiet(longest_s: float = _LONGEST_S) -> bool:
    """Wait until the threads of this process use no CPU, as OpenMP's do that spin; returns whether
    they do.

    GNU's library, which torch's wheels contain, used 8 ms of CPU time after the last product on two
    cores; under OMP_WAIT_POLICY=passive none. Intel's spins for 200 ms (KMP_BLOCKTIME). Under
    OMP_WAIT_POLICY=active both spin until the next operator, so this wait has a limit.
    """
    began_s = time.monotonic()
    while time.monotonic() - began_s < longest_s:
        used_s = time.process_time()
        asleep_s = time.monotonic()
        time.sleep(_QUIET_S)
        used_s = time.process_time() - used_s
        if used_s < _QUIET_SHARE * (time.monotonic() - asleep_s) and not _another_thread_runs():
            return True
    return False


def _another_thread_runs() -> bool:
    """Whether another thread of this process runs or waits for a core: on a busy machine it uses no
    CPU for a while.
    """
    own = str(threading.get_native_id())
    with suppress(OSError):
        for task in os.listdir(_TASKS):
            with suppress(OSError, IndexError):
                state = Path(_TASKS, task, "stat").read_text().rpartition(")")[2].split()[0]
                if task != own and state == "R":
                    return True
    return False
