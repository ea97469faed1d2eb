"""The history of a step, over recordings of forty commits with planted changes."""

import hashlib
import re
import subprocess

import numpy as np
import pytest

from curvescope.analysis.history import find_jumps
from curvescope.cli import main
from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.repository import commit_entry
from curvescope.profiling.measure.sweep import describe_sweep
from curvescope.profiling.recording.store import RecordingWriter

from ..analysis.synthetic import sweep
from ..browser import Page, needs_browser
from ..tables import ask_each
from .recordings import META, rows_of_table
from .test_report import embedded

CHANGES = {10: ("conv3", 1.25), 20: ("conv5", 1.3), 30: ("conv3", 0.85)}
NOISE = 0.01


def drawn(seed, jumps, count=40, sizes=4, noise=NOISE, odd=()):
    """Times of recordings: levels that move at places by factors, noise, and odd recordings."""
    generator = np.random.default_rng(seed)
    levels = np.zeros((count, sizes))
    for place, factor in jumps.items():
        levels[place:] += np.log(factor)
    own = generator.normal(0, noise, (count, sizes))
    shared = generator.normal(0, noise, (count, 1))  # of the machine, in all sizes alike
    times = np.exp(levels + own + shared) * np.geomspace(10, 80, sizes)
    for place in odd:
        times[place] *= 1.5
    return times


def test_three_changes_in_forty_commits_are_found_within_two_and_no_other():
    for seed in range(20):
        places = find_jumps(drawn(seed, {10: 1.06, 20: 1.08, 30: 0.92}))
        assert len(places) == 3, seed
        assert all(abs(at - planted) <= 2 for at, planted in zip(places, CHANGES, strict=True))


def test_a_change_of_one_size_of_four_is_found():
    for seed in range(10):
        times = drawn(seed, {})
        times[25:, 3] *= 1.15
        (place,) = find_jumps(times)
        assert abs(place - 25) <= 2


@pytest.mark.slow
@ask_each("noise", [0.002, 0.01, 0.05])
def test_noise_alone_is_no_change(noise):
    for seed in range(60):
        assert find_jumps(drawn(1000 + seed, {}, noise=noise)) == [], seed


@ask_each("odd", [(17,), (5, 25), (39,), (0,)])
def test_an_odd_recording_is_no_change(odd):
    for seed in range(10):
        assert find_jumps(drawn(2000 + seed, {}, odd=odd)) == []


def commit_of(number):
    return hashlib.sha256(str(number).encode()).hexdigest()[:40]


def layer_times(number):
    """Milliseconds a sample of each layer at a commit: conv3 gets slower, conv5 too, then conv3
    faster again.
    """
    times = {"conv1": 0.4, "conv3": 0.5, "conv5": 0.3}
    for place, (layer, factor) in CHANGES.items():
        if number >= place:
            times[layer] *= factor
    return times


def write_commit(folder, number, random):
    """A recording of a commit, on a machine that is a little faster or slower each time."""
    machine = float(random.normal(1, NOISE))
    layers = {name: machine * time for name, time in layer_times(number).items()}
    steps, kernels = sweep(
        lambda batch: 2 * machine + batch * sum(layers.values()),
        lambda batch: [(name, "forward", "gemm", batch * each) for name, each in layers.items()],
        random,
        batches=(8, 16, 32),
        rounds=4,
        drift=0.005,
        spikes=0.0,
    )
    made = {
        "created_utc": f"2026-10-{1 + number // 2:02}T{number % 2:02}:00:00Z",
        "commit": commit_of(number),
        "batches": [8, 16, 32],
    }
    with RecordingWriter(folder / f"{number:02}", {**META, **made}) as writer:
        writer.write("steps", rows_of_table("steps", steps))
        writer.write("kernels", rows_of_table("kernels", kernels))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, random = tmp_path_factory.mktemp("history"), np.random.default_rng(5)
    for number in range(40):
        write_commit(root, number, random)
    return root


