"""What a sweep finds in the same seconds by other designs, on a machine that drifts: a table of
docs/statistics.md.

Visits fall on the clock as those of AlexNet do, and the machine's pace wanders: its logarithm
varies by 7 % with a time constant of 5 s, each step by 3 %; with bursts, one visit in twenty takes
half as long again. `python benchmarks/same_seconds.py --write`, some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

try:
    from . import evidence
    from .interval_coverage import PAGE
except ImportError:  # run as a script
    import evidence
    from interval_coverage import PAGE
from curvescope.analysis.decompose import curve as curves
from curvescope.analysis.decompose.findings import FindingVerdict, find
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.statistics import FASTER_HALF, STATISTICS, replicate

LIMIT_S = 60.0
COST_S = {batch: 0.11 + 0.016 * batch for batch in (1, 2, 4, 8, 16, 32)}
LONGER = 16  # from this batch size on, a step takes so much longer
EFFECTS = (0.0, 0.1, 0.2)
TESTED = excess(8, 16)
DRIFT, DRIFT_S, OWN = 0.07, 5.0, 0.03
BURSTS, BURST = 0.05, 1.5
PROFILE_STEPS = 3.0  # what a profile takes, in steps
REFERENCE = 0.05  # share of the time that reference kernels take
REFERENCE_NOISE = 0.03
VISIT_S = 0.3  # for the unprofiled steps of a visit


@dataclass(frozen=True)
class Design:
    """How a sweep spends its time."""

    name: str
    profiled_rounds: int = 2
    # Whether marked steps are the samples of T, so that only the first visit of a size times others
    # besides.
    times_marked: bool = False
    reference: bool = False  # whether a reference of known work runs beside each step
    resamples_steps: bool = False  # whether replicates draw steps inside the drawn rounds


DESIGNS = (
    Design("all rounds profiled, steps resampled too", 10**6, resamples_steps=True),
    Design("two rounds profiled, steps resampled too", resamples_steps=True),
    Design("two rounds profiled, rounds resampled"),
    Design("the same, and marked steps are the samples", times_marked=True),
    Design("the same, and a reference beside each (now)", times_marked=True, reference=True),
)


def paces(random: np.random.Generator, at_s: Sequence[float]) -> np.ndarray:
    """Logarithms of the machine's pace at increasing times, as of an Ornstein-Uhlenbeck process."""
    values = np.empty(len(at_s))
    state, before_s = DRIFT * random.standard_normal(), 0.0
    for place, now_s in enumerate(at_s):
        kept = np.exp(-(now_s - before_s) / DRIFT_S)
        state = kept * state + DRIFT * np.sqrt(1 - kept**2) * random.standard_normal()
        values[place], before_s = state, now_s
    return values


def sweep_of(
    random: np.random.Generator, design: Design, effect: float, *, bursts: bool
) -> pd.DataFrame:
    """The steps of one sweep."""
    now_s, round_, rows = 0.0, 0, []
    counts = {batch: max(1, min(8, round(VISIT_S / step_s))) for batch, step_s in COST_S.items()}
    while True:
        profiles = PROFILE_STEPS * (round_ < design.profiled_rounds)
        both = round_ == 0 or not design.times_marked
        kinds = [False, True] if both else [True]
        needed_s = sum(
            (1 + len(kinds) * counts[batch] + profiles) * step_s for batch, step_s in COST_S.items()
        )
        if now_s + needed_s > LIMIT_S:
            break
        for batch in map(int, random.permutation(list(COST_S))):
            step_s = COST_S[batch] * (1 + REFERENCE * design.reference)
            now_s += step_s
            slow = np.log(BURST) * (bursts and random.random() < BURSTS)
            for marked in kinds:
                for _ in range(counts[batch]):
                    if not marked or design.times_marked:
                        rows.append((batch, round_, now_s, slow, marked))
                    now_s += step_s
            now_s += profiles * step_s
        round_ += 1
    table = pd.DataFrame(rows, columns=["batch", "round", "at_s", "slow", "marked"])
    pace = paces(random, table["at_s"].tolist())
    logs = pace + table["slow"].to_numpy() + OWN * random.standard_normal(len(table))
    longer = 1 + effect * (table["batch"] >= LONGER)
    durations_ns = 1e9 * table["batch"].map(COST_S) * longer * np.exp(logs)
    times = {
        "duration_ns": durations_ns.round().astype("int64"),
        "start_ns": (1e9 * table["at_s"]).astype("int64"),
    }
    if design.reference:
        seen = pace + REFERENCE_NOISE * random.standard_normal(len(table))
        times["reference_ns"] = (1e6 * np.exp(seen)).round().astype("int64")
    return table[["batch", "round", "marked"]].assign(**times, profiled=False)


