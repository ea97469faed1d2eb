"""Writes a small trace of an inference server, as PyTorch's profiler would:
`python write_trace.py trace.json`.

No server ran. Decode steps of 1 to 16 requests come in random order with some prefill steps; each
runs a product and attention, and from 8 requests on the product takes four times as long.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def jump_at_8(batch: int) -> float:
    """Microseconds of the product: a planted jump."""
    return 100.0 if batch < 8 else 400.0


def served_trace(
    path: Path,
    decode_us: Callable[[int], float],
    context: int | Callable[[int], int] = 1024,
    rounds: int = 6,
    batches: Sequence[int] = (1, 2, 4, 8, 16),
) -> Path:
    """Write the trace.

    Args:
        path: file to write.
        decode_us: microseconds of the product for a number of requests.
        context: tokens of context per request, or a function of the number of requests.
        rounds: number of decode steps of each number of requests.
        batches: numbers of requests.
    """
    chance = random.Random(1)
    events, now, correlation = [], 1000.0, 0
    order = [batch for _ in range(rounds) for batch in batches]
    chance.shuffle(order)
    for number, batch in enumerate(order):
        tokens = batch * (context(batch) if callable(context) else context)
        sums = f"sq{batch}sk{tokens}sqsq{batch}sqsk{tokens}"
        mark = f"execute_{batch}_context_0(sq0sk0sqsq0sqsk0)_generation_{batch}({sums})"
        if number % 10 == 9:
            mark = f"execute_context_1({512 * (1 + number // 10 % 2)})_generation_0(0)"
        begin = now
        for layer, name, us in (
            ("mlp", "nvjet_tst_64x64", decode_us(batch)),
            ("attention", "flash_fwd_kernel", 20.0),
        ):
            us *= chance.gauss(1.0, 0.01)
            correlation += 1
            args = {"correlation": correlation, "device": 0, "stream": 7}
            span = {"ph": "X", "pid": 1, "tid": 1, "ts": now, "dur": 2.0}
            events.append({**span, "cat": "python_function", "name": f"nn.Module: {layer}_0"})
            events.append(
                {
                    **span,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "dur": 1.0,
                    "args": args,
                }
            )
            events.append(
                {**span, "cat": "kernel", "name": name, "ts": now + 1, "dur": us, "args": args}
            )
            now += us + 2
        span = {"ph": "X", "pid": 1, "tid": 1, "ts": begin - 0.5, "dur": now - begin}
        events.append({**span, "cat": "user_annotation", "name": mark})
        now += 5
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


if __name__ == "__main__":
    served_trace(Path(sys.argv[1]), jump_at_8)
