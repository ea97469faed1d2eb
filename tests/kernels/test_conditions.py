"""Disturbances, from counters by hand."""

import os

from curvescope.kernels import conditions as module
from curvescope.kernels.conditions import (
    Conditions,
    CpuWatch,
    Snapshot,
    describe_disturbance,
    read_snapshot,
)
from curvescope.profiling.hardware import host_usage


def conditions(**changes):
    quiet = {
        "start_ns": 0,
        "wall_ns": 10**9,
        "waiting_share": 0.0,
        "others_share": 0.0,
        "clock_hz": 2 * 10**9,
    }
    return Conditions(**{**quiet, **changes})


def test_shares_by_hand(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    start = Snapshot(0, 5_000, 1_000, 50_000)
    # 1 s: threads waited 0.2 s; everybody used 3 s of 4 processor seconds, 1 s of it this process.
    end = Snapshot(10**9, 200_005_000, 10**9 + 1_000, 3 * 10**9 + 50_000)
    snapshots = iter([start, start, end])
    watch = CpuWatch(lambda: next(snapshots), lambda: 3 * 10**9)
    watch.begin()
    assert watch.end() == Conditions(0, 10**9, 0.2, 0.5, 3 * 10**9)


def test_what_the_system_does_not_report_is_none_and_no_disturbance():
    snapshots = iter([Snapshot(0, None, 0, None)] * 2 + [Snapshot(10**9, None, 10, None)])
    watch = CpuWatch(lambda: next(snapshots), lambda: None)
    watch.begin()
    found = watch.end()
    assert (found.waiting_share, found.others_share, found.clock_hz) == (None, None, None)
    assert describe_disturbance([found]) == []


def test_a_quiet_machine_gives_no_note_and_each_disturbance_gives_its_own():
    assert describe_disturbance([conditions(), conditions(waiting_share=0.01)]) == []
    assert describe_disturbance([]) == []
    kinds = {
        "waiting": conditions(waiting_share=0.5),
        "others": conditions(others_share=0.5),
        "clock": conditions(clock_hz=10**9),
        "throttled": conditions(throttle_reasons=("hw_slowdown",)),
    }
    for kind, stretch in kinds.items():
        assert [note.kind for note in describe_disturbance([conditions(), stretch])] == [kind]


def test_shares_are_weighted_by_time():
    short = conditions(waiting_share=1.0, wall_ns=10**7)
    assert describe_disturbance([conditions(), short]) == []  # 1 % of the whole


def test_counters_of_the_system_are_read_in_their_units(monkeypatch, tmp_path):
    """Two threads waited 3 and 4 ns; everybody used 60 of 100 ticks, the rest was idle or waited
    for a disk.
    """
    tasks = tmp_path / "proc" / "self" / "task"
    for thread, waited in (("1", 3), ("2", 4)):
        (tasks / thread).mkdir(parents=True)
        (tasks / thread / "schedstat").write_text(f"1000 {waited} 5\n")
    (tmp_path / "proc" / "stat").write_text("cpu  10 20 15 30 10 5 6 4 99 99\ncpu0 1 1 1 1\n")
    monkeypatch.setattr(host_usage, "_TASKS", tasks)
    monkeypatch.setattr(module, "Path", lambda path: tmp_path / path.removeprefix("/"))
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_CLK_TCK": 100}[name])
    found = read_snapshot()
    assert (found.waiting_ns, found.busy_ns) == (7, 60 * 10_000_000)
    assert found.own_ns > 0
