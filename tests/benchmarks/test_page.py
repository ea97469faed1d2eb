"""The page of the benchmarks, and the judge of the fault trials, without running what takes long."""

import importlib
import sys
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


def test_a_script_becomes_a_section_with_what_it_prints(load, tmp_path, monkeypatch):
    page = load("page")
    (tmp_path / "script.py").write_text("print('2 s, ratio 3')\nraise SystemExit(3)")
    monkeypatch.setattr(page, "HERE", tmp_path)
    benchmark = page.Benchmark("x", "Title of it", "script.py", 1, "They draw better.")
    monkeypatch.setattr(page, "BENCHMARKS", (benchmark, page.Benchmark("y", "Another", "y.py", 1)))
    text = page.page({"x": page.run(benchmark)})
    assert "**It failed** with exit code 3; its output follows.\n\n```text\n2 s, ratio 3\n```" in text
    assert "What peers do better: They draw better." in text
    assert text.rstrip().endswith("## Another\n\nNot measured yet.")


def test_what_was_run_stays_when_it_is_interrupted(load, tmp_path, monkeypatch, capsys):
    page = load("page")
    (tmp_path / "script.py").write_text("print('it ran')")
    monkeypatch.setattr(page, "HERE", tmp_path)
    monkeypatch.setattr(page, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    benchmarks = [page.Benchmark(name, f"Title {name}", "script.py", 60) for name in "xy"]
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


def test_every_benchmark_of_the_page_is_there(load):
    for benchmark in load("page").BENCHMARKS:
        assert (BENCHMARKS / benchmark.script).is_file()


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
