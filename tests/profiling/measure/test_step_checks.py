"""What is said of steps that leak, change or slow down, from visits made by hand; and
of real ones.
"""

import ast
import json
import mmap
import os
import re

import pytest
import torch

from curvescope.analysis.causes.context import examine
from curvescope.analysis.diagnosis.read import read
from curvescope.profiling.attribution.events import StepRows
from curvescope.profiling.collect.compilations import Compilations
from curvescope.profiling.measure import step_checks
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.step_checks import StepChecks
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.measure.visits import Visit
from curvescope.profiling.recording.axis import Axis
from curvescope.profiling.recording.store import open_recording
from curvescope.profiling.workload.own_step import OwnStep

from ...analysis.causes.planted_causes import Plan, explained
from ...native.warm_python import WarmPython

ROUNDS, BATCHES = 6, (1, 2)
MB = 1_000_000


def warnings(
    monkeypatch,
    *,
    held=lambda visit: 900 * MB,
    ops=lambda visit: [["mm", "relu"]],
    ms=lambda visit: 5.0,
    discarded=1,
    grown=None,
):
    """Visits of two batch sizes in turn, each with discarded, one unprofiled and one profiled step
    per `ops`.
    """
    checks = StepChecks(Axis(), "cpu")
    for number in range(ROUNDS * len(BATCHES)):
        monkeypatch.setattr(step_checks, "read_current", lambda _, number=number: held(number))
        profiled = [
            StepRows([{"layer": None, "op": op} for op in step], [(0, 1)], {})
            for step in ops(number)
        ]
        timed = [{"start_ns": 0, "duration_ns": ms(number // 2) * 1e6}]
        checks.note(
            BATCHES[number % 2],
            Visit(timed, profiled, discarded_steps=discarded, grown_bytes=grown),
        )
    return checks.warnings()


LEAK = "The step leaks memory: about 7 MB more with each step"
DRIFT = r"The step changes what it does between calls: at batch 1 .*50% differ"
CYCLE = r"6 of 12 profiled steps ran other operators .* Make one call a complete cycle"
SLOWING = "Steps take longer with each round: 73% from the first third to the last"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            [(1, 0), (2, 0), (3, 0), (3, 1), (3, 1)],
            "uncompiled at batch sizes 8, 16: torch compiles",
        ),
        ([(1, 0), (2, 0), (2, 0), (2, 0), (2, 0)], None),  # one version with a dynamic size
        ([(1, 0), (2, 0), (3, 0), (3, 1), (4, 1)], "uncompiled at batch size 8: torch compiles"),
        ([None] * 5, None),  # nothing is compiled
    ],
)
def test_sizes_beyond_the_most_versions_are_named(after, said, monkeypatch):
    checks = StepChecks(Axis(), "cpu")
    for batch, counts in zip((1, 2, 4, 8, 16), after, strict=True):
        found = None if counts is None else Compilations(*counts, limit=3)
        monkeypatch.setattr(step_checks, "read_compilations", lambda found=found: found)
        for _ in range(2):
            checks.note(batch, Visit([], []))
    lines = checks.warnings()
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


@pytest.fixture(scope="module")
def run_compiling():
    """Runs a program that compiles, as a fork of a Python that has what such programs import;
    returns what it printed.
    """
    imports = (
        "torch._dynamo",
        "curvescope.profiling.measure.sweep",
        "curvescope.experiments.factors",
    )
    with WarmPython("", imports) as python:

        def run(program, folder):
            done = python.run(program, folder, {**os.environ})
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


