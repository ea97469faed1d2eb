"""Every way in which a scheduler or a user ends `record`: what was recorded before is there, by
number.

A program makes a known number of ranges, says so, and waits; then it, the command that records it,
or both get what Slurm, `timeout`, Kubernetes or a terminal send.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import curvescope
from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.collect.chunks import read_chunks
from curvescope.profiling.recording.remote_store import as_path
from curvescope.profiling.recording.store import CHUNKS, RecordingWriter, open_recording

from ..tables import grade
from .doubles import HERE

RECORD = [sys.executable, "-m", "curvescope.cli", "record"]
BEFORE = 500  # ranges that the program makes before it says that it is ready
AT_END = 20  # ranges that one makes which ends by itself, when it is asked to
PROGRAM = f"""
import os, signal, sys, time
import nvtx

def end(number, _):
    for _ in range({AT_END}):
        with nvtx.annotate("at the end"): pass
    sys.exit(7)

how = sys.argv[2]
for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1"):
    if how == "ends by itself":
        signal.signal(getattr(signal, name), end)
    if how == "ignores it":
        signal.signal(getattr(signal, name), signal.SIG_IGN)
for _ in range({BEFORE}):
    with nvtx.annotate("r"): pass
open(sys.argv[1], "w").close()
while True:
    time.sleep(0.01)
"""
WAIT_S = 300


def wait_until(true):
    until = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


class Run:
    """A program under `record`, in a session of its own, that has made its ranges."""

    def __init__(self, folder, how="", before=(), program=PROGRAM, environment=None):
        self.folder, self.path = folder, folder / "r"
        (folder / "program.py").write_text(program)
        command = [*before, *RECORD, "-o", "r", "--", sys.executable, "program.py", "ready", how]
        variables = {**os.environ, **(environment or {})}
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=said, stderr=said, start_new_session=True, env=variables
            )
        wait_until((folder / "ready").exists)
        wait_until(lambda: sum(read_chunks(path).begun for path in self.chunks()) >= BEFORE)

    def chunks(self):
        return [path for path in (self.path / CHUNKS).glob("*.chunks") if path.stat().st_size]

    @property
    def program(self):
        """The process id of the program."""
        (path,) = self.chunks()
        return int(path.name.partition("-")[0])

    @property
    def recorder(self):
        """The process id of `record`."""
        return int(Path(f"/proc/{self.program}/stat").read_text().rpartition(")")[2].split()[1])

    def send_to_all(self, *numbers):
        """What Slurm does: every process of the step gets it, one after the other."""
        for number in numbers:
            for process in self.session():
                with suppress(ProcessLookupError):
                    os.kill(process, number)

    def session(self):
        """The processes of the run that still exist."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                if int(path.read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    found.append(int(path.parent.name))
        return found

    def end(self):
        """Wait for the end of the command; returns its exit code."""
        return self.process.wait(WAIT_S)

    def said(self):
        return (self.folder / "said").read_text()


@contextmanager
def running(*arguments, **options):
    run = Run(*arguments, **options)
    try:
        yield run
    finally:
        run.send_to_all(signal.SIGKILL)
        run.process.wait()


def ranges_of(path):
    """Number of recorded ranges; and what is counted as lost, but for what the end itself leaves
    open.
    """
    recording = open_recording(path)
    lost = {name: entry["count"] for name, entry in recording.meta["lost"].items()}
    return recording.count_rows("ranges"), lost, recording.meta["status"]


ENDINGS = {
    # who gets what, and what the shell sees of a program that does nothing about it, or ends by
    # itself with 7
    "kill: SIGTERM to record alone": (lambda run: os.kill(run.recorder, signal.SIGTERM), 143),
    "kill: SIGHUP to record alone": (lambda run: os.kill(run.recorder, signal.SIGHUP), 129),
    "kill: SIGINT to record alone": (lambda run: os.kill(run.recorder, signal.SIGINT), 130),
    "a closed terminal: SIGHUP to the group": (
        lambda run: os.killpg(run.process.pid, signal.SIGHUP),
        129,
    ),
    "Ctrl-C: SIGINT to the group": (lambda run: os.killpg(run.process.pid, signal.SIGINT), 130),
    "Slurm: SIGCONT and SIGTERM to all": (
        lambda run: run.send_to_all(signal.SIGCONT, signal.SIGTERM),
        143,
    ),
    "Slurm's --signal: SIGUSR1 to all": (lambda run: run.send_to_all(signal.SIGUSR1), 138),
    "kill: SIGUSR1 to record alone": (lambda run: os.kill(run.recorder, signal.SIGUSR1), 138),
}


