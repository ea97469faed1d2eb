"""The GPU campaign's machinery, on stages of the test's; its real stages are listed, and rehearsed elsewhere."""

import ast
import importlib
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from curvescope.analysis.causes.catalogue import CAUSES
from curvescope.experiments.factors import FACTORS, names_of

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
MODULES = ("stages", "checks", "running", "packing", "campaign")


@pytest.fixture(scope="module")
def campaign():
    """The campaign's modules, with their names in one place."""
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    loaded = {name: importlib.import_module(name) for name in MODULES}
    yield type("Modules", (), loaded)
    sys.path[:] = before
    for name in (*MODULES, "scripts"):
        sys.modules.pop(name, None)


CALL_S = 570


def test_every_command_fits_a_call_and_every_stage_stands_alone(campaign):
    for rehearse in (False, True):
        stages = campaign.stages.stages(rehearse)
        assert len({stage.name for stage in stages}) == len(stages)
        commands = [(stage, command) for stage in stages for command in stage.commands]
        assert all(0 < command.seconds < CALL_S - campaign.campaign.RESERVE_S for _, command in commands)
        # No command reaches into another stage's folder, or does what another of its stage does.
        assert not any(".." in word.split("/") for _, command in commands for word in command.argv)
        assert len({(stage.name, command.line) for stage, command in commands}) == len(commands)


def test_every_stage_that_records_fails_where_nothing_was_recorded(campaign):
    for stage in campaign.stages.stages():
        if stage.name.startswith(("records", "diagnose", "networks")):
            assert any("check_recording.py" in command.line for command in stage.commands), stage.name


def test_every_factor_of_complete_steps_on_a_gpu_is_tried_once(campaign):
    (stage,) = (stage for stage in campaign.stages.stages() if stage.name == "factors")
    tried = [command.argv[3] for command in stage.commands if "step_factors.py" in command.line]
    assert sorted(tried) == sorted(["unmodified", *(name for name in names_of("step") if not on_cpu_only(name))])


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_every_planted_cause_is_one_that_can_be_named(campaign):
    planted = importlib.import_module("planted")
    assert {plant.__name__ for plant in planted.EXPECTED} == set(campaign.stages._FULL["planted"])
    assert set(", ".join(planted.EXPECTED.values()).split(", ")) <= set(CAUSES)
    assert planted.PLANTED_AT in planted.BATCHES[1:-1]  # a bend, not the end of the curve


def on_cpu_only(name):
    return FACTORS[name].refusal("cuda:0") is not None


class FakeRuns:
    """Runs commands in no time: each takes its estimate, times a factor, of a clock that stands still otherwise."""

    def __init__(self, campaign, output, stages, factor=1.0):
        self.now_s, self.ran, self.factor = 1000.0, [], factor
        self.campaign, self.output, self.stages, self.said = campaign, output, stages, []

    def run(self, command, folder, limit_s):
        took_s = min(self.factor * command.seconds, limit_s)
        self.now_s += took_s
        self.ran.append((command.line, round(limit_s)))
        if command.makes:
            (folder / command.makes).write_text(f"answer of {command.line}\n")
        return "ok" if took_s == self.factor * command.seconds else "timed out"

    def call(self, **options):
        """One call of the campaign, which begins now; returns what it left and what was run."""
        before = len(self.ran)
        one = self.campaign.campaign.Campaign(
            self.stages, self.output, self.run, clock_s=lambda: self.now_s, began_s=self.now_s, show=self.said.append,
            **options,
        )  # fmt: skip
        left = one.run_stages()
        return left, [line for line, _ in self.ran[before:]]


def stages_of(campaign, **seconds):
    """A stage of each name, with a command for every number of seconds: one-0, one-1, …"""
    return [
        campaign.stages.Stage(
            name,
            "a test's",
            tuple(
                campaign.stages.Command(f"{name}-{i}", s, makes=f"answer{i}.md") for i, s in enumerate(one)
            ),
        )
        for name, one in seconds.items()
    ]  # fmt: skip


