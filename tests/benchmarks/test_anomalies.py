import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.fitting.anomalies import ANOMALIES, found_at_best, score, shapes


def curve(name, published, modelled):
    rows = [(name, 2**i, a, b) for i, (a, b) in enumerate(zip(published, modelled, strict=True))]
    return pd.DataFrame(rows, columns=["curve", "batch", "published_ms", "modelled_ms"])


def test_an_excess_and_a_curvature_by_hand():
    found = shapes(curve("c", [1.0, 2.0, 5.0], [1.0, 1.5, 2.5]), ["curve"]).set_index(["functional", "at"])
    assert found.loc[("excess", 1), "published"] == 0  # 2 - 2 * 1
    assert found.loc[("excess", 2), "published"] == pytest.approx(1 / 5)  # (5 - 2 * 2) / 5
    # Time per sample 1, 1, 1.25: (1.25 - 2 + 1) / 1; modelled 1, 0.75, 0.625: 0.125 / 0.75.
    assert found.loc[("curvature", 2), "published"] == pytest.approx(0.25)
    assert found.loc[("curvature", 2), "modelled"] == pytest.approx(1 / 6)


def test_each_kind_of_anomaly_counts_what_is_found_and_what_is_false():
    # Published: the step from 2 to 4 triples. A model that has it, one that has nothing, and one that invents it.
    jump, smooth = [1.0, 2.0, 6.0, 12.0], [1.0, 2.0, 4.0, 8.0]
    rows = pd.concat([curve("has it", jump, jump), curve("misses it", jump, smooth), curve("invents it", smooth, jump)])
    found = score(shapes(rows, ["curve"])).set_index("anomaly")
    # Of 9 excesses two are jumps; each jump bends down once, where the slope falls back.
    assert found.loc["jump over 2.5"].tolist() == [2, 1, 7, 1]
    assert found.loc["positive excess"].tolist() == [2, 1, 7, 1]
    assert found.loc["concave-down"].tolist() == [2, 1, 4, 1]


def test_a_model_that_knows_only_a_fixed_cost_finds_no_anomaly():
    published = [1.0, 2.0, 6.0, 12.0, 13.0]
    fixed = [5.0 + b for b in (1, 2, 4, 8, 16)]
    found = score(shapes(curve("c", published, fixed), ["curve"]))
    assert (found.published > 0).all()
    assert (found[["found", "false"]] == 0).all(axis=None)


def test_the_best_limit_is_the_lowest_that_keeps_false_ones_few():
    # Excesses from 1 to 2: published 1/3, 1/3, 0, 0; said 0.05, 0, 0.04, 0.02.
    said = [2 / 0.95, 2.0, 2 / 0.96, 2 / 0.98]
    pairs = zip("abcd", [3.0, 3.0, 2.0, 2.0], said, strict=True)
    found = shapes(pd.concat([curve(name, [1.0, b], [1.0, c]) for name, b, c in pairs]), ["curve"])
    positive = ANOMALIES[1]
    assert found_at_best(found, positive, 0.0) == 1  # above 0.04
    assert found_at_best(found, positive, 0.5) == 1  # above 0.02
    assert found_at_best(found.assign(modelled=-found.modelled), positive, 0.5) == 1


def test_batch_sizes_that_are_not_doubled_are_not_scored():
    rows = curve("c", [1.0, 9.0], [1.0, 9.0]).assign(batch=[2, 3])
    assert score(shapes(rows, ["curve"])).published.sum() == 0


def test_the_interval_of_a_difference_comes_from_common_draws(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    inside = importlib.import_module("network_sweeps")._inside
    scale = np.array([[0.5], [1.0], [2.0]])  # an error that all batch sizes share cancels in a difference of 0
    proportional = scale * np.array([1.0, 2.0, 4.0])
    held = inside([1, 2, 4], np.array([3.0, 6.0, 12.0]), proportional)
    assert held["excess_inside"][:2] == [1.0, 1.0]
    assert inside([1, 2, 4], np.array([3.0, 6.1, 12.0]), proportional)["excess_inside"][:2] == [0.0, 0.0]
    assert np.isnan(held["excess_inside"][2])
    assert np.isnan(held["curvature_inside"][0])