# Each takes seconds: what most users do, and for CI each ending, by turns of a program that handles
# it.
QUICK = [("Ctrl-C: SIGINT to the group", "")]
HANDLES = ("ends by itself", "")
BOTH = [(ending, how) for ending in ENDINGS for how in HANDLES]
TURNS = [(ending, HANDLES[place % 2]) for place, ending in enumerate(ENDINGS)]


@pytest.mark.parametrize(("ending", "how"), grade(BOTH, quick=QUICK, in_ci=TURNS))
def test_a_program_that_is_asked_to_end_is_recorded_to_its_end(tmp_path, ending, how):
    send, code = ENDINGS[ending]
    with running(tmp_path, how) as run:
        send(run)
        assert run.end() == (7 if how else code), run.said()
    wanted = BEFORE + (AT_END if how else 0)
    asked_to_end = "SIGUSR1" not in ending
    assert ranges_of(run.path) == (wanted, {}, "interrupted" if asked_to_end else "complete"), (
        run.said()
    )
    assert not (run.path / CHUNKS).exists()
    assert open_recording(run.path).meta["exit_code"] == (7 if how else code)
    assert f"{wanted} ranges" in run.said()


@pytest.mark.slow
@pytest.mark.parametrize(
    "send",
    [
        lambda run: run.send_to_all(signal.SIGTERM),
        lambda run: os.killpg(run.process.pid, signal.SIGTERM),
        lambda run: os.kill(run.recorder, signal.SIGTERM),
    ],
    ids=["all", "group", "record"],
)
def test_the_program_gets_a_signal_once(tmp_path, send):
    """A handler that writes a checkpoint must not be entered twice: a signal to all is not passed
    on.
    """
    counting = PROGRAM.replace(
        "def end(number, _):\n",
        "def end(number, _):\n    os.write(2, b'asked to end\\n')\n    time.sleep(1)\n",
    )
    with running(tmp_path, "ends by itself", program=counting) as run:
        send(run)
        assert run.end() == 7
    assert run.said().count("asked to end") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("ends by itself", ("--foreground",)),
        ("", ()),
        ("", ("--foreground",)),
        ("ends by itself", ()),
    ],
)
def test_timeout_ends_it_like_any_program(tmp_path, how, options):
    """SIGALRM is the end of `timeout`'s time: it sends SIGTERM to its child, and but for
    --foreground to the group.
    """
    with running(tmp_path, how, before=("timeout", *options, "3600")) as run:
        os.kill(run.process.pid, signal.SIGALRM)
        assert run.end() == 124
    assert ranges_of(run.path) == (BEFORE + (AT_END if how else 0), {}, "interrupted")


def words_of(capsys):
    """What was said on standard error, in one line."""
    return " ".join(capsys.readouterr().err.split())


def recovered(path, capsys):
    """The recording as `breakdown` makes it."""
    capsys.readouterr()
    # there may be no kernel to break down; it says before that it was cut, and what it has
    main(["breakdown", str(path)])
    said = words_of(capsys)
    assert "was cut" in said, said
    assert f"{BEFORE} ranges" in said
    assert not (path / CHUNKS).exists()
    number, lost, status = ranges_of(path)
    assert "was killed" in " ".join(open_recording(path).meta["warnings"])
    return number, lost, status