@pytest.mark.slow
def test_the_changes_have_their_commit_and_their_layer(folder, document_of):
    (history,) = document_of("runs", "--history", folder)["histories"]
    assert len(history["recordings"]) == 40
    assert history["batches"] == [8, 16, 32]
    changes = history["changes"]
    assert [change["layer"].split()[0] for change in changes] == ["conv3", "conv5", "conv3"]
    assert [change["growth"]["value"] > 0 for change in changes] == [True, True, False]
    commits = [commit_of(number) for number in range(40)]
    for planted, change in zip(CHANGES, changes, strict=True):
        assert abs(commits.index(change["commit"]) - planted) <= 2
        assert commits.index(change["commit_before"]) == commits.index(change["commit"]) - 1


@pytest.mark.slow
def test_the_picture_has_a_row_for_each_size_and_marks_the_changes(folder, text_of, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = text_of("runs", "--history", folder).splitlines()
    assert "40 recordings, 2026-10-01 to 2026-10-20" in lines[0]
    rows = [line for line in lines if "▁" in line]
    assert [row.split()[0] for row in rows] == ["8", "16", "32"]
    marks = lines[lines.index(rows[-1]) + 1]
    assert marks.split() == ["1", "2", "3"]
    assert max(map(len, rows)) <= 100
    said = [line for line in lines if line[:2] in ("1 ", "2 ", "3 ")]
    assert all("conv" in line and "commit" in line for line in said)


@pytest.mark.slow
def test_many_recordings_share_cells(folder, text_of, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = text_of("runs", "--history", folder).splitlines()
    assert max(len(line) for line in lines if "▁" in line) <= 60


def test_too_few_recordings_are_no_history(folder, refusal_of, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}").symlink_to(folder / f"{number:02}")
    assert "6 recordings or more" in refusal_of("runs", "--history", tmp_path)


def git(folder, *words):
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


def test_a_recording_has_the_commit_of_the_file_of_its_step(tmp_path):
    git(tmp_path, "init", "--quiet")
    author = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    git(tmp_path, *author, "commit", "--quiet", "--allow-empty", "--message", "x")
    made = commit_entry({"step": f"{tmp_path / 'step.py'}:make_step"})["commit"]
    assert re.fullmatch("[0-9a-f]{40}", made)
    assert commit_entry({}, tmp_path) == {"commit": made}
    recorded = describe_sweep(
        {"step": f"{tmp_path / 'step.py'}:make_step", "network": "x"}, (1,), PROTOCOLS["quick"]
    )
    assert recorded["commit"] == made


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_entry({}, tmp_path) == {}


@pytest.mark.slow
def test_the_report_draws_the_history_with_its_change(folder, tmp_path):
    recordings = [str(folder / f"{number:02}") for number in range(6, 14)]
    page = tmp_path / "report.html"
    assert main(["report", *reversed(recordings), "-o", str(page)]) == 0
    drawn = embedded(page)["history"]
    assert (drawn["axis"], drawn["sizes"], len(drawn["recordings"])) == ("batch", [8, 16, 32], 8)
    assert drawn["recordings"][0] == f"2026-10-04 commit {commit_of(6)[:9]}"
    assert drawn["shares"][0] == pytest.approx([100, 100, 100])
    (change,) = drawn["changes"]
    assert abs(6 + change["place"] - 10) <= 2
    assert "conv3" in change["said"]


@pytest.mark.slow
@needs_browser
def test_the_history_is_a_section_of_the_page(folder, tmp_path):
    page = tmp_path / "report.html"
    main(["report", *(str(folder / f"{number:02}") for number in range(6, 14)), "-o", str(page)])
    with Page(page) as opened:
        assert opened.evaluate("document.querySelectorAll('#history circle').length") == 3 * 8
        assert opened.evaluate("document.querySelector('#history ol').textContent") != ""
        assert opened.problems == []
