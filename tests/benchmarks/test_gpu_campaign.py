"""The GPU campaign's machinery, on stages of the test's; its real ones are listed, and rehearsed on
a virtual card.
"""

import ast
import importlib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from curvescope.analysis.causes.catalogue import CAUSES
from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

from ..profiling.measure import test_cuda

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
MODULES = (
    "scripts", "stages", "checks", "running", "packing", "campaign", "machine", "keep", "truth", "overhead", "peaks",
    "wheels", "rehearse", "identical",
)  # fmt: skip


@pytest.fixture(scope="module")
def campaign():
    """The campaign's modules, with their names in one place."""
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    loaded = {name: importlib.import_module(name) for name in MODULES}
    yield type("Modules", (), loaded)
    sys.path[:] = before
    for name in MODULES:
        sys.modules.pop(name, None)


FIRST_S, SECOND_S = 530, 140  # the limits of the two calls
# What the first call must give, in this order, and what the second.
OF_FIRST = ("gate", "odd", "identical", "planted", "collector")
OF_SECOND = ("program", "transformer")


def test_the_two_calls_hold_the_first_stages_in_the_order_of_their_value(campaign):
    stages = campaign.stages.stages()
    assert tuple(stage.name for stage in stages[: len(OF_FIRST)]) == OF_FIRST
    assert (
        sum(stage.seconds for stage in stages[: len(OF_FIRST)])
        <= FIRST_S - campaign.campaign.RESERVE_S
    )
    assert stages[len(OF_FIRST)].name == OF_SECOND[0]
    assert [re.search(r"--total-limit (\d+)", call)[1] for call in campaign.rehearse.CALLS] == [
        str(FIRST_S),
        str(SECOND_S),
    ]


def test_every_stage_stands_alone(campaign):
    stages = campaign.stages.stages()
    assert len({stage.name for stage in stages}) == len(stages)
    commands = [(stage, command) for stage in stages for command in stage.commands]
    # No command reaches into another stage's folder, or does what another of its stage does.
    assert not any(".." in word.split("/") for _, command in commands for word in command.argv)
    assert len({(stage.name, command.line) for stage, command in commands}) == len(commands)
    # What prints at its end leaves nothing when it is cut, so it starts only if all of it fits.
    assert all(
        command.whole
        for _, command in commands
        if command.seconds > 100 and " > " in shlex.join(command.made)
    )


# Two starts of a step as it is and of a changed one, 6 s each: in less time no change is tried.
LEAST_TRIED_S = 24


def test_a_diagnosis_of_a_step_has_time_to_try_a_change_or_none(campaign):
    """With 10 s the model's graphs and kernels of attention were never tried."""
    limits_s = {}
    for stage in campaign.stages.stages():
        for command in stage.commands:
            asked = re.search(r"--experiments (\d+)", command.line)
            if asked and "{batch}" not in command.line:
                limits_s[command.line] = int(asked[1])
    assert limits_s
    assert not [line for line, limit_s in limits_s.items() if 0 < limit_s < LEAST_TRIED_S]


def test_no_stage_changes_a_clock(campaign):
    """ncu locks the clocks to the base clock unless it is told not to."""
    for stage in campaign.stages.stages():
        for command in stage.commands:
            assert "--lock-clocks" not in command.line
            assert "locked_clock" not in command.argv
            assert command.argv[0] != "nvidia-smi"
            if command.argv[0] == "ncu":
                assert "--clock-control=none" in command.argv


def test_every_stage_that_records_fails_where_nothing_was_recorded(campaign):
    for stage in campaign.stages.stages():
        if stage.name.startswith(("records", "diagnosis", "networks", "further-records")):
            assert any("check_recording.py" in command.line for command in stage.commands), (
                stage.name
            )


def test_every_factor_of_complete_steps_on_a_gpu_is_tried_once_but_the_locked_clock(campaign):
    (stage,) = (stage for stage in campaign.stages.stages() if stage.name == "factors")
    tried = [command.argv[3] for command in stage.commands if "step_factors.py" in command.line]
    on_gpu = {name for name in names_of("step") if FACTORS[name].refusal("cuda:0") is None}
    elsewhere = {name for name in on_gpu if FACTORS[name].frameworks} | {"loader_workers"}
    assert sorted(tried) == sorted(["unmodified", *on_gpu - elsewhere - {"locked_clock"}])
    assert not [name for name in tried if name.startswith(("jax", "tensorflow"))]


