"""Time in which steps of the host waited for their next batch, taken from their idle time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...profiling.recording.schema import INPUT
from ...profiling.recording.store import Recording
from .slow_steps import input_times
from .terms import IDLE

WAITING_FOR_INPUT = "waiting for input"  # label of its row


def with_input(kernel_times: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """The same times with the idle time of a step that is waiting for input in a row of its own,
    with the phase `input`.

    On a GPU a host that waits does not mean that the device is idle, so nothing changes there.
    """
    if not recording.on_host or kernel_times.empty:
        return kernel_times
    waits_ns = kernel_times["step"].map(input_times(recording)).fillna(0.0).to_numpy(np.float64)
    unplaced = (kernel_times["name"] == IDLE) & kernel_times["phase"].isna()
    input_ns = np.minimum(waits_ns, kernel_times["exclusive_ns"]).where(unplaced, 0.0)
    if not input_ns.any():
        return kernel_times
    rest_ns = kernel_times["exclusive_ns"] - input_ns
    rest = kernel_times.assign(exclusive_ns=rest_ns, exclusive_ms=rest_ns / 1e6)
    waiting = kernel_times.assign(
        exclusive_ns=input_ns, exclusive_ms=input_ns / 1e6, layer=None, phase=INPUT
    )
    return pd.concat([rest, waiting[input_ns > 0]], ignore_index=True)
