"""Flame graphs of speedscope, as py-spy writes them, and collapsed stacks, which have no times."""

import json

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main

from ...tables import ask_each
from .made_profiles import of_text, rows

FRAMES = [
    {"name": "<module>", "file": "/home/me/train.py", "line": 1, "col": None},
    {"name": "load", "file": "/home/me/data.py", "line": 7, "col": None},
    {"name": "wait", "file": "threading.py", "line": 320, "col": None},
]


def thread(name, samples, unit="seconds", each=0.01):
    weights = [each] * len(samples)
    profile = {"type": "sampled", "name": name, "unit": unit, "startValue": 0.0, "endValue": 1.0}
    return {**profile, "samples": samples, "weights": weights}


def flame_graph(*threads):
    """A file as py-spy 0.4 writes it."""
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "profiles": list(threads),
        "shared": {"frames": FRAMES},
        "activeProfileIndex": None,
        "exporter": "py-spy@0.4.1",
        "name": "py-spy profile",
    }


MAIN = thread('Thread 0x7F "MainThread"', [[0, 1], [0, 1], [0], [0, 1], [0]])
WAITING = thread("Thread 0x80", [[2]] * 9)


def test_own_times_of_functions_are_those_of_the_samples_of_the_busiest_thread(tmp_path):
    recording = of_text(json.dumps(flame_graph(WAITING, MAIN)), tmp_path)
    times = {}
    for name, duration_ns in rows(recording, "kernels", "name", "duration_ns"):
        times[name] = times.get(name, 0) + duration_ns
    assert times == {"data.py(7): load": 30_000_000, "train.py(1): module": 20_000_000}
    assert recording.work == "operator"
    assert set(recording.meta["missing"]) == {"device", "timeline", "steps"}


def test_explain_says_where_the_time_goes(tmp_path, capsys):
    (tmp_path / "p.json").write_text(json.dumps(flame_graph(MAIN)))
    assert main(["explain", str(tmp_path / "p.json")]) == 0
    said = capsys.readouterr().out
    assert "data.py(7): load" in said
    assert "60%" in said


@ask_each(
    "profile",
    [
        flame_graph(),
        flame_graph(thread("", [[0]], unit="none")),
        flame_graph(thread("", [[9]])),
        flame_graph(thread("", [[0]], each=1e30)),
        flame_graph(thread("", [[0]], each=-1.0)),
        {**flame_graph(MAIN), "shared": {}},
    ],
)
def test_a_damaged_one_is_refused(profile, tmp_path):
    with pytest.raises(CurvescopeError):
        of_text(json.dumps(profile), tmp_path)


def test_collapsed_stacks_are_refused_with_what_has_times(tmp_path):
    with pytest.raises(CurvescopeError, match="--format speedscope"):
        of_text("<module> (train.py:1);load (data.py:7) 45\n", tmp_path)
