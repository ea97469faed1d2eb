"""The collector in real programs, each run by `curvescope record`, which must find the ranges that
they push.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from curvescope.cli import main
from curvescope.profiling.collect.chunks import EVENT, MARK, POP, PUSH, read_chunks
from curvescope.profiling.collect.inject import FOLDER_VARIABLE
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.collect.nvtx import match_push_pop
from curvescope.profiling.collect.shared_memory import share_memory
from curvescope.profiling.native import library_path
from curvescope.profiling.recording.store import RecordingWriter, open_recording


def record(tmp_path, program, *arguments):
    """Exit code and recording of a Python program."""
    source = tmp_path / "program.py"
    source.write_text(textwrap.dedent(program))
    code = main(
        ["record", "-o", str(tmp_path / "r"), "--", sys.executable, str(source), *arguments]
    )
    return code, open_recording(tmp_path / "r")


FOUR_BY_FOUR = """
    import subprocess, sys, threading, nvtx

    def work(worker):
        for i in range(200):
            with nvtx.annotate(f"outer {worker}", color=0x123456, domain="steps"):
                with nvtx.annotate(f"inner {worker}", domain="steps"):
                    nvtx.mark(f"mark {worker}")
                with nvtx.annotate(f"default {worker}"):
                    pass

    if len(sys.argv) == 1:
        others = [subprocess.Popen([sys.executable, __file__, str(n)]) for n in (1, 2, 3)]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    if len(sys.argv) == 1:
        assert all(other.wait() == 0 for other in others)
"""


def test_four_threads_in_four_processes_give_every_range_with_its_nesting_and_thread(tmp_path):
    code, recording = record(tmp_path, FOUR_BY_FOUR)
    ranges = recording.frame("ranges")
    assert code == 0
    assert recording.meta["lost"] == {}
    assert ranges["process"].nunique() == 4
    threads = ranges.groupby(["process", "thread"])
    assert len(threads) == 16
    for _, of_thread in threads:
        # One worker per thread, so one number in all its names.
        workers = {name.split()[-1] for name in of_thread["name"]}
        assert len(workers) == 1
        (worker,) = workers
        named = {
            kind: of_thread[of_thread["name"] == f"{kind} {worker}"]
            for kind in ("outer", "inner", "default", "mark")
        }
        assert {kind: len(rows) for kind, rows in named.items()} == dict.fromkeys(named, 200)
        start = {kind: rows["start_ns"].to_numpy(np.int64) for kind, rows in named.items()}
        end = {
            kind: start[kind] + rows["duration_ns"].to_numpy(np.int64)
            for kind, rows in named.items()
        }
        for kind in ("inner", "default"):
            assert (start["outer"] <= start[kind]).all()
            assert (end[kind] <= end["outer"]).all()
        assert (start["inner"] <= start["mark"]).all()
        assert (start["mark"] <= end["inner"]).all()
        assert (end["outer"][:-1] <= start["outer"][1:]).all()
        assert set(named["outer"]["domain"]) == {"steps"}
        assert named["default"]["domain"].isna().all()
        assert set(named["outer"]["color_argb"]) == {0x123456}
        assert set(named["mark"]["kind"]) == {"mark"}


def test_times_are_on_the_monotonic_clock_and_threads_are_the_systems(tmp_path):
    before = time.monotonic_ns()
    _, recording = record(
        tmp_path,
        """
        import threading, nvtx
        with nvtx.annotate(str(threading.get_native_id())):
            pass
        """,
    )
    (row,) = recording.arrow("ranges").to_pylist()
    assert row["name"] == str(row["thread"])
    assert before <= row["start_ns"] <= row["start_ns"] + row["duration_ns"] <= time.monotonic_ns()


def test_a_forked_child_records_for_itself_and_what_its_parent_opened_is_the_parents(tmp_path):
    code, recording = record(
        tmp_path,
        """
        import os, sys, nvtx
        with nvtx.annotate("before"):
            pass
        nvtx.push_range("open")
        child = os.fork()
        with nvtx.annotate("child" if child == 0 else "parent"):
            pass
        nvtx.pop_range()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """,
    )
    ranges = recording.frame("ranges")
    by_process = {frozenset(names) for _, names in ranges.groupby("process")["name"]}
    assert code == 0
    assert by_process == {frozenset({"before", "open", "parent"}), frozenset({"child"})}
    assert {name: entry["count"] for name, entry in recording.meta["lost"].items()} == {
        "nvtx_unopened": 1
    }


def test_after_os_exit_what_was_flushed_is_there_and_the_exit_code_is_passed_on(tmp_path):
    code, recording = record(
        tmp_path,
        f"""
        import os, pathlib, nvtx
        for _ in range(100):
            with nvtx.annotate("flushed"):
                pass
        nvtx.push_range("open")
        folder = pathlib.Path(os.environ["{FOLDER_VARIABLE}"])
        while sum(path.stat().st_size for path in folder.glob("*.chunks")) < 201 * {EVENT.itemsize}:
            pass
        os._exit(7)
        """,
    )
    assert code == recording.meta["exit_code"] == 7
    assert list(recording.frame("ranges")["name"]) == ["flushed"] * 100
    assert recording.meta["lost"]["nvtx_unclosed"]["count"] == 1


# Three threads; each counts its complete outer ranges in two words of the file: its id and the
# number.
ENDLESS = """
import mmap, sys, threading, time, nvtx

