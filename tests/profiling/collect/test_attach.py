"""`curvescope.attach()` in programs that run: what they record of the steps that come after a
request.
"""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.collect import attach as attaching
from curvescope.profiling.collect.attach import Attached, attach
from curvescope.profiling.recording.store import open_recording

pytest.importorskip("torch")

# Runs a step for each line that it reads; at the end it prints the recordings that were made.
PROGRAM = """
    import signal, sys, torch
    from torch import nn
    import curvescope

    torch.set_num_threads(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            if "inside" in line:
                signal.raise_signal(signal.SIGUSR1)
            return self.head(torch.relu(self.body(x)))

    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def train():
        optimizer.zero_grad()
        loss(net(torch.randn(16, 8)), torch.randint(4, (16,))).backward()
        optimizer.step()

    def infer():
        with torch.no_grad():
            net(torch.randn(16, 8))

    attached = curvescope.attach(sys.argv[1], steps=2)
    print("ready", flush=True)
    for line in sys.stdin:
        infer() if "infer" in line else train()
        if "wait" in line:
            attached.wait()
        print("done", flush=True)
    print(*attached.wait(), sep="\\n")
"""


@pytest.fixture
def run(tmp_path):
    """Runs the program: a step for each word, before which `USR1` sends the signal; gives its
    recordings.
    """

    def run(*words):
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "runs")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            command, text=True, cwd=Path(__file__).parents[3], **pipes
        ) as process:
            assert process.stdout.readline() == "ready\n"
            for word in words:
                if word == "USR1":
                    process.send_signal(signal.SIGUSR1)
                    continue
                process.stdin.write(f"{word}\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n"
            made, said = process.communicate()
            assert process.returncode == 0, said
        return [open_recording(Path(line)) for line in made.split("\n") if line], said

    return run


def test_a_signal_records_the_next_steps_and_no_others(run):
    (recording,), said = run("train", "USR1", "train", "train", "train", "wait")
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    assert (steps["batch"].tolist(), set(steps["mode"])) == ([16, 16], {"training"})
    assert set(kernels["layer"].dropna()) >= {"body", "head", "CrossEntropyLoss"}
    assert set(kernels["phase"].dropna()) == {"forward", "backward", "optimizer"}
    assert recording.meta["device"]["kind"] == "cpu"
    waits = recording.meta["attached"]
    assert [len(waits[name]) for name in ("begin_wait_ns", "end_wait_ns")] == [2, 2]
    assert "loader" in recording.meta["missing"]["between_steps"]
    assert said == f"curvescope: 2 steps recorded in {recording.path}\n"


def test_a_request_inside_the_model_begins_with_its_next_call(run):
    """The rest of that call's modules are no model: else `head` would be one, and steps end with
    each call of it.
    """
    (recording,), _ = run("infer inside", "infer", "infer", "infer")
    assert recording.frame("steps")["batch"].tolist() == [16, 16]
    assert set(recording.frame("kernels")["layer"].dropna()) == {"body", "head"}


def test_a_second_signal_ends_a_recording_as_does_the_end_of_the_program(run):
    recordings, _ = run("USR1", "train", "USR1", "train wait", "USR1", "train")
    assert [len(recording.frame("steps")) for recording in recordings] == [1, 1]


def test_a_file_starts_a_recording_of_as_many_steps_as_it_says(tmp_path, monkeypatch):
    class OverError(Exception):
        pass

    file, started, polls = tmp_path / "go", [], iter(["3", "", None])

    def next_poll(seconds):
        if (text := next(polls)) is None:
            raise OverError
        file.write_text(text)

    attached = Attached.__new__(Attached)
    monkeypatch.setattr(attached, "start", started.append, raising=False)
    monkeypatch.setattr(attaching.time, "sleep", next_poll)
    with pytest.raises(OverError):
        attached.watch(file)
    assert started == [3, None]
    assert not file.exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"signal": None}, "give a signal or a file"),
        ({"steps": 0}, "at least one"),
        ({"signal": 2}, "SIGINT has a handler"),
    ],
)
def test_what_could_record_nothing_is_refused(given, words, tmp_path):
    with pytest.raises(CurvescopeError, match=words):
        attach(tmp_path, **given)


def test_a_gpu_is_refused_with_what_records_it(tmp_path, monkeypatch):
    monkeypatch.setattr(attaching.torch_windows, "runs_on_gpu", lambda torch: True)
    with pytest.raises(CurvescopeError, match="curvescope record"):
        attach(tmp_path)
