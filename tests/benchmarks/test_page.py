"""The page of the benchmarks, and the judge of the fault trials, without running what
takes long.
"""

import contextlib
import importlib
import sys
from pathlib import Path

import pytest

from curvescope.profiling.recording.store import RecordingWriter

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
    assert (
        "**It failed** with exit code 3; its output follows.\n\n```text\n2 s, ratio 3\n```" in text
    )
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

    assert trial(faults, tmp_path, monkeypatch, inject, "runs") == [
        "what was recorded before was changed",
        "left unreadable",
        "left unreadable",
        "left half a report",
    ]


def trial(faults, folder, monkeypatch, inject, command):
    """Problems of one trial in a store with one recording, without what follows a colon."""
    (folder / "store" / "model").mkdir(parents=True, exist_ok=True)
    (folder / "store" / "model" / "recording.json").write_text("{}")
    monkeypatch.setattr(faults, "trial_folder", lambda: contextlib.nullcontext(folder))
    outcome = faults.trial(faults.Fault("x", "x", (command,), 1, inject), command, 0)
    return [problem.split(":")[0] for problem in outcome.problems]


@pytest.mark.parametrize(
    ("command", "gone"), [("diagnose", "3 of 7 steps are gone"), ("record", "2 of 6 ranges")]
)
def test_what_is_gone_by_number_is_seen(load, tmp_path, monkeypatch, command, gone):
    """A recording that can be read, and has less than there was before the fault."""
    faults = load("faults")
    ended = {"count": 1, "severity": "lost", "sentence": "x"}

    def inject(folder, *_):
        with RecordingWriter(folder / "store" / "new", {"lost": {"nvtx_unsaved": ended}}) as writer:
            same = {
                "profiled": [False] * 4,
                "mode": ["forward"] * 4,
                "batch": [1] * 4,
                "round": [0] * 4,
            }
            writer.write(
                "steps", {**same, "step": range(4), "index": range(4), "duration_ns": [1] * 4}
            )
            same = {"name": ["r"] * 3, "kind": ["push_pop"] * 3, "source": ["nvtx"] * 3}
            writer.write("ranges", {**same, "start_ns": range(3), "duration_ns": [1] * 3})
        (folder / "done").write_text("1\n" * 6 + "4000000000\n")  # the last just before the kill
        return faults.Outcome(0, "", before=7, killed_ns=4_000_000_001)

    problems = trial(faults, tmp_path, monkeypatch, inject, command)
    assert [problem for problem in problems if gone in problem]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("disk", "report"),
        ("kill", "record"),
        pytest.param("interrupt", "record", marks=pytest.mark.exhaustive),
        pytest.param("read-only", "diagnose --card", marks=pytest.mark.exhaustive),
    ],
)
def test_one_trial_of_some_faults(load, name, command, monkeypatch):
    faults = load("faults")
    fault = next(f for f in faults.FAULTS if f.name == name)
    monkeypatch.setitem(faults._LIVES, "record", (1.0, 0))
    outcome = faults.trial(fault, command, 0)
    if "could not be injected on this machine" in outcome.problems:
        pytest.skip("no mounts here")
    assert not outcome.problems, outcome.said
