"""Tables of published times: which of their curves have an edge, and what their errors are."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy.special import ndtr

from curvescope.analysis.curve_shapes import claimed
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.render.text import render_curve
from curvescope.analysis.time_tables import ASSUMED_NOISE, explain_curves
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from ..tables import ask_each

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
DEEPBENCH = Path(__file__).parents[2] / "benchmarks" / "published" / "deepbench_conv.csv"


def found(tmp_path, table, noise=0.05):
    steps = open_recording(import_profile(table, tmp_path / "run").path).frame("steps")
    return {
        (curve.problem, curve.device_name, event.before, event.at)
        for curve in explain_curves(steps, noise)
        for event in claimed(curve.events)
    }


@pytest.mark.slow
def test_vgg_conv3_1_backward_data_is_flagged_with_cudnn_5_only(tmp_path):
    table = tmp_path / "deepbench.csv"
    name = "{pass} {h}x{w} {c}>{k} {s}x{r} pad {pad_h},{pad_w} stride {stride_h},{stride_w}"
    with DEEPBENCH.open(newline="") as published, table.open("w", newline="") as file:
        rows = [
            (name.format(**row), row["gpu"], row["n"], row["time_ms"])
            for row in csv.DictReader(published)
        ]
        csv.writer(file).writerows([("problem", "device", "batch", "time_ms"), *rows])
    problem = "bwd_data 56x56 128>256 3x3 pad 1,1 stride 1,1"
    flagged = {device for name, device, *_ in found(tmp_path, table) if name == problem}
    assert flagged == {"Titan X (Maxwell)", "Tesla M40", "Titan X (Pascal)"}


def test_alexnet_on_k40m_is_flagged_in_paddle_from_256_to_512_and_not_in_tensorflow(tmp_path):
    flagged = found(tmp_path, PUBLISHED / "k40m_training.csv")
    alexnet = {(problem, *sizes) for problem, _, *sizes in flagged if "AlexNet" in problem}
    assert alexnet == {("AlexNet-227, PaddlePaddle", 256, 512)}


def steps(rows):
    frame = pd.DataFrame(
        rows, columns=["batch", "round", "duration_ns", "averaged_steps", "relative_spread"]
    )
    frame["duration_ns"] *= 1_000_000
    return frame.assign(profiled=False, problem="p", device_name="d")


def test_a_stated_error_gives_the_normal_interval_by_hand():
    # excess = 230 - 2·100 = 30; its error √((2·100·5 %)² + (230·5 %)²) = √(100 + 132.25) = √232.25
    curve = cost_curve(steps([(1, 0, 100, None, None), (2, 0, 230, None, None)]), noise=0.05)
    value = curve.evaluate(excess(1, 2))
    assert value.value == pytest.approx(30)
    assert value.high - value.value == pytest.approx(1.959964 * 232.25**0.5)
    assert value.p == pytest.approx(2 * ndtr(-30 / 232.25**0.5))


def test_a_rise_that_pieces_smooth_over_is_an_edge_where_errors_are_known():
    """cuDNN's strided convolution of 512 images on a V100 takes 3.8 times that of 256: a line of
    its own from 256 on was no jump.
    """
    times = [
        0.1077,
        0.1151,
        0.1668,
        0.2388,
        0.3428,
        0.7173,
        1.332,
        2.1895,
        4.4171,
        16.7759,
        33.7587,
    ]
    rows = [(2**at, 0, time, None, None) for at, time in enumerate(times)]
    (curve,) = explain_curves(steps(rows), 0.05)
    assert [event.at for event in claimed(curve.events)] == [512]


def test_rises_that_are_surely_none_leave_fewer_tests():
    """All of fifty curves that do not rise were tests of a cliff, too: 51 times 0.0018 is noise."""
    alike = [steps([(1, 0, 100, None, None), (2, 0, 101, None, None)]) for _ in range(50)]
    cliff = steps([(1, 0, 100, None, None), (2, 0, 250, None, None)])
    table = pd.concat([each.assign(problem=str(at)) for at, each in enumerate([*alike, cliff])])
    said = {curve.problem for curve in explain_curves(table, 0.05) if claimed(curve.events)}
    assert said == {"50"}


def test_a_published_spread_over_the_root_of_its_steps_overrules_the_stated_error():
    curve = cost_curve(steps([(1, 0, 100, 100, 0.02), (2, 0, 230, None, None)]), noise=0.05)
    assert curve.errors_ms == pytest.approx([100 * 0.02 / 10, 230 * 0.05])


@ask_each("spread", [0.02, None])
def test_single_times_have_no_column_of_spreads(spread, capsys):
    """`unknown` stood beside a published ±."""
    rows = [(1, 0, 100, None, spread), (2, 0, 230, None, spread)]
    Console(width=90).print(render_curve(cost_curve(steps(rows), noise=0.05)))
    said = capsys.readouterr().out
    assert ("spread" in said, "unknown" in said) == (False, False)
    assert "Single measurements" in said


def test_repeated_rows_overrule_the_stated_error():
    rows = [(b, r, 100 * b + r, None, None) for b in (1, 2) for r in range(5)]
    assert cost_curve(steps(rows), noise=0.5).errors_ms is None


def test_repeats_and_a_published_spread_are_the_error_of_a_time_before_a_stated_one():
    (repeated,) = explain_curves(
        steps(
            [(b, r, 100 * b * (1 + 0.02 * (r - 2)), None, None) for b in (1, 2) for r in range(5)]
        )
    )
    # standard deviation 0.0316, of the median of five over its root
    assert repeated.noise == pytest.approx(1.25 * 0.0316 / 5**0.5, rel=0.01)
    assert repeated.noise_origin == "repeats"
    (published,) = explain_curves(steps([(1, 0, 100, 100, 0.2), (2, 0, 230, 100, 0.2)]), 0.5)
    assert (published.noise, published.noise_origin) == (pytest.approx(0.02), "published")


def test_a_short_curve_has_an_assumed_error_and_a_stated_one_wins():
    short = steps([(1, 0, 100, None, None), (2, 0, 233, None, None)])
    (assumed,), (stated,) = explain_curves(short), explain_curves(short, 0.03)
    assert (assumed.noise, assumed.noise_origin) == (ASSUMED_NOISE, "assumed")
    assert (stated.noise, stated.noise_origin) == (0.03, "stated")
    assert [event.certainty for event in claimed(assumed.events)] == ["may be"]
    assert [event.certainty for event in claimed(stated.events)] == ["is"]


def test_the_whole_table_is_one_family():
    """One excess of p = 0.04 alone is an edge; among 20 such curves none is."""
    one = steps([(1, 0, 100, None, None), (2, 0, 233, None, None)])
    assert claimed(explain_curves(one, 0.05)[0].events)
    many = pd.concat([one.assign(problem=str(number)) for number in range(20)])
    curves = explain_curves(many, 0.05)
    assert len(curves) == 20
    assert not [event for curve in curves for event in claimed(curve.events)]


def smooth_table(noise, curves=24, kink=None):
    """Curves of fixed plus proportional cost over batch 1 to 256; `kink` changes T by batch size in
    the first ten.
    """
    generator = np.random.default_rng(7)
    rows = []
    for number in range(curves):
        fixed, slope = generator.uniform(1, 20), generator.uniform(0.1, 2)
        for batch in (2**i for i in range(9)):
            time = fixed + slope * batch
            if kink is not None and number < 10:
                time = kink(time, batch)
            time *= np.exp(generator.normal(0, noise))
            rows.append((f"network {number % 2}", f"card {number}", batch, time))
    frame = pd.DataFrame(rows, columns=["problem", "device_name", "batch", "ms"])
    frame = frame.assign(duration_ns=(frame.ms * 1e6).round().astype(int), round=0, profiled=False)
    return frame.assign(averaged_steps=None, relative_spread=None)


@pytest.mark.slow
@ask_each("noise", [0.01, 0.02, 0.05])
def test_nothing_is_found_in_smooth_curves_and_their_noise_is_found(noise):
    curves = explain_curves(smooth_table(noise))
    assert not [event for curve in curves for event in claimed(curve.events)]
    assert np.median([curve.noise for curve in curves]) == pytest.approx(noise, abs=0.015)


@pytest.mark.slow
def test_a_slow_half_is_found_where_no_smooth_work_explains_it():
    table = smooth_table(0.01, 14, lambda time, batch: time * (1.6 if batch >= 64 else 1))
    curves = explain_curves(table)
    with_edge = {curve.device_name for curve in curves if claimed(curve.events)}
    assert with_edge <= {f"card {number}" for number in range(10)}
    assert len(with_edge) >= 7
