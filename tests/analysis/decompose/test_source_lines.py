"""Which line a term comes from, and the time of a step by line."""

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.source_lines import by_line, lines_of, main_lines
from curvescope.analysis.decompose.terms import IDLE, KERNELS, Key

A, B, C = "model.py:3", "model.py:9", "train.py:5"


class Recorded:
    """A recording of which only the lines matter: layers a.0 and a.1 are alike."""

    def frame(self, table, columns):
        assert table == "lines"
        rows = [
            (4, "a.0", "forward", "aten::mm", "model.py", 3, 30),
            (4, "a.1", "forward", "aten::mm", "model.py", 9, 20),
            (4, "a.1", "forward", "aten::mul", "model.py", 9, 15),
            (4, "a.0", "forward", None, "model.py", 9, 5),
            (8, "a.0", "forward", "aten::mm", "model.py", 3, 60),
            (8, "a.0", "forward", None, "model.py", 3, 1),
            (8, None, "optimizer", "aten::add_", "train.py", 5, 7),
        ]
        integers = {"batch": "Int64", "line": "Int64", "duration_ns": "Int64"}
        return pd.DataFrame(rows, columns=columns).astype(integers)  # as a recording gives them


def test_a_term_comes_from_the_line_with_most_of_its_time_at_a_batch_size_and_idle_time_at_all():
    kernels, idle = Key("a.*", "forward", KERNELS), Key("a.*", "forward", IDLE)
    lines = main_lines(lines_of(Recorded(), {"a.0": "a.*", "a.1": "a.*"}))
    assert lines[4] == {kernels: B, idle: B}
    assert lines[8] == {kernels: A, idle: B, Key(None, "optimizer", KERNELS): C}


def test_the_time_by_line_adds_up_to_the_step_and_is_shared_as_the_times_of_its_lines():
    names = {"a.0": "a.*", "a.1": "a.*"}
    lines = lines_of(Recorded(), names)
    times = pd.DataFrame(
        [
            ("a.*", "forward", "aten::mm", "gemm", 10.0, 2),
            ("a.*", "forward", "aten::mul", "mul", 4.0, 1),
            ("a.*", "forward", np.nan, IDLE, 3.0, 0),
            (None, "backward", "aten::mm", "gemm", 2.0, 1),
            (None, "backward", np.nan, IDLE, 1.0, 0),
        ],
        columns=["layer", "phase", "op", "name", "exclusive_ms", "calls"],
    ).assign(step=7, flops=[8.0, np.nan, np.nan, 1.0, np.nan])
    spread = by_line(times, lines[lines["batch"] == 4])
    sums = spread.groupby("line")["exclusive_ms"].sum().to_dict()
    assert sums == {
        A: 6.0,
        B: 8.0,
        f"{IDLE} at {B}": 3.0,
        "no line": 2.0,
        f"{IDLE} at no line": 1.0,
    }
    assert spread["calls"].sum() == pytest.approx(4)
    # An unknown amount stays one that compares as false: `breakdown --by line` raised.
    assert spread["flops"].dtype == np.float64
    assert spread["flops"].gt(0).sum() == 3
    assert set(spread["step"]) == {7}
