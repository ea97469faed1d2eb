"""The page of the benchmarks, and the judge of the fault trials, without running what takes long."""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_a_script_becomes_a_section_with_ratio_and_spread(load, tmp_path, monkeypatch):
    page, results = load("page"), load("results")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from results import Result, Row, write\n"
        "row = Row.of('reading', 'pandas', 's', [1.0, 2.0, 3.0], [4.0, 4.0, 6.0], [4.0, 2.0, 2.0])\n"
        "write(Result('x', 'X', [row], 'They draw better.'))\nprint('it printed')\n"
    )
    monkeypatch.setattr(page, "HERE", tmp_path)
    benchmark = page.Benchmark("x", "Title of it", ("script.py",), 1)
    monkeypatch.setattr(page, "BENCHMARKS", (benchmark, page.Benchmark("y", "Another", ("y.py",), 1)))
    text = page.page({"x": page.run(benchmark)})
    assert "| reading | pandas | 2 s | 4 s | 2.00 | 2.00 … 4.00 | 3 |" in text
    assert "it printed" in text
    assert "What peers do better: They draw better." in text
    assert text.rstrip().endswith("## Another\n\nNot measured yet.")
    assert results.Row.of("x", "y", "s", [], [], []).ratio is None


def test_a_script_that_fails_is_said_to(load, tmp_path, monkeypatch):
    page = load("page")
    (tmp_path / "script.py").write_text("print('half'); raise SystemExit(3)")
    monkeypatch.setattr(page, "HERE", tmp_path)
    benchmark = page.Benchmark("x", "Title", ("script.py",), 1)
    monkeypatch.setattr(page, "BENCHMARKS", (benchmark,))
    assert "**It failed** with exit code 3" in page.page({"x": page.run(benchmark)})