def test_every_check_is_asked_once(campaign):
    asked = [
        name
        for stage in campaign.stages.stages()
        for command in stage.commands
        if "checks.py" in command.line
        for name in command.argv[2].split(",")
    ]
    assert sorted(asked) == sorted(check.__name__ for check in campaign.checks.CHECKS)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_every_planted_cause_is_one_that_can_be_named(campaign):
    planted = importlib.import_module("planted")
    assert {plant.__name__ for plant in planted.EXPECTED} == set(campaign.stages._SCALE["planted"])
    assert set(", ".join(planted.EXPECTED.values()).split(", ")) <= set(CAUSES)
    assert planted.PLANTED_AT in planted.BATCHES[1:-1]  # a bend, not the end of the curve


class FakeRuns:
    """Runs commands in no time: each takes its estimate, times a factor, of a clock that stands
    still otherwise.
    """

    def __init__(self, campaign, output, stages, factor=1.0):
        self.now_s, self.ran, self.factor = 1000.0, [], factor
        self.campaign, self.output, self.stages, self.said = campaign, output, stages, []
        self.kept = []

    def run(self, command, folder, limit_s):
        took_s = min(self.factor * command.seconds, limit_s)
        self.now_s += took_s
        self.ran.append((command.line, round(limit_s)))
        if command.makes:
            self.campaign.scripts.add_row(
                folder / command.makes, {"answer": f"answer of {command.line}"}
            )
        return "ok" if took_s == self.factor * command.seconds else "timed out"

    def call(self, **options):
        """One call of the campaign, which begins now; returns what it left and what was run."""
        before = len(self.ran)
        one = self.campaign.campaign.Campaign(
            self.stages, self.output, self.run, clock_s=lambda: self.now_s, began_s=self.now_s, show=self.said.append,
            keep=lambda: self.kept.append(len(self.ran)), **options,
        )  # fmt: skip
        left = one.run_stages()
        return left, [line for line, _ in self.ran[before:]]

    def summary(self, virtual=False):
        return self.campaign.campaign.summary(self.output, virtual=virtual)


def stages_of(campaign, whole=(), **seconds):
    """A stage of each name, with a command for every number of seconds: one-0, one-1, …"""
    return [
        campaign.stages.Stage(
            name,
            "a test's",
            tuple(
                campaign.stages.Command(f"{name}-{i}", s, makes=f"answer{i}.jsonl", whole=f"{name}-{i}" in whole)
                for i, s in enumerate(one)
            ),
        )
        for name, one in seconds.items()
    ]  # fmt: skip


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3])
def test_two_calls_give_what_a_first_quarter_of_an_hour_must(campaign, tmp_path, factor):
    """Whatever the estimates are worth: slower commands leave the last stages for later, not the
    first.
    """
    runs = FakeRuns(campaign, tmp_path / "gpu", campaign.stages.stages(), factor)
    left, _ = runs.call(total_limit_s=FIRST_S)
    assert not {"gate", "odd", "identical"} & set(left)
    if factor <= 1:
        assert not set(OF_FIRST) & set(left)
    began_s = runs.now_s
    left, _ = runs.call(total_limit_s=SECOND_S)
    assert runs.now_s - began_s <= SECOND_S
    assert not set(OF_FIRST if factor <= 1 else OF_FIRST[:-2]) & set(left)
    if factor <= 1:
        assert not set(OF_SECOND) & set(left)


def test_a_later_call_runs_only_the_commands_that_did_not_end(campaign, tmp_path):
    """Calls of 385 s, of which 10 are kept for packing; `two-1` takes 300 of the 275 s that are
    left for it.
    """
    runs = FakeRuns(
        campaign, tmp_path / "gpu", stages_of(campaign, one=(60,), two=(40, 300, 10), three=(60,))
    )
    assert runs.call(total_limit_s=385) == (["two", "three"], ["one-0", "two-0", "two-1"])
    assert "three: left for a later call" in runs.said
    assert runs.kept == [1, 3]  # after every stage
    assert runs.call(total_limit_s=385) == ([], ["two-1", "two-2", "three-0"])
    assert runs.call(total_limit_s=385) == ([], [])
    assert "two: done before (3 ok, 350 s)" in runs.said
    # The interrupted command's result is kept under another name.
    assert len(list((tmp_path / "gpu" / "two").glob("answer1.jsonl*"))) == 2