KILLS = {
    "timeout -k: SIGTERM, then SIGKILL to child and group": ("timeout", "-k", "0.2", "3600"),
    "Slurm: SIGTERM, then SIGKILL to all": (),
    "Kubernetes: SIGTERM to the first process, then SIGKILL to all": (),
    "out of memory: SIGKILL to record": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", KILLS)
def test_what_a_kill_leaves_is_read_and_recovered(tmp_path, ending, capsys):
    with running(tmp_path, "ignores it", before=KILLS[ending]) as run:
        recorder = run.recorder
        if "timeout" in ending:
            os.kill(run.process.pid, signal.SIGALRM)
        elif "Slurm" in ending:
            run.send_to_all(signal.SIGCONT, signal.SIGTERM)
            run.send_to_all(signal.SIGKILL)
        elif "Kubernetes" in ending:
            os.kill(recorder, signal.SIGTERM)
            run.send_to_all(signal.SIGKILL)
        else:
            program = run.program
            os.kill(recorder, signal.SIGKILL)
            wait_until(lambda: run.process.poll() is not None)
            capsys.readouterr()
            main(["breakdown", str(run.path)])  # the program runs on, and records
            assert f"Process {program} still records" in words_of(capsys)
            assert (run.path / CHUNKS).is_dir()
            os.kill(program, signal.SIGKILL)
        assert run.end() in (137, -signal.SIGKILL)
        wait_until(lambda: not run.session())
    assert recovered(run.path, capsys) == (BEFORE, {}, "interrupted")


@pytest.mark.slow
def test_a_kill_of_the_program_alone_is_recorded_without_any_recovery(tmp_path):
    with running(tmp_path) as run:
        os.kill(run.program, signal.SIGKILL)
        assert run.end() == 137
    assert ranges_of(run.path) == (BEFORE, {}, "complete")


@pytest.mark.slow
def test_a_recording_in_progress_is_read_as_far_as_it_is(tmp_path, capsys):
    with running(tmp_path) as run:
        main(["breakdown", str(run.path)])
        assert "is still being recorded" in words_of(capsys)
        assert main(["import", str(run.path)]) == 2
        assert main(["report", str(run.path), "-o", str(tmp_path / "r.html")]) == 2
        assert (run.path / CHUNKS).is_dir()
        os.kill(run.program, signal.SIGTERM)
        assert run.end() == 143
    assert ranges_of(run.path) == (BEFORE, {}, "complete")


@pytest.mark.slow
@pytest.mark.parametrize("signals", ["SIGTERM", "SIGTERM and SIGKILL"])
def test_as_the_first_process_of_a_container(tmp_path, signals, capsys):
    """Nobody else passes a signal on there, and the kernel ignores those that the first process
    does not handle.
    """
    apart = (
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    )
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no namespace of process ids can be made here")
    ignores = "" if signals == "SIGTERM" else "ignores it"
    with running_apart(tmp_path, ignores, apart) as (run, first):
        os.kill(first, signal.SIGTERM)
        if signals != "SIGTERM":
            os.kill(first, signal.SIGKILL)  # and the kernel kills all others
        run.process.wait(WAIT_S)
    if signals == "SIGTERM":
        assert ranges_of(run.path) == (BEFORE, {}, "interrupted")
        assert open_recording(run.path).meta["exit_code"] == 143
    else:
        assert recovered(run.path, capsys) == (BEFORE, {}, "interrupted")


@contextmanager
def running_apart(folder, how, apart):
    """A run, and the process id here of the first process there."""
    with running(folder, how, before=apart) as run:
        children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children")
        (first,) = map(int, children.read_text().split())
        yield run, first


def test_kernels_recorded_before_a_kill_are_there(tmp_path, on_doubles, capsys):
    program = """
        import sys, time
        from fake_gpu import FakeGpu, launch
        import nvtx
        gpu = FakeGpu()
        assert gpu.start() == 0
        for i in range(1, 101):
            with nvtx.annotate("r"):
                launch(gpu, "k", i, 1)
        for _ in range(400):
            with nvtx.annotate("r"): pass
        gpu.flush()
        open(sys.argv[1], "w").close()
        while True:
            time.sleep(0.01)
    """
    environment = {**on_doubles, "PYTHONPATH": str(HERE)}
    with running(tmp_path, program=textwrap.dedent(program), environment=environment) as run:
        wait_until(
            lambda: sum(read_chunks(path).table("kernels").rows for path in run.chunks()) == 100
        )
        run.send_to_all(signal.SIGKILL)
        run.end()
    assert recovered(run.path, capsys)[0] == BEFORE
    assert open_recording(run.path).count_rows("kernels") == 100


def test_a_full_disk_keeps_what_was_recorded_and_the_exit_code(tmp_path, monkeypatch, capsys):
    """Every table fails to be written, as on a full disk; later there is room."""
    from curvescope.profiling.recording import part_files

    program = tmp_path / "program.py"
    ranges = f"for _ in range({BEFORE}):\n    with nvtx.annotate('r'): pass\n"
    program.write_text(f"import nvtx\n{ranges}raise SystemExit(5)")
    write = part_files.pq.write_table

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(part_files.pq, "write_table", full)
    path = tmp_path / "r"
    assert main(["record", "-o", str(path), "--", sys.executable, str(program)]) == 5
    said = words_of(capsys)
    assert "The disk is full" in said
    assert f"kept in {path / CHUNKS}, and `curvescope explain {path}`" in said
    assert "exit code 5" in said
    monkeypatch.setattr(part_files.pq, "write_table", write)
    assert main(["import", str(path)]) == 0
    assert ranges_of(path) == (BEFORE, {}, "complete")
    assert open_recording(path).meta["exit_code"] == 5


def test_a_recording_of_a_remote_store_is_kept_here_until_it_is_there(
    tmp_path, monkeypatch, capsys
):
    pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    program = f"import nvtx\nfor _ in range({BEFORE}):\n    with nvtx.annotate('r'): pass\n"
    command = ["--", sys.executable, "-c", program]
    url = f"memory://store/{tmp_path.name}"
    assert main(["record", "-o", f"{url}/whole", *command]) == 0
    assert ranges_of(as_path(f"{url}/whole")) == (BEFORE, {}, "complete")
    assert not list(tmp_path.glob("runs/*"))

    def unreachable(*_, **__):
        raise CurvescopeError("The store is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(RecordingWriter, "write", unreachable)
        assert main(["record", "-o", f"{url}/cut", *command]) == 0
    (here,) = tmp_path.glob("runs/*")
    assert f"`curvescope explain {here}`" in words_of(capsys)
    assert curvescope.open_recording(here).count_rows("ranges") == BEFORE
    assert ranges_of(here) == (BEFORE, {}, "complete")


def recorded(tmp_path, program):
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    code = main(
        ["record", "-o", str(tmp_path / "r"), "--", sys.executable, str(tmp_path / "program.py")]
    )
    return code, *ranges_of(tmp_path / "r")


def test_a_program_that_cleans_the_temporary_folder_loses_nothing(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    program = f"""
        import os, shutil, nvtx
        for _ in range({BEFORE}):
            with nvtx.annotate("r"): pass
        shutil.rmtree(os.environ["TMPDIR"])
    """
    assert recorded(tmp_path, program) == (0, BEFORE, {}, "complete")


def test_a_program_that_deletes_the_folder_of_its_chunks_is_not_complete(tmp_path):
    program = f"""
        import os, shutil, time, nvtx
        for _ in range({BEFORE}):
            with nvtx.annotate("r"): pass
        time.sleep(0.2)
        shutil.rmtree(os.environ["CURVESCOPE_CHUNK_FOLDER"])
    """
    code, number, lost, status = recorded(tmp_path, program)
    assert (code, status, lost["chunk_folder_deleted"]) == (0, "incomplete", 1)
    assert number + lost.get("nvtx_unsaved", 0) + lost.get("nvtx_unwritten", 0) == BEFORE


def test_files_that_cannot_be_read_are_counted_and_the_rest_is_there(tmp_path):
    program = f"""
        import os, nvtx
        folder = os.environ["CURVESCOPE_CHUNK_FOLDER"]
        for name, text in {{
            "1-000000.window": "{{not JSON",
            "2-000000.window": "[]",
            "3-000000.window": '{{"version": 2, "process": 3}}',
            "4-000000.window": "[" * 100000,
        }}.items():
            open(os.path.join(folder, name + ".json"), "w").write(text)
        os.mkfifo(os.path.join(folder, "5.json"))
        os.mkfifo(os.path.join(folder, "6-7.chunks"))
        for _ in range({BEFORE}):
            with nvtx.annotate("r"): pass
    """
    lost = {"chunk_files_unreadable": 1, "torch_windows_unreadable": 5}
    assert recorded(tmp_path, program) == (0, BEFORE, lost, "incomplete")


def test_a_block_that_cannot_be_written_is_kept_too(tmp_path):
    """`curvescope.record()` in a program that is killed inside the block."""
    program = f"""
        import os, signal, curvescope, nvtx
        with curvescope.record({str(tmp_path / "r")!r}):
            for _ in range({BEFORE}):
                with nvtx.annotate("r"): pass
            import time, glob
            from curvescope.profiling.collect.chunks import read_chunks
            from pathlib import Path
            while sum(read_chunks(p).begun for p in Path({str(tmp_path / "r" / CHUNKS)!r}).glob("*.chunks")) < {BEFORE}:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    """  # noqa: E501
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert main(["import", str(tmp_path / "r")]) == 0
    assert ranges_of(tmp_path / "r") == (BEFORE, {}, "interrupted")
    assert json.loads((tmp_path / "r" / "recording.json").read_text())["status"] == "interrupted"
