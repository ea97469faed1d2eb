"""A busy machine is told from a noisy step: how much of the spread of times goes with waits for a
core.

Beside other work the times of a batch size differ from visit to visit because threads waited for a
core, or because the step itself varies. The first goes with the waits that the system counts
(`steps.run_queue_wait_ns`): the slope of a visit's log T over its waits, from the other rounds,
says how much of the spread a quiet machine would not have. Nothing is taken out of the times: a
visit that waited a thousand times its time fits no line.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import pandas as pd

from ...base.numbers import percent
from ...profiling.recording.disturbed import LEAST_ROUNDS, select_used_steps
from .averaged_steps import samples_of_time
from .pace import measure_rest

WAITS = "run_queue_wait_ns"
_LEAST_VISITS = 10  # for a slope
_MOST_LEFT = 0.7  # of the variance: waits that explain less say nothing of a quiet run


@dataclass(frozen=True)
class Waiting:
    """What waits for a core say of the spread of a sweep's times."""

    left: float  # variance of a visit's log T that waits leave, over the whole
    visits: int
    rounds: int
    seconds: float  # that these rounds took

    @property
    def sentence(self) -> str:
        """The result to expect of a quiet run, for the user."""
        if self.left > _MOST_LEFT:
            return (
                f"Waits for a core explain little of how the {self.visits} visits differ: the step "
                "itself varies, or what shares its caches and memory. A machine without waits may "
                "tell no more."
            )
        rounds = max(ceil(self.left * self.rounds), LEAST_ROUNDS)
        quiet_s = self.seconds * rounds / self.rounds
        text = (
            f"Waits for a core explain {percent(1 - self.left)} of the variance of the "
            f"{self.visits} visits. Intervals of a quiet run like this one would be about "
            f"{sqrt(self.left):.1f} times as wide"
        )
        if rounds < self.rounds:
            text += (
                f", and as narrow after about {rounds} of its {self.rounds} rounds, in "
                f"{quiet_s:.0f} s or less"
            )
        return f"{text}."


def waiting_of(steps: pd.DataFrame) -> Waiting | None:
    """How much waits explain of a sweep's timed steps; None without waits, or of too few visits."""
    if WAITS not in steps:
        return None
    timed = select_used_steps(steps)
    timed = samples_of_time(timed[~timed["profiled"].astype(bool)])
    timed = timed[timed["duration_ns"] > 0].dropna(subset=[WAITS, "batch"])
    visits = timed.groupby(["batch", "round"])
    sums = visits[["duration_ns", WAITS]].sum().astype(np.float64)
    conditions = sums.index.get_level_values(0)
    rounds = sums.index.get_level_values(1).to_numpy()
    round_count = len(np.unique(rounds))
    if len(sums) < max(_LEAST_VISITS, conditions.nunique() + 2) or round_count < LEAST_ROUNDS:
        return None
    log_time = np.log(sums["duration_ns"] / visits.size())
    log_waits = np.log1p(sums[WAITS] / sums["duration_ns"])
    logs = pd.DataFrame({"time": log_time, "waits": log_waits})
    own = logs - logs.groupby(conditions).transform("mean")
    left = measure_rest(own["waits"].to_numpy(), own["time"].to_numpy(), rounds)
    end_ns = steps["start_ns"] + steps["duration_ns"]
    seconds = float(end_ns.max() - steps["start_ns"].min()) / 1e9
    return Waiting(left, len(sums), round_count, seconds)
