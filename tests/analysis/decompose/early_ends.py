"""Simulated sweeps whose rounds end when no verdict is open, beside the same with all rounds."""

from typing import NamedTuple

import numpy as np

from benchmarks.interval_coverage import PLACE, sweep_of
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find, list_undecided
from curvescope.analysis.decompose.statistics import FASTER_HALF

LOOKS = (6, 9, 14, 21, 30)  # rounds at looks; the last are all that fit the time
STEPS = 3


class Counts(NamedTuple):
    """Counts of simulated sweeps."""

    # that report an anomaly after all rounds; where an effect was planted, at its place
    complete: int
    early: int  # the same, where the rule ended the rounds
    rounds: float  # mean number of rounds until then


def simulate(noise: str, effect: float, sweeps: int) -> Counts:
    """Sweeps of a cost fixed plus proportional, with `effect` more from batch 16 on."""
    complete, early, made = 0, 0, []
    for seed in range(sweeps):
        steps = sweep_of(np.random.default_rng(seed), noise, effect, LOOKS[-1], STEPS)
        shown = {}
        for rounds in LOOKS:
            curve = cost_curve(steps[steps["round"] < rounds], FASTER_HALF)
            findings = find(curve)
            anomalies = [one.tested.at for one in findings if one.verdict == FindingVerdict.ANOMALY]
            shown[rounds] = any(not effect or at in PLACE for at in anomalies)
            if len(made) == seed and (
                rounds == LOOKS[-1] or not list_undecided(curve, findings, LOOKS[-1] / rounds)
            ):
                made.append(rounds)
        complete, early = complete + shown[LOOKS[-1]], early + shown[made[-1]]
    return Counts(complete, early, float(np.mean(made)))
