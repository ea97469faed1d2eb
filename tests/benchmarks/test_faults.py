"""The judge of the fault trials and the figures of their table, without long runs."""

import contextlib

import pytest

from curvescope.profiling.recording.store import RecordingWriter


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


def test_figures_of_the_kept_table_count_trials_signals_and_what_is_bad(load):
    faults = load("faults")
    head = list(faults.HEAD)
    signal = next(fault.what for fault in faults.FAULTS if fault.name == "kill")
    rows = [
        [signal, "record", "3", "0", "0", "3", "6 of 6 ranges", "1: left unreadable"],
        [signal, "import", "2", "0", "0", "2", "", "0"],
        ["no home folder", "record", "1", "1", "0", "0", "", "0"],
    ]
    bad, signals, tried = faults.figures(load("evidence").Table("", "", "", None, head, rows))
    assert bad.startswith("**1 of 6** trials were bad. This run is a part")
    assert signals.startswith("**5** of them were kills")
    assert tried == "**2** commands were tried, with **2** kinds of fault."


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
        pytest.param("kill", "record", marks=pytest.mark.exhaustive),
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
