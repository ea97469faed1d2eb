"""What the intervals and the detector promise, held against simulated sweeps.

Every shape of noise is a process in time: steps are drawn in the order in which a sweep measures
them, so that drift and runs of slow steps fall where they would. Run:
`python benchmarks/interval_coverage.py --write`, about ten minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from rich.progress import track

try:
    from . import evidence
except ImportError:  # run as a script
    import evidence
from curvescope.analysis.decompose.averaged_steps import Samples
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.analysis.decompose.terms import Key, terms_of
from curvescope.profiling.attribution.step_pattern import faster_half
from curvescope.profiling.recording.disturbed import LEAST_ROUNDS

BATCHES = (1, 2, 4, 8, 16, 32)
# rounds, steps of a visit
PROTOCOLS = {
    "quick": (4, 2),
    "default, least": (6, 1),
    "default": (6, 4),
    "long": (20, 4),
}
EFFECTS = (0.0, 0.02, 0.05, 0.1, 0.2)
PLACE = (8, 16)  # from the second on the planted effect is there
TESTED = bend(4, 8, 16)


Noise = Callable[[np.random.Generator, int, int], np.ndarray]


def skewed(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A long tail to the right, and a factor shared by all steps of a visit."""
    return (1 + random.gamma(1.0, 0.03, (visits, steps))) * (
        1 + 0.01 * random.standard_normal((visits, 1))
    )


def spikes(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """One step in ten takes 50 % longer, e.g. because of other work on a shared machine."""
    quiet = np.exp(0.02 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, steps)) < 0.1, 1.5, 1.0)


def two_paces(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A quarter of the steps run 8 % slower, independently of each other."""
    quiet = np.exp(0.005 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, steps)) < 0.25, 1.08, 1.0)


def two_states(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A quarter of the visits run 8 % slower in all their steps, e.g. by the placement of pages or
    by clocks.
    """
    quiet = np.exp(0.005 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, 1)) < 0.25, 1.08, 1.0)