# What half an hour on a card must give, whatever the estimates are worth.
FIRST = {"machine", "records", "tests", "diagnose-resnet50", "outside"}


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_the_first_five_calls_give_what_others_trust(campaign, tmp_path, factor):
    """Self-tests, records beside torch.profiler, GPU tests, the product with experiments, two outside numbers."""
    runs = FakeRuns(campaign, tmp_path / "gpu", campaign.stages.stages(), factor)
    for number in range(5):
        began_s = runs.now_s
        left, _ = runs.call(total_limit_s=CALL_S)
        assert runs.now_s - began_s <= CALL_S - campaign.campaign.RESERVE_S
        if number == 1 and factor <= 1:
            assert not FIRST & set(left)
    assert not FIRST & set(left)
    if factor == 1:  # and the truth of times, factors, planted causes and the profilers side by side
        assert set(left) <= {"ceilings", "energy", "networks", "memory-pressure", "counters", "operators"}
    ended = [line for line, limit_s in runs.ran if limit_s]
    assert max(map(ended.count, ended)) <= 2  # a command that the end of a call interrupts runs once more
    # Done is done: at the end everything has run, and no command failed.
    while left:
        left, _ = runs.call(total_limit_s=CALL_S)
    done = [json.loads(path.read_text()) for path in (tmp_path / "gpu" / "carry").glob("*/done.json")]
    assert {one["outcome"] for stage in done for one in stage["commands"]} == {"ok"}


def test_a_later_call_runs_only_the_commands_that_did_not_end(campaign, tmp_path):
    """Calls of 400 s, of which 25 are kept for the end; `two-1` takes 300 of the 275 s that are left for it."""
    runs = FakeRuns(campaign, tmp_path / "gpu", stages_of(campaign, one=(60,), two=(40, 300, 10), three=(60,)))
    assert runs.call(total_limit_s=400) == (["two", "three"], ["one-0", "two-0", "two-1"])
    assert "three: left for a later call" in runs.said
    assert runs.call(total_limit_s=400) == ([], ["two-1", "two-2", "three-0"])
    assert runs.call(total_limit_s=400) == ([], [])
    assert "two: done before (3 ok, 350 s)" in runs.said
    # The interrupted command's result is kept under another name.
    assert sorted(path.name.split(".md")[0] for path in (tmp_path / "gpu" / "two").glob("answer1*")) == ["answer1"] * 2


def test_a_command_that_hangs_or_does_not_fit_two_calls_failed(campaign, tmp_path):
    runs = FakeRuns(campaign, tmp_path / "gpu", stages_of(campaign, one=(20, 5)), factor=10)
    assert runs.call() == ([], ["one-0", "one-1"])  # 140 s are four times its estimate and a minute; 80 s likewise
    assert [limit_s for _, limit_s in runs.ran] == [140, 80]
    assert "failed: it did not end in time" in (tmp_path / "gpu" / "summary.md").read_text()
    runs = FakeRuns(campaign, tmp_path / "long", stages_of(campaign, one=(300,)), factor=2)
    assert runs.call(total_limit_s=400)[0] == ["one"]
    assert runs.call(total_limit_s=400)[0] == []
    assert "failed: it did not end in time, twice" in (tmp_path / "long" / "summary.md").read_text()


def test_on_another_machine_what_a_missing_command_reads_is_made_again(campaign, tmp_path):
    """The second machine has `carry` alone: `use` reads `made`, which `-o` names; `other` was read by nobody."""
    commands = [
        campaign.stages.Command(line, seconds)
        for line, seconds in (("make -o made", 10), ("make -o other", 10), ("use made", 300))
    ]
    runs = FakeRuns(campaign, tmp_path / "first", [campaign.stages.Stage("one", "a test's", tuple(commands))])
    assert runs.call(total_limit_s=145)[0] == ["one"]
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "carry").rename(tmp_path / "second" / "carry")
    runs.output = tmp_path / "second"
    assert runs.call() == ([], ["make -o made", "use made"])


def test_another_machine_resumes_from_the_carried_folder_alone(campaign, tmp_path):
    stages = stages_of(campaign, one=(60,), two=(60,))
    first = FakeRuns(campaign, tmp_path / "first", stages[:1])
    first.call()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "carry").rename(tmp_path / "second" / "carry")
    assert FakeRuns(campaign, tmp_path / "second", stages).call() == ([], ["two-0"])
    summary = (tmp_path / "second" / "summary.md").read_text()
    assert summary.index("answer of one-0") < summary.index("answer of two-0")


def test_the_packed_file_has_the_summary_first_then_small_results_then_recordings_that_fit(campaign, tmp_path):
    FakeRuns(campaign, tmp_path / "gpu", stages_of(campaign, one=(60,), two=(60,))).call()
    for name, size in (("one/recording/kernels", 2_000_000), ("two/small", 1000), ("two/test_data", 1000)):
        (tmp_path / "gpu" / name).mkdir(parents=True)
        # Bytes that do not compress.
        (tmp_path / "gpu" / name / "0.parquet").write_bytes(random.Random(0).randbytes(size))
    left_out = campaign.packing.pack(tmp_path / "gpu", ["one", "two"], tmp_path / "out.tar.gz", 1_000_000)
    assert left_out == ["one/recording (2.0 MB)"]
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        names = archive.getnames()
        summary = archive.extractfile("summary.md").read().decode()
    small = ["answer0.md", "done.json"]
    assert names == [
        "summary.md",
        *(f"carry/{stage}/{name}" for stage in ("one", "two") for name in small),
        *(f"{stage}/{name}" for stage in ("one", "two") for name in small),
        "two/test_data/0.parquet",
        "two/small/0.parquet",
    ]
    assert summary.endswith("## Not packed\n\n- one/recording (2.0 MB)\n")
    assert (tmp_path / "out.tar.gz").stat().st_size < 1_000_000


