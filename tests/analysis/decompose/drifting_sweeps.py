"""Sweeps on a machine whose pace drifts, with a reference of constant work beside the steps."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

LIMIT_S = 60.0
COST_S = {batch: 0.11 + 0.016 * batch for batch in (1, 2, 4, 8, 16, 32)}
DRIFT, DRIFT_S = 0.07, 5.0  # standard deviation and time constant of the machine's pace
OWN_NOISE, REFERENCE_NOISE = 0.03, 0.03
REFERENCE_SHARE = 0.05  # of the time
PROFILE_STEPS = 3.0  # what a profile takes, in steps; two rounds have profiles
VISIT_S = 0.3  # for the steps of a visit


def drifting_sweep(random: np.random.Generator) -> pd.DataFrame:
    """The steps of a sweep of 60 s; marked ones, but for those of the first round."""
    now_s, round_, rows = 0.0, 0, []
    counts = {batch: max(1, min(8, round(VISIT_S / step_s))) for batch, step_s in COST_S.items()}
    while True:
        profiles = PROFILE_STEPS * (round_ < 2)
        kinds = [False, True] if round_ == 0 else [True]
        needed_s = sum(
            (1 + len(kinds) * counts[batch] + profiles) * step_s for batch, step_s in COST_S.items()
        )
        if now_s + needed_s > LIMIT_S:
            break
        for batch in map(int, random.permutation(list(COST_S))):
            step_s = COST_S[batch] * (1 + REFERENCE_SHARE)
            now_s += step_s
            for marked in kinds:
                for _ in range(counts[batch]):
                    rows.append((batch, round_, now_s, marked))
                    now_s += step_s
            now_s += profiles * step_s
        round_ += 1
    table = pd.DataFrame(rows, columns=["batch", "round", "at_s", "marked"])
    pace = _paces(random, table["at_s"].tolist())
    logs = pace + OWN_NOISE * random.standard_normal(len(table))
    durations_ns = 1e9 * table["batch"].map(COST_S) * np.exp(logs)
    seen = pace + REFERENCE_NOISE * random.standard_normal(len(table))
    return table[["batch", "round", "marked"]].assign(
        duration_ns=durations_ns.round().astype("int64"),
        start_ns=(1e9 * table["at_s"]).astype("int64"),
        reference_ns=(1e6 * np.exp(seen)).round().astype("int64"),
        profiled=False,
    )


def _paces(random: np.random.Generator, at_s: Sequence[float]) -> np.ndarray:
    """Logarithms of the machine's pace at increasing times, as of an Ornstein-Uhlenbeck process."""
    values = np.empty(len(at_s))
    state, before_s = DRIFT * random.standard_normal(), 0.0
    for place, now_s in enumerate(at_s):
        kept = np.exp(-(now_s - before_s) / DRIFT_S)
        state = kept * state + DRIFT * np.sqrt(1 - kept**2) * random.standard_normal()
        values[place], before_s = state, now_s
    return values
