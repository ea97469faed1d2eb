"""Rows of two recordings without layers in common: by operator and shapes, inside others, by
position.
"""

from collections import Counter
from random import Random

import pandas as pd
import pytest

from curvescope.analysis.aligned_rows import ALIGNMENT_COLUMNS, OTHERS, align
from curvescope.analysis.compare import OPERATOR, compare
from curvescope.analysis.decompose.kernel_times import device_work, kernel_times
from curvescope.analysis.decompose.terms import IDLE
from curvescope.analysis.side import side
from curvescope.base.grouping import COMPARE_BY
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from ..shared import PROFILES
from ..tables import ask_each


def table(*work, phase="forward"):
    """Kernel times: (operators, shapes, kernel, ms[, layer]) of each group, then a millisecond of
    idle time.
    """
    rows = [
        {
            "layer": layer[0] if layer else None,
            "phase": phase,
            "op": path.split(" > ")[0] or None if path else None,
        }
        | {
            "op_path": path,
            "op_shapes": shapes,
            "name": name,
            "kind": "kernels",
            "exclusive_ms": time_ms,
        }
        for path, shapes, name, time_ms, *layer in work
    ]
    idle = {"phase": None, "name": IDLE, "kind": "idle", "exclusive_ms": 1.0}
    return pd.DataFrame([*rows, idle], columns=[*ALIGNMENT_COLUMNS, "kind", "exclusive_ms"])


def rows_of(*tables, by_layer=False):
    """Time of each side by row."""
    times = []
    for one in align(tables, by_layer):
        total = Counter()
        for row in one[one["kind"] == "kernels"].itertuples():
            total[row.layer] += row.exclusive_ms
        times.append(dict(total))
    return times


LINEAR, RELU = ("aten::linear > aten::addmm", "8x4, 4x4"), ("aten::relu", "8x4", "r", 1.0)
GELU = ("aten::gelu", "8x4")


@ask_each(
    ("one", "other", "rows"),
    [
        (  # equal operators and shapes, whatever the kernels
            [(*LINEAR, "nvjet", 2.0), (*GELU, "v", 1.0)],
            [(*GELU, "v2", 3.0), (*LINEAR, "Cijk", 4.0)],
            [
                {"aten::linear 8x4, 4x4": 2.0, "aten::gelu 8x4": 1.0},
                {"aten::linear 8x4, 4x4": 4.0, "aten::gelu 8x4": 3.0},
            ],
        ),
        (  # the same operator with other shapes
            [("aten::mm", "8x4, 4x4", "k", 2.0)],
            [("aten::mm", "8x8, 8x8", "k", 3.0)],
            [{"aten::mm": 2.0}, {"aten::mm": 3.0}],
        ),
        (  # an operator that only one version calls through another
            [("aten::linear > aten::matmul > aten::mm", "8x4, 4x4", "k", 2.0), RELU],
            [("aten::mm", "8x4, 4x4", "k", 3.0), RELU],
            [{"aten::mm": 2.0, "aten::relu 8x4": 1.0}, {"aten::mm": 3.0, "aten::relu 8x4": 1.0}],
        ),
        (  # kernels without operators by name and by family
            [(None, None, "volta_sgemm_128x64_nn", 2.0), (None, None, "my_kernel", 1.0)],
            [(None, None, "ampere_sgemm_64x64_nn", 1.0), (None, None, "my_kernel", 3.0)],
            [{"GEMM": 2.0, "my_kernel": 1.0}, {"GEMM": 1.0, "my_kernel": 3.0}],
        ),
        (  # many small operators of one recording
            [("aten::mm", "8x8", "k", 99.0)],
            [
                ("aten::mm", "8x8", "k", 99.0),
                *((f"aten::op{letter}", "8", "s", 0.1) for letter in "abcdefgh"),
            ],
            [{"aten::mm 8x8": 99.0}, {"aten::mm 8x8": 99.0, OTHERS: pytest.approx(0.8)}],
        ),
    ],
)
def test_what_is_one_row(one, other, rows):
    assert rows_of(table(*one), table(*other)) == rows


def test_many_long_shapes_are_cut():
    row, _ = rows_of(*[table(("aten::cat", f"[{', '.join(['16x559x64'] * 99)}]", "k", 2.0))] * 2)
    (label,) = row
    assert label.endswith("…")
    assert len(label) < 100


EAGER = (
    ("aten::conv2d", "8x3", "conv", 5.0),
    ("aten::batch_norm", "8x16", "bn", 1.0),
    ("aten::relu", "8x16", "relu", 0.5),
    ("aten::linear", "8x4", "gemm", 2.0),
    ("aten::gelu", "8x4", "gelu", 0.5),
)
COMPILED = (
    ("aten::conv2d", "8x3", "conv", 5.0),
    ("triton_poi_fused_batch_norm_relu_0", None, "triton_poi_fused_batch_norm_relu_0", 0.7),
    ("aten::linear", "8x4", "gemm", 2.0),
    ("triton_poi_fused_gelu_1", None, "triton_poi_fused_gelu_1", 0.4),
)


