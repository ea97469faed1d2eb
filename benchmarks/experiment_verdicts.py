"""What the verdicts of experiments promise, held against simulated experiments; writes a section of docs/statistics.md.

Runs of a term are drawn in the order in which an experiment takes them, with every noise of interval_coverage.py, and go
through the stages of experiments/plan.py. Run: `python benchmarks/experiment_verdicts.py --write`, about
fifteen minutes on two cores.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from rich.progress import track

from curvescope.analysis.decompose.functionals import bend
from curvescope.analysis.verdicts.outcome import Outcome, outcomes_of
from curvescope.analysis.verdicts.rule import TOO_WIDE
from curvescope.analysis.verdicts.words import Verdict
from curvescope.experiments.budget import rounds_of, with_more_rounds
from curvescope.experiments.case import hopeful
from curvescope.experiments.factors import FACTORS
from curvescope.profiling.recording.experiments import Experiment, Scope, Stage

sys.path.insert(0, str(Path(__file__).parent))
from evidence import write_section
from interval_coverage import PAGE, SHAPES, WAITS, waits_ns

KEPT = Path(__file__).parent / "results" / "experiment_verdicts.json"
HEADING = "## Verdicts of experiments"
BEND = bend(2, 4, 8)
LINE_MS = {2: 7.0, 4: 9.0, 8: 13.0}
RIGHT = "right"
WRONG = tuple(f"wrong {number}" for number in range(8))
EFFECTS = (0.1, 0.2, 0.5)  # of T(8)
SHARES = (0.0, 0.2, 0.5, 1.0)
STRESS = "smaller_memory"  # a factor that brings its cause about
STRESSES = (0.0, 1.0, 3.0)  # slowdown of the smaller batch sizes, as a multiple of what the anomaly says
RUNS_PER_VISIT = 3
SWEEPS = 200

TEXT = """
`python benchmarks/experiment_verdicts.py --write` writes this section. It simulates experiments on a term whose cost is 5 ms plus 1 ms
per sample at batch 2, 4 and 8, {runs} runs per visit, {sweeps} times each, with the fewest rounds of the plan: {screen} for a screen of nine
factors, then {confirm} fresh ones for what it suggests, and twice as many if that is undecided. One factor removes the planted bend, the other
eight change nothing. `analysis/verdicts/rule.py` decides; *confirmed*: the interval of the share removed lies above one half, after Holm's correction. With nothing planted the plan
would end before; the simulation goes on, so the first column is an upper bound.

The goals: the interval of the share holds its true value in at least 95 of 100 experiments, and at most 2 of 100 experiments confirm a
wrong factor. The result: {held}; {wrong}.

| noise | nothing planted: any confirmed | {effects} |
|---|--:|{columns}
{verdicts}

Right is the confirmed factor that was planted, wrong is any other one. The bend at 4 is planted as that share of the time at batch 8.

Intervals of the share removed that hold its true value, over {confirm} rounds, for a bend of 20 % of the time at batch 8 (the last column counts
infinite intervals, where the bend cannot be distinguished from 0):

| noise | {shares} | infinite |
|---|{share_columns}--:|
{intervals}

A factor that brings its cause about confirms it if the smaller batch sizes become slower by what the anomaly says, and not by far more. For the same
bend: how often the cause is confirmed, and how often the interval of the share holds its true value:

