"""Processes that end without a word: what they recorded is drained, and no recording that lost
anything is complete.

Each program begins a known number of ranges; those in the recording and those counted as lost must
be that many.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap
from collections import Counter

import pytest

from curvescope.cli import main
from curvescope.profiling.collect.chunks import read_chunks
from curvescope.profiling.collect.inject import FOLDER_VARIABLE, NVTX_VARIABLE
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.collect.shared_memory import NAME, drain_processes, share_memory
from curvescope.profiling.native import library_path
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from .doubles import COMPILER


def record(tmp_path, program):
    """The recording of a Python program and what it lost, by name."""
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    assert (
        main(
            [
                "record",
                "-o",
                str(tmp_path / "r"),
                "--",
                sys.executable,
                str(tmp_path / "program.py"),
            ]
        )
        == 0
    )
    recording = open_recording(tmp_path / "r")
    return recording, {name: entry["count"] for name, entry in recording.meta["lost"].items()}


RANGES = """
    import multiprocessing, os, signal, sys, nvtx

    def work(end):
        for _ in range(500):
            with nvtx.annotate("r"):
                pass
        end()

    def run(end, children, wanted):
        fork = multiprocessing.get_context("fork")
        started = [fork.Process(target=work, args=(end,)) for _ in range(children)]
        for child in started: child.start()
        for child in started: child.join()
        assert [child.exitcode for child in started] == [wanted] * children, started
"""
ENDINGS = {
    "os._exit in four children": "run(lambda: os._exit(0), 4, 0)",
    "the end of a child of multiprocessing": "run(lambda: None, 1, 0)",
    "a kill": "run(lambda: os.kill(os.getpid(), signal.SIGKILL), 1, -signal.SIGKILL)",
    "exec of a program that records nothing": 'run(lambda: os.execv("/bin/true", ["true"]), 1, 0)',
}


@pytest.mark.first_rows(2)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_range_is_recorded_however_its_process_ends(tmp_path, ending):
    program = textwrap.dedent(RANGES) + f"work(lambda: None)\n{ENDINGS[ending]}\n"
    recording, lost = record(tmp_path, program)
    children = 4 if "four" in ending else 1
    assert (recording.count_rows("ranges"), lost) == (500 * (children + 1), {})
    assert recording.meta["status"] == "complete"
    ended = Counter(one["ended"].split(":")[0] for one in recording.meta["collectors"])
    assert ended == {"exit": 1, "without exit handlers": children}


SLOW_DISK = """
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

/* The writer's thread waits for the disk for as long as its process lives. */
typedef ssize_t (*Writev)(int, const struct iovec *, int);

