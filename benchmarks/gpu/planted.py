"""A cause that is planted at one batch size, and what `explain` says of the steps, as a row.

Arguments: name of the plant, device, seconds to measure, seconds of experiments, file that gets the
row. The steps are those of steps_with_causes.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import scripts

import curvescope
from curvescope.base.errors import CurvescopeError

BATCHES = (16, 32, 64, 128)
PLANTED_AT = 64
# Experiments make the steps again in other processes, which get these sizes too.
_SIZES = {"at": PLANTED_AT, "layers": 8, "rows": 64}
if __name__ == "__main__":
    os.environ["CURVESCOPE_PLANTED"] = json.dumps({**_SIZES, "device": sys.argv[2]})

from steps_with_causes import (  # noqa: E402 - it reads the variable
    Step,
    allocation,
    deterministic,
    one_block_past,
    pageable_copy,
)

EXPECTED = {
    allocation: "launch- or host-bound, memory pressure",
    pageable_copy: "copies from and to the host",
    one_block_past: "wave and tile quantisation",
    deterministic: "algorithm switch",
}


def row(plant: Callable[[int], Step], seconds: float, experiments_s: float) -> dict[str, str]:
    try:
        found = curvescope.diagnose(
            plant,
            BATCHES,
            device=sys.argv[2],
            time_limit_s=seconds,
            experiments_s=experiments_s,
            output=plant.__name__,
        )
        first = found.answers[:3]
        answers = [f"{one.functional.label}: {one.cause} ({one.verdict})" for one in first]
    except CurvescopeError as error:
        answers = [str(error)]
    said = "; ".join(answers) or "no answer"
    return {
        "planted": plant.__name__,
        "what": " ".join(str(plant.__doc__).split()),
        "causes": EXPECTED[plant],
        "`explain` says": said,
    }


def main() -> int:
    name, _, seconds, experiments_s, path = sys.argv[1:]
    plants = {plant.__name__: plant for plant in EXPECTED}
    scripts.add_row(path, row(plants[name], float(seconds), float(experiments_s)))
    return 0


if __name__ == "__main__":
    scripts.run(main)