def test_what_was_run_stays_when_it_is_interrupted(load, tmp_path, monkeypatch, capsys):
    page = load("page")
    (tmp_path / "script.py").write_text("print('it ran')")
    monkeypatch.setattr(page, "HERE", tmp_path)
    monkeypatch.setattr(page, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    benchmarks = [page.Benchmark(name, f"Title {name}", ("script.py",), 60) for name in "xy"]
    monkeypatch.setattr(page, "BENCHMARKS", benchmarks)
    monkeypatch.setattr(sys, "argv", ["page.py", "--missing"])
    run = page.run

    def interrupted(benchmark):
        if benchmark.name == "y":
            raise KeyboardInterrupt
        return run(benchmark)

    monkeypatch.setattr(page, "run", interrupted)
    assert page.main() == 130
    assert "1 of 2: Title x (about 2 min left)\n  it ran\n" in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text().count("Not measured yet.") == 1
    monkeypatch.setattr(page, "run", run)
    assert page.main() == 0
    assert "1 of 1: Title y" in capsys.readouterr().out
    assert "Not measured yet." not in (tmp_path / "page.md").read_text()


def test_a_bench_takes_under_25_quiet_minutes(load):
    assert sum(benchmark.quiet_s for benchmark in load("page").BENCHMARKS) < 25 * 60


def test_errors_of_the_cost_model_are_those_of_its_page(load):
    predictors = load("predictors")
    page = predictors.VALIDATION.read_text()
    for section, kind, _ in predictors.OURS:
        assert predictors.held_out(page, section, kind) is not None
    assert predictors.held_out("## A\n| all | forward | 3 | 1.0% | 2.0% |\n## B\n", "A", "forward") == (
        3,
        "1.0%",
        "2.0%",
    )
    assert predictors.held_out("## A\n| all | forward | 3 | 1.0% | 2.0% |\n## B\n", "B", "forward") is None


def test_every_benchmark_of_the_page_is_there(load):
    for benchmark in load("page").BENCHMARKS:
        assert (BENCHMARKS / benchmark.command[0]).is_file()


def test_time_for_an_interval_goes_with_the_square_of_its_width(load):
    needed_s = load("method_against").needed_s
    noise = random.Random(3)
    few = [1 + 0.02 * noise.gauss(0, 1) for _ in range(100)]
    assert needed_s(few, 10.0) / needed_s(few, 5.0) == pytest.approx(2)
    wide = [1 + 2 * (value - 1) for value in few]
    assert needed_s(wide, 10.0) / needed_s(few, 10.0) == pytest.approx(4, rel=0.05)
    assert needed_s([1.0, 1.0], 1.0) is None


@pytest.mark.parametrize(
    ("code", "err", "problems"),
    [
        (0, "", []),
        (2, "curvescope: do this", []),
        (2, "", ["failed without a message"]),
        (1, "Traceback (most recent call last):\n  x", ["traceback"]),
        (-9, "", []),
        (-11, "", ["failed without a message"]),
    ],
)
def test_judgement(load, code, err, problems):
    assert load("faults").judged(code, err).problems == problems


def test_what_is_changed_lost_or_half_is_seen(load, tmp_path, monkeypatch):
    """A fault that changes the store, and one that leaves half a recording and half a report."""
    faults = load("faults")

    def inject(folder, command, chance):
        for name in ("store/model/recording.json", "store/new/recording.json", "store/new.html"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("{")
        return faults.Outcome(0, "")

    (tmp_path / "store" / "model").mkdir(parents=True)
    (tmp_path / "store" / "model" / "recording.json").write_text("{}")
    monkeypatch.setattr(faults, "template", lambda: tmp_path)
    outcome = faults.trial(faults.Fault("x", "x", ("runs",), 1, inject), "runs", 0)
    assert [p.split(":")[0] for p in outcome.problems] == [
        "what was recorded before was changed",
        "left unreadable",
        "left half a report",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), [("disk", "report"), ("interrupt", "record"), ("read-only", "diagnose")])
def test_one_trial_of_some_faults(load, name, command, monkeypatch):
    faults = load("faults")
    fault = next(f for f in faults.FAULTS if f.name == name)
    monkeypatch.setattr(faults, "COLD", 1.0)
    monkeypatch.setitem(faults._LIVES, ("record", True), (1.0, 0))
    outcome = faults.trial(fault, command, 0)
    if "could not be injected on this machine" in outcome.problems:
        pytest.skip("no mounts here")
    assert not outcome.problems, outcome.said


@pytest.mark.slow
@pytest.mark.parametrize("command", ["record", "sweep", "report"])
def test_a_command_started_without_its_imports_does_the_same(load, command):
    faults = load("faults")
    with faults.trial_folder() as folder:
        outcome = faults.warm(folder, command)
        assert (outcome.code, outcome.problems) == (0, []), outcome.said
        assert any((folder / "store").glob("new*"))
        assert not list(faults.left_behind(folder / "store"))


def test_a_command_that_hangs_says_where(load, tmp_path, monkeypatch):
    faults = load("faults")
    program = "import time\ndef stuck():\n    open('stuck', 'w').close()\n    time.sleep(600)\nstuck()"
    communicate = subprocess.Popen.communicate

    def once_it_is_stuck(process, *arguments, **options):
        while not (tmp_path / "stuck").exists():
            time.sleep(0.001)
        return communicate(process, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_it_is_stuck)
    outcome = faults.ended([sys.executable, "-S", "-c", program], tmp_path, hung_s=0.01)
    assert outcome.problems == ["hung"]
    assert "in stuck" in outcome.said


def test_what_was_run_is_not_run_again(load, tmp_path, monkeypatch, capsys):
    faults = load("faults")
    monkeypatch.setattr(faults, "KEPT", tmp_path / "kept.jsonl")
    ran = []

    def inject(_folder, command, _chance):
        ran.append(command)
        return faults.Outcome(0, "")

    monkeypatch.setattr(faults, "FAULTS", (faults.Fault("disk", "x", ("runs", "table"), 2, inject),))
    monkeypatch.setattr(faults, "template", lambda: tmp_path)
    monkeypatch.setattr(faults, "warm", lambda *_: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # and so that both are as before when the test ends
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(faults, "trial_folder", lambda: contextlib.nullcontext(tmp_path))
    for trials in ("1", "2"):
        monkeypatch.setattr(sys, "argv", ["faults.py", "--trials", trials])
        assert faults.main() == 0
    assert ran == ["runs", "table"] * 2
    assert "4 trials, 2 of them to be run" in capsys.readouterr().out


def test_the_page_of_faults_names_what_went_wrong(load):
    faults = load("faults")
    results = {("disk", "report"): [faults.Outcome(0, ""), faults.Outcome(1, "x", ["traceback"])]}
    text = faults.page(results, {"disk": "a full disk"}, 3.0)
    assert "| a full disk | report | 2 | 1 | 1 | 0 | 1: 1 traceback |" in text
    assert "- **1 of 2** trials were bad. This run is incomplete" in text
    assert json.dumps(text)