def test_what_tells_its_results_at_its_end_starts_only_if_all_of_it_fits(campaign, tmp_path):
    """A third of the estimate is enough for the others, which keep what they have."""
    stages = stages_of(campaign, one=(60,), two=(150, 10), three=(60,), whole=["two-0"])
    runs = FakeRuns(campaign, tmp_path / "gpu", stages)
    assert runs.call(total_limit_s=180) == (["two"], ["one-0", "three-0"])
    assert runs.call(total_limit_s=180) == ([], ["two-0", "two-1"])


def test_what_is_cut_at_the_end_of_a_call_keeps_what_it_has_and_the_next_call_reads_that(
    campaign, tmp_path
):
    """`two-0` measures, and takes twice its estimate: it is not run anew, and `two-1` explains what
    it recorded.
    """
    runs = FakeRuns(
        campaign, tmp_path / "gpu", stages_of(campaign, two=(150, 10), whole=["two-0"]), factor=2
    )
    assert runs.call(total_limit_s=165) == (["two"], ["two-0"])
    assert runs.call(total_limit_s=165) == ([], ["two-1"])
    assert "cut: its time was up, and it keeps what it has" in runs.summary()
    # Where there is time, it does not take that of the stages behind it: half its estimate more,
    # and it is cut.
    runs = FakeRuns(
        campaign, tmp_path / "long", stages_of(campaign, two=(100, 10), whole=["two-0"]), factor=3
    )
    assert runs.call(total_limit_s=500) == ([], ["two-0", "two-1"])
    assert runs.ran[0] == ("two-0", 150)


def test_no_command_of_a_call_with_a_limit_takes_the_time_of_the_stages_behind_it(
    campaign, tmp_path
):
    stages = stages_of(campaign, one=(20,), two=(20,))
    runs = FakeRuns(campaign, tmp_path / "gpu", stages, factor=10)
    assert runs.call(total_limit_s=140)[0] == []
    assert [limit_s for _, limit_s in runs.ran] == [50, 50]
    assert "failed: it did not end in time" in runs.summary()


def test_pairs_of_processes_are_judged_by_their_steps_and_by_each_other(campaign):
    steady, slower = [10.0, 10.1, 9.9, 10.0], [10.5, 10.6, 10.4, 10.5]
    pairs = [[{"8": steady}, {"8": steady}], [{"8": steady}, {"8": slower}]]
    row = campaign.identical.row("8", pairs)
    assert (row["pairs"], row["pairs whose steps differ"]) == (2, 1)
    assert row["widest pair"] == pytest.approx(1.05)
    assert row["second over first"] == pytest.approx(1.05**0.5)
    low, high = map(float, row["interval over processes"].split(" to "))
    assert low < 1 < high
    assert campaign.identical.row("8", pairs[:1])["interval over processes"] is None


def test_a_command_that_hangs_or_does_not_fit_two_calls_failed(campaign, tmp_path):
    runs = FakeRuns(campaign, tmp_path / "gpu", stages_of(campaign, one=(20, 5)), factor=10)
    assert runs.call() == (
        [],
        ["one-0", "one-1"],
    )  # 140 s are four times its estimate and a minute; 80 s likewise
    assert [limit_s for _, limit_s in runs.ran] == [140, 80]
    assert "failed: it did not end in time" in runs.summary()
    runs = FakeRuns(campaign, tmp_path / "long", stages_of(campaign, one=(300,)), factor=2)
    assert runs.call(total_limit_s=400)[0] == ["one"]
    assert runs.call(total_limit_s=400)[0] == []
    assert "failed: it did not end in time, twice" in runs.summary()


DEVICE = {
    "name": "NVIDIA H100 80GB HBM3",
    "key": "h100",
    "driver": "1",
    "python": "3.12",
    "packages": {"torch": "2"},
}


def packed(campaign, tmp_path, virtual=False):
    """The six files of a campaign of the test's."""
    runs = FakeRuns(
        campaign,
        tmp_path / "gpu",
        stages_of(campaign, gate=(5,), records=(5,), diagnosis=(5,), truth=(5,)),
    )
    runs.call()
    (tmp_path / "gpu" / "gate" / "device.json").write_text(json.dumps(DEVICE))
    for path in (
        "records/test_data/README.md",
        "records/test_data/collector/recording.json",
        "diagnosis/log.txt",
    ):
        (tmp_path / "gpu" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "gpu" / path).write_text(f"# {path}")
    (tmp_path / "gpu" / "truth" / "ncu.csv").write_text('"ID"')
    target = tmp_path / "out"
    assert campaign.packing.pack(tmp_path / "gpu", runs.summary(virtual), virtual, target) == []
    return target


