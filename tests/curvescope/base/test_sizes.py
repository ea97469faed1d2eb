"""Lists of sizes as options have them, and in words."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.sizes import double, list_sizes, parse_sizes

from ...tables import ask_each


@ask_each(
    ("sizes", "words"),
    [
        ((8,), "8"),
        (tuple(double(1, 256)), "1, 2, 4, 8, 16, 32, 64, 128, 256"),
        (tuple(range(1, 257)), "1, 2, 3, … 256 (256 sizes)"),
    ],
)
def test_few_sizes_are_listed_and_many_are_counted(sizes, words):
    assert list_sizes(sizes) == words


def test_a_list_keeps_its_order():
    assert parse_sizes("--batch", "8, 2,4..16") == (8, 2, 4, 8, 16)


def test_a_range_of_a_billion_sizes_is_cut():
    assert len(parse_sizes("--batch", "1..1000000000+1")) == 100_000


@ask_each("text", ["9" * 5000, "1..8*1", "1..8+0", "1..", "x"])
def test_the_forms_are_named_where_none_fits(text):
    with pytest.raises(CurvescopeError, match=r"--batch .*: write sizes of at least 1"):
        parse_sizes("--batch", text)