with open(sys.argv[1], "r+b") as file:
    words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

def work(at):
    words[at] = threading.get_native_id()
    while True:
        with nvtx.annotate("outer"):
            with nvtx.annotate("inner", domain="d"):
                pass
        words[at + 1] += 1

threads = [threading.Thread(target=work, args=(at,)) for at in (0, 2, 4)]
for thread in threads: thread.start()
while not all(words[1::2]): time.sleep(0.001)
print("started", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "runs", [5, pytest.param(30, marks=[pytest.mark.slow, pytest.mark.exhaustive])]
)
def test_killed_at_any_moment_no_range_is_lost(tmp_path, runs):
    # Spread over three cycles of the writer, which flushes every 10 ms; the machine's own load
    # varies them besides.
    for run, moment_s in enumerate(np.arange(runs) * 0.03 / runs):
        chunks = tmp_path / f"chunks{run}"
        chunks.mkdir()
        counted = tmp_path / "counted"
        counted.write_bytes(bytes(48))
        environment = {
            **os.environ,
            "NVTX_INJECTION64_PATH": str(library_path()),
            FOLDER_VARIABLE: str(chunks),
        }
        command = [sys.executable, "-c", ENDLESS, str(counted)]
        with share_memory(chunks):
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
                process.stdout.readline()
                time.sleep(moment_s)
                before = [read_chunks(path) for path in chunks.glob("*.chunks")]
                process.send_signal(signal.SIGKILL)
            with RecordingWriter(tmp_path / f"r{run}", {}) as writer:
                merge_chunks(chunks, writer)
        (after,) = (read_chunks(path) for path in chunks.glob("*.chunks"))
        for earlier in before:
            assert after.names[: len(earlier.names)] == earlier.names
            for thread, events in earlier.threads.items():
                assert (after.threads[thread][: len(events)] == events).all()
        recording = open_recording(tmp_path / f"r{run}")
        lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
        # the latter on a busy machine
        unclosed, dropped = (
            lost.pop("nvtx_unclosed", 0),
            lost.pop("nvtx_dropped", 0),
        )
        assert lost == {}
        ranges = recording.frame("ranges")
        words = np.frombuffer(counted.read_bytes(), "<u8").tolist()
        # Each thread may have begun two ranges, or ended both, that it has not counted.
        assert 0 <= len(ranges) + unclosed + dropped - 2 * sum(words[1::2]) <= 6
        outer = ranges[ranges["name"] == "outer"].groupby("thread").size()
        for thread, count in zip(words[::2], words[1::2], strict=True):
            assert count > 0
            assert dropped or outer.get(thread, 0) - count in (0, 1)


