"""What is more work per sample, and what is the same work done more slowly; by
arithmetic.
"""

import pytest

from curvescope.analysis.causes.case import Case, Use
from curvescope.analysis.causes.work import weights_of_work
from curvescope.analysis.decompose.functionals import bend, excess, fixed_cost
from curvescope.analysis.decompose.statistics import Estimate
from curvescope.analysis.decompose.terms import Key, Share
from curvescope.profiling.hardware.limits import Hardware

from ...tables import ask_each


def more(functional, *uses):
    """The part of the functional in ms that is more work, all of it, and the share of the time
    whose work is known.
    """
    share = Share(Key("a", "forward", "kernels"), Estimate(0.0, 0.0, 0.0, 1.0))
    rows = [
        Use(
            batch=b,
            op=op,
            name=name,
            time_ms=ms,
            share=ms,
            calls=1,
            flops=flops,
            bytes_compulsory=size,
        )
        for op, name, times in uses
        for b, (ms, flops, size) in times.items()
    ]
    what = {
        "functional": functional,
        "before": functional.at,
        "after": functional.last,
        "share": share,
    }
    case = Case(**what, uses=tuple(rows), facts={}, hardware=Hardware(None, None))
    times = {b: case.time_ms(b) for b in functional.conditions}
    whole = sum(case.coefficient(b) * times[b] for b in times)
    weights, known_ms = weights_of_work(case)
    part = sum(weights[b] * times[b] for b in weights) if weights else None
    return part, whole, known_ms / times[case.after]


def product(flops, ms, op="aten::linear", name="gemm"):
    return op, name, {b: (ms[b], flops[b], None) for b in ms}


PROPORTIONAL, SQUARE = {4: 4, 8: 8, 16: 16}, {4: 16, 8: 64, 16: 256}


@ask_each("functional", [excess(8, 16), bend(4, 8, 16), fixed_cost(4, 8)])
@ask_each(
    ("flops", "ms", "part"),
    [
        (PROPORTIONAL, {4: 1.0, 8: 2.0, 16: 7.0}, 0.0),  # the same work, more slowly at 16
        (SQUARE, {4: 1.0, 8: 4.0, 16: 16.0}, 1.0),  # more work at one rate
        ({4: 16, 8: 16, 16: 16}, {4: 3.0, 8: 3.0, 16: 3.0}, 1.0),  # padded to 16
    ],
)
def test_work_at_a_constant_rate_is_all_work_and_proportional_work_none(
    functional, flops, ms, part
):
    work, whole, known = more(functional, product(flops, ms))
    assert work == pytest.approx(part * whole, abs=1e-12)
    assert known == 1.0


def test_work_and_rate_are_told_apart_in_one_term():
    """W = b²; τ doubles at 16: Σ c·(W − ωb)·τ with ω = (8 + 16)/2."""
    work, whole, _ = more(excess(8, 16), product({8: 64, 16: 256}, {8: 64.0, 16: 512.0}))
    assert whole == 512 - 2 * 64
    assert work == pytest.approx((256 - 12 * 16) * 2 - 2 * (64 - 12 * 8) * 1)


def test_an_operator_at_one_size_only_is_work_whatever_it_moves():
    fill = ("aten::fill_", "fill", {16: (1.5, None, None)})
    work, whole, known = more(excess(8, 16), product({8: 8, 16: 16}, {8: 2.0, 16: 4.0}), fill)
    assert work == pytest.approx(1.5) == whole
    assert known == 1.0


def test_another_algorithm_of_an_operator_and_other_products_of_the_same_work_are_none():
    switched = [
        ("aten::conv2d", "winograd", {8: (2.0, 8, None)}),
        ("aten::conv2d", "im2col", {16: (3.0, None, None)}),
        ("aten::conv2d", "gemm", {16: (4.0, 16, None)}),
    ]
    assert more(excess(8, 16), *switched)[0] == pytest.approx(0.0)
    unlike = [
        product({8: 8}, {8: 2.0}, "aten::conv2d"),
        product({16: 16}, {16: 7.0}, "aten::matmul"),
    ]
    assert more(excess(8, 16), *unlike)[0] == pytest.approx(0.0)


def test_a_kernel_without_operator_and_work_that_is_unknown_at_a_size_say_nothing():
    nameless = [(None, "sgemm_a", {8: (2.0, 8, 8)}), (None, "sgemm_b", {16: (9.0, 16, 16)})]
    assert more(excess(8, 16), *nameless)[0] is None
    sort = ("aten::sort", "sort", {8: (1.0, None, 80), 16: (5.0, None, None)})
    work, _, known = more(excess(8, 16), product({8: 8, 16: 32}, {8: 1.0, 16: 4.0}), sort)
    assert work == pytest.approx(2.0)
    assert known == pytest.approx(4 / 9)
