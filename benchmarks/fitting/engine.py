"""The time that MXNet's engine takes between two operators, from training steps of few images, each GPU left out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from network_sweeps import DEVICES, curves, model_curve

from curvescope.analysis.cost_model.constants import Constants

_MOST_IMAGES = 4  # of larger batch sizes, kernels are nearly all


def measure_engine(sweeps: pd.DataFrame, without: Mapping[str, Mapping[str, Constants]]) -> pd.DataFrame:
    """What small training steps of MXNet take beyond the model, for each time that the host waits.

    The model of these steps has no engine and no updates, which run beside.
    """
    small = sweeps[sweeps.framework.str.startswith("MXNet") & (sweeps.step == "training")]
    found: dict[str, list[float]] = {}
    for curve, part in curves(small[small.batch <= _MOST_IMAGES]):
        batches = part.batch.tolist()
        bare, with_second = (
            model_curve(curve, batches, without, engine_s=engine_s, update_operators=0, update_passes=0).time_s
            for engine_s in (0.0, 1.0)
        )
        beyond_s = (part.time_ms.to_numpy(np.float64) * 1e-3 - bare) / (with_second - bare)
        found.setdefault(DEVICES[curve[0]], []).extend(beyond_s.tolist())
    rows = [(device, len(times_s), float(np.median(times_s))) for device, times_s in found.items()]
    table = pd.DataFrame(rows, columns=["device", "n", "engine_s"])
    return table.assign(others_s=[table.engine_s[table.device != device].median() for device in table.device])