def steps_too(
    rounds: Sequence[np.ndarray], drawn: np.ndarray, statistic: str = "median"
) -> np.ndarray:
    """Instead of `statistics.replicate`: steps are drawn inside the drawn rounds as well."""
    random, most = np.random.default_rng(1), max(map(len, rounds))
    sizes = np.array([len(values) for values in rounds])
    padded = np.array(
        [np.pad(values, (0, most - len(values)), constant_values=np.nan) for values in rounds]
    )
    chosen = (random.random((*drawn.shape, most)) * sizes[drawn][..., None]).astype(int)
    found = padded[drawn[..., None], chosen]
    found[np.broadcast_to(np.arange(most), found.shape) >= sizes[drawn][..., None]] = np.nan
    return np.asarray(STATISTICS[statistic](found.reshape(len(drawn), -1), axis=1))


def simulate(design: Design, *, bursts: bool, sweeps: int) -> dict[str, Any]:
    """Rounds, half-width of an excess as a share of the step, its coverage, and sweeps that find an
    anomaly.
    """
    curves.replicate = steps_too if design.resamples_steps else replicate  # type: ignore[attr-defined]
    found: dict[str, Any] = {"rounds": [], "half": [], "held": 0, **dict.fromkeys(EFFECTS, 0)}
    # What the faster half lies below the mean does not depend on the batch size.
    truth_s = sum(weight * COST_S[int(batch)] for batch, weight in TESTED.coefficients)
    for effect in EFFECTS:
        random = np.random.default_rng(round(1000 * effect))
        for _ in range(sweeps):
            steps = sweep_of(random, design, effect, bursts=bursts)
            curve = curves.cost_curve(steps, FASTER_HALF)
            places = [one.tested.at for one in find(curve) if one.verdict == FindingVerdict.ANOMALY]
            found[effect] += any(not effect or at in (LONGER // 2, LONGER) for at in places)
            if not effect:
                judging = curve.judging(TESTED)
                value, step_ms = judging.evaluate(TESTED), judging.at(LONGER).time_ms.value
                paced_ms = 1e3 * truth_s * step_ms / 1e3 / COST_S[LONGER]
                found["half"].append((value.high - value.low) / 2 / step_ms)
                found["held"] += value.low <= paced_ms <= value.high
                found["rounds"].append(steps["round"].nunique())
    curves.replicate = replicate  # type: ignore[attr-defined]
    return found


def results(sweeps: int) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table."""
    rows = []
    for design in DESIGNS:
        for bursts in (False, True):
            found = simulate(design, bursts=bursts, sweeps=sweeps)
            shares = [f"{found[effect] / sweeps:.0%}" for effect in EFFECTS]
            noise = "drift and bursts" if bursts else "drift"
            half, held = f"{np.median(found['half']):.1%}", f"{found['held'] / sweeps:.0%}"
            cells = [design.name, noise, f"{np.mean(found['rounds']):.0f}", half, held, *shares]
            rows.append(f"| {' | '.join(cells)} |")
    yield "## Power in the same seconds", rows


if __name__ == "__main__":
    evidence.simulate(__doc__, PAGE, 100, results)
