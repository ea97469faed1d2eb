"""Names that a program numbers are one layer, whatever their length."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvescope.profiling.attribution.range_names import RangeName, _before_number, fold_counters

from ...tables import ask_each

PLAIN = re.compile(r"(.*[^\W\d_].*?)[ _#:=.-]*\d+", re.DOTALL)


@given(st.text("aB1 _#.-½²é2\n", max_size=14))
def test_the_name_before_a_number_is_that_of_the_plain_pattern(name):
    found = PLAIN.fullmatch(name)
    assert _before_number(name) == (found and found[1])


@pytest.mark.slow
@ask_each(
    "name", ["a" * 65_536, "1" * 65_536 + "x", "a" + "1" * 65_536, "_" * 65_536, "a." * 32_768]
)
def test_a_long_name_takes_little_time(name):
    began = time.process_time()
    fold_counters([RangeName(layer=name)] * 100, [1] * 100)
    assert time.process_time() - began < 5
