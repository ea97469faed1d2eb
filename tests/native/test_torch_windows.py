"""`curvescope record -- python train.py` without a GPU: what torch runs on the CPU in real,
unchanged programs.
"""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import textwrap

import pytest

from curvescope.cli import main
from curvescope.profiling.collect.inject import STARTUP
from curvescope.profiling.collect.merge import merge_chunks
from curvescope.profiling.collect.torch_events import read_processes
from curvescope.profiling.recording.store import RecordingWriter, open_recording

pytest.importorskip("torch")


@pytest.fixture
def record(tmp_path, capfd, monkeypatch):
    """Exit code, recording, and what the program itself printed to both streams."""
    monkeypatch.delenv("COLUMNS", raising=False)  # Curvescope's messages are then a line each

    def record(program, *options):
        source = tmp_path / "program.py"
        source.write_text(textwrap.dedent(program))
        code = main(
            [
                "record",
                "-o",
                str(tmp_path / "r"),
                *options,
                "--",
                sys.executable,
                "-W",
                "error",
                str(source),
            ]
        )
        out, err = capfd.readouterr()
        return code, open_recording(tmp_path / "r"), out, own_errors(err)

    return record


def own_errors(text):
    """What the program wrote to standard error, without Curvescope's messages."""
    return "".join(line for line in text.splitlines(True) if not line.startswith("curvescope: "))


TRAINING = """
    import nvtx, torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.head = nn.Parameter(torch.randn(10, 4 * 14 * 14))

        def forward(self, x):
            x = torch.relu(self.conv(x)).flatten(1)
            with nvtx.annotate("head"):  # no module: its layer is the range's
                return F.linear(x, self.head)

    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
    for _ in range(5):
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    print("trained")
"""


@pytest.mark.slow
def test_a_training_program_gives_kernels_by_step_layer_and_phase(record, capfd):
    code, recording, out, err = record(TRAINING)
    assert (code, out, err) == (0, "trained\n", "")
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    assert recording.meta["steps_from"] == "marks"
    assert len(steps) == 5
    assert set(steps["batch"]) == {8}
    assert set(steps["mode"]) == {"training"}
    convolutions = kernels[kernels["name"] == "aten::convolution_backward"]
    assert set(convolutions["layer"]) == {"conv"}
    assert recording.meta["layer_classes"]["conv"] == "Conv2d"
    assert set(convolutions["phase"]) == {"backward"}
    # Its backward pass is led to the range by autograd's number. Of the three products, the one for
    # the weight and the one for the input come back: 2 m n k each, of 8 samples, 784 inputs and 10
    # outputs.
    head = kernels[kernels["layer"] == "head"]
    assert set(head["phase"]) == {"forward", "backward"}
    assert head["flops"].sum() == 5 * 3 * 2 * 8 * 784 * 10
    assert "optimizer" in set(kernels["phase"])
    inside = kernels[kernels["step"].notna()].merge(steps, on="step", suffixes=("", "_step"))
    assert (inside["start_ns"] >= inside["start_ns_step"]).all()
    # A range of the program lies around its kernels on the same clock and thread.
    named = recording.frame("ranges")
    (heads,) = [named[named["name"] == "head"]]
    assert len(heads) == 5
    assert set(named["source"]) == {"nvtx", "torch"}
    assert recording.meta["device"]["kind"] == "cpu"
    (collector,) = recording.meta["collectors"]
    assert collector["torch_status"] == "recorded"
    assert main(["breakdown", str(recording.path), "--by", "layer", "--json"]) == 0
    labels = {row["label"] for row in json.loads(capfd.readouterr().out)["rows"]}
    assert {
        "conv (Conv2d) forward",
        "conv (Conv2d) backward",
        "head forward",
        "head backward",
    } <= labels


OWN_AFFAIRS = """
    import multiprocessing, os, subprocess, sys, threading
    import sitecustomize
    assert sitecustomize.mine == "the program's own"
    assert not any("startup" in entry for entry in sys.path), sys.path
    import nvtx, torch
    from torch import nn

    nvtx.mark("in the parent")
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def infer(times=3):
        with torch.no_grad():
            for _ in range(times):
                net(torch.ones(2, 4))

    def work(_):
        infer()
        return os.getpid()

    if __name__ == "__main__":
        infer()
        threads = [threading.Thread(target=infer) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                assert pool.map(work, [0]) != [os.getpid()]
                pool.close()
                pool.join()
        # torch.compile in one graph, without a warning, is as it would be.
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2, 4)), net(torch.ones(2, 4)))
        child = os.fork()
        if child == 0:
            nvtx.push_range("in the child"), nvtx.pop_range()
            infer()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        sys.exit(3)
"""