def test_six_files_hold_what_the_campaign_left(campaign, tmp_path):
    target = packed(campaign, tmp_path)
    assert sorted(path.name for path in target.iterdir()) == [
        "diagnosis.tgz", "evidence.json", "logs.tgz", "ncu.csv", "summary.md", "test_data.tgz",
    ]  # fmt: skip
    evidence = json.loads((target / "evidence.json").read_text())
    assert evidence["device"] == DEVICE
    assert evidence["virtual"] is False
    assert evidence["stages"][1]["tables"] == {"answer0": [{"answer": "answer of records-0"}]}
    assert "| answer of records-0 |" in (target / "summary.md").read_text()
    with tarfile.open(target / "test_data.tgz") as archive:
        assert set(archive.getnames()) == {
            "records/test_data/README.md",
            "records/test_data/collector/recording.json",
        }
    with tarfile.open(target / "logs.tgz") as archive:
        assert "diagnosis/log.txt" in archive.getnames()


def test_what_is_too_large_is_left_out_and_said(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign.packing, "MOST_BYTES", 1_000_000)
    FakeRuns(campaign, tmp_path / "gpu", stages_of(campaign, diagnosis=(60,))).call()
    for name, size in (("large", 2_000_000), ("small", 1000)):
        # Bytes that do not compress.
        (tmp_path / "gpu" / "diagnosis" / f"{name}.parquet").write_bytes(
            random.Random(0).randbytes(size)
        )
    left_out = campaign.packing.pack(tmp_path / "gpu", "# GPU campaign\n", False, tmp_path / "out")
    assert left_out == ["diagnosis/large.parquet (2.0 MB)"]
    with tarfile.open(tmp_path / "out" / "diagnosis.tgz") as archive:
        assert "diagnosis/small.parquet" in archive.getnames()
    assert (
        (tmp_path / "out" / "summary.md")
        .read_text()
        .endswith("as too large\n\n- diagnosis/large.parquet (2.0 MB)\n")
    )


def keep(campaign, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["keep.py", *map(str, words)])
    return campaign.keep.main()


def test_what_is_kept_is_named_by_the_card(campaign, tmp_path, monkeypatch):
    target = packed(campaign, tmp_path)
    assert keep(campaign, monkeypatch, target, "--into", tmp_path / "kept") == 0
    kept = tmp_path / "kept"
    assert (kept / "tests" / "data" / "h100" / "collector" / "recording.json").exists()
    assert (
        kept / "tests" / "data" / "h100" / "README.md"
    ).read_text() == "# records/test_data/README.md"
    assert sorted(path.name for path in (kept / "benchmarks" / "results" / "h100").iterdir()) == [
        "evidence.json",
        "ncu.csv",
        "summary.md",
    ]
    summary = (kept / "benchmarks" / "results" / "h100" / "summary.md").read_text()
    assert summary.startswith("# The GPU campaign on NVIDIA H100 80GB HBM3\n")
    with pytest.raises(SystemExit):  # nothing is overwritten
        keep(campaign, monkeypatch, target, "--into", tmp_path / "kept")


def test_what_ran_on_a_virtual_card_is_called_so_and_is_no_evidence(
    campaign, tmp_path, monkeypatch, capsys
):
    target = packed(campaign, tmp_path, virtual=True)
    assert campaign.campaign.VIRTUAL in (target / "summary.md").read_text()
    with pytest.raises(SystemExit):
        keep(campaign, monkeypatch, target)
    assert "virtual card" in capsys.readouterr().err


@pytest.mark.slow
def test_a_terminated_campaign_packs_what_is_there(tmp_path):
    """SIGTERM, as `timeout` sends it, while a command of the second stage runs: the first is
    packed.
    """
    program = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import stages
commands = [stages.Command(f"python -c 'import time; time.sleep({{seconds}})'") for seconds in (0, 600)]
stages.stages = lambda **_: tuple(stages.Stage(name, "", (one,)) for name, one in zip(("one", "two"), commands))
import campaign, curvescope.profiling.hardware.cuda_driver as driver
driver.count_gpus = lambda: 1
sys.exit(campaign.main())
"""
    words = ["-o", str(tmp_path / "gpu"), "--pack", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE)
    log, limit_s = tmp_path / "gpu" / "two" / "log.txt", time.monotonic() + 600
    while process.poll() is None and not (log.is_file() and log.stat().st_size):
        assert time.monotonic() < limit_s
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=600)
    assert process.returncode == 143
    with tarfile.open(tmp_path / "out" / "logs.tgz") as archive:
        assert archive.getnames() == ["one/log.txt", "one/done.json"]


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
running.run_command(command, Path("."), Path("."), 500.0)
"""