COMPILED_SWEEP = """
import json, torch
from pathlib import Path
from curvescope.profiling.measure.protocol import Protocol
from curvescope.profiling.measure.sites.here import Here
from curvescope.profiling.measure.sweep import run_sweep
from curvescope.profiling.workload.own_step import OwnStep

compiled, steps = {}, {}

def backend(graph, inputs):
    size = next(len(one) for one in inputs if one.shape[1:] == (16,) and len(one) < 16)
    def run(*arguments):
        compiled[size] = compiled.get(size, 0) + 1
        return graph(*arguments)
    return run

net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))
run = torch.compile(net, backend=backend, dynamic=False)

def make_step(batch):
    x = torch.randn(batch, 16)
    def step():
        steps[batch] = steps.get(batch, 0) + 1
        with torch.no_grad():
            run(x)
    return step

short = Protocol("short", (2, 2), 1, (2, 2), 0.0, 1, None)
run_sweep(Here(OwnStep(make_step)), tuple(range(1, 11)), short, Path("r"))
print(json.dumps([compiled, steps]))
"""


@pytest.mark.slow
def test_a_compiled_step_over_ten_sizes_in_one_process(run_compiling, tmp_path):
    """From the ninth shape on torch runs it eagerly, without an error (vllm 27178, TensorRT-LLM
    6142).

    All other steps run what was compiled, by whatever backend: hooks in it once made torch leave
    it.
    """
    printed = run_compiling(COMPILED_SWEEP, tmp_path)
    (counts,) = [line for line in printed.splitlines() if line.startswith("[{")]
    compiled, steps = json.loads(counts)
    assert compiled == {size: steps[size] for size in map(str, range(1, 9))}
    warned = open_recording(tmp_path / "r").meta["warnings"]
    (said,) = [line for line in warned if "ran uncompiled" in line]
    assert "at batch sizes 9, 10: torch compiles a function for 8 shapes" in said
    steps = open_recording(tmp_path / "r").frame("steps")
    code = steps[~steps["profiled"]].groupby("batch")["compiled_code"].unique().map(list)
    assert code.to_dict() == {n: ["own"] for n in range(1, 9)} | {9: ["none"], 10: ["none"]}
    assert all(one.compiled_code == "none" for one in map(_facts_of(tmp_path / "r"), (9, 10)))


def _facts_of(path):
    """What causes examine of a batch size of a recording."""
    recording = open_recording(path)
    recorded = read(recording)
    return lambda batch: examine([batch], recorded).facts[batch]


@pytest.mark.slow
def test_the_excess_of_sizes_beyond_the_limit_is_that_of_the_recompile_limit(tmp_path):
    """Times by hand: 1.5 times as long where torch's counters tell of no compiled code."""
    found = explained(
        Plan(compiled_code=lambda b: "none" if b == 16 else "own", slow=lambda b: 1 + (b == 16) / 2)
    )
    total = found.causes[0]
    assert total.cause == "recompile limit"
    evidence = total.terms[0].claim.evidence
    assert (evidence[0].before, evidence[0].after) == (
        "code compiled for this size",
        "no compiled code",
    )
    assert evidence[1].after == "16"


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("codes", [("none", "none"), ("own", "own"), (None, None), ("none", None)])
def test_sizes_that_run_the_same_code_have_no_such_cause(codes):
    plan = Plan(
        slow=lambda b: 1 + (b == 16) / 2,
        compiled_code=lambda b: codes[b == 16],
    )
    claimed = {term.claim.cause for total in explained(plan).causes
               for term in total.terms if term.claim}  # fmt: skip
    assert not claimed & {"recompile limit", "kernels of dynamic shapes"}


BROKEN_GRAPH = """
import torch
from curvescope.profiling.collect.compilations import read_compilations

@torch.compile(backend="eager")
def step(x):
    y = x + 1
    print("in the step")
    return y.sin()

step(torch.ones(4))
print(dict(read_compilations().breaks))
"""


@pytest.mark.slow
def test_graph_breaks_are_counted_by_their_reason(run_compiling, tmp_path):
    printed = run_compiling(BROKEN_GRAPH, tmp_path)
    ((reason, count),) = ast.literal_eval(printed.splitlines()[-1]).items()
    assert count == 1
    assert reason
    assert "\n" not in reason