| noise | {stresses} |
|---|{stress_columns}
{brought}
"""


def run(
    one: Experiment, costs: dict[str | None, dict[int, float]], noise: str, random: np.random.Generator
) -> pd.DataFrame:
    """Rows of an experiment: rounds over factors and batch sizes in random order."""
    visits = [(factor, batch) for factor in (None, *one.factors) for batch in one.batches]
    times = SHAPES[noise](random, one.rounds[0] * len(visits), RUNS_PER_VISIT)
    rows = []
    for round_ in range(one.rounds[0]):
        for place, visit in enumerate(random.permutation(len(visits))):
            factor, batch = visits[visit]
            for factor_of_run in times[round_ * len(visits) + place]:
                rows.append((factor, batch, round_, round(costs[factor][batch] * factor_of_run * 1e6)))
    table = pd.DataFrame(rows, columns=["factor", "batch", "round", "duration_ns"])
    if noise != WAITS:
        return table
    due_ns = pd.Series([1e6 * costs[factor][batch] for factor, batch, *_ in rows])
    return table.assign(run_queue_wait_ns=waits_ns(table["duration_ns"], due_ns))


def experiment(stage: str, factors: tuple[str, ...], number: int) -> Experiment:
    weights = tuple((int(batch), float(weight)) for batch, weight in BEND.coefficients)
    batches = tuple(LINE_MS)
    return Experiment(
        number=number,
        stage=stage,
        scope=Scope.TERM,
        functional=weights,
        functional_kind="bend",
        batches=batches,
        factors=factors,
        layer="fc6",
        phase="forward",
        rounds=rounds_of(stage, Scope.TERM),
        done=True,
    )


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
    names = hopeful(found)
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
    """Whether a stress confirms its cause, and whether the interval of the share holds its true value."""
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
    """Whether the interval of the share removed holds its true value, and whether it is infinite."""
    random = np.random.default_rng(seed)
    one = experiment(Stage.CONFIRM, (RIGHT,), 0)
    taken = outcomes_of(one, run(one, costs_of(0.2, share), noise, random), {})[1].taken
    assert taken is not None
    return bool(taken.low <= share <= taken.high), not np.isfinite(taken.low)


def simulate(case: tuple[str, str, float], sweeps: int) -> dict[str, int]:
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
    return {**counts, "sweeps": sweeps}


def section(kept: dict[str, dict[str, int] | int]) -> str:
    sweeps = int(kept["sweeps"])  # type: ignore[call-overload]

    def count(kind: str, noise: str, size: float, name: str) -> float:
        counts = kept[f"{kind} {noise} {size}"]
        return counts.get(name, 0) / counts.get("sweeps", sweeps)  # type: ignore[union-attr]

    lines, intervals, brought = [], [], []
    for noise in SHAPES:
        cells = [
            f"{count('verdict', noise, e, 'right'):.0%}, {count('verdict', noise, e, 'wrong'):.1%}" for e in EFFECTS
        ]
        lines.append(f"| {noise} | {count('verdict', noise, 0.0, 'any'):.1%} | {' | '.join(cells)} |")
        held = [f"{count('share', noise, share, 'held'):.1%}" for share in SHARES]
        infinite = np.mean([count("share", noise, share, "infinite") for share in SHARES])
        intervals.append(f"| {noise} | {' | '.join(held)} | {infinite:.1%} |")
        cells = [f"{count('stress', noise, s, 'any'):.1%}, {count('stress', noise, s, 'held'):.1%}" for s in STRESSES]
        brought.append(f"| {noise} | {' | '.join(cells)} |")
    coverage = [count("share", noise, share, "held") for noise in SHAPES for share in SHARES]
    most = max(
        *(count("verdict", noise, e, "wrong") for noise in SHAPES for e in EFFECTS),
        *(count("verdict", noise, 0.0, "any") for noise in SHAPES),
    )
    text = TEXT.format(
        runs=RUNS_PER_VISIT,
        sweeps=sweeps,
        screen=rounds_of(Stage.SCREEN, Scope.TERM)[0],
        confirm=rounds_of(Stage.CONFIRM, Scope.TERM)[0],
        held=f"{np.mean(coverage):.1%} of all hold it, at least {min(coverage):.1%} of any kind (of {sweeps})",
        wrong=f"at most {most:.1%} of any kind confirm a wrong one",
        effects=" | ".join(f"{effect:.0%}: right, wrong" for effect in EFFECTS),
        columns="--:|" * len(EFFECTS),
        verdicts="\n".join(lines),
        shares=" | ".join(f"{share:.0%} taken away" for share in SHARES),
        share_columns="--:|" * len(SHARES),
        intervals="\n".join(intervals),
        stresses=" | ".join(f"slower by {stress:.0%} of it: confirmed, held" for stress in STRESSES),
        stress_columns="--:|" * len(STRESSES),
        brought="\n".join(brought),
    )
    return f"{HEADING}\n{text}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help="of each kind (default %(default)s)")
    parser.add_argument("--missing", action="store_true", help="simulate only what the kept results lack")
    parser.add_argument("--write", action="store_true", help="write the section of docs/statistics.md")
    args = parser.parse_args()
    cases = [("verdict", noise, effect) for noise in SHAPES for effect in (0.0, *EFFECTS)]
    cases += [("share", noise, share) for noise in SHAPES for share in SHARES]
    cases += [("stress", noise, stress) for noise in SHAPES for stress in STRESSES]
    known = json.loads(KEPT.read_text()) if args.missing else {}
    cases = [case for case in cases if "{} {} {}".format(*case) not in known]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(simulate, cases, [args.sweeps] * len(cases))
        results = list(track(done, "simulating", total=len(cases)))
    counts = {f"{kind} {noise} {size}": one for (kind, noise, size), one in zip(cases, results, strict=True)}
    kept: dict[str, dict[str, int] | int] = {"sweeps": args.sweeps, **known, **counts}
    text = section(kept)
    if args.write:
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        write_section(PAGE, HEADING, text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
