"""How often experiments on complete steps err where processes differ: a table of
docs/statistics.md.

Three factors run in five starts of two rounds, as an experiment of the plan does. Processes differ
at each batch size. `python benchmarks/start_verdicts.py [EXPERIMENTS]`, by default 200 of each
kind.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from curvescope.analysis.verdicts.savings import savings
from curvescope.analysis.verdicts.words import Verdict

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.process_offsets import OFFSETS
from tests.analysis.verdicts.test_attacks import FACTS, NAMES, TENTH, ran, size_of
from tests.experiments.planted_experiments import outcomes_of

EFFECTS = (0.05, 0.1, 0.2)  # of the step, that the excess makes
BETWEEN = (0.0, 0.01, 0.02, 0.04)  # standard deviation of a process
SAVES = 0.1  # of a step, by the one change that saves


def simulate(effect: float, between: float, experiments: int) -> dict[str, float]:
    """Shares of experiments: a null confirmed or saved, the true cause confirmed, its interval
    right.
    """
    random = np.random.default_rng([int(1e3 * effect), int(1e4 * between)])
    cost_ms = {8: 480.0, 16: 960 / (1 - effect)}
    counts = dict.fromkeys(("wrong", "saved", "right", "refuted", "held"), 0)
    for _ in range(experiments):
        one, rows = ran(random, cost_ms, between=between)
        claims = {(one.functional, name): size_of(cost_ms) for name in NAMES}
        nulls = outcomes_of(one, rows, FACTS, (), claims)
        counts["wrong"] += any(each.verdict == Verdict.CONFIRMED for each in nulls)
        proven = [each for each in savings(nulls) if each.verdict == Verdict.CONFIRMED]
        counts["saved"] += any(each.largest and each.largest[1].value >= 0.02 for each in proven)
        less = rows["batch"].map({8: 1.0, 16: 1 - effect}).where(rows["factor"] == "one", 1.0)
        rows = rows.assign(duration_ns=(rows["duration_ns"] * less).round().astype("int64"))
        found = outcomes_of(one, rows, FACTS, (), claims)[1]
        counts["right"] += found.verdict == Verdict.CONFIRMED
        counts["refuted"] += found.verdict == Verdict.REFUTED
        size = size_of(cost_ms)
        counts["held"] += (
            found.removed is not None and found.removed.low <= size <= found.removed.high
        )
    return {name: count / experiments for name, count in counts.items()}


def saved(offsets: str, starts: int, experiments: int) -> list[float]:
    """Shares of intervals that hold: of the real saving, of the others; and of false claims."""
    random = np.random.default_rng([len(offsets), starts])
    real, others, false = 0, 0, 0
    for _ in range(experiments):
        one, rows = ran(random, TENTH, starts=starts)
        keys = [rows["factor"].fillna(""), rows["batch"], rows["process"]]
        of_process = rows.groupby(keys).ngroup().to_numpy()
        own = np.exp(OFFSETS[offsets](random, (of_process.max() + 1, 1)))[of_process, 0]
        less = np.where(rows["factor"] == NAMES[0], 1 - SAVES, 1.0)
        rows = rows.assign(duration_ns=(rows["duration_ns"] * own * less).round().astype("int64"))
        found = savings(outcomes_of(one, rows, FACTS, ()))
        for saving in found:
            truth = SAVES if saving.factor == NAMES[0] else 0.0
            gain = dict(saving.gains)[16]
            held = gain.low <= truth <= gain.high
            if truth:
                real += held
            else:
                others += held
        claimed = [one for one in found if one.factor != NAMES[0] and one.largest is not None]
        false += any(one.largest[1].value >= 0.02 for one in claimed if one.largest)
    others_count = experiments * (len(NAMES) - 1)
    return [real / experiments, others / others_count, false / experiments]


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--savings"]
    experiments = int(arguments[0]) if arguments else 200
    if "--savings" in sys.argv:
        for offsets in OFFSETS:
            for starts in (2, 5):
                shares = [f"{share:.1%}" for share in saved(offsets, starts, experiments)]
                print(f"| {offsets} | {starts} | {' | '.join(shares)} |", flush=True)
        return
    for effect in EFFECTS:
        for between in BETWEEN:
            found = simulate(effect, between, experiments)
            cells = [
                f"{effect:.0%}",
                f"{between:.0%}",
                *(f"{share:.1%}" for share in found.values()),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
