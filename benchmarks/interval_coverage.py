"""What the intervals and the detector promise, held against simulated sweeps; writes docs/statistics.md with --write.

Every shape of noise is a process in time: steps are drawn in the order in which a sweep measures them, so that drift and
runs of slow steps fall where they would. Run: `python benchmarks/interval_coverage.py --write`, about ten minutes.
"""

# ruff: noqa: E501 - lines of the page
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from rich.progress import track
from scipy.stats import beta

try:
    from .evidence import beginning
except ImportError:  # run as a script
    from evidence import beginning
from curvescope.analysis.decompose.averaged_steps import Samples
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find
from curvescope.analysis.decompose.functionals import bend, excess
from curvescope.analysis.decompose.statistics import FASTER_HALF, faster_half
from curvescope.analysis.decompose.terms import Key, terms_of
from curvescope.profiling.recording.disturbed import LEAST_ROUNDS

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
BATCHES = (1, 2, 4, 8, 16, 32)
PROTOCOLS = {"quick": (4, 2), "default, least": (6, 1), "default": (6, 4), "long": (20, 4)}  # rounds, steps of a visit
EFFECTS = (0.0, 0.02, 0.05, 0.1, 0.2)
SWEEPS = 1000
PLACE = (8, 16)  # from the second on the planted effect is there
TESTED = bend(4, 8, 16)

HEAD = """`python benchmarks/interval_coverage.py --write` writes this page. It simulates {sweeps} sweeps of each kind over batch sizes 1 to
32, with a cost of 20 ms plus 10 ms per sample, in the order in which a sweep measures. False alarms have 95 % intervals.

The goal: a 95 % interval holds the true value in at least 95 of 100 sweeps, and at most 5 of 100 sweeps of a curve without an anomaly report one,
as long as no two rounds are more alike than others. If the machine drifts, T(b) has no single true value, and its interval describes the time of
the sweep; the tests compare times of the same rounds, so they reach the goal under drift too. Where rounds are alike, intervals of T(b) are wider.

| columns | rounds | steps of a visit |
|---|--:|--:|
{protocols}

| noise | meaning |
|---|---|
{shapes}

"""
TERMS_HEAD = """
## 95 % intervals of terms: shares of sweeps in which they hold the mean of all estimates of the excess from 8 to 16

{sweeps} simulated sweeps of each kind: 3 unprofiled and 3 profiled steps in every visit. *Busy neighbour*: rounds share 3 %, and three in ten
visits are set aside, all but three rounds of a batch size at most. A step consists of two layers and idle, {costs}; a
profiled step takes 2 % longer. *Width*: of the planted layer's interval over the narrowest possible one, ±1.96 times the true standard deviation
of its estimate. Student's t alone gives 1.62 with 4 rounds, and 1.12 with 12.

| noise of terms | rounds | planted layer | other layer | idle | overhead | whole excess | width |
|---|--:|--:|--:|--:|--:|--:|--:|
"""

Noise = Callable[[np.random.Generator, int, int], np.ndarray]


def skewed(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A long tail to the right, and a factor shared by all steps of a visit."""
    return (1 + random.gamma(1.0, 0.03, (visits, steps))) * (1 + 0.01 * random.standard_normal((visits, 1)))


def spikes(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """One step in ten takes 50 % longer, e.g. because of other work on a shared machine."""
    quiet = np.exp(0.02 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, steps)) < 0.1, 1.5, 1.0)


def two_paces(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A quarter of the steps run 8 % slower, independently of each other."""
    quiet = np.exp(0.005 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, steps)) < 0.25, 1.08, 1.0)


def two_states(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """A quarter of the visits run 8 % slower in all their steps, e.g. by the placement of pages or by clocks."""
    quiet = np.exp(0.005 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, 1)) < 0.25, 1.08, 1.0)


