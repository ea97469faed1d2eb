"""What is said of the curves of a table, and their picture."""

import io

import numpy as np
import pandas as pd

from curvescope.analysis.render.curve_picture import draw_curve
from curvescope.analysis.render.series import render_series, sentences
from curvescope.analysis.render.terminal import console
from curvescope.analysis.time_tables import explain_curves
from curvescope.profiling.recording.axis import Axis


def explained(curves, noise=None):
    """Curves from their times in ms by size."""
    rows = [
        (problem, size, round(1e6 * ms))
        for problem, of in curves.items()
        for size, ms in of.items()
    ]
    frame = pd.DataFrame(rows, columns=["problem", "batch", "duration_ns"])
    return explain_curves(frame.assign(device_name=None, round=0, profiled=False), noise)


def printed(listed):
    shown = console(file=io.StringIO(), width=100)
    shown.print(render_series(listed, Axis()))
    return shown.file.getvalue()


EDGES = {size: 10 + size / 8 + 20 * (size > 48) for size in (*range(8, 97, 8), 49, 50)}
SMOOTH = dict(enumerate(range(5, 15), 1))
SLOW = {1: 32.1, 2: 32.0, 4: 32.2, 8: 32.0, 9: 5.5, 16: 5.6, 32: 5.9}


def test_slow_sizes_and_an_edge_are_said_with_their_error():
    (slow,), (edge,) = explained({"a": SLOW}), explained({"a": EDGES}, noise=0.01)
    assert sentences(slow, Axis("rows"))[0].startswith("1 to 8 take longer than 9, 8 by 26.6 ± ")
    (said,) = sentences(edge, Axis())
    assert said.startswith("49 takes 20.0 ± ")
    assert said.endswith("more than the sizes on both sides of the edge from 48 explain.")


def test_with_an_assumed_error_it_may_take_longer():
    (short,) = explained({"a": {1: 10, 2: 11, 4: 40}})
    assert sentences(short, Axis())[0].startswith("4 may take 18.0 ± ")
    assert "assumed, for the curve is too short to show its own" in printed([short])


def test_a_large_edge_that_may_be_noise_is_worth_another_measurement():
    rows = {1: 31, 2: 36.2, 4: 42.3, 8: 68.7, 9: 106.9, 13: 113.7, 16: 118.7, 32: 146.1, 33: 172.0}
    shown = " ".join(printed(explained({"a": {**rows, 64: 250.6, 128: 452.9}})).split())
    assert "9 takes 31.9" in shown
    assert "which may be noise: measure 4 and 8 several times." in shown
    assert "may be noise" not in printed(explained({"a": EDGES}, noise=0.01))


def test_of_several_curves_a_large_edge_that_may_be_noise_is_said_with_its_curve():
    rows = {1: 3.0, 2: 3.2, 4: 3.5, 8: 4.3, 16: 7.9, 32: 9.0}
    shown = " ".join(printed(explained({"smooth": SMOOTH, "bump": rows})).split())
    assert "bump: 16 takes" in shown
    assert "which may be noise: measure 8 and 16 several times." in shown


def test_one_error_of_several_curves_is_said_once():
    shown = printed(explained({"a": SMOOTH, "b": SMOOTH}, noise=0.02))
    assert "A single time has a standard error of 2 %, see" in shown


def test_several_curves_are_a_table_and_one_is_a_picture():
    both = printed(explained({"slow": SLOW, "edge": EDGES, "smooth": SMOOTH}))
    assert "3 curves, 1 without an edge or a slow size" in both
    assert [line.split()[0] for line in both.splitlines() if "%" in line][:2] == ["slow", "edge"]
    assert "●" not in both
    assert "●" in printed(explained({"slow": SLOW}))


def test_the_picture_has_every_point_the_pieces_and_marks_what_is_found():
    (slow,) = explained({"a": SLOW})
    lines = draw_curve(slow).plain.splitlines()
    assert len(lines) == 14
    assert max(map(len, lines)) <= 70
    text = "\n".join(lines)
    assert text.count("●") == 2  # 16 and 32
    assert text.count("◆") == 5  # the slow sizes, and the one that overtakes them
    assert "·" in text
    assert lines[0].startswith("32.2 │")
    assert lines[-1].split() == ["1", "32"]


def test_a_curve_of_one_size_has_a_picture():
    (one,) = explained({"a": {8: 3.0}})
    assert draw_curve(one).plain.count("●") == 1
    assert np.isfinite(one.noise)