def slow_visits(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Three in ten visits run a third slower in all their steps, e.g. on a core whose units a busy
    one shares.
    """
    quiet = np.exp(0.01 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, 1)) < 0.3, 1.33, 1.0)


def busy_neighbour(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Three in ten visits run 2 to 1,000 times slower and say that threads waited for a core: they
    are set aside.
    """
    quiet = np.exp(0.02 * random.standard_normal((visits, steps)))
    return quiet * np.where(
        random.random((visits, 1)) < 0.3,
        np.exp(random.uniform(*np.log((2, 1000)), (visits, 1))),
        1.0,
    )


def warming(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """The machine slows by 10 % over the sweep, most of it early."""
    quiet = np.exp(0.01 * random.standard_normal((visits, steps)))
    return quiet * (1.1 - 0.1 * np.exp(-3 * np.linspace(0, 1, visits)))[:, None]


def wandering(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A random walk from visit to visit, with a standard deviation of 5 % at the end."""
    walk = np.cumsum(random.standard_normal(visits)) * 0.05 / np.sqrt(visits)
    return np.exp(0.01 * random.standard_normal((visits, steps)) + walk[:, None])


def persistent(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Each step correlates with the one before (first-order, 0.8), also across visits."""
    shocks = 0.02 * np.sqrt(1 - 0.8**2) * random.standard_normal(visits * steps)
    values, state = np.empty(visits * steps), 0.02 * random.standard_normal()
    for place, shock in enumerate(shocks):
        state = 0.8 * state + shock
        values[place] = state
    return np.exp(values).reshape(visits, steps)


def even(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Independent, 2 %."""
    return np.exp(0.02 * random.standard_normal((visits, steps)))


SHAPES: dict[str, Noise] = {
    f.__name__.replace("_", " "): f
    for f in (
        even,
        skewed,
        spikes,
        two_paces,
        two_states,
        slow_visits,
        warming,
        wandering,
        persistent,
        busy_neighbour,
    )
}
# the shape whose steps count what slows them, and what that is at least
WAITS, SLOWED = (
    "busy neighbour",
    1.5,
)
# T(b) itself has one true value
CENTRED = tuple(name for name in SHAPES if name not in ("warming", "wandering"))


def waits_ns(duration_ns: pd.Series, due_ns: pd.Series) -> pd.Series:
    """What steps of the shape `WAITS` count as their threads' wait for a core."""
    return (duration_ns - due_ns).where(duration_ns > SLOWED * due_ns, 0.0)


@dataclass(frozen=True)
class Tally:
    """Counts over the sweeps of one shape, protocol and effect."""

    sweeps: int
    alarms: int  # with an anomaly; where an effect was planted, with one at its place
    covered: int  # whose interval of `TESTED` holds its true value
    points: int  # intervals of the pace that hold the true value, of `sweeps` times the batch sizes


def simulate(shape: str, rounds: int, steps: int, effect: float, seed: int, sweeps: int) -> Tally:
    """Sweeps over `BATCHES` of a cost fixed plus proportional, with `effect` more from
    batch 16 on.
    """
    random = np.random.default_rng(seed)
    cost_ms = cost_with(effect)
    drawn = SHAPES[shape](np.random.default_rng(0), 4000, steps)
    drawn = drawn[drawn.min(axis=1) < SLOWED] if shape == WAITS else drawn
    mean = float(drawn.mean()) if shape in CENTRED else 1.0
    pace = float(faster_half(drawn.ravel())) if shape in CENTRED else 1.0
    anomaly_ms = sum(weight * cost_ms[batch] for batch, weight in TESTED.coefficients)
    alarms = covered = points = 0
    for _ in range(sweeps):
        sweep = sweep_of(random, shape, effect, rounds, steps)
        if shape == WAITS:
            sweep = sweep.assign(
                run_queue_wait_ns=waits_ns(sweep["duration_ns"], 1e6 * sweep["batch"].map(cost_ms))
            )
        curve = cost_curve(sweep, FASTER_HALF)
        findings = find(curve)
        wanted = [f for f in findings if f.verdict == FindingVerdict.ANOMALY]
        alarms += any(not effect or f.tested.at in PLACE for f in wanted)
        judging = curve.judging(TESTED)
        held, truth_ms = judging.evaluate(TESTED), (mean if judging is curve else pace) * anomaly_ms
        covered += bool(held.low <= truth_ms <= held.high)
        points += sum(
            bool(p.time_ms.low <= pace * cost_ms[p.condition] <= p.time_ms.high)
            for p in curve.paces.points
        )
    return Tally(sweeps, alarms, covered, points)


def cost_with(effect: float) -> dict[int, float]:
    return {b: (20.0 + 10.0 * b) * (1 + effect * (b >= PLACE[1])) for b in BATCHES}


def sweep_of(
    random: np.random.Generator, shape: str, effect: float, rounds: int, steps: int
) -> pd.DataFrame:
    """Steps over `BATCHES` of a cost fixed plus proportional, with `effect` more from
    batch 16 on.
    """
    cost_ms = cost_with(effect)
    factors = iter(SHAPES[shape](random, rounds * len(BATCHES), steps))
    rows = []
    for round_ in range(rounds):
        # The first round goes upwards, the others are shuffled, as in a sweep.
        order = random.permutation(BATCHES) if round_ else BATCHES
        rows += [
            (int(batch), round_, place, round(cost_ms[int(batch)] * factor * 1e6))
            for place, batch in enumerate(order, round_ * len(BATCHES))
            for factor in next(factors)
        ]
    return pd.DataFrame(rows, columns=["batch", "round", "start_ns", "duration_ns"]).assign(
        profiled=False
    )


def _run(case: tuple[str, str, float], sweeps: int) -> Tally:
    shape, protocol, effect = case
    rounds, steps = PROTOCOLS[protocol]
    seed = (
        list(SHAPES).index(shape) * 100
        + list(PROTOCOLS).index(protocol) * 10
        + EFFECTS.index(effect)
    )
    return simulate(shape, rounds, steps, effect, seed, sweeps)


TERM_PAIR = excess(8, 16)
# planted layer: 48 at 16 were due; other layer; idle
TERM_COSTS_MS = {
    8: (24.0, 16.0, 2.0),
    16: (96.0, 32.0, 2.0),
}
TERM_ROUNDS = (4, 6, 12, 30)
OVERHEAD_SHARE = 0.02
_KEYS = (
    Key("planted", "forward", "kernels"),
    Key("other", "forward", "kernels"),
    Key(None, None, "idle"),
)


def _alike(_random: np.random.Generator, rounds: int) -> np.ndarray:
    return np.ones(rounds)


def _sharing(random: np.random.Generator, rounds: int) -> np.ndarray:
    return 1 + 0.03 * random.standard_normal(rounds)


def _drifting(random: np.random.Generator, rounds: int) -> np.ndarray:
    return 1 + random.uniform(-0.1, 0.1) * (np.linspace(0, 1, rounds) - 0.5)


# The factor of each round, besides independent 2 % of every layer of every step; the shares of
# steps that take 50 % longer, and of visits that are set aside.
TERM_SHAPES = {
    "independent": (_alike, 0.0, 0.0),
    "shared inside a round": (_sharing, 0.0, 0.0),
    "drift over rounds": (_drifting, 0.0, 0.0),
    "a tenth of the steps disturbed": (_alike, 0.1, 0.0),
    WAITS: (_sharing, 0.0, 0.3),
}


@dataclass(frozen=True)
class TermTally:
    """Sweeps, how many intervals of each share hold the true value, and how wide those of the
    planted layer are.
    """

    sweeps: int
    held: tuple[int, ...]  # by share: the three terms, profiling overhead, the whole excess
    # mean width of the planted layer's interval over 2 · 1.96 standard deviations of its estimates
    width: float


def simulate_terms(shape: str, rounds: int, seed: int, sweeps: int) -> TermTally:
    """Sweeps of two batch sizes whose planted layer takes twice its due time at the larger one."""
    random = np.random.default_rng(seed)
    shared, disturbed, aside = TERM_SHAPES[shape]
    estimates = []
    for _ in range(sweeps):
        factor = shared(random, rounds)
        samples, rows = {}, []
        for batch, costs in TERM_COSTS_MS.items():
            waited = np.zeros(rounds, bool)
            waited[random.permutation(rounds)[LEAST_ROUNDS:]] = (
                random.random(rounds - LEAST_ROUNDS) < aside
            )

            def times(
                of_rounds: np.ndarray, factor: np.ndarray = factor, costs: tuple[float, ...] = costs
            ) -> tuple[np.ndarray, np.ndarray]:
                of_round = np.repeat(of_rounds, 3)
                noise = np.exp(0.02 * random.standard_normal((len(of_round), 3)))
                noise *= np.where(random.random((len(of_round), 1)) < disturbed, 1.5, 1.0)
                return np.array(costs) * noise * factor[of_round][:, None], of_round

            profiled, of_round = times(np.flatnonzero(~waited))
            unprofiled, beside = times(np.arange(rounds))
            times_ns = unprofiled.sum(axis=1) * 1e6
            samples[batch] = Samples(profiled * (1 + OVERHEAD_SHARE), of_round)
            of_steps = {"duration_ns": times_ns, "run_queue_wait_ns": times_ns * waited[beside]}
            rows.append(pd.DataFrame({"batch": batch, "round": beside, **of_steps}))
        curve = cost_curve(pd.concat(rows).assign(profiled=False), FASTER_HALF)
        terms, pace = terms_of(_KEYS, samples, range(rounds), FASTER_HALF), curve.paces
        shares = terms.decompose(TERM_PAIR, pace)
        estimates.append([*(share.value for share in shares), pace.evaluate(TERM_PAIR)])
    values = np.array([[value.value for value in row] for row in estimates])
    # What the statistic is on average: the faster half of noisy steps lies below the times without
    # noise.
    truth = values.mean(axis=0)
    held = [
        sum(row[i].low <= true <= row[i].high for row in estimates) for i, true in enumerate(truth)
    ]
    width = float(np.mean([row[0].high - row[0].low for row in estimates]) / 1.96 / 2)
    return TermTally(sweeps, tuple(held), width / _spread(values[:, 0].tolist()))


def _spread(values: list[float]) -> float:
    """Standard deviation of normal values from their central half: few sweeps, mostly disturbed,
    count little.
    """
    low, high = np.percentile(values, [25, 75])
    return float(high - low) / 1.349


def _run_terms(case: tuple[str, int], sweeps: int) -> TermTally:
    shape, rounds = case
    return simulate_terms(shape, rounds, list(TERM_SHAPES).index(shape) * 100 + rounds, sweeps)


def _without_anomaly(shape: str, tally: Tally) -> str:
    """Sweeps that report an anomaly, and intervals that hold: of the bend, and of T(b) where it has
    one true value.
    """
    shares = [tally.alarms / tally.sweeps, tally.covered / tally.sweeps]
    shares += [tally.points / tally.sweeps / len(BATCHES)] if shape in CENTRED else []
    return ", ".join(f"{share:.1%}" for share in shares)


def results(sweeps: int) -> Iterator[evidence.Named]:
    """The tables of false alarms, of power and of the intervals of terms."""
    straight = list(product(PROTOCOLS, EFFECTS[:1]))
    longer = list(product(("quick", "default"), EFFECTS[1:]))
    cases = [(shape, *column) for shape in SHAPES for column in (*straight, *longer)]
    splits = list(product(TERM_SHAPES, TERM_ROUNDS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(_run, cases, [sweeps] * len(cases))
        tallies = dict(zip(cases, track(done, "simulating", total=len(cases)), strict=True))
        done_terms = pool.map(_run_terms, splits, [sweeps] * len(splits))
        terms = dict(zip(splits, track(done_terms, "terms", total=len(splits)), strict=True))
    rows = [
        [shape, *(_without_anomaly(shape, tallies[shape, p, e]) for p, e in straight)]
        for shape in SHAPES
    ]
    yield "false_alarms", ["noise", *PROTOCOLS], rows
    rows = [
        [shape, *(f"{tallies[shape, p, e].alarms / sweeps:.0%}" for p, e in longer)]
        for shape in SHAPES
    ]
    yield "power", ["noise", *(f"{p}, +{e:.0%}" for p, e in longer)], rows
    rows = [
        [shape, *(_held(terms[shape, rounds]) for rounds in TERM_ROUNDS)] for shape in TERM_SHAPES
    ]
    what = "planted layer, others, width"
    yield (
        "intervals_of_terms",
        ["noise of terms", *(f"{n} rounds: {what}" for n in TERM_ROUNDS)],
        rows,
    )


def _held(tally: TermTally) -> str:
    """Shares of intervals of terms that hold, and the width of the planted one's."""
    planted, *others = (count / tally.sweeps for count in tally.held)
    return f"{planted:.1%}, {min(others):.1%}, {tally.width:.2f}"


if __name__ == "__main__":
    evidence.simulate(__doc__, 1000, results)