@pytest.mark.slow
def test_a_command_that_starts_as_the_campaign_is_terminated_is_ended(tmp_path):
    words = [sys.executable, "-c", STARTING, str(FOLDER)]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 143, ended.stderr
    with pytest.raises(ProcessLookupError):
        os.killpg(int(ended.stdout), 0)


def imported(tree):
    """Each name of Curvescope that a program imports, and each attribute of a module of it:
    (module, name).
    """
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curvescope"):
            for one in node.names:
                yield node.module, one.name
                modules[one.asname or one.name] = f"{node.module}.{one.name}"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        ):
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
            assert hasattr(found, name) or is_module(f"{module}.{name}"), (
                f"{path.name}: {module}.{name}"
            )


def test_a_kept_campaign_fills_the_page_of_known_errors(campaign, tmp_path, monkeypatch):
    """`keep.py` puts `evidence.json` there; each row of the page has an answer that a
    stage writes.
    """
    monkeypatch.syspath_prepend(ROOT / "docs")
    page = importlib.import_module("known_errors_page")
    written = {check.__name__ for check in campaign.checks.CHECKS}
    for name in ("truth", "overhead", "peaks"):
        written |= set(re.findall(r'"check": "(\w+)"', (FOLDER / f"{name}.py").read_text()))
    assert {row.check for row in page.ROWS} <= written
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    assert "| on a card |" in page.known_errors_page()
    (tmp_path / "h100").mkdir()
    rows = [
        {"check": "event_pair", "question": "What?", "answer": "nothing 1490 ns (1400 to 1500)"}
    ]
    stages = [{"stage": "errors", "tables": {"checks": rows}}, {"stage": "gate", "tables": {}}]
    (tmp_path / "h100" / "evidence.json").write_text(json.dumps({"stages": stages}))
    lines = page.known_errors_page().splitlines()
    assert any(line.endswith("| nothing 1490 ns (1400 to 1500) |") for line in lines)
    assert sum(line.endswith("| not measured |") for line in lines) == len(page.ROWS) - 1


def test_what_ranges_add_is_the_answer_on_marks_and_ranges(campaign, tmp_path, monkeypatch):
    """The stalls of CUPTI, which the check `collector_overhead` adds up, say nothing of ranges."""

    def sample(step_ms):
        return {"step_ms": step_ms, "launch_ns": 2000.0, "steps": 21, "launches": 100}

    taken = {
        "none": [sample(5.0)],
        "collector": [sample(5.0)],
        "collector and ranges": [sample(5.5)],
    }
    campaign.overhead.write(taken, tmp_path / "watching.jsonl", tmp_path / "checks.jsonl")
    (row,) = campaign.scripts.read_rows(tmp_path / "checks.jsonl")
    other = {"check": "collector_overhead", "question": "What?", "answer": "stalls"}
    stages = [{"stage": "collector", "tables": {"checks": [other, row]}}]
    (tmp_path / "h100").mkdir()
    (tmp_path / "h100" / "evidence.json").write_text(json.dumps({"stages": stages}))
    monkeypatch.syspath_prepend(ROOT / "docs")
    page = importlib.import_module("known_errors_page")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    (line,) = (
        one for one in page.known_errors_page().splitlines() if "| Marks and ranges |" in one
    )
    assert line.endswith("| 1.1000 times; 1 processes each |")


def test_a_warning_of_a_newer_package_ends_no_test_of_a_gpu(campaign):
    """Warnings are errors in our own runs; the packages of a card's machine are newer."""
    commands = [
        command.argv
        for stage in campaign.stages.stages()
        for command in stage.commands
        if "pytest" in command.argv
    ]
    assert commands
    for words in commands:
        assert words[words.index("-W") + 1] == "default"


def test_the_short_campaign_has_every_stage_and_every_command(campaign):
    """Of a list of networks or factors it has the first ones; `tests/virtual_card` runs it."""

    def scripts_of(stages):
        found = {}
        for stage in stages:
            lines = (command.line.replace("alexnet", "vgg_a") for command in stage.commands)
            found[stage.name] = {
                tuple(re.findall(r"[\w/]+\.py|^curvescope \w+", line)) for line in lines
            }
        return found

    whole, short = campaign.stages.stages(), campaign.stages.stages(short=True)
    assert scripts_of(short) == scripts_of(whole)
    assert sum(len(stage.commands) for stage in short) < sum(len(stage.commands) for stage in whole)


