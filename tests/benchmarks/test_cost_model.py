"""The intervals of modelled operators hold what they say on cards that no fit saw."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def cards():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import cost_model
    finally:
        sys.path.remove(str(BENCHMARKS))
    return cost_model.compare_other_cards()


def test_the_intervals_of_every_card_that_no_fit_saw_hold_80_to_99_percent(cards):
    inside = cards[~cards.refused].groupby("device").inside.mean()
    assert sorted(inside.index) == [
        "a100_pcie",
        "a100_pcie_80gb",
        "p100_pcie",
        "p4",
        "t4",
        "v100_pcie",
    ]
    # A P4 is near 99 %: its narrow products are better than the other cards' of the fit.
    assert inside.between(0.80, 0.99).all(), inside.to_dict()


def test_the_intervals_of_every_kind_on_every_card_hold_80_percent(cards):
    inside = cards[~cards.refused].groupby(["device", "source", "error_kind"]).inside.mean()
    assert (inside >= 0.80).all(), inside.to_dict()


def test_what_is_refused_would_not_hold_them(cards):
    refused = cards[cards.refused & (cards.error_kind == "product")].groupby("device").inside.mean()
    assert (refused < 0.80).all()
    assert set(refused.index) == {"p4", "p100_pcie"}
