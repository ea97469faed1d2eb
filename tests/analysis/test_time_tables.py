"""The detector on tables of published times."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import norm

from curvescope.analysis.decompose.anomalies import Verdict
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.time_tables import find_all
from curvescope.profiling.readers.time_table import import_table
from curvescope.profiling.recording.store import open_recording

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def found(tmp_path, table, noise=0.05):
    steps = open_recording(import_table(table, tmp_path / "run").path).frame("steps")
    return {
        (s.problem, s.device_name, f.tested.label)
        for s in find_all(steps, noise)
        for f in s.findings
        if f.verdict == Verdict.ANOMALY
    }


def test_vgg_conv3_1_backward_data_is_flagged_with_cudnn_5_only(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    write_table = importlib.import_module("published_pairs").write_table
    table = write_table("deepbench_conv", tmp_path / "deepbench.csv")
    problem = "bwd_data 56x56 128>256 3x3 pad 1,1 stride 1,1"
    flagged = {device for name, device, label in found(tmp_path, table) if name == problem}
    assert flagged == {"Titan X (Maxwell)", "Tesla M40", "Titan X (Pascal)"}


def test_alexnet_on_k40m_is_flagged_in_paddle_from_256_to_512_and_not_in_tensorflow(tmp_path):
    flagged = found(tmp_path, PUBLISHED / "k40m_training.csv")
    alexnet = {(p, label) for p, _, label in flagged if "AlexNet" in p and "excess" in label}
    assert alexnet == {("AlexNet-227, PaddlePaddle", "excess 256→512")}


def steps(rows):
    frame = pd.DataFrame(rows, columns=["batch", "round", "duration_ns", "averaged_steps", "relative_spread"])
    frame["duration_ns"] *= 1_000_000
    return frame.assign(profiled=False, problem="p", device_name="d")


def test_a_stated_error_gives_the_normal_interval_by_hand():
    # excess = 230 - 2·100 = 30; its error √((2·100·5 %)² + (230·5 %)²) = √(100 + 132.25) = √232.25
    curve = cost_curve(steps([(1, 0, 100, None, None), (2, 0, 230, None, None)]), noise=0.05)
    value = curve.evaluate(excess(1, 2))
    assert value.value == pytest.approx(30)
    assert value.high - value.value == pytest.approx(1.959964 * 232.25**0.5)
    assert value.p == pytest.approx(2 * norm.sf(30 / 232.25**0.5))


def test_a_published_spread_over_the_root_of_its_steps_overrules_the_stated_error():
    curve = cost_curve(steps([(1, 0, 100, 100, 0.02), (2, 0, 230, None, None)]), noise=0.05)
    assert curve.errors_ms == pytest.approx([100 * 0.02 / 10, 230 * 0.05])


def test_repeated_rows_overrule_the_stated_error():
    rows = [(b, r, 100 * b + r, None, None) for b in (1, 2) for r in range(5)]
    assert cost_curve(steps(rows), noise=0.5).errors_ms is None


def test_the_whole_table_is_one_family():
    """One excess of p = 0.04 alone is an anomaly; among 20 such curves none is."""
    one = steps([(1, 0, 100, None, None), (2, 0, 233, None, None)])
    (alone,) = find_all(one, 0.05)
    assert alone.findings[0].verdict == Verdict.ANOMALY
    many = pd.concat([one.assign(problem=str(i)) for i in range(20)])
    verdicts = {f.verdict for s in find_all(many, 0.05) for f in s.findings}
    assert verdicts == {Verdict.NOT_SIGNIFICANT}
