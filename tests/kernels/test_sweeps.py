"""Axes as the command line has them, and the sweeps that they make."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.kernels.gemm import Gemm
from curvescope.kernels.sweeps import parse_axis, span

from ..tables import ask_each


@ask_each(
    ("text", "values"),
    [
        ("n=1,2,4..256", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ("n=3..20", (3, 6, 12)),
        ("n=7", (7,)),
        ("n=32..64:16", (32, 48, 64)),
        ("n=1..81*3", (1, 3, 9, 27, 81)),
        ("n=62..64+1", (62, 63, 64)),
        ("n=1..4,4,5", (1, 2, 4, 5)),
    ],
)
def test_ranges_double_or_step(text, values):
    assert parse_axis(text) == ("n", tuple(map(str, values)))


@ask_each("text", ["n", "n=", "=3", "n=1,,2", "n=8..4", "n=0..4", "n=1..4:0"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(CurvescopeError, match=r"e\.g\."):
        parse_axis(text)


def test_axes_span_sweeps_over_n():
    sweeps = span(Gemm(8, 8, 8), ["n=1,2", "m=4,16", "transpose=NN,TN"], "fp32,bf16")
    assert len(sweeps) == 8
    assert sweeps[0].label == "gemm 4x*x8 NN fp32"
    assert sweeps[0].axis == "n"
    assert list(sweeps[0].problems) == [1, 2]


def test_the_only_axis_of_several_numbers_is_the_batch_axis():
    (sweep,) = span(Gemm(8, 8, 8), ["k=1..8"])
    assert (sweep.axis, list(sweep.problems)) == ("k", [1, 2, 4, 8])
    (single,) = span(Gemm(8, 8, 8), [])
    assert (single.axis, single.label) == ("n", "gemm 8x8x8 NN fp32")


@ask_each(
    ("axes", "message"),
    [
        (["q=1"], "the axes of gemm are m, n, k"),
        (["n=many"], "whole number"),
        (["n=2x2"], "write one whole number"),
    ],
)
def test_axes_that_the_operator_has_not(axes, message):
    with pytest.raises(CurvescopeError, match=message):
        span(Gemm(8, 8, 8), axes)