@pytest.mark.slow
def test_threads_processes_forks_and_compiled_modules_are_unharmed_and_recorded(
    record, tmp_path, monkeypatch
):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text('mine = "the program\'s own"\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    code, recording, out, err = record(OWN_AFFAIRS)
    assert (code, out, err) == (3, "", "")
    kernels = recording.frame("kernels")
    assert kernels["process"].nunique() == 4
    # a call's work is on one row of it
    products = kernels[(kernels["op"] == "aten::linear") & (kernels["flops"] > 0)]
    calls = products.groupby("process").size()
    # The main one: 3 calls in one of its 4 threads, and one beside the compiled one, which counts
    # or is compiled away.
    assert sorted(calls)[:3] == [3, 3, 3]
    assert max(calls) in (4, 5)
    assert set(kernels["phase"].dropna()) == {"forward"}
    assert "0" in set(products["layer"])
    assert "in the child" in set(recording.frame("ranges")["name"])
    of_one_thread = "recorded on one thread only; other threads called modules too"
    assert sorted(c["torch_status"] for c in recording.meta["collectors"]) == ["recorded"] * 3 + [
        of_one_thread
    ]


# Windows as short as can be, in memory that is overwritten when it is freed. Each program runs in a
# fork of the process that imported torch.
SHORT_WINDOWS = f"""
import importlib.util, os, sys, threading, torch
specification = importlib.util.spec_from_file_location("torch_windows", {str(STARTUP / "torch_windows.py")!r})
torch_windows = importlib.util.module_from_spec(specification)
specification.loader.exec_module(torch_windows)
torch_windows.Recorder._least_window_ns = 1
for path in sys.argv[1:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] in (0, 9), path
        continue
    torch_windows.start(torch, path.removesuffix(".py"))
    net = torch.nn.Linear(4, 4)
    x = torch.randn(8, 4)
    with open(path) as program:
        exec(compile(program.read(), path, "exec"))
    break
"""  # noqa: E501

WITH_OTHER_THREADS = """
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    torch.set_num_threads(1)
    ended = threading.Event()

    def compute():
        a = torch.randn(600, 600)
        while not ended.is_set():
            a @ a
            a.add(1)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads: thread.start()
    for _ in range(40):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
    ended.set()
"""

IN_A_RANGE = """
    torch.set_grad_enabled(False)

    @torch.jit.script
    def scripted(x):
        with torch.autograd.profiler.record_function("scripted"):
            return 2 * x

    net(x)
    with torch.profiler.record_function("the program's own"):
        for _ in range(4):
            net(scripted(x))
    net(x)
    net(x)
"""


KILLED = """
    while sum(name.endswith(".window.json") for name in os.listdir(path.removesuffix(".py"))) < 2:
        net(x)
    net(x)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders with the windows of the programs."""
    root = tmp_path_factory.mktemp("windows")
    sources = [root / "threads.py", root / "range.py", root / "killed.py"]
    for source, program in zip(sources, (WITH_OTHER_THREADS, IN_A_RANGE, KILLED), strict=True):
        source.with_suffix("").mkdir()
        source.write_text(textwrap.dedent(program))  # TorchScript reads it
    command = [sys.executable, "-c", SHORT_WINDOWS, *map(str, sources)]
    subprocess.run(command, env={**os.environ, "MALLOC_PERTURB_": "165"}, check=True)
    return [source.with_suffix("") for source in sources]


def windows_of(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.window.json"))]


@pytest.mark.slow
def test_windows_come_and_go_while_other_threads_compute(folders):
    windows = windows_of(folders[0])
    assert len(windows) == 40
    assert {kind for window in windows for _, kind, _ in window["boundaries"]} == {
        "training",
        "optimizer",
    }


@pytest.mark.slow
def test_no_window_begins_in_a_range_that_began_under_another(folders):
    # The first call, at whose end the range begins; then the two after the range.
    assert [len(window["boundaries"]) for window in windows_of(folders[1])] == [1, 1, 1]


EVALUATING = """
    import torch
    from torch import nn

    net, loss = nn.Linear(4, 4, bias=False), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(8, 4)
    for _ in range(2):
        for _ in range(2):
            optimizer.zero_grad()
            loss(net(x), x).backward()
            optimizer.step()
        with torch.no_grad():
            for _ in range(3):
                net(torch.randn(5, 4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        net(torch.ones(2, 4))
    print(sum(event.name == "aten::mm" for event in profiler.events()))
    net(torch.ones(2, 4))
"""


@pytest.mark.slow
def test_evaluations_are_no_training_steps_and_a_program_that_profiles_itself_has_the_profiler(
    record,
):
    code, recording, out, err = record(EVALUATING)
    assert (code, err) == (0, "")
    steps = recording.frame("steps").sort_values("start_ns")
    assert list(steps["batch"]) == [8, 8, 5, 5, 5] * 2
    kernels = recording.frame("kernels")
    per_step = kernels[kernels["op"] == "aten::linear"].groupby("step")["flops"].sum()
    assert dict(per_step) == {
        step: 2 * batch * 4 * 4 for step, batch in zip(steps["step"], steps["batch"], strict=True)
    }
    # The program's own profile holds the call in it, and the recording neither that call nor the
    # one after it.
    assert out == "1\n"
    assert 2 not in set(steps["batch"])
    assert "profiler itself" in recording.meta["collectors"][0]["torch_status"]


def test_the_clocks_are_held_against_each_other_where_nothing_came_between(monkeypatch):
    """A machine that runs something else for 50 ms between two readings had moved a window's
    operators by as much.
    """
    specification = importlib.util.spec_from_file_location(
        "torch_windows", STARTUP / "torch_windows.py"
    )
    torch_windows = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(torch_windows)
    moments = itertools.accumulate(itertools.chain([50_000_000] * 4, itertools.repeat(100)))
    monkeypatch.setattr(torch_windows.time, "monotonic_ns", lambda: next(moments))
    monkeypatch.setattr(torch_windows.time, "time_ns", lambda: next(moments) + 10**18)
    assert torch_windows._clock_offset_ns() == 10**18


@pytest.mark.slow
def test_killed_the_windows_before_the_last_are_there(folders, tmp_path):
    (found,) = read_processes(folders[2]).processes
    assert found.windows >= 2
    with RecordingWriter(tmp_path / "r", {"device": None}) as writer:
        merge_chunks(folders[2], writer)
    recording = open_recording(tmp_path / "r")
    assert recording.arrow("kernels").num_rows == sum(table.num_rows for table in found.kernels)
    assert recording.arrow("steps").num_rows == (recording.frame("kernels")["flops"] > 0).sum() >= 2