def test_fused_operators_stand_beside_those_at_their_position():
    eager, compiled = rows_of(table(*EAGER), table(*COMPILED))
    assert compiled == {
        "aten::conv2d 8x3": 5.0,
        "aten::batch_norm, aten::relu → triton_poi_fused_batch_norm_relu_0": 0.7,
        "aten::linear 8x4": 2.0,
        "aten::gelu → triton_poi_fused_gelu_1": 0.4,
    }
    assert eager.keys() == compiled.keys()
    assert eager["aten::batch_norm, aten::relu → triton_poi_fused_batch_norm_relu_0"] == 1.5


def test_a_layer_in_common_comes_first_and_work_outside_it_is_aligned_by_operator():
    one = table(
        ("aten::linear", "8x4", "k", 2.0, "fc"),
        ("aten::add_", "4", "a", 1.0),
        (None, None, "copy", 0.5),
    )
    other = table(
        ("triton_0", None, "t", 3.0, "fc"), ("aten::add_", "4", "b", 1.5), (None, None, "fill", 0.5)
    )
    assert rows_of(one, other, by_layer=True) == [
        {"fc": 2.0, "aten::add_ 4": 1.0, None: 0.5},
        {"fc": 3.0, "aten::add_ 4": 1.5, None: 0.5},
    ]


def drawn(random):
    """A recording with some of a few operators, also inside others, shapes, kernels and layers;
    times in whole ms.
    """
    operators = [
        "aten::mm",
        "aten::relu",
        "aten::linear > aten::mm",
        "triton_a_0",
        "triton_b_1",
        "aten::add_",
        None,
    ]
    work = {}
    for _ in range(random.randrange(1, 30)):
        path = random.choice(operators)
        shapes = random.choice(["8x4", "4x4", None]) if path else None
        key = (
            path,
            shapes,
            random.choice(["k", "relu_kernel", "sgemm"]),
            random.choice(["fc", "conv", None]),
        )
        work[key] = float(random.randrange(1, 300))
    return table(
        *(
            (path, shapes, name, time_ms, layer)
            for (path, shapes, name, layer), time_ms in work.items()
        ),
        phase=random.choice(["forward", None]),
    )


@pytest.mark.slow
@ask_each("by_layer", [False, True])
def test_rows_add_up_and_swapping_the_recordings_changes_signs(by_layer):
    random = Random(19)
    for _ in range(25):
        one, other = drawn(random), drawn(random)
        first, second = rows_of(one, other, by_layer=by_layer)
        for rows, whole in ((first, one), (second, other)):
            assert sum(rows.values()) == whole.loc[whole["kind"] == "kernels", "exclusive_ms"].sum()
        swapped_second, swapped_first = rows_of(other, one, by_layer=by_layer)
        assert differences(first, second) == sorted(
            -value for value in differences(swapped_second, swapped_first)
        )
        same = rows_of(one, one, by_layer=by_layer)
        assert same[0] == same[1]
        assert set(differences(*same)) <= {0.0}


def differences(first, second):
    return sorted(second.get(row, 0.0) - first.get(row, 0.0) for row in {*first, *second})


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpus")
    found = []
    for gpu in ("h100", "mi300"):
        path = import_profile(PROFILES / f"tl_{gpu}_bert_small.json.gz", folder / gpu).path
        recording = open_recording(path)
        steps = recording.frame("steps")
        times = kernel_times(device_work(recording), steps, ALIGNMENT_COLUMNS, ())
        found.append(side(gpu, recording.meta, steps, times))
    return found


def test_two_gpus_of_two_vendors_are_compared_by_operator(two_gpus):
    """An H100 and an MI300X run the same BERT: every operator is in both, and their devices are
    known.
    """
    comparison = compare(two_gpus, OPERATOR)
    rows = {line.label: line for line in comparison.rows}
    assert all(None not in line.times_ms for line in comparison.rows)
    attention = rows[
        "aten::scaled_dot_product_attention 1x8x141x64, 1x8x141x64, 1x8x141x64 forward"
    ]
    assert attention.times_ms == pytest.approx((0.037408, 0.113656))
    assert attention.remarks == ("behind the hardware",)
    assert len([label for label in rows if label.startswith("aten::linear")]) == 4  # of 27 layers
    for index, one in enumerate(two_gpus):
        assert sum(line.times_ms[index] for line in comparison.rows) == pytest.approx(
            one.curve.at(1).time_ms.value
        )
    assert comparison.roof_ratios[0]["DRAM"][0] == pytest.approx(5.3 / 3.35, abs=0.01)


def test_a_recording_does_not_differ_from_itself(two_gpus):
    for by in COMPARE_BY:
        assert {line.changes[0].speedup for line in compare([two_gpus[0]] * 2, by).rows} == {1.0}


def test_the_parts_of_a_fused_kernel_stand_beside_the_operators_that_they_were_fused_from():
    eager = table(("aten::relu", "8x16", "relu", 0.5), ("aten::mul", "8x16", "mul", 0.4))
    fused = ("triton_poi_fused_mul_relu_0", "8x16, 8x16, 128", "triton_poi_fused_mul_relu_0")
    compiled = table((*fused, 0.3), (*fused, 0.2)).assign(op=["aten::relu", "aten::mul", None])
    assert rows_of(eager, compiled) == [
        {"aten::relu": 0.5, "aten::mul": 0.4},
        {"aten::relu": 0.3, "aten::mul": 0.2},
    ]
