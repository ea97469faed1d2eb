"""What a step takes of the host: pages touched, CPU time used, and readings that a system does not
give.
"""

import mmap
import time

import pytest

from curvescope.profiling.hardware import host_usage
from curvescope.profiling.hardware.host_usage import HostUse, host_use_between, read_host_use

pytest.importorskip("resource")


def test_fresh_pages_and_cpu_time_are_counted():
    before = read_host_use()
    with mmap.mmap(-1, 8 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
        for place in range(0, len(fresh), mmap.PAGESIZE):
            fresh[place] = 1
        began = time.process_time_ns()
        while time.process_time_ns() < began + 20_000_000:
            pass
        used = host_use_between(before, read_host_use())
    # A system may give pages of 2 MiB at once.
    assert used["page_faults"] >= 4
    assert used["cpu_time_ns"] >= 20_000_000
    assert used["run_queue_wait_ns"] is None or used["run_queue_wait_ns"] >= 0


def test_threads_are_counted_from_their_own_beginning():
    before = HostUse(100, 10, 1, 0, {"1": 50, "2": 70})
    after = HostUse(180, 30, 6, 2, {"1": 55, "3": 9})
    assert host_use_between(before, after) == {
        "cpu_time_ns": 80,
        "system_time_ns": 20,
        "page_faults": 5,
        "major_faults": 2,
        "run_queue_wait_ns": 5 + 9,  # thread 2 has ended, thread 3 has begun
    }


def test_what_the_system_does_not_tell_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(host_usage, "_TASKS", tmp_path / "absent")
    used = host_use_between(read_host_use(), read_host_use())
    assert used["run_queue_wait_ns"] is None
    assert host_use_between(None, None) == {}