def run(tmp_path, *arguments):
    command = [sys.executable, FOLDER / "campaign.py", "-o", tmp_path / "out"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def test_a_terminated_campaign_packs_what_is_there(tmp_path):
    """SIGTERM, as `timeout` sends it, while a command runs: the stage is not done, and its log is packed."""
    program = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import stages
command = stages.Command("python -c 'import time; time.sleep(600)'")
stages.stages = lambda rehearse: (stages.Stage("one", "", (command,)),)
import campaign
sys.exit(campaign.main())
"""
    words = ["--rehearse", "-o", str(tmp_path / "gpu"), "--pack", str(tmp_path / "out.tar.gz")]
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE)
    log, limit_s = tmp_path / "gpu" / "one" / "log.txt", time.monotonic() + 600
    while time.monotonic() < limit_s and not (log.is_file() and log.stat().st_size):
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=600)
    assert process.returncode == 143
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert archive.getnames() == ["summary.md", "one/log.txt"]


STARTING = """import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
import running, stages
from pathlib import Path

Popen = subprocess.Popen
def start(*arguments, **options):
    process = Popen(*arguments, **options)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)  # before the caller has the process
    return process
subprocess.Popen = start
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
command = stages.Command("python -c 'import time; time.sleep(600)'")
running.run_command(command, Path("."), Path("."), 500.0, rehearsal=True)
"""


def test_a_command_that_starts_as_the_campaign_is_terminated_is_ended(tmp_path):
    words = [sys.executable, "-c", STARTING, str(FOLDER)]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 143, ended.stderr
    with pytest.raises(ProcessLookupError):
        os.killpg(int(ended.stdout), 0)


@pytest.mark.slow
def test_a_rehearsal_packs_the_records_that_a_cpu_gives(tmp_path):
    assert run(tmp_path, "--rehearse", "records").returncode == 0
    packed = tmp_path / "out" / "records" / "test_data"
    assert sorted(path.name for path in packed.iterdir()) == ["README.md", "collector", "torch_trace.json.gz"]
    log = (tmp_path / "out" / "records" / "log.txt").read_text()
    assert "raw_buffers.chunks.gz: not recorded here" in log
    assert "ncu.csv: not recorded here" in log


def imported(tree):
    """Each name of Curvescope that a program imports, and each attribute of a module of it: (module, name)."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curvescope"):
            for one in node.names:
                yield node.module, one.name
                modules[one.asname or one.name] = f"{node.module}.{one.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            path = modules[node.value.id]
            if find_spec(path.rpartition(".")[0]) and is_module(path):
                yield path, node.attr


def is_module(path):
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:  # a class
        return False


def test_what_runs_only_on_a_card_names_only_what_there_is():
    """Nothing else here would notice that a function was renamed."""
    root = FOLDER.parents[1]
    marked = [path for path in root.glob("tests/*/**/test_*.py") if "mark.gpu" in path.read_text()]
    assert len(marked) >= 4
    for path in [*FOLDER.glob("*.py"), *marked]:
        for module, name in imported(ast.parse(path.read_text())):
            found = importlib.import_module(module)
            assert hasattr(found, name) or is_module(f"{module}.{name}"), f"{path.name}: {module}.{name}"


def test_a_kept_campaign_fills_the_page_of_known_errors(campaign, tmp_path, monkeypatch):
    """`keep.py` puts `checks.md` there; each row of the page has a check that exists."""
    monkeypatch.syspath_prepend(FOLDER.parents[1] / "docs")
    page = importlib.import_module("known_errors_page")
    assert {row.check for row in page.ROWS} <= {check.__name__ for check in campaign.checks.CHECKS}
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    assert "| on a card |" in page.known_errors_page()
    (tmp_path / "h100" / "checks").mkdir(parents=True)
    rows = (
        "| check | question | answer |",
        "| --- | --- | --- |",
        "| event_pair | What? | nothing 1490 ns (1400 to 1500) |",
    )
    (tmp_path / "h100" / "checks" / "checks.md").write_text("\n".join(rows) + "\n")
    lines = page.known_errors_page().splitlines()
    assert any(line.endswith("| nothing 1490 ns (1400 to 1500) |") for line in lines)
    assert sum(line.endswith("| not measured |") for line in lines) == len(page.ROWS) - 1