@pytest.mark.slow
def test_a_file_cut_anywhere_gives_the_chunks_before_the_cut(tmp_path):
    (tmp_path / "c").mkdir()
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import nvtx\nfor i in range(5):\n with nvtx.annotate(str(i)): pass",
        ],
        env={
            **os.environ,
            "NVTX_INJECTION64_PATH": str(library_path()),
            FOLDER_VARIABLE: str(tmp_path / "c"),
        },
        check=True,
    )
    (path,) = (tmp_path / "c").glob("*.chunks")
    whole = path.read_bytes()
    (events,) = read_chunks(path).threads.values()
    assert len(events) == 10
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        cut = read_chunks(path)
        assert 0 <= cut.torn_bytes <= size
        for piece in cut.threads.values():
            assert (piece == events[: len(piece)]).all()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_chunks(path).torn_bytes > 0


def test_start_end_ranges_cross_threads_and_carry_category_payload_and_color(tmp_path):
    _, recording = record(
        tmp_path,
        """
        import threading, nvtx
        first = nvtx.start_range("first", color=0xFF0000, domain="d", category="io", payload=7)
        second = nvtx.start_range("second")
        ending = threading.Thread(target=nvtx.end_range, args=(first,))
        ending.start()
        ending.join()
        nvtx.end_range(second)
        nvtx.start_range("never ended")
        with nvtx.annotate("pushed", category="io", domain="d", payload=2.5): pass
        nvtx.mark("marked", category=12, payload=-3)
        print(threading.get_native_id(), file=open(__file__ + ".thread", "w"))
        """,
    )
    rows = {row["name"]: row for row in recording.arrow("ranges").to_pylist()}
    main_thread = int((tmp_path / "program.py.thread").read_text())
    first = rows["first"]
    assert {row["thread"] for row in rows.values()} == {main_thread}
    assert (first["kind"], first["domain"], first["category"], first["payload"]) == (
        "start_end",
        "d",
        "io",
        "7",
    )
    assert first["start_ns"] < rows["second"]["start_ns"] < first["start_ns"] + first["duration_ns"]
    assert (rows["second"]["category"], rows["second"]["payload"]) == (None, None)
    assert (rows["pushed"]["category"], rows["pushed"]["payload"]) == ("io", "2.5")
    assert (rows["marked"]["category"], rows["marked"]["payload"]) == ("12", "-3")
    assert set(rows) == {"first", "second", "pushed", "marked"}
    assert recording.meta["lost"]["nvtx_unclosed"]["count"] == 1


def test_matching_keeps_one_stack_per_domain_and_leaves_out_what_is_open():
    # (kind, domain): a( b[ a( b] a) a), then one open push in each.
    steps = [
        (PUSH, 0),
        (PUSH, 7),
        (PUSH, 0),
        (MARK, 0),
        (POP, 7),
        (POP, 0),
        (POP, 0),
        (PUSH, 0),
        (PUSH, 7),
    ]
    events = np.zeros(len(steps), EVENT)
    events["kind"], events["domain"] = zip(*steps, strict=True)
    begins, ends = match_push_pop(events)
    assert sorted(zip(begins.tolist(), ends.tolist(), strict=True)) == [(0, 6), (1, 4), (2, 5)]
    begins, ends = match_push_pop(events[:0])
    assert len(begins) == len(ends) == 0


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_whole(tmp_path):
    program = tmp_path / "p.py"
    program.write_text(
        "import nvtx, os, pathlib, sys, time\n"
        "with nvtx.annotate('kept'): pass\n"
        "folder = pathlib.Path(os.environ['CURVESCOPE_CHUNK_FOLDER'])\n"
        "while not any(b'kept' in chunks.read_bytes() for chunks in folder.glob('*.chunks')): "
        "time.sleep(0.001)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    record_it = [sys.executable, "-m", "curvescope.cli", "record", "-o", str(tmp_path / "r"), "--"]
    with subprocess.Popen(
        [*record_it, sys.executable, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 130
    recording = open_recording(tmp_path / "r")
    assert recording.meta["status"] == "interrupted"
    assert list(recording.frame("ranges")["name"]) == ["kept"]


@pytest.mark.parametrize(
    ("command", "words"),
    [(["--", "no-such-program"], "check its spelling"), ([], "Write the command to run")],
)
def test_a_command_that_cannot_run_is_refused_in_words_and_leaves_nothing(
    tmp_path, refusal_of, command, words
):
    assert words in refusal_of("record", "-o", tmp_path / "r", *command)
    assert not (tmp_path / "r").exists()