UNBROKEN_GRAPHS = """
import torch
from torch.profiler import ProfilerActivity, profile
from curvescope.profiling.collect.compilations import read_compilations
from curvescope.profiling.collect.torch_step import layer_ranges

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
optimizer = torch.optim.{optimizer}(model.parameters(), 0.1)
step = torch.compile(lambda x: model(x).sum(), backend="eager", dynamic=False)
update = torch.compile(optimizer.step, backend="eager")
for size in (1, 2, 3):
    step(torch.ones(size, 4)).backward()
    update()
    with layer_ranges(model.named_modules()), profile(activities=[ProfilerActivity.CPU]):
        step(torch.ones(size, 4))
print(dict(read_compilations().breaks), set(read_compilations().places))
"""


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_program_without_a_break_has_none(run_compiling, tmp_path, optimizer):
    """Torch divides the graph around the step of each of its optimizers; and ranges of layers, in
    a compiled function around the model, divided it at each of them.
    """
    printed = run_compiling(UNBROKEN_GRAPHS.format(optimizer=optimizer), tmp_path)
    assert printed.splitlines()[-1] == "{} set()"


TWO_PLACES = """
import torch
from curvescope.profiling.collect.compilations import read_compilations

@torch.compile(backend="eager", dynamic=False)
def step(x):
    y = x + 1
    torch._dynamo.graph_break()
    z = y.sin()
    torch._dynamo.graph_break()
    return z * 2

step(torch.ones(1))
before = read_compilations()
for size in range(2, 5):
    step(torch.ones(size))
print(sum(read_compilations().breaks.values()), len(read_compilations().places))
print(read_compilations().breaks_since(before))
"""


@pytest.mark.slow
def test_a_break_that_each_size_compiles_again_is_one_place(run_compiling, tmp_path):
    """Torch counts two places eight times for four sizes; those before the step are not its own."""
    first, since = run_compiling(TWO_PLACES, tmp_path).splitlines()[-2:]
    assert first == "8 2"
    breaks, _ = ast.literal_eval(since)
    assert list(breaks.values()) == [6]


def noted(monkeypatch, found, before=None):
    monkeypatch.setattr(step_checks, "read_compilations", lambda: found)
    checks = StepChecks(Axis(), "cpu", before)
    checks.note(4, Visit([], []))
    return checks


def test_graph_breaks_are_one_sentence(monkeypatch):
    breaks = {"Failed to trace builtin operator": 30, "Data-dependent": 10}
    found = Compilations(2, 0, 8, breaks, frozenset({"f_at_3", "f_at_4", "g_at_9"}))
    (line,) = noted(monkeypatch, found).warnings()
    assert "the step's graph at 3 places (graph breaks), most for \"Failed to trace" in line


def test_what_was_compiled_before_the_step_is_not_the_steps(monkeypatch):
    before = Compilations(2, 0, 8, {"Data-dependent": 10}, frozenset({"f_at_3"}))
    checks = noted(monkeypatch, before, before)
    assert checks.warnings() == []
    assert checks.code(4) is None
    checks = noted(monkeypatch, before._replace(compiled=3), before)
    assert checks.warnings() == []
    assert checks.code(4) == "own"


