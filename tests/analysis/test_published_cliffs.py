"""Cliffs that others reported: what is said of each, and how many are rebuilt."""

import json
import re
import sys
from pathlib import Path

import pytest

from curvescope.cli import main

from ..tables import ask_each

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = tomllib.loads((REPOSITORY / "tests/data/published_cliffs.toml").read_text())["case"]
PAGE = REPOSITORY / "docs" / "server.md"


def test_there_are_twelve_cases_and_each_is_rebuilt_or_says_why_not():
    assert len(CASES) == 12
    for case in CASES:
        assert len({"test", "table", "why_not"} & set(case)) == 1, case["report"]


@ask_each("case", [one for one in CASES if "test" in one])
def test_the_test_of_a_case_exists_and_names_it(case):
    path, _, name = case["test"].partition("::")
    text = (REPOSITORY / path).read_text()
    assert not name or f"def {name}(" in text
    numbers = re.findall(r"\d{3,}", case["report"])
    assert any(number in text for number in numbers), f"{path} does not name the report"


@pytest.mark.parametrize(
    "case", [one for one in CASES if "table" in one], ids=lambda one: one["report"]
)
def test_the_anomalies_of_a_published_table_are_those_of_the_case(case, tmp_path, capsys):
    rows = [
        f'"{table["problem"]}",{batch},{ms}'
        for table in case["table"]
        for batch, ms in table["times"].items()
    ]
    path = tmp_path / "times.csv"
    path.write_text("\n".join(["problem,batch,time_ms", *rows]) + "\n")
    assert main(["explain", str(path), "--noise", "0.02", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {
        f"edge {event['before']}→{event['at']}" if event["kind"] == "edge" else str(event["sizes"])
        for curve in document["series"]
        for event in curve["events"]
        if event["certainty"] == "is"
    }
    assert set(case["finds"]) <= found
    assert case["finds"] or not found


def test_the_page_says_how_many_cases_are_rebuilt():
    rebuilt = sum("why_not" not in case for case in CASES)
    assert rebuilt == 11, "docs/server.md says eleven"
    assert "Eleven cliffs" in " ".join(PAGE.read_text().split())
