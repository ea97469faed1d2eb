"""Functions of a running program by a sampler: its files, the recording that gets them, and the
gaps that they name.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from curvescope.analysis.diagnosis.suggested import advise
from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.base.programs import find_program
from curvescope.profiling.attribution.sampled_stacks import list_calls, own_times, tabulate
from curvescope.profiling.collect import sampled_functions
from curvescope.profiling.collect.attach import attach, find_chunk_folder
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.collect.sampled_functions import (
    Sampler,
    choose_sampler,
    read_firefox,
    read_py_spy,
    sample_functions,
    wait_for_samplers,
    write_samples,
)
from curvescope.profiling.recording.schema import SAMPLED
from curvescope.profiling.recording.store import RecordingWriter, open_recording

MS = 1_000_000


def py_spy_event(phase, name, time_us, line=7, thread=0):
    place = {"filename": "/home/me/data.py", "line": line}
    event = {"args": place, "cat": "py-spy", "name": name, "ph": phase, "pid": 42, "tid": thread}
    return {**event, "ts": time_us}


# `main` calls `load` twice; py-spy writes the moment of its file's creation as the last end.
PY_SPY = [
    {**py_spy_event("M", "thread_name", 0), "args": {"filename": "", "line": None, "name": "42"}},
    py_spy_event("B", "main", 1_000, line=1),
    py_spy_event("B", "load", 1_000),
    py_spy_event("E", "load", 3_000),
    py_spy_event("B", "load", 6_000),
    py_spy_event("E", "load", 9_000),
    py_spy_event("E", "main", 9_000, line=1),
]


def test_a_trace_of_py_spy_ends_when_its_file_was_created():
    (changes,) = read_py_spy(json.dumps(PY_SPY).encode(), created_ns=1_009 * MS)
    assert list_calls(changes) == [
        ("data.py(1): main", 1_001 * MS, 1_009 * MS),
        ("data.py(7): load", 1_001 * MS, 1_003 * MS),
        ("data.py(7): load", 1_006 * MS, 1_009 * MS),
    ]


def firefox_profile(start_ms, samples):
    """A profile as `profiling.sampling --gecko` writes it; samples are ms and the name of the
    function inside `main`, or None.
    """
    texts = ["(root)", "main", "load", "data.py"]
    thread = {
        "name": "Thread-42",
        "samples": {"stack": [], "time": [], "length": len(samples)},
        "stackTable": {"frame": [0, 1], "prefix": [None, 0], "category": [1, 1]},
        "frameTable": {"func": [0, 1], "line": [1, 8]},
        "funcTable": {"name": [1, 2], "fileName": [3, 3], "lineNumber": [1, 7]},
    }
    for time_ms, function in samples:
        thread["samples"]["time"].append(time_ms)
        thread["samples"]["stack"].append({None: 0, "load": 1}[function])
    meta = {"startTime": start_ms, "interval": 1.0, "importedFrom": "Tachyon Sampling Profiler"}
    return {"meta": meta, "threads": [thread], "shared": {"stringArray": texts}}


def test_a_profile_of_pythons_own_sampler_has_the_clock_of_recordings():
    profile = firefox_profile(1_000, [(0.0, None), (1.0, "load"), (2.0, "load"), (3.0, None)])
    (changes,) = read_firefox(json.dumps(profile).encode(), created_ns=0)
    assert list_calls(changes) == [
        ("data.py(1): main", 1_000 * MS, 1_003 * MS),
        ("data.py(7): load", 1_001 * MS, 1_003 * MS),
    ]


def test_of_calls_that_begin_and_end_together_the_outer_one_comes_first():
    changes = [(0, ("main", "load")), (5, ())]
    assert list_calls(changes) == [("main", 0, 5), ("load", 0, 5)]
    (own,) = own_times(tabulate(list_calls(changes), 42)).to_pylist()
    assert (own["name"], own["start_ns"], own["end_ns"]) == ("load", 0, 5)


def test_python_3_15_samples_by_itself_and_an_older_one_by_py_spy(monkeypatch, tmp_path):
    monkeypatch.setattr(sampled_functions, "_OWN_SAMPLER", (3, 0))
    command = choose_sampler().command(42, 10, 500, Path("f"))
    assert command[:5] == [sys.executable, "-I", "-m", "profiling.sampling", "attach"]
    assert command[5:] == ["--gecko", "-d", "10", "-r", "500", "-o", "f", "42"]
    monkeypatch.setattr(sampled_functions, "_OWN_SAMPLER", (99, 0))
    py_spy = tmp_path / "py-spy"
    py_spy.write_text("#!/bin/sh\n")
    py_spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = choose_sampler().command(42, 10, 500, Path("f"))
    assert command[:2] == [str(py_spy), "record"]
    assert {"--idle", "chrometrace", "42", "500"} < set(command)


def test_without_a_sampler_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sampled_functions, "_OWN_SAMPLER", (99, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sampled_functions.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(BackendMissingError, match=r"curvescope\[attach\]"):
        choose_sampler()


def note_steps(folder, *moments_ms, process=42):
    """The marks of steps of a program of JAX."""
    about = {"version": 1, "process": process, "thread": process, "source": "calls of a function"}
    lines = [json.dumps(about), *(str(moment * MS) for moment in moments_ms), ""]
    (folder / f"{process}.marks").write_text("\n".join(lines))


def test_functions_are_the_work_of_a_step_where_nothing_else_is_recorded(tmp_path):
    note_steps(tmp_path, 0, 100, 200, 300, 400)  # the last two were not sampled
    loads = [("data.py(7): load", start * MS, (start + 60) * MS) for start in (10, 110)]
    write_samples(tmp_path, 42, [("train.py(1): module", 0, 200 * MS), *loads])
    with RecordingWriter(tmp_path / "r", {"recorder": "cupti", "device": None}) as writer:
        merge_chunks(tmp_path, writer, ends=[])
    recording = open_recording(tmp_path / "r")
    assert recording.work == "operator"
    assert recording.count_rows("functions") == 3
    advice = advise(recording, {})
    times = {row.label: row.time_ms for row in advice.breakdown.rows}
    assert times["data.py(7): load"] == pytest.approx(60)
    assert times["train.py(1): module"] == pytest.approx(40)


def test_without_functions_a_program_of_no_kernel_is_told_to_attach(tmp_path):
    note_steps(tmp_path, 0, 100, 200)
    with RecordingWriter(tmp_path / "r", {"recorder": "cupti", "device": None}) as writer:
        merge_chunks(tmp_path, writer, ends=[])
    with pytest.raises(CurvescopeError, match="curvescope attach PID") as refusal:
        advise(open_recording(tmp_path / "r"), {})
    assert "longest ranges" not in str(refusal.value)


def test_a_gap_of_a_recorded_program_names_the_function_around_it(tmp_path):
    """A kernel runs 20 of each 100 ms, and `load` the 60 before it."""
    steps, kernels, functions = [], [], []
    for step in range(6):
        begin = 100 * step * MS
        steps.append({"step": step, "round": 0, "index": step, "profiled": True, "start_ns": begin})
        kernels.append({"name": "gemm", "start_ns": begin + 70 * MS, "duration_ns": 20 * MS})
        kernels[-1] |= {"step": step, "process": 42, "device": 0, "stream": 7, "source": "cupti"}
        functions.append({"name": "data.py(7): load", "start_ns": begin + 5 * MS})
        functions[-1] |= {"duration_ns": 60 * MS, "process": 42, "thread": 42, "source": SAMPLED}
    for row in steps:
        row |= {"duration_ns": 100 * MS, "mode": "training"}
    with RecordingWriter(tmp_path / "r", {"recorder": "cupti", "device": None}) as writer:
        for table, rows in (("steps", steps), ("kernels", kernels), ("functions", functions)):
            writer.write(table, pa.Table.from_pylist(rows))
    advice = advise(open_recording(tmp_path / "r"), {})
    idle = {time.reason: time.time_ms for time in advice.step.idle}
    assert idle["host in function data.py(7): load"] == pytest.approx(70)
    (gap,) = [each.suggestion for each in advice.advised if each.suggestion.where]
    assert gap.where == "data.py(7): load"


def test_a_damaged_file_of_samples_is_counted(tmp_path):
    (tmp_path / "42-0.functions").write_text('{"process": 42, "calls": [["load", 0, "later"]]}')
    with RecordingWriter(tmp_path / "r", {}) as writer:
        merge_chunks(tmp_path, writer, ends=[])
    assert open_recording(tmp_path / "r").meta["lost"]["samples_unreadable"]["count"] == 1


def test_a_recording_waits_for_those_that_sample_its_program_and_for_no_dead_one(
    tmp_path, monkeypatch
):
    naps = []
    monkeypatch.setattr(time, "sleep", lambda s: naps.append(s) or here.unlink())
    here = tmp_path / f"{os.getpid()}.sampling"
    here.touch()
    wait_for_samplers(tmp_path)
    assert len(naps) == 1
    (tmp_path / "4194305.sampling").touch()  # above the largest number of a process
    wait_for_samplers(tmp_path)
    assert len(naps) == 1


def test_what_is_no_number_of_a_process_is_refused(refusal_of):
    assert "`ps` lists them" in refusal_of("attach", "train.py")
    assert "--rate 0" in refusal_of("attach", "1", "--rate", "0")


def test_a_process_that_is_not_there_is_refused():
    with pytest.raises(CurvescopeError, match="`ps` lists the processes"):
        find_chunk_folder(4194305)


# Stands in for `profiling.sampling` of Python 3.15: it says that `load` ran all the time.
STAND_IN = """
import json, sys, time
profile = json.loads(sys.argv[1])
profile["meta"]["startTime"] = 1000 * time.monotonic()
time.sleep(0.3)
open(sys.argv[2], "w").write(json.dumps(profile))
"""
PROGRAM = "import time; print('begun', flush=True); time.sleep({})"


def sample_by_stand_in(process, seconds, per_s, written):
    profile = firefox_profile(0, [(0.0, "load"), (200.0, "load")])
    return [sys.executable, "-c", STAND_IN, json.dumps(profile), str(written)]


@pytest.mark.slow
def test_a_recorded_program_gets_its_functions(tmp_path, monkeypatch):
    """The program ends before the sampler has written what it saw, and the recording waits."""
    stand_in = Sampler("stand-in", sample_by_stand_in, read_firefox)
    monkeypatch.setattr(sampled_functions, "choose_sampler", lambda: stand_in)
    code = "from curvescope.cli import main; main()"
    words = ["record", "-o", str(tmp_path / "r"), "--", sys.executable, "-c", PROGRAM.format(0.5)]
    recorder = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    recorder.stdout.readline()
    (child,) = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()[-1:]
    done = attach(int(child), 1, 100)
    recorder.communicate()
    assert (done.path, done.is_finished) == (tmp_path / "r", False)
    names = open_recording(tmp_path / "r").arrow("functions")["name"].to_pylist()
    assert sorted(names) == ["data.py(1): main", "data.py(7): load"]


@pytest.mark.slow
def test_a_program_that_is_not_recorded_gets_a_recording_of_its_functions(tmp_path, monkeypatch):
    stand_in = Sampler("stand-in", sample_by_stand_in, read_firefox)
    monkeypatch.setattr(sampled_functions, "choose_sampler", lambda: stand_in)
    program = subprocess.Popen([sys.executable, "-c", PROGRAM.format(60)], stdout=subprocess.PIPE)
    try:
        program.stdout.readline()
        done = attach(program.pid, 1, 100, tmp_path / "r")
    finally:
        program.terminate()
        program.communicate()
    assert (done.path, done.calls, done.is_finished) == (tmp_path / "r", 2, True)
    recording = open_recording(tmp_path / "r")
    assert recording.meta["argv"][1] == "-c"
    advice = advise(recording, {})
    assert advice.breakdown.unit == "recording"
    assert [row.label for row in advice.breakdown.groups] == ["data.py(7): load"]


@pytest.mark.slow
@pytest.mark.skipif(find_program("py-spy") is None, reason="py-spy is not installed")
def test_py_spy_sees_the_functions_of_a_program_when_they_run(tmp_path):
    """The program prints when each of its naps begins and ends, on the clock of recordings."""
    script = tmp_path / "naps.py"
    script.write_text(
        "import time\n\n\ndef nap():\n    begin = time.monotonic_ns()\n    time.sleep(0.1)\n"
        "    print(begin, time.monotonic_ns(), flush=True)\n\n\n"
        "while True:\n    nap()\n    end = time.monotonic() + 0.1\n"
        "    while time.monotonic() < end:\n        pass\n"
    )
    program = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    try:
        program.stdout.readline()
        calls = sample_functions(program.pid, 2, 200)
    finally:
        program.terminate()
        printed = program.communicate()[0]
    naps = [tuple(map(int, line.split())) for line in printed.splitlines()]
    seen = [(start, end) for name, start, end in calls if name == "naps.py(4): nap"]
    near = 0
    for begin, end in naps:
        near += any(abs(a - begin) < 20 * MS and abs(b - end) < 20 * MS for a, b in seen)
    assert near >= len(naps) / 2
    assert near >= 3
