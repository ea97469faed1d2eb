"""Counted kernels join recorded ones in the order of their launches, by name and geometry."""

from pathlib import Path

import pandas as pd

from curvescope.profiling.attribution.counted_kernels import (
    GEOMETRY,
    align,
    has_geometry,
    launch_keys,
)
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each

NCU = Path(__file__).parents[2] / "data" / "profiles" / "averyclapp_metrics_long.csv"


@ask_each(
    ("recorded", "counted", "found"),
    [
        ("abab", "aba", [0, 1, 2, None]),  # the run that was counted launched one kernel less
        (
            "aab",
            "ab",
            [0, None, 1],
        ),  # one of two equal kernels has a counterpart: which one is not known
        ("abc", "abc", [0, 1, 2]),
        ("axb", "ab", [0, None, 1]),
        ("ab", "axyb", [0, 3]),
        ("ab", "cd", [None, None]),
        *(("", "a", []), ("a", "", [None])),
    ],
)
def test_the_counterpart_is_the_equal_kernel_in_the_same_order(recorded, counted, found):
    assert align(recorded, counted) == found


def test_a_kernel_in_the_middle_that_ran_with_another_grid_joins_nothing():
    def launches(*grids):
        rows = [
            dict.fromkeys(GEOMETRY, 1) | {"name": "void at::f<4>(float*)", "grid_x": grid}
            for grid in grids
        ]
        return pd.DataFrame(rows)

    recorded, counted = launches(1, 2, 3), launches(1, 9, 3)
    assert has_geometry(recorded)
    assert align(launch_keys(recorded, True), launch_keys(counted, True)) == [0, None, 2]
    assert align(launch_keys(recorded, False), launch_keys(counted, False)) == [0, 1, 2]


def test_tools_that_print_template_arguments_differently_name_the_same_kernel():
    arguments = (
        "4, at::native::AddFunctor<float>, 3>(int, at::Array)",
        "(int)4, at::AddFunctor<float>, (int)3>(int)",
    )
    for text in arguments:
        rows = pd.DataFrame({"name": [f"void at::native::vectorized_elementwise_kernel<{text}"]})
        assert launch_keys(rows, False) == [("vectorized_elementwise_kernel",)]


def test_what_ncu_counted_on_a_gpu_joins_the_names_that_cupti_gives(tmp_path):
    """The file's own nine kernels as the collector names them, after one more and without the
    fourth.
    """
    counted = open_recording(import_profile(NCU, tmp_path / "counted").path).frame("kernels")
    arguments = "(int, int, int, float const*, float const*, float*)"
    names = [
        "basic",
        "void gmem_coalesce<32>",
        "void smem_blocking<32>",
        "void one_blocktiling<64, 64, 8, 8>",
    ]
    names += [
        "void two_blocktiling<128, 128, 8, 8, 8>",
        "void vectorized_blocktiling<128, 128, 8, 8, 8>",
    ]
    names += ["void warptiling<128, 128, 16, 64, 64, 4, 8, 4>", *["ampere_sgemm_128x64_nn"] * 2]
    recorded = counted[list(GEOMETRY)].assign(
        name=[name if name.startswith("ampere") else name + arguments for name in names]
    )
    another = recorded.iloc[[0]].assign(name="void at::native::fill<float>(float*)")
    recorded = pd.concat([another, recorded.drop(index=3)])
    assert has_geometry(recorded)
    found = align(launch_keys(recorded, True), launch_keys(counted, True))
    assert found == [None, 0, 1, 2, 4, 5, 6, 7, 8]