def test_no_module_of_the_tests_imports_jsonschema_where_it_is_read():
    """A GPU machine without a network lacks it."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if "import jsonschema" not in text:
            continue
        for node in ast.parse(text).body:
            imported = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert "jsonschema" not in imported, path


@pytest.mark.slow
def test_the_tests_of_a_gpu_are_collected_without_jsonschema():
    """A GPU machine without a network lacks it, and one error of collection ends a run
    of pytest.
    """
    files = [
        "tests/native/test_gpu.py",
        "tests/profiling/measure/test_cuda.py",
        "tests/curvescope/test_json_documents.py",
    ]
    program = f"""
import sys
sys.modules["jsonschema"] = None
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *{files!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "tests/native/test_gpu.py::" in done.stdout


def test_tools_are_found_where_nvidia_installs_them(campaign, tmp_path):
    for folder in ("cuda/bin", "ncu/2025.3.1", "ncu/2025.10.0"):
        (tmp_path / folder).mkdir(parents=True)
    environment = {"PATH": "/bin"}
    campaign.machine.find_tools(environment, tmp_path / "cuda", tmp_path / "ncu")
    assert environment["PATH"] == f"/bin:{tmp_path}/cuda/bin:{tmp_path}/ncu/2025.10.0"
    assert environment["CUDA_HOME"] == str(tmp_path / "cuda")
    without = {"PATH": "/bin"}
    campaign.machine.find_tools(without, tmp_path / "none", tmp_path / "nowhere")
    assert without == {"PATH": "/bin"}


def test_wheels_are_of_dependencies_alone_and_curvescope_comes_from_the_tree(campaign, tmp_path):
    assert not any(one.startswith("curvescope") for one in campaign.wheels.needed(()))
    with zipfile.ZipFile(tmp_path / "curvescope.whl", "w") as wheel:
        wheel.writestr("curvescope/profiling/libcurvescope_collector.so", b"ELF")
        wheel.writestr("curvescope/cli.py", "")
    campaign.wheels.take_collector(tmp_path / "curvescope.whl", tmp_path)
    assert (tmp_path / "libcurvescope_collector.so").read_bytes() == b"ELF"


def test_the_pages_tell_the_commands_that_are_rehearsed(campaign):
    for page in (FOLDER / "README.md", ROOT / "docs" / "internals" / "gpu-campaign.md"):
        for call in campaign.rehearse.CALLS:
            assert call in page.read_text(), page.name


def test_a_tree_that_is_rehearsed_is_what_travels(campaign):
    """Every version of the replica's packages stands in its file."""
    lines = [
        line
        for line in (FOLDER / "replica.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert "torch==2.11.0" in lines


def test_short_kernels_are_not_judged_against_do_bench():
    """do_bench's own flush leaves changed lines of an L2, some microseconds of write-back."""
    sys.path.insert(0, str(FOLDER))
    try:
        against = importlib.import_module("against_do_bench")
    finally:
        sys.path.remove(str(FOLDER))
    outcomes = [
        against.row("p", [(ours, theirs)] * 5)["outcome"]
        for ours, theirs in ((0.02, 0.03), (1.0, 1.01), (1.0, 1.1))
    ]
    assert outcomes == ["too short to judge", "within 2 %", "beyond 2 %"]


def test_what_watching_adds_is_told_by_record(campaign):
    """A launch takes 2,000 ns alone and 2,600 ns watched: two records, the call and the kernel, 300
    ns each.
    """
    plain = [{"step_ms": 5.0, "launch_ns": 2000.0, "steps": 21, "launches": 100}] * 3
    seen = [
        {
            "step_ms": 5.1,
            "launch_ns": 2600.0,
            "steps": 21,
            "launches": 100,
            "kernels": 2100,
            "launched": 100,
            "lost": 0,
        }
    ] * 3
    row = campaign.overhead.row("collector", seen, plain)
    assert row["ns per record"] == pytest.approx(300)
    assert row["kernels_per_step"] == 100
    assert row["step's ns per kernel"] == pytest.approx(1000)  # 0.1 ms of 100 kernels
    assert row["ratio to none"] == pytest.approx(1.02)
    assert campaign.overhead.row("none", plain, plain)["ns per record"] is None


def test_a_watcher_that_fails_does_not_take_the_others_figures(campaign, tmp_path, monkeypatch):
    """On an H100 one failed, and of three others nothing was kept."""

    def run_sample(watcher, words):
        started.append(watcher)
        if watcher == "collector":
            raise subprocess.CalledProcessError(2, "overhead.py")
        return {"step_ms": 5.0, "launch_ns": 2000.0, "steps": 21, "launches": 100}

    started = []
    monkeypatch.setattr(campaign.overhead, "run_sample", run_sample)
    paths = [str(tmp_path / name) for name in ("watching.jsonl", "checks.jsonl")]
    monkeypatch.setattr("sys.argv", ["overhead.py", "vgg_a", "cuda:0", "8", "3", *paths])
    assert campaign.overhead.main() == 1
    rows = campaign.scripts.read_rows(tmp_path / "watching.jsonl")
    kept = {row["watched by"]: row["processes"] for row in rows}
    assert kept == dict.fromkeys(set(campaign.overhead.WATCHERS) - {"collector"}, 3)
    assert started.count("collector") == 1


GRID = {"grid_x": 4, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}


def kernel(number, name, duration_ns, operator=None, **geometry):
    return {
        **GRID,
        **geometry,
        "name": name,
        "duration_ns": duration_ns,
        "correlation_id": number,
        "operator": operator,
    }


def ncu_csv(path, kernels):
    """The raw page of Nsight Compute: a row of units, then a row for each kernel."""
    heads = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC"]
    metrics = {"gpu__time_duration.sum": "us", "sm__cycles_elapsed.max": "cycle"}
    rows = [[*heads, *metrics], [*[""] * len(heads), *metrics.values()]]
    for number, (name, grid, us, cycles) in enumerate(kernels):
        rows.append([number, 7, name, "(256, 1, 1)", f"({grid}, 1, 1)", 0, "9.0", us, cycles])
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n")
    return open_recording(import_profile(path, path.with_suffix("")).path).frame("kernels")


def test_kernels_of_three_clocks_are_joined_by_name_grid_and_order(campaign, tmp_path):
    """Two operators run the same kernel in another grid; ncu saw one kernel more, of the start."""
    calls = campaign.truth._CALLS
    kernels = pd.DataFrame(
        [kernel(0, "warm_up", 900)]
        + [kernel(1 + i, "add", 10_000, "small") for i in range(calls)]
        + [kernel(20 + i, "add", 40_000, "large", grid_x=16) for i in range(calls)]
    )
    counted = ncu_csv(
        tmp_path / "ncu.csv",
        [("initialise", 1, 1, 2000), ("warm_up", 4, 1, 2000)]
        + [("add", 4, 9, 18_000)] * calls
        + [("add", 16, 40, 80_000)] * calls,
    )
    pairs = [
        {"operator": name, "ns": ns, "clock_hz": 2e9}
        for name, ns in (("small", 12_500.0), ("large", 43_000.0))
    ]
    small, large = campaign.truth.join(pairs, kernels, counted)
    assert (small["joined"], small["grid"]) == (f"{calls} of {calls}", "4x1x1")
    assert (small["events_us"], small["collector_us"], small["ncu_us"]) == (12.5, 10.0, 9.0)
    assert (small["collector_kilocycles"], small["ncu_kilocycles"]) == (20.0, 18.0)
    assert small["events - collector, us"] == 2.5
    assert large["collector / ncu, time"] == large["collector / ncu, cycles"] == 1.0
    said = campaign.truth.answer([small, large])
    assert said.startswith("cycles 1.056 (1.000 to 1.111), 2 operators; time 1.056")
    # Without ncu the times of the other two are there.
    alone = list(campaign.truth.join(pairs, kernels, None))
    assert (alone[0]["collector_us"], alone[0]["ncu_us"], alone[0]["joined"]) == (
        10.0,
        None,
        f"0 of {calls}",
    )


def test_a_kernel_that_ncu_missed_is_missing_where_its_grid_is(campaign, tmp_path):
    """Of equal names alone, the four large ones and a small one would be the five large ones."""
    calls = campaign.truth._CALLS
    kernels = pd.DataFrame(
        [kernel(i, "add", 10_000, "small") for i in range(calls)]
        + [kernel(20 + i, "add", 40_000, "large", grid_x=16) for i in range(calls)]
    )
    seen = [("initialise", 1, 1, 2000)] + [("add", 4, 9, 18_000)] * calls
    counted = ncu_csv(tmp_path / "ncu.csv", seen + [("add", 16, 40, 80_000)] * (calls - 1))
    pairs = [{"operator": name, "ns": 1.0, "clock_hz": 2e9} for name in ("small", "large")]
    small, large = campaign.truth.join(pairs, kernels, counted)
    assert (small["joined"], small["ncu_us"]) == (f"{calls} of {calls}", 9.0)
    assert (large["joined"], large["ncu_us"]) == (f"{calls - 1} of {calls}", None)


@dataclass
class FakePair:
    """A backend whose pair of events reads 1,300 ns around nothing and 4,100 ns around a kernel."""

    of_kernels_ns: tuple[int, ...]
    launches: list[int]

    @property
    def timer(self):
        return self

    def take(self, run, calls, samples, flush):
        before = len(self.launches)
        run()
        ns = 1300.0 if len(self.launches) == before else 4100.0
        return [SimpleNamespace(duration_ns=ns)] * samples

    def record(self, run, *_):
        run()
        return SimpleNamespace(kernels=[{"duration_ns": ns} for ns in self.of_kernels_ns])


@pytest.mark.parametrize(
    ("of_kernels_ns", "said"),
    [
        (
            (1100, 1150, 1150),
            "the kernel itself 1150 ns by CUPTI (n 3): the pair adds 2950 ns",
        ),
        ((), "CUPTI recorded no kernel"),
    ],
)
def test_what_a_pair_of_events_adds_is_told_beside_the_kernels_own_time(
    campaign, monkeypatch, of_kernels_ns, said
):
    launches = []
    number = SimpleNamespace(add_=launches.append)
    torch = SimpleNamespace(zeros=lambda *_, **__: number)
    monkeypatch.setattr(campaign.checks, "import_torch", lambda: torch)
    backend = FakePair(of_kernels_ns, launches)
    monkeypatch.setattr("curvescope.kernels.backends.open_backend", lambda *_: backend)
    answer = campaign.checks.event_pair(campaign.checks.Context("cuda:0", "vgg_a", 1))
    of_events = "nothing 1300 ns (1300 to 1300); the smallest kernel 4100 ns (4100 to 4100); "
    assert answer == of_events + said


def test_the_test_of_a_gpu_asks_for_no_factor_that_refuses_cuda():
    asked = {*test_cuda.TOGETHER, *test_cuda.COMPILED}
    assert {name: FACTORS[name].refusal("cuda:0") for name in asked} == dict.fromkeys(asked)


def test_a_kernel_belongs_to_the_operator_in_whose_range_it_was_launched(campaign, tmp_path):
    with RecordingWriter(tmp_path / "r", {}) as writer:
        calls = [(1, 100), (2, 1100), (3, 1200), (4, 5000)]
        own = {"source": "cupti"}
        api = [
            {**own, "correlation_id": n, "start_ns": at, "duration_ns": 5, "name": "cuLaunchKernel"}
            for n, at in calls
        ]
        started = [
            {**own, "correlation_id": n, "start_ns": 9000 + n, "duration_ns": 10, "name": f"k{n}"}
            for n, _ in calls
        ]
        ranges = [
            {**own, "kind": "range", "name": "truth add", "start_ns": 1000, "duration_ns": 500},
            {**own, "kind": "range", "name": "other", "start_ns": 0, "duration_ns": 9},
        ]
        writer.write("api_calls", columns_of(api))
        writer.write("kernels", columns_of(started))
        writer.write("ranges", columns_of(ranges))
    found = campaign.truth.collected(tmp_path / "r")
    assert list(zip(found["name"], found["operator"], strict=True)) == [
        ("k1", None), ("k2", "add"), ("k3", "add"), ("k4", None),
    ]  # fmt: skip


def test_a_peak_is_held_to_the_nominal_clock_and_to_that_of_the_moment(campaign):
    """An H100's 989 TFLOP/s in bf16 are at 1,830 MHz."""
    from curvescope.kernels.gemm import Gemm
    from curvescope.kernels.memory import Memory
    from curvescope.profiling.hardware.devices import get_device

    h100 = get_device("h100")
    per_s, clock_hz = campaign.peaks.nominal(Gemm(8, 8, 8, precision="bf16"), h100)
    assert (per_s, clock_hz) == (pytest.approx(989.4e12, rel=1e-3), 1.83e9)
    per_s, clock_hz = campaign.peaks.nominal(Gemm(8, 8, 8), h100)
    assert (per_s, clock_hz) == (pytest.approx(66.9e12, rel=1e-3), 1.98e9)
    assert campaign.peaks.nominal(Memory("copy", 1 << 20), h100) == (3.35e12, 0.0)
