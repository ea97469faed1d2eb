"""Counted kernels join recorded ones in the order of their launches, by name and geometry."""

from __future__ import annotations

import pandas as pd
import pytest

from curvescope.profiling.attribution.counted_kernels import GEOMETRY, align, has_geometry, launch_keys


@pytest.mark.parametrize(
    ("recorded", "counted", "found"),
    [
        ("abc", "abc", [0, 1, 2]),
        ("abab", "aba", [0, 1, 2, None]),  # the run that was counted launched one kernel less
        ("axb", "ab", [0, None, 1]),
        ("ab", "axyb", [0, 3]),
        ("ab", "cd", [None, None]),
        ("aab", "ab", [0, None, 1]),  # one of two equal kernels has a counterpart: which one is not known
        ("", "a", []),
        ("a", "", [None]),
    ],
)
def test_the_counterpart_is_the_equal_kernel_in_the_same_order(recorded, counted, found):
    assert align(recorded, counted) == found


def test_a_kernel_in_the_middle_that_ran_with_another_grid_joins_nothing():
    def launches(*grids):
        rows = [dict.fromkeys(GEOMETRY, 1) | {"name": "void at::f<4>(float*)", "grid_x": grid} for grid in grids]
        return pd.DataFrame(rows)

    recorded, counted = launches(1, 2, 3), launches(1, 9, 3)
    assert has_geometry(recorded)
    assert align(launch_keys(recorded, True), launch_keys(counted, True)) == [0, None, 2]
    assert align(launch_keys(recorded, False), launch_keys(counted, False)) == [0, 1, 2]


def test_tools_that_print_template_arguments_differently_name_the_same_kernel():
    kineto, ncu = (
        pd.DataFrame({"name": [name]})
        for name in (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, 3>(int, at::Array)",
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor<float>, (int)3>(int)",
        )
    )
    assert launch_keys(kineto, False) == launch_keys(ncu, False) == [("vectorized_elementwise_kernel",)]
