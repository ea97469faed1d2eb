"""What is said of the recordings in the repository: intervals hold, no share is beyond 200 %, no rate above a roof."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from curvescope.analysis import roofline
from curvescope.analysis.decompose import breakdown, communication, idle
from curvescope.cli import main
from curvescope.profiling.attribution.kernel_precision import kernel_precision
from curvescope.profiling.hardware.limits import hardware_of
from curvescope.profiling.recording.store import open_recording

ROOT = Path(__file__).parents[2]
STORED = sorted(
    path.parent for folder in ("examples", "tests/data") for path in (ROOT / folder).rglob("recording.json")
)


def estimates(node, path=""):
    """Every object with a value and an interval, with its place in the document."""
    if isinstance(node, dict):
        if isinstance(node.get("value"), float) and {"low", "high"} <= node.keys():
            yield path, node["value"], node["low"], node["high"]
        for name, child in node.items():
            yield from estimates(child, f"{path}.{name}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from estimates(child, f"{path}[{index}]")


@pytest.mark.parametrize("recording", STORED, ids=lambda path: path.name)
def test_every_estimate_lies_in_its_interval(recording, capsys):
    assert main(["explain", str(recording), "--json"]) == 0
    listed = list(estimates(json.loads(capsys.readouterr().out)))
    assert len(listed) >= 10
    for place, value, low, high in listed:
        assert low is None or low <= value, place
        assert high is None or value <= high, place


@pytest.mark.parametrize("recording", STORED, ids=lambda path: path.name)
def test_no_share_is_beyond_200_percent_and_confirmed_amounts_lie_in_their_intervals(recording, capsys):
    """The text says `N ms of +M ms (confirmed, LOW to HIGH ms)` only of an N between LOW and HIGH."""
    assert main(["explain", str(recording), "--all"]) == 0
    text = capsys.readouterr().out
    tables = [line for line in text.splitlines() if re.match(r" {2}\S", line)]  # terms and causes are indented
    shares = [int(share) for line in tables for share in re.findall(r" (-?\d+)%", line)]
    assert all(abs(share) <= 200 for share in shares), max(shares, key=abs)
    form = re.compile(r"([\d.]+) ms of \+?[\d.]+ ms.*\(confirmed, ([\d.]+) to ([\d.]+) ms")
    for amount, low, high in form.findall(" ".join(text.split())):
        assert float(low) <= float(amount) <= float(high)


DATA = ROOT / "tests/data"
RECORDINGS = sorted(path.parent for path in DATA.rglob("recording.json"))
PROFILES = sorted(path for path in (DATA / "profiles").iterdir() if path.suffix not in (".md", ".py"))


@pytest.fixture
def computed_once(monkeypatch):
    """The JSON and the text of a view show one result, which takes most of the time to compute.

    Idle time and communication, which have no rates, are the same in every breakdown.
    """
    made = {}

    def once(compute, *, is_by=True):
        def call(*arguments):
            key = compute, arguments[2] if is_by else None
            if key not in made:
                made[key] = compute(*arguments)
            return made[key]

        return call

    monkeypatch.setattr(breakdown, "break_down", once(breakdown.break_down))
    monkeypatch.setattr(roofline, "roofline", once(roofline.roofline))
    monkeypatch.setattr(idle, "explain_idle", once(idle.explain_idle, is_by=False))
    monkeypatch.setattr(communication, "communication", once(communication.communication, is_by=False))


def views(path, capsys):
    """The rows of each view as JSON, and its text with every row; nothing where there is nothing to break down."""
    for view in (
        ["breakdown", "--by", "kernel"],
        ["breakdown", "--by", "layer"],
        ["breakdown", "--by", "op"],
        ["roofline"],
    ):
        if main([*view, str(path), "--json"]):
            capsys.readouterr()
            continue
        document = json.loads(capsys.readouterr().out)
        assert main([*view, str(path), "--all"]) == 0
        yield view[0], document, capsys.readouterr().out


@pytest.mark.parametrize("path", [*RECORDINGS, *PROFILES], ids=lambda path: path.name)
def test_a_rate_above_the_roof_is_marked(path, imported_profile, capsys, monkeypatch, computed_once):
    monkeypatch.setenv("COLUMNS", "200")
    if path in PROFILES:
        path = imported_profile(path.name)
    hardware = hardware_of(open_recording(path).meta)
    most = {roof.level: roof.per_s for level in ("compute", "DRAM") if (roof := hardware.roof(level)) is not None}
    for view, document, text in views(path, capsys):
        above = 0
        for row in document["rows"] if view == "breakdown" else document["points"]:
            if view == "breakdown":
                rates = {"compute": row["gflop_per_s"], "DRAM": row["gb_per_s"]}
                rates = {roof: rate * 1e9 for roof, rate in rates.items() if rate is not None}
            else:
                rates = {level["level"]: level["bytes_per_s"] for level in row["levels"]}
                rates["compute"] = row["flops_per_s"]
            named = kernel_precision(row["label"]) if document["by"] == "kernel" else "unknown"
            roof = hardware.roof("compute", named)  # a kernel's name can say its precision
            above_of = most if named == "unknown" else {**most, "compute": math.inf if roof is None else roof.per_s}
            expected = {roof for roof, rate in rates.items() if roof in above_of and rate > above_of[roof]}
            assert set(row["exceeded_roofs"]) == expected
            above += len(expected)
        assert len(re.findall(r"\d†", text)) == above
        assert ("† above the roof" in text) == (above > 0)
