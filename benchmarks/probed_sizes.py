"""How often probes find a jump between the sizes of a sweep, and how often noise.

The curves are those of published anomalies that doublings miss or misplace. Sweeps are simulated on
a clock of their own, by the rule that `diagnose` has. Run:
`python benchmarks/probed_sizes.py --write`, about five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

try:
    from . import evidence
    from .interval_coverage import SHAPES, WAITS
except ImportError:  # run as a script
    import evidence
    from interval_coverage import SHAPES, WAITS
from curvescope.analysis.decompose.curve import cost_curve
from curvescope.analysis.decompose.findings import find, find_falls, find_jumps
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.base.arguments import PROBE_SHARE
from curvescope.profiling.measure.loop import Loop
from curvescope.profiling.measure.probing import Probing
from curvescope.profiling.measure.stopping import Complete
from curvescope.profiling.measure.visits import Visit

LIMIT_S, ROUNDS = 112.0, 12  # of a sweep, at most
STEPS = 3  # of a visit; it takes as long again for marked, and for profiled ones
STRAIGHT_SWEEPS = 300
DOUBLINGS = (1, 2, 4, 8, 16, 32)
COLUMNS = (128, 256, 512, 1024, 2048, 4096)


class Published(NamedTuple):
    """A published anomaly as a curve."""

    where: str  # the thread
    sizes: tuple[int, ...]
    cost_ms: Callable[[int], float]
    # first sizes behind a jump, any of which is right; of single slow sizes also the next
    jumps: tuple[int, ...]


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _beside(*sizes: int) -> tuple[int, ...]:
    """Sizes behind a jump where these differ from both of their neighbours."""
    return tuple(one for size in sizes for one in (size, size + 1))


PUBLISHED = (
    Published("mlx#3852: rows of a tile", DOUBLINGS, lambda b: 0.51 * (1 + 0.95 * (_up(b, 32) / 32 - 1)), (33,)),
    Published("mlx#3553: 3 rows", DOUBLINGS, lambda b: 1 + 0.3 * (b > 2) + 0.02 * b, (3,)),
    Published("pytorch#144645: softmax of 1,024 columns", COLUMNS,
              lambda b: (0.05 + b / 1e4) * (1 + 0.6 * (b > 1024)), (1025,)),
    Published("pytorch#181718: N mod 16 = 8", COLUMNS,
              lambda b: b / 1e3 * (1 + 0.73 * (b % 16 > 0)), _beside(*COLUMNS)),
    Published("pytorch#106469: odd columns", DOUBLINGS,
              lambda b: 2.7 if b % 2 and b > 1 else 0.11 + 0.004 * b, _beside(*range(3, 33, 2))),
    Published("pytorch#35603: width 32", (4, 8, 16, 32, 64), lambda b: 0.1 * b * (1 + 5 * (b >= 32)), (32,)),
    Published("vllm PR 40734: 700 tokens", COLUMNS, lambda b: 5 + 0.01 * b + 6 * (b > 700), (701,)),
    Published("vllm PR 46329: 5 sessions", DOUBLINGS, lambda b: 11.7 + 18 * (b in (5, 6)), (5,)),
    Published("1Cat-vLLM#89: 3 requests", DOUBLINGS, lambda b: 20 + b + 180 * (b > 2), (3,)),
    Published("vllm#35467: batch 257", (32, 64, 128, 256, 512),
              lambda b: 20 + 0.062 * _up(b, 16) + 10 * (b > 256 and b % 256 > 0), (257,)),
    Published("DeepGEMM#35: 68 rows", (16, 32, 64, 128, 256), lambda b: 10 + 0.02 * b + 8 * (64 < b < 128), (65,)),
    Published("models PR 7407: a vocabulary", (4096, 8192, 16384, 32768),
              lambda b: 50 + b / 100 * (1 + 0.2 * (b % 8 > 0)), _beside(4096, 8192, 16384, 32768)),
    Published("OpenBLAS#2846: 96 x 96", (16, 32, 64, 128, 256), lambda b: b * b / 1e4 + 0.3 + 0.9 * (b >= 96), (96,)),
    Published("pytorch PR 26886: 32,768 elements", (*DOUBLINGS, 64),
              lambda b: 0.44 * b if b <= 32 else 40 + 0.4 * b, (33,)),
    Published("pytorch PR 76868: 5 items on 4 cores", DOUBLINGS, lambda b: 0.75 * _up(b, 4), (5,)),
    Published("transposing 512 x 512", (64, 128, 256, 512, 1024),
              lambda b: b * b * 2.86e-6 * (1 if b % 64 else 3.3), _beside(64, 128, 256, 512, 1024)),
)  # fmt: skip
STRAIGHT = Published("a straight line", DOUBLINGS, lambda b: 20.0 + 10.0 * b, ())


class Swept(NamedTuple):
    """What one simulated sweep found."""

    looked: list[int]  # first sizes behind jumps for which rounds were made
    jumps: list[int]  # those that are anomalies, or where the time falls


def sweep(published: Published, noise: str, seed: int) -> Swept:
    factors = iter(SHAPES[noise](np.random.default_rng(seed), 4000, STEPS))
    rows: list[dict[str, Any]] = []
    now_s = 0.0

    def steps(size: int) -> list[dict[str, Any]]:
        nonlocal now_s
        made = []
        for factor in next(factors):
            duration_ms = published.cost_ms(size) * factor
            made.append({"start_ns": round(now_s * 1e9), "duration_ns": round(duration_ms * 1e6)})
            now_s += float(duration_ms) / 1e3
        return made

    probes_s = PROBE_SHARE * LIMIT_S
    rule = Probing(
        Complete((6, ROUNDS), LIMIT_S), published.sizes, probes_s, lambda size: Visit(steps(size))
    )

    def visit(size: int, round_: int) -> None:
        nonlocal now_s
        if size not in rule.sizes:
            rule.probe(size, round_, lambda: now_s)
            return
        made = steps(size)
        now_s += 2 * sum(step["duration_ns"] for step in made) / 1e9
        rows.extend({"batch": size, "round": round_, "profiled": False, **step} for step in made)

    Loop(
        conditions=rule.sizes, visit=visit, rule=rule, rows=lambda: rows, clock_s=lambda: now_s
    ).run()
    curve = replace(cost_curve(pd.DataFrame(rows), FASTER_HALF), jumps=rule.places)
    jumps = [after for _, after in (*find_jumps(curve, find(curve)), *find_falls(curve))]
    return Swept([after for _, after in rule.places], jumps)


def found(published: Published, noise: str, seeds: Iterable[int]) -> int:
    """Number of sweeps that find a published jump at its place."""
    return sum(
        bool(set(sweep(published, noise, seed).jumps) & set(published.jumps)) for seed in seeds
    )


def results(sweeps: int) -> Iterator[evidence.Named]:
    """The table of all noises but waiting."""
    rows = []
    for noise in (name for name in SHAPES if name != WAITS):
        right = {one.where: found(one, noise, range(sweeps)) for one in PUBLISHED}
        straight = [sweep(STRAIGHT, noise, seed) for seed in range(STRAIGHT_SWEEPS)]
        share = sum(right.values()) / len(PUBLISHED) / sweeps
        nearly = sum(number >= 0.9 * sweeps for number in right.values())
        looked, false = (
            sum(map(bool, made)) / STRAIGHT_SWEEPS for made in zip(*straight, strict=True)
        )
        cells = [f"{share:.0%}", f"{nearly} of {len(PUBLISHED)}", f"{looked:.1%}", f"{false:.1%}"]
        rows.append([noise, *cells])
    many = "anomalies right in nine of ten sweeps"
    yield "probed_sizes", ["noise", "right", many, "straight line: rounds", "false"], rows


if __name__ == "__main__":
    evidence.simulate(__doc__, 10, results)
