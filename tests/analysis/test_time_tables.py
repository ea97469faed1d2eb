"""The detector on tables of published times."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.time_tables import (
    ASSUMED_NOISE,
    choose_noise,
    estimate_noise,
    find_all,
    pool,
    relative_to_last,
)
from curvescope.profiling.readers.time_table import import_table
from curvescope.profiling.recording.store import open_recording

from ..tables import ask_each

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
DEEPBENCH = Path(__file__).parents[2] / "benchmarks" / "published" / "deepbench_conv.csv"


def found(tmp_path, table, noise=0.05):
    steps = open_recording(import_table(table, tmp_path / "run").path).frame("steps")
    return {
        (s.problem, s.device_name, f.tested.label)
        for s in find_all(steps, noise)
        for f in s.findings
        if f.verdict == FindingVerdict.ANOMALY
    }


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
    flagged = {device for name, device, label in found(tmp_path, table) if name == problem}
    assert flagged == {"Titan X (Maxwell)", "Tesla M40", "Titan X (Pascal)"}


def test_alexnet_on_k40m_is_flagged_in_paddle_from_256_to_512_and_not_in_tensorflow(tmp_path):
    flagged = found(tmp_path, PUBLISHED / "k40m_training.csv")
    alexnet = {(p, label) for p, _, label in flagged if "AlexNet" in p and "excess" in label}
    assert alexnet == {("AlexNet-227, PaddlePaddle", "excess 256→512")}


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
    assert alone.findings[0].verdict == FindingVerdict.ANOMALY
    many = pd.concat([one.assign(problem=str(i)) for i in range(20)])
    verdicts = {f.verdict for s in find_all(many, 0.05) for f in s.findings}
    assert verdicts == {FindingVerdict.NOT_SIGNIFICANT}


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
            rows.append(
                (
                    f"network {number % 2}",
                    f"card {number}",
                    batch,
                    time * np.exp(generator.normal(0, noise)),
                )
            )
    frame = pd.DataFrame(rows, columns=["problem", "device_name", "batch", "ms"])
    frame = frame.assign(duration_ns=(frame.ms * 1e6).round().astype(int), round=0, profiled=False)
    return frame.assign(averaged_steps=None, relative_spread=None)


@ask_each("noise", [0.01, 0.02, 0.05])
def test_a_table_shows_its_own_noise(noise):
    assert estimate_noise(smooth_table(noise, curves=100)) == pytest.approx(noise, rel=0.35)


def test_kinks_do_not_count_as_noise():
    kinked = smooth_table(
        0.01, curves=20, kink=lambda time, batch: time * (1.4 if batch >= 32 else 1)
    )  # ten of twenty
    assert estimate_noise(kinked) < 0.02


def test_a_short_table_has_an_assumed_noise_and_a_stated_one_wins():
    short = smooth_table(0.01, curves=1)
    assert choose_noise(short, None) == (ASSUMED_NOISE, "assumed")
    assert choose_noise(smooth_table(0.01), 0.03) == (0.03, "stated")


@ask_each("noise", [0.01, 0.05])
def test_nothing_is_found_in_smooth_curves(noise):
    table = smooth_table(noise)
    listed = find_all(table, estimate_noise(table))
    assert not [f for one in listed for f in one.findings if f.verdict == FindingVerdict.ANOMALY]


def test_every_kink_over_15_percent_that_no_fixed_cost_can_make_is_found():
    table = smooth_table(0.01, kink=lambda time, batch: time * (1.4 if batch >= 128 else 1))
    kinks = [
        finding
        for one in find_all(table, estimate_noise(table))
        for finding in one.findings
        if relative_to_last(one.curve, finding) * (1 if finding.tested.kind == "excess" else -1)
        > 0.15
    ]
    assert len(kinks) >= 15
    assert {finding.verdict for finding in kinks} == {FindingVerdict.ANOMALY}


def test_the_corner_of_host_and_device_is_named_and_no_anomaly():
    table = smooth_table(0.002, kink=lambda _, batch: max(10.0, 0.5 * batch))
    cornered = [one for one in find_all(table, 0.005) if int(one.device_name.split()[1]) < 10]
    verdicts = {
        f.verdict
        for one in cornered
        for f in one.findings
        if f.tested.label in ("bend at 16", "bend at 32")
    }
    assert verdicts == {FindingVerdict.CORNER}  # the corner is at 20
    assert not [f for one in cornered for f in one.findings if f.verdict == FindingVerdict.ANOMALY]


def test_a_bend_that_all_curves_of_a_problem_share_is_found_although_none_shows_it_alone():
    table = smooth_table(0.02)
    shared = table.problem.eq("network 1") & table.batch.eq(64)
    table.loc[shared, "duration_ns"] = (table.loc[shared, "duration_ns"] * 1.05).astype(int)
    listed = find_all(table, 0.02)
    alone = {
        f.tested.label
        for one in listed
        for f in one.findings
        if f.verdict == FindingVerdict.ANOMALY
    }
    found = [(one.name, one.label) for one in pool(listed) if one.verdict == FindingVerdict.ANOMALY]
    assert "bend at 64" not in alone
    assert ("network 1", "bend at 64") in found
    assert {name for name, _ in found} == {"network 1"}
