"""Values of --axis and --batch: which axis is the curve, and which are fixed."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.measure.axes import Axes, parse_axes

from ...tables import ask_each


@ask_each(
    ("texts", "batches", "expected"),
    [
        ((), None, Axes("batch", (1, 2, 4, 8, 16, 32))),
        ((), (4, 8), Axes("batch", (4, 8))),
        (("tokens=64..256",), None, Axes("tokens", (64, 128, 256))),
        (("tokens=64,96",), (8,), Axes("tokens", (64, 96), fixed=(("batch", 8),))),
        (("batch=8", "tokens=64,96"), None, Axes("tokens", (64, 96), fixed=(("batch", 8),))),
        (("tokens=64", "width=5"), None, Axes("tokens", (64,), fixed=(("width", 5),))),
    ],
)
def test_the_axis_with_several_values_is_the_curve(texts, batches, expected):
    assert parse_axes(texts, batches) == expected


def test_a_curve_has_one_axis_with_several_values():
    with pytest.raises(CurvescopeError, match="The axes tokens, batch have several values"):
        parse_axes(("tokens=64,96",), (1, 2))


@ask_each("text", ["tokens", "=3", "two words=3", "tokens=", "tokens=a", "tokens=8,4"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(CurvescopeError):
        parse_axes((text,))
