"""What a step took of the host: CPU time, time in the system, page faults, and time spent waiting for a core."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class HostUse:
    """Totals of this process since it began.

    Attributes:
        cpu_ns: CPU time of all its threads, user and system.
        system_ns: of it in the system; the kernel samples that, so a single short step tells little.
        page_faults: pages that it had to be given.
        wait_ns: by thread, how long it was ready to run and had no core; empty where the kernel does not tell.
    """

    cpu_ns: int
    system_ns: int
    page_faults: int
    wait_ns: dict[str, int]


def read_host_use() -> HostUse | None:
    """The totals now; null on a system that does not keep them. Some ten microseconds per thread."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    faults = used.ru_minflt + used.ru_majflt
    return HostUse(time.process_time_ns(), round(used.ru_stime * 1e9), faults, read_wait_ns())


def read_wait_ns() -> dict[str, int]:
    """Nanoseconds that each thread of this process was ready to run and had no core; empty if the kernel keeps none."""
    waits: dict[str, int] = {}
    # Threads come and go, and not every kernel keeps the account (proc(5), schedstat: run, waited, slices).
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, IndexError, ValueError):
                waits[task.name] = int((task / "schedstat").read_text().split()[1])
    return waits


def host_use_between(before: HostUse | None, after: HostUse | None) -> dict[str, int | None]:
    """Columns of the `steps` table, from totals at its ends; a thread that ended between them is left out."""
    if before is None or after is None:
        return {}
    waited = sum(ns - before.wait_ns.get(thread, 0) for thread, ns in after.wait_ns.items())
    return {
        "cpu_time_ns": after.cpu_ns - before.cpu_ns,
        "system_time_ns": after.system_ns - before.system_ns,
        "page_faults": after.page_faults - before.page_faults,
        "run_queue_wait_ns": waited if after.wait_ns else None,
    }
