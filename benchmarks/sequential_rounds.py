"""What ending the rounds of a sweep costs in verdicts, held against simulated sweeps; writes a section of docs/statistics.md.

Run: `python benchmarks/sequential_rounds.py --write`, about ten minutes.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

from typing import NamedTuple

import numpy as np

try:
    from .evidence import simulate_section
    from .interval_coverage import PAGE, PLACE, sweep_of
except ImportError:  # run as a script
    from evidence import simulate_section
    from interval_coverage import PAGE, PLACE, sweep_of
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find, undecided
from curvescope.analysis.decompose.statistics import FASTER_HALF

HEADING = "## Rounds that end when nothing is open"
LOOKS = (6, 9, 14, 21, 30)  # rounds at looks; the last are all that fit the time
STEPS, SWEEPS = 3, 40
EFFECTS = (0.0, 0.05, 0.1, 0.2)


class Counts(NamedTuple):
    """Counts of simulated sweeps."""

    complete: int  # that report an anomaly after all rounds; where an effect was planted, at its place
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
            if len(made) == seed and (rounds == LOOKS[-1] or not undecided(curve, findings, LOOKS[-1] / rounds)):
                made.append(rounds)
        complete, early = complete + shown[LOOKS[-1]], early + shown[made[-1]]
    return Counts(complete, early, float(np.mean(made)))


def section() -> str:
    lines = [
        HEADING,
        "",
        "A sweep ends before its time limit when no verdict is open that further rounds are expected to decide: each deviation is an anomaly at a level of 1 % (Holm; 5 % at",
        "the end), or lies below 5 % of the step by its interval, or cannot be told in the time, even if it lies half an interval's half farther from 0. `diagnose` looks after 6,",
        f"9, 14, 21 … rounds. `python benchmarks/sequential_rounds.py --write` writes this section: {SWEEPS} sweeps each, where {LOOKS[-1]} rounds of {STEPS} steps fit the time. Sweeps that",
        "report an anomaly, at the right place where one is planted: by the rule / after all rounds, and the mean number of rounds by the rule.",
        "",
        f"| noise | {' | '.join(f'+{effect:.0%}' if effect else 'straight line' for effect in EFFECTS)} |",
        f"|---|{'--:|' * len(EFFECTS)}",
    ]
    for noise in ("even", "spikes", "two states", "slow visits", "wandering", "persistent"):
        counts = [simulate(noise, effect, SWEEPS) for effect in EFFECTS]
        cells = [f"{one.early} / {one.complete}, {one.rounds:.0f} rounds" for one in counts]
        lines.append(f"| {noise} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    simulate_section(__doc__, PAGE, HEADING, section)
