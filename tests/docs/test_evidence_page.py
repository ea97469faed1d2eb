"""Figures of the page of evidence, from tables by hand."""

import pytest

from benchmarks.evidence import Table

from ..shared import load_script


@pytest.fixture
def page(monkeypatch):
    page = load_script("docs/evidence_page.py")

    def table(head, *rows):
        return Table("a script", "2026-01-01", "x", 20, head, [list(row) for row in rows])

    shares = [f"default, +{share}%" for share in (5, 10, 20)]
    tables = {
        "false_alarms": table(
            ["noise", "quick", "default"],
            ("even", "5.0%, 96.0%, 97.0%", "0.0%, 95.0%, 96.0%"),
            ("warming", "0.0%, 94.0%", "10.0%, 99.0%"),
        ),
        "power": table(
            ["noise", *shares], ("even", "40%", "50%", "100%"), ("warming", "10%", "60%", "70%")
        ),
        "intervals_of_t": table(["noise", page._T_HEAD], ("even", "96%"), ("warming", "87%")),
    }
    monkeypatch.setattr(page, "TABLES", tables)
    return page


def test_the_worst_noise_and_protocol_are_said(page):
    alarms, held, power = page.interval_figures()
    assert "an anomaly in **10%** or less" in alarms
    assert "**94%** or more" in held
    assert "of the pace in **96%**, and intervals of T in **87%**" in held
    assert "**70%** or more of them, one of 5 % in 10 to 40 %" in power


def test_a_noise_without_one_true_pace_has_none_in_the_table(page):
    assert page.noise_table()[2:] == [
        "| even | 0.0% | 95.0% | 96.0% | 40% | 50% | 100% |",
        "| warming | 10.0% | 99.0% | – | 10% | 60% | 70% |",
    ]
