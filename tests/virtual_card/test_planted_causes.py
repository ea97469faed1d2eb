"""Planted causes on virtual cards: the founding cases, and plants that are held out
(benchmarks/virtual_causes.py).
"""

import pytest

from benchmarks.virtual_causes import (
    CASES,
    HELD_OUT,
    IN_CI,
    LONGEST,
    NAMED_IN_CI,
    NULLS,
    QUESTIONS,
    TILES,
    amount_ms,
    named,
    planted_case,
    planted_variables,
    right,
    run_by,
    wrong,
)

from .card import ROOT


@pytest.fixture
def asked(answer_of):
    """Asks on a card what a function of the benchmark says of a case."""

    def run(card, function, name, **options):
        return answer_of(
            card,
            f"""
            import json, sys
            sys.path.insert(0, {str(ROOT)!r})
            from benchmarks import virtual_causes
            print(json.dumps(virtual_causes.{function}({name!r}, **{options!r})))
            """,
            **planted_variables(name),
        )

    return run


@pytest.mark.parametrize("name", [*IN_CI, pytest.param(LONGEST, marks=pytest.mark.exhaustive)])
def test_the_planted_cause_is_found_and_no_other(name, asked):
    found = run_by(name, lambda card, question, _: asked(card, QUESTIONS[question].__name__, name))
    planted = planted_case(name)
    said = [(one["label"], one["cause"], one["verdict"]) for one in found["answers"]]
    assert right(planted, found), said
    assert not wrong(planted, found), said


@pytest.mark.parametrize("name", NAMED_IN_CI)
def test_the_planted_cause_is_named_before_any_experiment(name, asked):
    planted = planted_case(name)
    found = asked(planted.card, "run_one", name, experiments_s=0)
    assert not found["confirmed"]
    assert named(planted, found), found["answers"]


def test_a_seed_draws_the_same_plant_again_and_another_one_another():
    for name in HELD_OUT:
        assert planted_case(name) == planted_case(name)
        drawn = planted_case(name)
        assert drawn.case.values != CASES[drawn.case.make].case.values
        assert drawn.case.causes == CASES[drawn.case.make].case.causes


@pytest.mark.parametrize(("left_ms", "false"), [(0.03, ()), (0.28, (TILES,))])
def test_waves_that_nobody_planted_are_a_true_cause_where_a_card_without_them_has_no_anomaly(
    left_ms, false
):
    """F of 20 to 40 is 0.30 ms; without whole waves there is almost none, or nearly as much."""
    label = "fixed cost 20→40"
    record = {
        "confirmed": [[label, TILES]],
        "answers": [],
        "curve_ms": {"20": [1.09], "40": [1.88]},
        "without_waves_ms": {"20": 0.8, "40": 1.6 - left_ms},
    }
    assert amount_ms(label, record["without_waves_ms"]) == pytest.approx(left_ms)
    assert wrong(planted_case("precision@2"), record) == false
    assert wrong(NULLS["h100"], record) == false


def test_anomalies_have_the_sizes_of_their_labels():
    curve = {"1": 3.0, "2": 5.0, "4": 11.0}  # 1 + 2 b, and 2 more at 4
    assert amount_ms("fixed cost 1→2", curve) == 1
    assert amount_ms("excess 2→4", curve) == 1
    assert amount_ms("bend at 2", curve) == pytest.approx(2 / 3)
