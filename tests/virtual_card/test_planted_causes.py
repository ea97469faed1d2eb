"""Planted causes on virtual cards: the founding cases, and plants that are held out
(benchmarks/virtual_causes.py).
"""

import pytest

from benchmarks.planted_causes import score
from benchmarks.virtual_causes import CASES, HELD_OUT, IN_CI, planted_case, right, run, summary


@pytest.mark.parametrize("name", IN_CI)
def test_the_planted_cause_is_found_and_no_other(libraries, name):
    found = run(name, libraries)
    assert "error" not in found, found
    planted = planted_case(name)
    assert right(planted, found), summary(name, found)
    assert not score(planted.case, found).wrong, summary(name, found)


def test_a_seed_draws_the_same_plant_again_and_another_one_another():
    for name in HELD_OUT:
        assert planted_case(name) == planted_case(name)
        drawn = planted_case(name)
        assert drawn.case.values != CASES[drawn.case.make].case.values
        assert drawn.case.causes == CASES[drawn.case.make].case.causes