def slow_visits(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Three in ten visits run a third slower in all their steps, e.g. on a core that shares its units with a busy one."""
    quiet = np.exp(0.01 * random.standard_normal((visits, steps)))
    return quiet * np.where(random.random((visits, 1)) < 0.3, 1.33, 1.0)


def busy_neighbour(random: np.random.Generator, visits: int, steps: int) -> np.ndarray:
    """Three in ten visits run 2 to 1,000 times slower in all their steps and say that threads waited for a core, so that they are set aside."""
    quiet = np.exp(0.02 * random.standard_normal((visits, steps)))
    return quiet * np.where(
        random.random((visits, 1)) < 0.3, np.exp(random.uniform(*np.log((2, 1000)), (visits, 1))), 1.0
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
    for f in (even, skewed, spikes, two_paces, two_states, slow_visits, warming, wandering, persistent, busy_neighbour)
}
WAITS, SLOWED = "busy neighbour", 1.5  # the shape whose steps count what slows them, and what that is at least
CENTRED = tuple(name for name in SHAPES if name not in ("warming", "wandering"))  # T(b) itself has one true value


def waits_ns(duration_ns: pd.Series, due_ns: pd.Series) -> pd.Series:
    """What steps of the shape `WAITS` count as their threads' wait for a core."""
    return (duration_ns - due_ns).where(duration_ns > SLOWED * due_ns, 0.0)


@dataclass(frozen=True)
class Tally:
    """Counts over the sweeps of one shape, protocol and effect."""

    sweeps: int
    alarms: int  # with an anomaly; where an effect was planted, with one at its place
    covered: int  # whose interval of `TESTED` holds its true value
    points: int  # intervals of T(b) that hold the true value, of `sweeps` times the batch sizes


def simulate(shape: str, rounds: int, steps: int, effect: float, seed: int, sweeps: int) -> Tally:
    """Sweeps over `BATCHES` of a cost fixed plus proportional, with `effect` more from batch 16 on."""
    random = np.random.default_rng(seed)
    cost_ms = cost_with(effect)
    drawn = SHAPES[shape](np.random.default_rng(0), 4000, steps)
    drawn = drawn[drawn.min(axis=1) < SLOWED] if shape == WAITS else drawn
    middle = float(faster_half(drawn.ravel())) if shape in CENTRED else 1.0
    truth = middle * sum(weight * cost_ms[batch] for batch, weight in TESTED.coefficients)
    alarms = covered = points = 0
    for _ in range(sweeps):
        sweep = sweep_of(random, shape, effect, rounds, steps)
        if shape == WAITS:
            sweep = sweep.assign(run_queue_wait_ns=waits_ns(sweep["duration_ns"], 1e6 * sweep["batch"].map(cost_ms)))
        curve = cost_curve(sweep, FASTER_HALF)
        findings = find(curve)
        wanted = [f for f in findings if f.verdict == FindingVerdict.ANOMALY]
        alarms += any(not effect or f.tested.at in PLACE for f in wanted)
        held = curve.evaluate(TESTED)
        covered += bool(held.low <= truth <= held.high)
        points += sum(bool(p.time_ms.low <= middle * cost_ms[p.condition] <= p.time_ms.high) for p in curve.points)
    return Tally(sweeps, alarms, covered, points)


def cost_with(effect: float) -> dict[int, float]:
    return {b: (20.0 + 10.0 * b) * (1 + effect * (b >= PLACE[1])) for b in BATCHES}


def sweep_of(random: np.random.Generator, shape: str, effect: float, rounds: int, steps: int) -> pd.DataFrame:
    """Steps over `BATCHES` of a cost fixed plus proportional, with `effect` more from batch 16 on."""
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
    return pd.DataFrame(rows, columns=["batch", "round", "start_ns", "duration_ns"]).assign(profiled=False)


def _run(case: tuple[str, str, float], sweeps: int) -> Tally:
    shape, protocol, effect = case
    rounds, steps = PROTOCOLS[protocol]
    seed = list(SHAPES).index(shape) * 100 + list(PROTOCOLS).index(protocol) * 10 + EFFECTS.index(effect)
    return simulate(shape, rounds, steps, effect, seed, sweeps)


TERM_PAIR = excess(8, 16)
TERM_COSTS_MS = {8: (24.0, 16.0, 2.0), 16: (96.0, 32.0, 2.0)}  # planted layer: 48 at 16 were due; other layer; idle
TERM_ROUNDS = (4, 6, 12, 30)
OVERHEAD_SHARE = 0.02
_KEYS = (Key("planted", "forward", "kernels"), Key("other", "forward", "kernels"), Key(None, None, "idle"))


def _alike(_random: np.random.Generator, rounds: int) -> np.ndarray:
    return np.ones(rounds)


def _sharing(random: np.random.Generator, rounds: int) -> np.ndarray:
    return 1 + 0.03 * random.standard_normal(rounds)


def _drifting(random: np.random.Generator, rounds: int) -> np.ndarray:
    return 1 + random.uniform(-0.1, 0.1) * (np.linspace(0, 1, rounds) - 0.5)


# The factor of each round, besides independent 2 % of every layer of every step; the shares of steps that take 50 %
# longer, and of visits that are set aside.
TERM_SHAPES = {
    "independent": (_alike, 0.0, 0.0),
    "shared inside a round": (_sharing, 0.0, 0.0),
    "drift over rounds": (_drifting, 0.0, 0.0),
    "a tenth of the steps disturbed": (_alike, 0.1, 0.0),
    WAITS: (_sharing, 0.0, 0.3),
}


@dataclass(frozen=True)
class TermTally:
    """Sweeps, how many intervals of each share hold the true value, and how wide those of the planted layer are."""

    sweeps: int
    held: tuple[int, ...]  # by share: the three terms, profiling overhead, the whole excess
    width: float  # mean width of the planted layer's interval over 2 · 1.96 standard deviations of its estimates


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
            waited[random.permutation(rounds)[LEAST_ROUNDS:]] = random.random(rounds - LEAST_ROUNDS) < aside

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
        shares = terms_of(_KEYS, samples, range(rounds), FASTER_HALF).decompose(TERM_PAIR, curve)
        estimates.append([*(share.value for share in shares), curve.evaluate(TERM_PAIR)])
    values = np.array([[value.value for value in row] for row in estimates])
    # What the statistic is on average: the faster half of noisy steps lies below the times without noise.
    truth = values.mean(axis=0)
    held = [sum(row[i].low <= true <= row[i].high for row in estimates) for i, true in enumerate(truth)]
    width = float(np.mean([row[0].high - row[0].low for row in estimates]) / 1.96 / 2)
    return TermTally(sweeps, tuple(held), width / _spread(values[:, 0].tolist()))


def _spread(values: list[float]) -> float:
    """Standard deviation of normal values from their central half: the few sweeps with mostly disturbed steps count little."""
    low, high = np.percentile(values, [25, 75])
    return float(high - low) / 1.349


def _run_terms(case: tuple[str, int], sweeps: int) -> TermTally:
    shape, rounds = case
    return simulate_terms(shape, rounds, list(TERM_SHAPES).index(shape) * 100 + rounds, sweeps)


def term_table(results: dict[tuple[str, int], TermTally]) -> str:
    sweeps = next(iter(results.values())).sweeps
    costs = "; ".join(f"{'/'.join(f'{c:g}' for c in cost)} ms at {b}" for b, cost in TERM_COSTS_MS.items())
    rows = [
        f"| {shape} | {rounds} | "
        + " | ".join(f"{count / tally.sweeps:.1%}" for count in tally.held)
        + f" | {tally.width:.2f} |"
        for (shape, rounds), tally in results.items()
    ]
    return TERMS_HEAD.format(sweeps=sweeps, costs=costs) + "\n".join(rows) + "\n"


def _share(count: int, of: int) -> str:
    """A share with its 95 % interval (Clopper and Pearson)."""
    low = beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return f"{count / of:.1%} ({low:.1%} to {high:.1%})"


def tables(results: dict[tuple[str, str, float], Tally]) -> Iterator[str]:
    straight, longer = [(p, 0.0) for p in PROTOCOLS], list(product(("quick", "default"), EFFECTS[1:]))
    for title, shapes, columns, cell in (
        (
            "False alarms: sweeps of a straight line in which the tests report an anomaly (goal: 5 % at most)",
            tuple(SHAPES),
            straight,
            lambda t: _share(t.alarms, t.sweeps),
        ),
        (
            "95 % interval of the bend at 8: sweeps in which it holds the true value",
            tuple(SHAPES),
            straight,
            lambda t: f"{t.covered / t.sweeps:.1%}",
        ),
        (
            "95 % interval of T(b): sweeps in which it holds the true value",
            CENTRED,
            straight,
            lambda t: f"{t.points / t.sweeps / len(BATCHES):.1%}",
        ),
        (
            "Power: sweeps in which the tests report an anomaly at the right batch size, for a step time that is this much longer from batch 16 on",
            tuple(SHAPES),
            longer,
            lambda t: f"{t.alarms / t.sweeps:.0%}",
        ),
    ):
        heads = [f"{p}, +{e:.0%}" if e else p for p, e in columns]
        yield from (f"## {title}", "", f"| noise | {' | '.join(heads)} |", "|---|" + "--:|" * len(columns))
        for shape in shapes:
            yield f"| {shape} | " + " | ".join(cell(results[shape, p, e]) for p, e in columns) + " |"
        yield ""


def page(results: dict[tuple[str, str, float], Tally], sweeps: int, of_terms: str) -> str:
    alarms = f"{max(results[s, p, 0.0].alarms for s in SHAPES for p in PROTOCOLS) / sweeps:.1%}"
    held = f"{min(results[s, p, 0.0].points for s in CENTRED for p in PROTOCOLS) / sweeps / len(BATCHES):.1%}"
    power = f"{min(results[s, 'default', 0.2].alarms for s in SHAPES) / sweeps:.0%}"
    head = beginning(
        "How often the intervals hold and the tests err",
        f"The tests report an anomaly in **{alarms}** or less of simulated sweeps without one, under every noise.",
        f"Intervals of a step time hold the true value in **{held}** or more of the sweeps.",
        f"A step time that is 20 % longer from one batch size on is found in **{power}** or more of them (default protocol).",
    ) + HEAD.format(
        sweeps=sweeps,
        protocols="\n".join(f"| {name} | {rounds} | {steps} |" for name, (rounds, steps) in PROTOCOLS.items()),
        shapes="\n".join(f"| {name} | {noise.__doc__} |" for name, noise in SHAPES.items()),
    )
    text = head + "\n".join(tables(results)) + of_terms
    # What follows is kept: written by hand, and by benchmarks/experiment_verdicts.py.
    _, heading, rest = PAGE.read_text().partition("\n## Rounds that go where a verdict is open\n")
    return text + heading + rest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help="of each kind (default %(default)s)")
    parser.add_argument("--write", action="store_true", help="write docs/statistics.md")
    args = parser.parse_args()
    cases = [(s, p, 0.0) for s in SHAPES for p in PROTOCOLS]
    cases += [(s, p, e) for s in SHAPES for p in ("quick", "default") for e in EFFECTS[1:]]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(_run, cases, [args.sweeps] * len(cases))
        results = dict(zip(cases, track(done, "simulating", total=len(cases)), strict=True))
        of_terms = [(s, r) for s in TERM_SHAPES for r in TERM_ROUNDS]
        done_terms = pool.map(_run_terms, of_terms, [args.sweeps] * len(of_terms))
        split = dict(zip(of_terms, track(done_terms, "terms", total=len(of_terms)), strict=True))
    text = page(results, args.sweeps, term_table(split))
    if args.write:
        PAGE.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
