"""Lists of events of PyTorch's profiler before Kineto."""

import json

import pytest

from curvescope.base.errors import CurvescopeError

from .made_profiles import lost, of_text


def event(name, start_us, end_us, lane=1, pid="CPU functions"):
    return {
        "name": name,
        "ph": "X",
        "ts": start_us,
        "dur": end_us - start_us,
        "tid": lane,
        "pid": pid,
        "args": {},
    }


def arrow(name, number, call_us, work_us, thread=1, device=0):
    """The two ends of an arrow from an operator to its work."""
    begin = {
        "name": name,
        "ph": "s",
        "ts": call_us,
        "tid": thread,
        "pid": "CPU functions",
        "id": number,
    }
    end = {
        "name": name,
        "ph": "f",
        "ts": work_us,
        "tid": device,
        "pid": "CUDA functions",
        "id": number,
    }
    return [{**one, "cat": "cpu_to_cuda", "args": {}} for one in (begin, end)]


ON_HOST = [
    event("aten::linear", 10, 50.5),
    event("aten::addmm", 20, 40.25),
    event("aten::relu", 60, 70),
]
# Every operator has work on the device, within that of the operator which calls it.
ON_DEVICE = [
    *ON_HOST,
    *arrow("aten::linear", 0, 10, 100),
    event("aten::linear", 100, 150, 0, "CUDA functions"),
    *arrow("aten::addmm", 1, 20, 110),
    event("aten::addmm", 110, 140, 0, "CUDA functions"),
    *arrow("aten::relu", 2, 60, 160),
    event("aten::relu", 160, 170, 0, "CUDA functions"),
]


def read(events, folder):
    return of_text(json.dumps(events), folder)


def own_times(recording):
    times = {}
    for row in recording.arrow("kernels").to_pylist():
        times[row["name"], row["op"]] = times.get((row["name"], row["op"]), 0) + row["duration_ns"]
    return times


def test_own_time_of_operators_on_the_host(tmp_path):
    recording = read(ON_HOST, tmp_path)
    linear, addmm, relu = 40_500 - 20_250, 20_250, 10_000
    assert own_times(recording) == {
        ("aten::linear", "aten::linear"): linear,
        ("aten::addmm", "aten::linear"): addmm,
        ("aten::relu", "aten::relu"): relu,
    }
    assert {row["device"] for row in recording.arrow("kernels").to_pylist()} == {None}
    assert lost(recording) == {}


def test_work_of_the_device_belongs_to_its_operator_and_counts_once(tmp_path):
    recording = read(ON_DEVICE, tmp_path)
    kernels = recording.arrow("kernels").to_pylist()
    assert sum(row["duration_ns"] for row in kernels) == 60_000
    assert own_times(recording) == {
        ("aten::linear", "aten::linear"): 20_000,
        ("aten::addmm", "aten::linear"): 30_000,
        ("aten::relu", "aten::relu"): 10_000,
    }
    assert {(row["device"], row["stream"]) for row in kernels} == {(0, 0)}


def test_marks_of_the_program_are_steps(tmp_path):
    marks = [event(f"step {number}", 100 * number, 100 * number + 90) for number in range(3)]
    work = [event("aten::mm", 100 * number + 10, 100 * number + 50) for number in range(3)]
    recording = read([one for pair in zip(marks, work, strict=True) for one in pair], tmp_path)
    assert recording.count_rows("steps") == 3
    assert own_times(recording) == {("aten::mm", "aten::mm"): 120_000}


def test_unreadable_events_are_counted_and_a_list_without_operators_is_refused(tmp_path):
    broken = [{**ON_HOST[0], "ts": "x"}, {**ON_HOST[0], "tid": " node_id:1, thread_id:1 "}]
    assert lost(read([*ON_HOST, *broken], tmp_path)) == {"events_unreadable": 2}
    with pytest.raises(CurvescopeError, match="no operator of PyTorch's autograd profiler"):
        read([event("x", 1, 2, pid="CUDA functions")], tmp_path)
