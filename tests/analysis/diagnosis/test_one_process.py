"""A process has one place in memory: what its rounds share is no property of the program."""

import pytest

from curvescope.analysis.render.found import find_all
from curvescope.analysis.render.page import Page
from curvescope.analysis.render.summary import summarize

from ...tables import ask_each, grade
from ..placed_sweeps import diagnose_placed

SEEDS = range(8)
EACH_SEED = grade([range(3), range(3, 8)], quick=[range(3)], in_ci=[range(3, 8)])
# number of layers, and the spread of the time of each at a size over processes: of a step 2 %
PLACES = [(8, 0.05), (2, 0.03)]


def find_slow(*args, **kwargs):
    """The slow sizes that are said of such a sweep."""
    entries = find_all(diagnose_placed(*args, **kwargs))
    return [found.what for found in entries if found.is_slow_size]


@ask_each(("layers", "placed"), PLACES)
@pytest.mark.parametrize("seeds", EACH_SEED)
def test_what_one_process_shares_is_no_slow_size(seeds, layers, placed):
    for seed in seeds:
        assert find_slow(seed, processes=1, layers=layers, placed=placed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", EACH_SEED)
def test_no_more_are_slow_where_more_sizes_are_looked_at(seeds):
    sizes = (1, 2, 3, 4, 6, 8)
    for seed in seeds:
        assert find_slow(seed, processes=1, layers=2, placed=0.03, batches=sizes) == []


def test_the_same_is_one_where_processes_repeat_it_or_on_a_gpu():
    for several in ({"processes": 6}, {"processes": 1, "kind": "cuda"}):
        assert any(find_slow(seed, **several) for seed in SEEDS)


@pytest.mark.slow
@ask_each("seed", range(4))
def test_a_layer_beyond_what_places_make_is_named(seed):
    (first, *_) = find_slow(seed, processes=1, slow_at_24=3.0)
    assert "block7" in first


def test_the_page_says_what_one_process_may_hide():
    diagnosis = diagnose_placed(1, 1, layers=2, placed=0.06)
    lines = Page(summarize(diagnosis)).text(80).splitlines()
    (line,) = (line for line in lines if line.startswith("FOUND"))
    assert "nothing; one process may hide " in line
    assert " % of the step at " in line
