"""What the verdicts of experiments promise, held against simulated ones.

Runs of a term are drawn in the order in which an experiment takes them, with every noise of
interval_coverage.py, and go through the stages of experiments/plan.py. Run:
`python benchmarks/experiment_verdicts.py --write`, about fifteen minutes on two cores.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from rich.progress import track

from curvescope.analysis.decompose.functionals import bend
from curvescope.analysis.verdicts.outcome import Outcome
from curvescope.analysis.verdicts.rule import TOO_WIDE
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.budget import rounds_of, with_more_rounds
from curvescope.experiments.case import promising
from curvescope.experiments.factors import FACTORS
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage

sys.path.insert(0, str(Path(__file__).parents[1]))
import evidence
from interval_coverage import SHAPES, WAITS, waits_ns

from tests.experiments.planted_experiments import experiment as planted
from tests.experiments.planted_experiments import outcomes_of

BEND = bend(2, 4, 8)
LINE_MS = {2: 7.0, 4: 9.0, 8: 13.0}
RIGHT = "right"
WRONG = tuple(f"wrong {number}" for number in range(8))
EFFECTS = (0.1, 0.2, 0.5)  # of T(8)
SHARES = (0.0, 0.2, 0.5, 1.0)
STRESS = "smaller_memory"  # a factor that brings its cause about
# slowdown of the smaller batch sizes, as a multiple of what the anomaly says
STRESSES = (
    0.0,
    1.0,
    3.0,
)
RUNS_PER_VISIT = 3


def run(
    one: Experiment,
    costs: dict[str | None, dict[int, float]],
    noise: str,
    random: np.random.Generator,
) -> pd.DataFrame:
    """Rows of an experiment: rounds over factors and batch sizes in random order."""
    visits = [(factor, batch) for factor in (None, *one.factors) for batch in one.batches]
    times = SHAPES[noise](random, one.rounds[0] * len(visits), RUNS_PER_VISIT)
    rows = []
    for round_ in range(one.rounds[0]):
        for place, visit in enumerate(random.permutation(len(visits))):
            factor, batch = visits[visit]
            for factor_of_run in times[round_ * len(visits) + place]:
                rows.append(
                    (factor, batch, round_, round(costs[factor][batch] * factor_of_run * 1e6))
                )
    table = pd.DataFrame(rows, columns=["factor", "batch", "round", "duration_ns"])
    if noise != WAITS:
        return table
    due_ns = pd.Series([1e6 * costs[factor][batch] for factor, batch, *_ in rows])
    return table.assign(run_queue_wait_ns=waits_ns(table["duration_ns"], due_ns))


def experiment(stage: str, factors: tuple[str, ...], number: int) -> Experiment:
    """An experiment on the bend at 4, with the fewest rounds of the plan."""
    return planted(number, stage, factors, rounds=rounds_of(stage, Scope.TERM))


def costs_of(effect: float, share: float = 1.0) -> dict[str | None, dict[int, float]]:
    """Costs with a bend of `effect` of T(8), a share of which the right factor takes away."""
    size_ms = effect * LINE_MS[8]
    bent = {**LINE_MS, 8: LINE_MS[8] + size_ms}
    mended = {**LINE_MS, 8: LINE_MS[8] + (1 - share) * size_ms}
    return {None: bent, RIGHT: mended, **dict.fromkeys(WRONG, bent)}


def verdicts(effect: float, noise: str, seed: int) -> list[str]:
    random, costs = np.random.default_rng(seed), costs_of(effect)
    screen = experiment(Stage.SCREEN, (RIGHT, *WRONG), 0)
    found: list[Outcome] = outcomes_of(screen, run(screen, costs, noise, random), {})
    names = promising(found)
    for number in (1, 2):
        if not names:
            break
        confirm = experiment(Stage.CONFIRM, names, number)
        confirm = with_more_rounds(confirm) if number == 2 else confirm
        results = outcomes_of(confirm, run(confirm, costs, noise, random), {}, found)
        if confirmed := [str(one.factor) for one in results if one.verdict == Verdict.CONFIRMED]:
            return confirmed
        found += results
        names = tuple(str(one.factor) for one in results if one.reason == TOO_WIDE)
    return []


def stressed(times: float, noise: str, seed: int) -> tuple[bool, bool]:
    """Whether a stress confirms its cause, and whether the interval of the share holds its true
    value.
    """
    usual = costs_of(0.2)[None]
    weights = dict(BEND.coefficients)
    size_ms = sum(weight * usual[batch] for batch, weight in weights.items())
    slower = 1 + times * size_ms / (weights[8] * usual[8] - size_ms)
    random, one = np.random.default_rng(seed), experiment(Stage.CONFIRM, (STRESS,), 0)
    costs = {None: usual, STRESS: {batch: slower * time_ms for batch, time_ms in usual.items()}}
    facts = {STRESS: FACTORS[STRESS].facts(Scope.STEP)}
    found = outcomes_of(one, run(one, costs, noise, random), facts)[1]
    assert found.taken is not None
    return found.verdict == Verdict.CONFIRMED, bool(found.taken.low <= times <= found.taken.high)


def interval(share: float, noise: str, seed: int) -> tuple[bool, bool]:
    """Whether the interval of the share removed holds its true value, and whether it is
    infinite.
    """
    random = np.random.default_rng(seed)
    one = experiment(Stage.CONFIRM, (RIGHT,), 0)
    taken = outcomes_of(one, run(one, costs_of(0.2, share), noise, random), {})[1].taken
    assert taken is not None
    return bool(taken.low <= share <= taken.high), not np.isfinite(taken.low)


def simulate(case: tuple[str, str, float], sweeps: int) -> Counter[str]:
    kind, noise, size = case
    counts: Counter[str] = Counter()
    first = 10_000 * list(SHAPES).index(noise) + round(1000 * size)
    for seed in range(first, first + sweeps):
        if kind == "verdict":
            confirmed = verdicts(size, noise, seed)
            counts["right"] += RIGHT in confirmed
            counts["wrong"] += any(name != RIGHT for name in confirmed)
            counts["any"] += bool(confirmed)
        elif kind == "stress":
            is_confirmed, held = stressed(size, noise, seed)
            counts["any"] += is_confirmed
            counts["held"] += held
        else:
            held, infinite = interval(size, noise, seed)
            counts["held"] += held
            counts["infinite"] += infinite
    return counts


HEAD = (
    "noise",
    *(f"right, {effect:.0%}" for effect in EFFECTS),
    "wrong confirmed",
    "held",
    "infinite",
    *(f"brought about, {times:.0%}" for times in STRESSES),
    "held, brought about",
)


def results(sweeps: int) -> Iterator[evidence.Named]:
    """The table of all noises."""
    sizes = {"verdict": (0.0, *EFFECTS), "share": SHARES, "stress": STRESSES}
    cases = [
        (kind, noise, size)
        for kind, of_kind in sizes.items()
        for noise in SHAPES
        for size in of_kind
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(simulate, cases, [sweeps] * len(cases))
        counts = dict(zip(cases, track(done, "simulating", total=len(cases)), strict=True))

    def share(kind: str, noise: str, size: float, name: str) -> float:
        return counts[kind, noise, size].get(name, 0) / sweeps

    rows = []
    for noise in SHAPES:
        right = [f"{share('verdict', noise, effect, 'right'):.0%}" for effect in EFFECTS]
        wrong = max(
            share("verdict", noise, size, "wrong" if size else "any") for size in sizes["verdict"]
        )
        held = min(share("share", noise, size, "held") for size in SHARES)
        infinite = np.mean([share("share", noise, size, "infinite") for size in SHARES])
        of_noise = [wrong, held, infinite]
        of_noise += [share("stress", noise, size, "any") for size in STRESSES]
        of_noise.append(min(share("stress", noise, size, "held") for size in STRESSES))
        rows.append([noise, *right, *(f"{value:.1%}" for value in of_noise)])
    yield "verdicts", HEAD, rows


if __name__ == "__main__":
    evidence.simulate(__doc__, 200, results)