ssize_t writev(int file, const struct iovec *parts, int count) {
  while (gettid() != getpid()) pause();
  return ((Writev)dlsym(RTLD_NEXT, "writev"))(file, parts, count);
}
"""


@pytest.mark.slow
def test_a_program_that_ends_while_the_disk_is_slow_ended_by_exit(tmp_path, monkeypatch):
    """Its exit waits for the writer no longer than 2 s, and the rest is read from its memory."""
    if shutil.which(COMPILER) is None:
        pytest.skip("no compiler for a slow disk")
    build = [COMPILER, "-D_GNU_SOURCE", "-shared", "-fPIC", "-x", "c", "-", "-o"]
    library = tmp_path / "slow_disk.so"
    subprocess.run([*build, str(library), "-ldl"], check=True, input=SLOW_DISK, text=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    recording, lost = record(
        tmp_path,
        """
        import nvtx
        for _ in range(12_000):  # the ring is half full: its writer begins
            nvtx.mark("m")
        """,
    )
    (collector,) = recording.meta["collectors"]
    assert collector["ended"].startswith("exit, while it still wrote to the disk")
    assert (recording.count_rows("ranges"), lost) == (12_000, {})
    assert recording.meta["status"] == "complete"


def test_what_the_file_lacks_was_lost_to_the_last_range(tmp_path):
    """A process that ended well, whose file is cut as if the rest had not been written."""
    program = "import nvtx\nfor _ in range(500):\n    with nvtx.annotate('r'): nvtx.mark('m')\n"
    chunks = tmp_path / "chunks"
    chunks.mkdir()
    environment = {**os.environ, NVTX_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(chunks)}
    with share_memory(chunks):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        (path,) = chunks.glob("*.chunks")
        for size in (path.stat().st_size, path.stat().st_size - 1, 0):
            os.truncate(path, size)
            with RecordingWriter(tmp_path / f"r{size}", {}) as writer:
                merge_chunks(chunks, writer)
            recording = open_recording(tmp_path / f"r{size}")
            lost = recording.meta["lost"].get("nvtx_unsaved", {"count": 0})["count"]
            unclosed = recording.meta["lost"].get("nvtx_unclosed", {"count": 0})["count"]
            assert recording.count_rows("ranges") + unclosed + lost == 1000
            assert (lost == 0) == (recording.meta["status"] == "complete")
    assert lost == 1000


@pytest.mark.slow
def test_exec_of_a_program_that_records_too_keeps_the_counts_of_both(tmp_path):
    recording, lost = record(
        tmp_path,
        """
        import os, sys, nvtx
        for _ in range(500):
            with nvtx.annotate("r"):
                pass
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        """,
    )
    assert (recording.count_rows("ranges"), lost) == (1000, {})
    first, second = recording.meta["collectors"]
    assert first["process"] == second["process"]
    assert (first["ended"], second["ended"]) == ("exec of another program", "exit")


@pytest.mark.slow
def test_names_ranges_and_numbers_of_nested_forks_and_their_threads_are_drained(tmp_path):
    """Each level registers a name, a category and a thread name after its fork, uses those before
    it, and is killed.
    """
    recording, lost = record(
        tmp_path,
        """
        import os, signal, threading, nvtx

        def work(level):
            with nvtx.annotate(f"level {level}", domain="d", category=f"category {level}"):
                with nvtx.annotate("common"):
                    pass

        def go_on(level):
            work(level)
            one = threading.Thread(target=work, args=(f"{level} thread",))
            one.start()
            one.join()
            if level < 3 and os.fork() == 0:
                go_on(level + 1)
            if level < 3:
                os.wait()
            if level > 0:
                os.kill(os.getpid(), signal.SIGKILL)

        go_on(0)
        """,
    )
    ranges = recording.frame("ranges")
    levels = [f"{level}{thread}" for level in range(4) for thread in ("", " thread")]
    assert sorted(ranges["name"]) == sorted(["common"] * 8 + [f"level {level}" for level in levels])
    named = ranges[ranges["name"] != "common"]
    assert list(named["category"]) == [name.replace("level", "category") for name in named["name"]]
    assert set(named["domain"]) == {"d"}
    assert ranges["process"].nunique() == 4
    assert (lost, recording.meta["status"]) == ({}, "complete")


@pytest.mark.slow
def test_a_child_made_without_the_handlers_of_fork_leaves_its_parent_s_ranges_whole(tmp_path):
    recording, lost = record(
        tmp_path,
        """
        import ctypes, os, platform, nvtx
        with nvtx.annotate("before"):
            pass
        fork = {"x86_64": 57, "aarch64": 220}[platform.machine()]  # of aarch64: clone
        child = ctypes.CDLL(None).syscall(fork, 17, 0, 0, 0, 0)  # 17 is SIGCHLD
        for _ in range(100):
            with nvtx.annotate("child" if child == 0 else "parent"):
                pass
        os._exit(0) if child == 0 else os.waitpid(child, 0)
        """,
    )
    assert list(recording.frame("ranges")["name"]) == ["before"] + ["parent"] * 100
    assert lost == {}


@pytest.mark.slow
def test_a_process_that_still_runs_gives_what_it_has_and_writes_no_more(tmp_path):
    """A child that outlives the command; it ends once its standard input, which this test holds, is
    closed.
    """
    child = (
        "import nvtx, sys\n"
        "for _ in range(500):\n"
        "    with nvtx.annotate('r'): pass\n"
        "nvtx.push_range('open')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "for _ in range(500): nvtx.mark('late')\n"
    )
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
    )
    command = [
        sys.executable,
        "-m",
        "curvescope.cli",
        "record",
        "-o",
        str(tmp_path / "r"),
        "--",
        sys.executable,
        "-c",
    ]
    with subprocess.Popen([*command, program], stdin=subprocess.PIPE) as process:
        assert process.wait() == 0
    recording = open_recording(tmp_path / "r")
    (one,) = recording.meta["collectors"]
    assert one["ended"].startswith("not yet")
    assert list(recording.frame("ranges")["name"]) == ["r"] * 500
    assert recording.meta["lost"]["nvtx_unclosed"]["count"] == 1
    assert recording.meta["lost"]["processes_outlived"]["count"] == 1
    assert recording.meta["status"] == "incomplete"


@pytest.mark.slow
def test_a_child_that_ends_a_little_later_than_the_command_loses_nothing(tmp_path):
    recording, lost = record(
        tmp_path,
        """
        import os, time, nvtx
        if os.fork() == 0:
            for _ in range(500):
                with nvtx.annotate("early"):
                    pass
            time.sleep(0.1)
            for _ in range(5):
                with nvtx.annotate("late"):
                    pass
            os._exit(0)
        time.sleep(0.05)
        """,
    )
    assert Counter(recording.frame("ranges")["name"]) == {"early": 500, "late": 5}
    assert (lost, recording.meta["status"]) == ({}, "complete")


@pytest.mark.slow
def test_of_a_daemon_the_recording_says_that_it_is_incomplete(tmp_path):
    recording, lost = record(
        tmp_path,
        """
        import os, time, nvtx
        if os.fork() == 0:
            os.setsid()
            for _ in range(20):
                with nvtx.annotate("daemon"):
                    time.sleep(0.2)
            os._exit(0)
        with nvtx.annotate("main"):
            time.sleep(0.05)
        """,
    )
    assert lost["processes_outlived"] == 1
    assert recording.meta["status"] == "incomplete"


@pytest.mark.slow
def test_without_shared_memory_ranges_are_recorded_from_private_memory_and_that_is_said(tmp_path):
    recording, lost = record(
        tmp_path,
        f"""
        import os, nvtx
        os.unlink(os.path.join(os.environ["{FOLDER_VARIABLE}"], "memory"))
        for _ in range(500):
            with nvtx.annotate("r"):
                pass
        """,
    )
    assert recording.count_rows("ranges") == 500
    assert (set(lost), recording.meta["status"]) == ({"memory_not_shared"}, "complete")


@pytest.mark.slow
def test_memory_of_ended_processes_is_freed_before_the_command_ends(tmp_path):
    environment = {**os.environ, NVTX_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(tmp_path)}
    program = "import nvtx, os\nfor _ in range(9): nvtx.mark('m')\nos._exit(0)"
    with share_memory(tmp_path):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        held = os.stat(tmp_path / NAME).st_blocks * 512
        (end,) = drain_processes(tmp_path, only_ended=True)
        assert os.stat(tmp_path / NAME).st_blocks * 512 < 10_000 < 500_000 < held
        assert drain_processes(tmp_path) == [end]
        (path,) = tmp_path.glob("*.chunks")
        assert (end.begun, read_chunks(path).begun) == (9, 9)
    assert not (tmp_path / NAME).is_symlink()


@pytest.mark.slow
def test_a_full_disk_leaves_the_memory_to_the_next_drain(tmp_path):
    environment = {**os.environ, NVTX_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(tmp_path)}
    program = "import nvtx, os\nfor _ in range(9): nvtx.mark('m')\nos._exit(0)"
    with share_memory(tmp_path):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            (end,) = drain_processes(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert drain_processes(tmp_path) == [end]
        (path,) = tmp_path.glob("*.chunks")
        assert (end.begun, read_chunks(path).begun, read_chunks(path).torn_bytes) == (9, 9, 0)


@pytest.mark.slow
def test_memory_that_a_crashing_process_wrote_over_is_drained_without_failing(tmp_path):
    """Words of the blocks of a killed process are set to other values; what can be read still
    becomes a recording.
    """
    program = (
        "import nvtx, os, signal\n"
        "with nvtx.annotate('r', domain='d', category='c'): nvtx.mark('m')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    chunks = tmp_path / "chunks"
    chunks.mkdir()
    environment = {**os.environ, NVTX_VARIABLE: str(library_path()), FOLDER_VARIABLE: str(chunks)}
    with share_memory(chunks):
        subprocess.run([sys.executable, "-c", program], env=environment, check=False)
        with (chunks / NAME).open("r+b", buffering=0) as memory:
            size = int.from_bytes(os.pread(memory.fileno(), 8, 16), "little")
            whole = os.pread(memory.fileno(), size, 0)
            blocks = [at for at in range(1 << 16, size, 1 << 16) if whole[at : at + 8].strip(b"\0")]
            draw = random.Random(3)
            for run in range(150):
                os.pwrite(memory.fileno(), whole, 0)
                for _ in range(3):
                    value = draw.choice([0, 1, 5, 1 << 20, (1 << 63) + 7, (1 << 64) - 1])
                    os.pwrite(
                        memory.fileno(),
                        value.to_bytes(8, "little"),
                        draw.choice(blocks) + 8 * draw.randrange(64),
                    )
                for path in chunks.glob("*.chunks"):
                    path.unlink()
                drain_processes(chunks)
                if run % 30 == 0:
                    with RecordingWriter(tmp_path / f"r{run}", {}) as writer:
                        merge_chunks(chunks, writer)


def test_gpu_records_that_a_process_takes_with_it_are_counted_by_buffers(record_fake):
    _, recording = record_fake("""
        import os
        gpu = FakeGpu()
        assert gpu.start() == 0
        for i in range(1, 101):
            gpu.kernel("k", gpu.now(), 0, i)  # it still runs, so no flush returns its buffer
        os._exit(0)
    """)
    assert recording.count_rows("kernels") == 0
    assert recording.meta["lost"]["cupti_unsaved"]["count"] == 1
    assert recording.meta["status"] == "incomplete"
