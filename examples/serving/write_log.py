"""Writes a log of an inference server, in the format of vLLM's iteration lines:
`python write_log.py server.log`.

No server ran. The load drifts between 70 and 100 requests. Graphs are captured up to 96, and a step
with more requests takes 4 ms longer: a planted cliff.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

CAPTURED = (1, 2, 4, *range(8, 129, 8))
MOST_REQUESTS, LARGEST_GRAPH = 100, 96
START = (
    f"(APIServer pid=1) INFO 11-26 10:00:00 [utils.py:233] non-default args: {{'max_num_seqs': "
    f"{MOST_REQUESTS}}}\n"
    f"(EngineCore_DP0 pid=2) INFO 11-26 10:00:09 [core.py:77] Initializing a V1 LLM engine "
    "(v0.14.0) with config: "
    f'enforce_eager=False, compilation_config={{"cudagraph_capture_sizes":{list(CAPTURED)}}}\n'
)
STEP = (
    "(EngineCore_DP0 pid=2) INFO 11-26 10:01:00 [core.py:349] Iteration({}): 0 context requests, 0 "
    "context tokens, {} generation requests, {} generation tokens, iteration elapsed time: {:.2f} "
    "ms\n"
)


def step_ms(requests: int) -> float:
    """Time of a step without noise: 8 ms, 0.06 ms for each computed request, and the
    planted cliff.
    """
    computed = min(size for size in CAPTURED if size >= requests)
    return 8 + 0.06 * computed + (4 if requests > LARGEST_GRAPH else 0)


def write_log(path: Path, steps: int = 5000) -> None:
    """Write a log of so many decode steps."""
    chance, requests, lines = random.Random(0), 70, [START]
    for step in range(steps):
        if chance.random() < 0.1:
            requests = min(MOST_REQUESTS, max(70, requests + chance.choice((-2, -1, 1, 2))))
        lines.append(
            STEP.format(step, requests, requests, step_ms(requests) * chance.gauss(1, 0.01))
        )
    path.write_text("".join(lines))


if __name__ == "__main__":
    write_log(Path(sys.argv[1]))
