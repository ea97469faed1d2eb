"""What is said of the recordings in the repository: estimates lie in their intervals, no share is beyond 200 %."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from curvescope.cli import main

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
