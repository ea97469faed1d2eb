"""What a sweep says of a program whose processes differ: all rounds in one process, or each in one
of its own.

A process is faster or slower at each batch size by a factor that stays while it lives: 2 %
(standard deviation), or 5 % more in three of ten. Steps vary by 2 % besides, four in a visit, eight
rounds. `python benchmarks/process_offsets.py --write`, a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

try:
    from . import evidence
    from .interval_coverage import BATCHES, PAGE, cost_with
except ImportError:  # run as a script
    import evidence
    from interval_coverage import BATCHES, PAGE, cost_with
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import FindingVerdict, find
from curvescope.analysis.decompose.functionals import curvature, excess, fixed_cost
from curvescope.analysis.decompose.statistics import FASTER_HALF

ROUNDS, STEPS, OWN = 8, 4, 0.02
TESTED = (excess(8, 16), curvature(4, 8, 16), fixed_cost(1, 2))
EFFECTS = (0.0, 0.1, 0.2)  # of a step from batch 16 on
Offsets = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
OFFSETS: dict[str, Offsets] = {
    "none": lambda _, shape: np.zeros(shape),
    "2 %": lambda random, shape: 0.02 * random.standard_normal(shape),
    "5 % in three of ten": lambda random, shape: np.log(1.05) * (random.random(shape) < 0.3),
}


def sweep_of(
    random: np.random.Generator, offsets: Offsets, effect: float, *, one_process: bool
) -> pd.DataFrame:
    """The timed steps of one sweep."""
    cost_ms = np.array([cost_with(effect)[batch] for batch in BATCHES])
    of_process = offsets(random, (1 if one_process else ROUNDS, len(BATCHES)))
    noise = OWN * random.standard_normal((ROUNDS, len(BATCHES), STEPS))
    times_ms = cost_ms[:, None] * np.exp(noise + of_process[..., None])
    order = np.argsort(random.random((ROUNDS, len(BATCHES))), axis=1)
    place = np.arange(ROUNDS)[:, None] * len(BATCHES) + order
    rows = [
        (BATCHES[size], round_, 1000 * int(place[round_, size]) + index, round(time_ms * 1e6))
        for (round_, size, index), time_ms in np.ndenumerate(times_ms)
    ]
    table = pd.DataFrame(rows, columns=["batch", "round", "start_ns", "duration_ns"])
    return table.assign(profiled=False)


def truth_ms(offsets: Offsets) -> np.ndarray:
    """T at each batch size over many processes."""
    random = np.random.default_rng(0)
    noise = OWN * random.standard_normal((20_000, STEPS)) + offsets(random, (20_000, 1))
    times = np.sort(np.exp(noise).ravel())
    return np.array([cost_with(0.0)[batch] for batch in BATCHES]) * times[: len(times) // 2].mean()


def simulate(name: str, sweeps: int, *, one_process: bool) -> list[float]:
    """Shares of sweeps: intervals of T and of `TESTED` that hold the truth; an anomaly,
    by effect.
    """
    random, offsets = np.random.default_rng(1), OFFSETS[name]
    true_ms = dict(zip(BATCHES, truth_ms(offsets), strict=True))
    held, found = np.zeros(1 + len(TESTED)), dict.fromkeys(EFFECTS, 0)
    for effect in EFFECTS:
        for _ in range(sweeps):
            steps = sweep_of(random, offsets, effect, one_process=one_process)
            curve = cost_curve(steps, FASTER_HALF)
            places = [one.tested.at for one in find(curve) if one.verdict == FindingVerdict.ANOMALY]
            found[effect] += any(not effect or at in (8, 16) for at in places)
            if effect:
                continue
            times = [point.time_ms for point in curve.points]
            held[0] += np.mean(
                [one.low <= true_ms[b] <= one.high for b, one in zip(BATCHES, times, strict=True)]
            )
            for place, functional in enumerate(TESTED, 1):
                value = curve.evaluate(functional)
                true = sum(weight * true_ms[int(b)] for b, weight in functional.coefficients)
                held[place] += value.low <= true <= value.high
    return [*(held / sweeps), *(found[effect] / sweeps for effect in EFFECTS)]


def results(sweeps: int) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table."""
    rows = []
    for name in OFFSETS:
        for one_process in (True, False):
            cells = [f"{share:.0%}" for share in simulate(name, sweeps, one_process=one_process)]
            how = "all in one" if one_process else "one each"
            rows.append(f"| {' | '.join([name, how, *cells])} |")
    yield "## Rounds in processes of their own", rows


if __name__ == "__main__":
    evidence.simulate(__doc__, PAGE, 300, results)
