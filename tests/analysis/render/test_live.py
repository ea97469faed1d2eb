"""The view of a curve that is being measured, on a terminal that only takes notes,
without a clock.
"""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.render import live as live_module
from curvescope.analysis.render.live import LiveCurve, LiveCurves, LiveProgress
from curvescope.profiling.measure.loop import Progress
from curvescope.profiling.recording.axis import Axis

SHOW = "\x1b[?25h"  # the cursor


def steps(rounds, batches=(1, 2, 4)):
    """Steps of 10 ms a sample, those of odd rounds 2 % longer."""
    return [
        {
            "batch": b,
            "round": r,
            "index": i,
            "profiled": i == 3,
            "duration_ns": int(1e7 * b * (1 + r % 2 * 0.02)),
        }
        for r in range(rounds)
        for b in batches
        for i in range(4)
    ]


def progress(elapsed_s, rounds):
    return Progress(elapsed_s, 120.0, f"round {rounds}, batch 4", steps(rounds))


@pytest.fixture
def terminal():
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=80,
        height=30,
        color_system=None,
        legacy_windows=False,
    )


def view(shown, **options):
    return LiveCurve("median", Axis(), shown=shown, **options)


def test_a_terminal_shows_the_curve_its_intervals_and_the_time_left(terminal, capsys):
    with view(terminal, then="up to 60 s of experiments") as live:
        live.report(progress(24.0, 4))
        out = terminal.file.getvalue()
    assert "Round 4, batch 4: 24 s so far, about 96 s left, then up to 60 s of experiments" in out
    assert "Deciding where the curve bends: rounds visit every batch size" in out
    assert "━━━━━━╌" in out
    assert "20%" in out
    assert "    4    40.40   39.5 … 41.3       10.10   12" in out
    assert "●" in out
    assert capsys.readouterr().out == ""
    assert SHOW in terminal.file.getvalue()[len(out) :]


def test_it_says_what_the_time_allows(terminal):
    with view(terminal) as live:
        live.report(replace(progress(24.0, 2), allows="about 4 rounds of 1, 2, 4"))
    assert "The time allows about 4 rounds of 1, 2, 4" in terminal.file.getvalue()


def test_it_says_which_anomaly_the_rounds_are_for(terminal):
    with view(terminal, deciding=lambda: "excess 2→4") as live:
        live.report(progress(70.0, 9))
    assert (
        "Deciding what makes the excess 2→4: rounds visit only its batch sizes"
        in terminal.file.getvalue()
    )


def test_nothing_is_drawn_between_reports_and_no_curve_before_the_first_step(terminal):
    with view(terminal) as live:
        live.report(Progress(0.5, 120.0, "round 1, batch 1"))
        assert "step ms" not in terminal.file.getvalue()
        live.report(progress(24.0, 4))
        before = terminal.file.getvalue()
        assert not live._live._refresh_thread
        assert terminal.file.getvalue() == before


def test_the_curve_is_computed_at_most_every_two_seconds(terminal, monkeypatch):
    curves = []
    monkeypatch.setattr(
        live_module, "cost_curve", lambda rows, by: curves.append(len(rows)) or cost_curve(rows, by)
    )
    with view(terminal) as live:
        for tenth in range(50):
            live.report(progress(10 + tenth / 10, 4))
    assert len(curves) == 3


def test_without_a_terminal_there_is_a_line_every_ten_seconds():
    shown = Console(file=io.StringIO(), width=400)
    with view(shown) as live:
        for second in range(0, 31, 3):
            live.report(progress(float(second), 2 + second // 10))
    lines = shown.file.getvalue().splitlines()
    assert [line.partition(" so far")[0] for line in lines] == [
        "round 3, batch 4: 12 s",
        "round 4, batch 4: 24 s",
    ]
    assert "step ms by batch so far: 1: 10.10, 2: 20.20, 4: 40.40" in lines[1]
    assert "\x1b" not in shown.file.getvalue()


def test_a_sweep_shows_which_recording_runs_and_its_curve(terminal):
    with LiveCurves(["alexnet", "vgg_a"], "median", Axis(), shown=terminal) as live:
        live.report("alexnet", progress(24.0, 4))
        live.report("vgg_a", Progress(0.0, 0.0, "does batch 4 fit?"))
    out = terminal.file.getvalue()
    assert "Recording 1 of 2, alexnet" in out
    assert "Round 4, batch 4: 24 s so far, about 96 s left of this recording" in out
    assert "    4    40.40   39.5 … 41.3       10.10   12" in out
    assert "Recording 2 of 2, vgg_a" in out
    last = out[out.index("Recording 2 of 2") :]
    assert "Does batch 4 fit?: 0 s so far" in last
    assert "step ms" not in last  # the curve of the other recording


def test_a_sweep_without_a_terminal_prints_lines_by_the_time_of_the_whole_sweep():
    shown, now_s = Console(file=io.StringIO(), width=400), [0.0]
    with LiveCurves(
        ["alexnet", "vgg_a"], "median", Axis(), shown=shown, clock_s=lambda: now_s[0]
    ) as live:
        for label in ("alexnet", "vgg_a"):
            for _ in range(4):
                now_s[0] += 3
                live.report(label, progress(1.0, 4))
    assert [line.partition(":")[0] for line in shown.file.getvalue().splitlines()] == [
        "recording 1 of 2, alexnet; round 4, batch 4",
        "recording 2 of 2, vgg_a; round 4, batch 4",
    ]


def test_ranks_show_only_what_runs(terminal):
    with LiveProgress(shown=terminal) as live:
        live.report(progress(24.0, 4))
    out = terminal.file.getvalue()
    assert "Round 4, batch 4: 24 s so far, about 96 s left" in out
    assert "step ms" not in out
