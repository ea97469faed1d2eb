"""Whether rounds that stop when the terms of an anomaly are distinguished from 0 still give honest intervals: by simulation.

A rule that looks at growing data and stops on success can take noise for an effect. This simulates sweeps under the
rule of `diagnose` (`curvescope.experiments.focusing`) and under fixed numbers of rounds, and counts how often the intervals hold
the true values, and how often a term that is 0 gets a star. Run: `python benchmarks/focused_rounds.py`, some minutes;
`interval_coverage.py --write` puts its table into docs/statistics.md.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd

from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.terms import Key, Samples, Share, terms_of

PAIR = excess(8, 16)
COSTS_MS = {8: (24.0, 16.0, 30.0, 2.0), 16: (60.0, 32.0, 60.0, 2.0)}
LAYERS = ("planted", "second", "third")
_KEYS = (*(Key(layer, "forward", "kernels") for layer in LAYERS), Key(None, None, "idle"))
_TRUTH_MS = [COSTS_MS[16][i] - 2 * COSTS_MS[8][i] for i in range(4)]
LOOKS = (6, 9, 13, 19, 29, 40)  # rounds at which the rule looks, with a first look after six rounds
FIXED = (6, 40)
NOISES = (0.02, 0.05, 0.1)
PACES = (0.0, 0.05)
SWEEPS = 300
_OPEN = 0.2

HEAD = """
## Rounds that go where a verdict is open

`diagnose` spends half of its time limit on rounds over all batch sizes. If terms of the largest anomaly that cannot be distinguished from
0 then make a fifth of it or more, further rounds visit only the batch sizes of that anomaly. It looks again when there are half
as many rounds more; if no such terms are left, rounds visit all batch sizes again. A functional uses every round that visited all
its batch sizes, and T(b) only the complete rounds, so the machine's drift between rounds enters neither.

Tests of growing data can mistake noise for an effect. {sweeps} simulated sweeps of each kind show how often (the excess from 8
to 16; benchmarks/focused_rounds.py): with a planted layer (+12 ms) and two layers without excess. *Noise* is the noise of each
layer in each step; *shared* is a factor that all steps of a round share. *By the rule* looks after 6, 9, 13, 19, 29 and 40 rounds.

| noise | shared | rounds | intervals that hold the truth | planted layer distinguished from 0 | a layer without excess distinguished from 0 |
|--:|--:|---|--:|--:|--:|
"""


@dataclass(frozen=True)
class Tally:
    """Counts over the sweeps of one kind.

    Attributes:
        rounds: mean number of rounds.
        held: share of the layers' and idle's intervals that hold the true value.
        found: share of sweeps in which the planted layer is distinguished from 0.
        alarms: share of the layers without excess that are distinguished from 0.
    """

    rounds: float
    held: float
    found: float
    alarms: float


def shares_of(times_ms: dict[int, np.ndarray], rounds: int) -> tuple[float, list[Share]]:
    """The excess and its shares after some rounds; times of shape (rounds, 2, terms), profiled first."""
    samples, rows = {}, []
    for batch, times in times_ms.items():
        unprofiled = times[:rounds, 1].sum(axis=1)
        samples[batch] = Samples(times[:rounds, 0], np.arange(rounds), unprofiled, np.arange(rounds))
        rows.append(pd.DataFrame({"batch": batch, "round": np.arange(rounds), "duration_ns": unprofiled * 1e6}))
    curve = cost_curve(pd.concat(rows).assign(profiled=False))
    return curve.evaluate(PAIR).value, terms_of(_KEYS, samples, range(rounds)).decompose(PAIR, curve)


def simulate(noise: float, pace: float, looks: tuple[int, ...], seed: int, sweeps: int) -> Tally:
    """Sweeps that stop at the first look at which shares that are not significant make less than a fifth."""
    random, made, held, found, alarms = np.random.default_rng(seed), 0, 0, 0, 0
    for _ in range(sweeps):
        paces = (1 + pace * random.standard_normal(LOOKS[-1]))[:, None, None]
        times_ms = {
            batch: np.array(costs) * np.exp(noise * random.standard_normal((LOOKS[-1], 2, 4))) * paces
            for batch, costs in COSTS_MS.items()
        }
        for rounds in looks:
            value, shares = shares_of(times_ms, rounds)
            if sum(abs(share.value.value) for share in shares if not share.real) < _OPEN * abs(value):
                break
        by_key = {share.key: share for share in shares}
        made += rounds
        held += sum(
            by_key[key].value.low <= true <= by_key[key].value.high for key, true in zip(_KEYS, _TRUTH_MS, strict=True)
        )
        found += by_key[_KEYS[0]].real
        alarms += sum(by_key[key].real for key in _KEYS[1:3])
    return Tally(made / sweeps, held / sweeps / len(_KEYS), found / sweeps, alarms / sweeps / 2)


def section(sweeps: int = SWEEPS) -> str:
    """The section of docs/statistics.md."""
    lines = []
    for noise in NOISES:
        for pace in PACES:
            for looks in (LOOKS, *((rounds,) for rounds in FIXED)):
                tally = simulate(noise, pace, looks, 1, sweeps)
                how = f"by the rule, {tally.rounds:.0f} on average" if len(looks) > 1 else f"{looks[0]}"
                cells = f"{tally.held:.1%} | {tally.found:.0%} | {tally.alarms:.1%}"
                lines.append(f"| {noise:.0%} | {pace:.0%} | {how} | {cells} |")
    return HEAD.format(sweeps=sweeps) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(section(int(sys.argv[1]) if len(sys.argv) > 1 else SWEEPS))
