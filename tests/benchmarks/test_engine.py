import importlib
from pathlib import Path

import pandas as pd
import pytest

from curvescope.analysis.cost_model.frameworks import ENGINE_S

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


def test_the_engine_of_a_card_is_found_in_its_steps_and_scored_with_that_of_others(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    sweeps, engine = (importlib.import_module(name) for name in ("network_sweeps", "fitting.engine"))
    rows = []
    for gpu, taken_s in (("Tesla P100", 30e-6), ("Tesla V100", 50e-6), ("Tesla M60 (one GM204)", 90e-6)):
        curve = (gpu, "MXNet 1.2", "Resnet 50", "training", "cudnn7")
        modelled = sweeps.model_curve(curve, [1, 2], {}, engine_s=taken_s)
        rows += [(*curve, batch, 1e3 * time) for batch, time in zip((1, 2), modelled.time_s, strict=True)]
    found = engine.measure_engine(pd.DataFrame(rows, columns=[*sweeps.COLUMNS, "batch", "time_ms"]), {})
    found = found.set_index("device")
    assert found.n.tolist() == [2, 2, 2]
    assert found.engine_s.to_dict() == pytest.approx({"p100": 30e-6, "v100": 50e-6, "m60": 90e-6})
    assert found.others_s.to_dict() == pytest.approx({"p100": 70e-6, "v100": 60e-6, "m60": 40e-6})


@pytest.mark.slow
def test_the_time_of_the_engine_is_the_median_over_the_cards(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    sweeps, engine = (importlib.import_module(name) for name in ("network_sweeps", "fitting.engine"))
    without = importlib.import_module("cost_model").read_left_out_of_networks()
    published = [read(PUBLISHED) for read in (sweeps.read_sweeps, sweeps.read_later_sweeps)]
    found = engine.measure_engine(pd.concat(published), without)
    assert found.n.tolist() == [12, 6, 6, 6]
    assert found.engine_s.median() == pytest.approx(ENGINE_S, abs=2e-6)