FACTOR = """
import torch
from curvescope.experiments.factor import Target
from curvescope.experiments.factors import step_change
from curvescope.profiling.collect.compilations import read_compilations
from curvescope.profiling.measure.configuration import Configuration

if {factor!r}:
    step_change({factor!r}).prepare(Target(Configuration.of_step("s.py:f", "cpu"), (1,)))
step = torch.compile(lambda x: (x + 1).sin(), backend="eager", dynamic={dynamic})
for size in range(2, 12):
    step(torch.ones(size))
counts = read_compilations()
print(counts.compiled, counts.refused > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "dynamic", "counted"),
    [
        (None, False, "8 True"),
        ("more_versions", False, "10 False"),
        ("dynamic_shapes", False, "1 False"),
        (None, True, "1 False"),
        ("static_shapes", True, "10 False"),
    ],
)
def test_each_factor_changes_what_torch_compiles(run_compiling, tmp_path, factor, dynamic, counted):
    printed = run_compiling(FACTOR.format(factor=factor, dynamic=dynamic), tmp_path)
    assert printed.split("\n")[-2] == counted


@pytest.mark.slow
def test_the_counters_of_this_torch_are_read(run_compiling, tmp_path):
    """A change of their names would silence the check."""
    assert torch._dynamo.config.recompile_limit > 0
    code = (
        "import torch; from curvescope.profiling.collect.compilations import read_compilations\n"
        "import torch._dynamo.config as config; config.recompile_limit = 2\n"
        "assert read_compilations() is None\n"
        "f = torch.compile(lambda x: x + 1, backend='eager', dynamic=False)\n"
        "for n in range(2, 6): f(torch.ones(n))\n"
        "print(*read_compilations())\n"
    )
    assert run_compiling(code, tmp_path).split() == ["2", "1", "2", "{}", "frozenset()"]


@pytest.mark.parametrize(
    ("visits", "said"),
    [
        ({}, None),
        ({"held": lambda visit: 900 * MB + 3 * visit * 7 * MB}, LEAK),  # each visit has three steps
        (
            {"held": lambda visit: 900 * MB + 102 * visit * 7 * MB, "discarded": 100},
            LEAK,
        ),  # the warm-up, too
        ({"held": lambda visit: 900 * MB + 3 * visit * 7 * MB, "grown": 7 * MB}, LEAK),
        # between visits something else keeps memory, e.g. the steps of further sizes
        ({"held": lambda visit: 900 * MB + 3 * visit * 7 * MB, "grown": 0}, None),
        ({"held": lambda visit: 900 * MB + min(visit, 6) * 30 * MB}, None),  # the allocator settles
        ({"held": lambda visit: 900 * MB + visit % 3 * 50 * MB}, None),  # memory comes and goes
        ({"held": lambda visit: 900 * MB + visit * MB}, None),  # 0.3 MB a step
        ({"held": lambda visit: None}, None),
        ({"ops": lambda visit: [["mm", "relu"]] if visit < 6 else [["mm", "relu", "add"]]}, DRIFT),
        ({"ops": lambda visit: [["mm"], ["mm", "adam"]]}, CYCLE),
        ({"ops": lambda visit: [["mm"] * 100, ["mm"] * 100 + ["item"]]}, None),
        ({"ms": lambda round_: 5.0 + round_}, SLOWING),
        ({"ms": lambda round_: 5.0 + round_ * (-1) ** round_}, None),
    ],
)
def test_what_is_wrong_with_the_steps_is_one_sentence(monkeypatch, visits, said):
    lines = warnings(monkeypatch, **visits)
    assert len(lines) == bool(said)
    assert said is None or re.search(said, lines[0])


@pytest.mark.slow
def test_a_real_step_that_keeps_its_tensors_and_grows_is_reported(tmp_path):
    def make_step(batch):
        kept = []

        def step():
            # 8 MB from the system: the allocator may have as much left over from other tests.
            kept.append(torch.frombuffer(mmap.mmap(-1, 8_000_000), dtype=torch.float32).fill_(1))
            for _ in kept:
                torch.relu(kept[-1][:10])

        return step

    run_sweep(
        Here(OwnStep(make_step)),
        (1, 2),
        Protocol("short", (5, 5), 1, (2, 2), 0.0, 1, None),
        tmp_path / "r",
    )
    leak, drift, *_ = open_recording(tmp_path / "r").meta["warnings"]
    assert float(re.search(r"leaks memory: about ([0-9.]+) MB", leak)[1]) == pytest.approx(8, abs=2)
    assert drift.startswith("The step changes what it does between calls")
