"""How often an answer calls a size slow in simulated sweeps: where none is, and where one layer is.

All times are in proportion to the batch, but for the place of a process in memory, which its rounds
repeat. Run: `python -m benchmarks.slow_sizes --write`, about five minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import evidence
from curvescope.analysis.render.found import find_all
from tests.analysis.placed_sweeps import diagnose_placed

SLOW_AT = 24
# number of layers, their spread over processes, processes, sizes
KINDS = {
    "one process, 8 layers that differ by 5 %": (8, 0.05, 1, (8, 16, 24, 32)),
    "one process, 2 layers that differ by 3 %": (2, 0.03, 1, (8, 16, 24, 32)),
    "one process, 2 layers, six sizes": (2, 0.03, 1, (4, 8, 24, 32, 48, 64)),
    "one process, 8 layers that differ by 2 %": (8, 0.02, 1, (8, 16, 24, 32)),
    "several processes, 8 layers": (8, 0.0, 6, (8, 16, 24, 32)),
}
LONGER = {"1.5 times as long": 1.5, "2 times": 2.0, "3 times": 3.0}


def says_slow(kind: str, slow_at_24: float, seed: int) -> bool:
    """Whether an answer calls a size slow; where a layer is slow, that layer first at its size."""
    layers, placed, processes, sizes = KINDS[kind]
    diagnosis = diagnose_placed(
        seed, processes, layers=layers, placed=placed, slow_at_24=slow_at_24, batches=sizes
    )
    slow = [entry for entry in find_all(diagnosis) if entry.is_slow_size]
    if slow_at_24 == 1 or not slow:
        return bool(slow)
    return slow[0].at == SLOW_AT and f"block{layers - 1}" in slow[0].what


def results(sweeps: int) -> Iterator[evidence.Named]:
    """The table of slow sizes."""
    rows = []
    for kind in KINDS:
        counts = []
        for factor in (1.0, *LONGER.values()):
            told = sum(says_slow(kind, factor, seed) for seed in range(sweeps))
            counts.append(f"{told} of {sweeps}")
        rows.append([kind, *counts])
    yield "slow_sizes", ["sweeps", "nothing is slow", *LONGER], rows


if __name__ == "__main__":
    evidence.simulate(__doc__, 100, results)
