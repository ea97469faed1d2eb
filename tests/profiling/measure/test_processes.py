"""Processes that a step starts end with the step's process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curvescope.experiments.factors import processor
from curvescope.profiling.measure.processes import ChildProcess, Interpreter

_WAIT = "import time; time.sleep(600)"


def _sleep():
    time.sleep(600)


class Loads:
    """A step that starts processes, as a data loader does."""

    def start_program(self):
        return subprocess.Popen([sys.executable, "-c", _WAIT]).pid

    def start_worker(self):
        worker = multiprocessing.Process(target=_sleep, daemon=True)
        worker.start()
        return worker.pid

    def print_something(self):
        print("of the step")
        os.write(1, b"of C\n")

    def leave_autogroup(self):
        processor._leave_autogroup(0)
        return os.getsid(0), os.getpid()

    def loaded_with(self, variable):
        return os.environ.get(variable), "torch" in sys.modules

    def loaded(self, variable):
        return [name for name in sys.modules if name.startswith("timm")], variable in os.environ

    def parents_of(self, pid):
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1]), os.getpid()


class Asked:
    """A step whose process, and one that it starts, are asked to end."""

    def ask(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return "goes on"

    def ask_worker(self):
        worker = multiprocessing.Process(target=_sleep, daemon=True)
        worker.start()
        worker.terminate()
        worker.join()
        return worker.exitcode


def is_running(pid):
    """Whether a process runs; one that ended but was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def assert_ends(pid):
    deadline_s = time.monotonic() + 600
    while is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_running(pid)


@pytest.mark.slow
def test_a_process_with_variables_of_its_own_loads_libraries_with_them():
    """The server that others are forked from has torch loaded, which reads some variables only
    then.
    """
    other = Interpreter({"OF_A_TEST": "1"}, Loads)
    for child, expected in (ChildProcess(Loads), (None, True)), (other, ("1", False)):
        assert child.call("loaded_with", "OF_A_TEST") == expected
        child.end()
    assert "OF_A_TEST" not in os.environ


PRELOADS = """
import sys, types
import timm.layers
from curvescope.profiling.measure.processes import ChildProcess
from tests.profiling.measure.test_processes import Loads

if __name__ == "__main__":
    sys.modules["timm.made"] = types.ModuleType("timm.made")  # in no file
    child = ChildProcess(Loads)
    print(child.call("loaded", "CURVESCOPE_PRELOADED"))
    child.call("print_something")
    child.end()
"""


@pytest.mark.slow
def test_a_process_has_its_parents_libraries_and_prints_to_standard_error(tmp_path):
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "layers.py").write_text("print('of a library', flush=True)")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    ran = subprocess.run(
        [sys.executable, "-u", "-c", PRELOADS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "of a library\n(['timm', 'timm.layers'], False)\n"
    assert ran.stderr.startswith("of a library\n")
    assert "of C\n" in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("start", "leaves"),
    [("start_program", False), ("start_worker", False), ("start_program", True)],
)
def test_processes_of_a_step_are_its_children_and_end_with_it(start, leaves):
    """Also of a step with a session of its own: that gives it a scheduling group in which its
    priority counts.
    """
    child = ChildProcess(Loads)
    if leaves:
        session, step = child.call("leave_autogroup")
        assert session == step
    pid = child.call(start)
    parent, step = child.call("parents_of", pid)
    assert parent == step
    child.end()
    assert_ends(pid)


@pytest.mark.slow
def test_a_signal_to_the_whole_job_is_left_to_the_parent():
    """Slurm and `timeout` signal every process: a visit must not be recorded as killed before the
    parent ends it.
    """
    process = ChildProcess(Asked)
    try:
        assert process.call("ask") == "goes on"
        assert process.call("ask_worker") == -signal.SIGTERM
    finally:
        process.end()


@pytest.mark.slow
def test_a_killed_process_leaves_no_temporary_folder(tmp_path):
    program = (
        "import os, signal\n"
        "from curvescope.profiling.measure.processes import ChildProcess\n"
        "ChildProcess(list).call('copy')\n"
        "assert any(name.startswith('pymp-') for name in os.listdir(os.environ['TMPDIR']))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    until = time.monotonic() + 120
    while left := list(tmp_path.glob("pymp-*")):
        assert time.monotonic() < until, left
        time.sleep(0.1)
