"""Published anomalies, live on a CPU: does `curvescope diagnose` name the size at which each lies, and its cause?

    python -m benchmarks.published_live [NAME ...]

Every anomaly was reported by users of another project, at the size and with the cause of `ANOMALIES`; each stands in a
small network here. The command gets the default sizes, 1, 2, 4 ... 64, whatever the size of the anomaly is.
"""

# ruff: noqa: E501 - rows of a table
from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import planted_steps

SWITCH, SLOW, TILES = "algorithm switch", "slow library call", "wave and tile quantisation"


class Applied(nn.Module):
    """A function of one tensor as a layer."""

    def __init__(self, function: Any, *weight: torch.Tensor) -> None:
        super().__init__()
        self.function, self.weights = function, nn.ParameterList(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.function(x, *self.weights)


def _around(layer: nn.Module, batch: int, *shape: int, dtype: torch.dtype = torch.float32) -> planted_steps.Step:
    model = planted_steps.Around(1, layer)
    return planted_steps.forward(model, torch.randn(batch, 4, 64), torch.randn(batch, *shape).to(dtype))


def huge_blocks(batch: int) -> planted_steps.Step:
    """Fresh tensors of 2 MiB a sample: 32 MiB from 16 samples on, which glibc always maps anew."""
    return _around(Applied(lambda x: torch.ones(len(x), 2**19)), batch, 1)


def rows_bf16(batch: int) -> planted_steps.Step:
    """Products of 512 x 512 in bf16: one to three rows are slower than four."""
    weights = [torch.randn(512, 512, dtype=torch.bfloat16) / 23 for _ in range(8)]
    return _around(Applied(lambda x, *w: functools.reduce(functional.linear, w, x), *weights), batch, 512,
                   dtype=torch.bfloat16)  # fmt: skip


def rows_fp16(batch: int) -> planted_steps.Step:
    """A product of 1024 inputs and 4096 outputs in fp16: fast for one row, in proportion to the rows from two on."""
    weight = torch.randn(4096, 1024, dtype=torch.float16) / 32
    return _around(Applied(functional.linear, weight), batch, 1024, dtype=torch.float16)


def padded_rows(batch: int) -> planted_steps.Step:
    """A product that fills tiles of 32 rows."""

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (functional.pad(x, (0, 0, 0, -len(x) % 32)) @ weight)[: len(x)]

    return _around(Applied(product, torch.randn(1024, 1024) / 32), batch, 1024)


@dataclass(frozen=True)
class Anomaly:
    """A published anomaly: where it was reported, what it is, and which sizes and causes are right."""

    source: str
    what: str
    sizes: tuple[int, ...]
    causes: tuple[str, ...]


ANOMALIES = {
    "threads_begin": Anomaly("pytorch PR 26886", "additions use all threads from 32,768 elements on", (32, 33), ("start of threads",)),
    "huge_blocks": Anomaly("pytorch PR 107697", "memory is mapped anew from 32 MiB on", (16,), ("page faults",)),
    "switched_convolution": Anomaly("pytorch PR 2826", "NNPACK from batch 16 on", (16,), (SWITCH, "size of one call")),
    "rows_bf16": Anomaly("pytorch#131734", "bf16 product: few rows take another path", (2, 3, 4), (SLOW, SWITCH)),
    "shared_matrix": Anomaly("pytorch#151934", "bmm copies a shared operand for each item", (4, 8, 16, 32), ("copies of operands",)),
    "rows_fp16": Anomaly("pytorch#151934, comments", "fp16 product: row by row from 2 rows on", (2,), (SLOW, SWITCH)),
    "few_rows": Anomaly("pytorch, aten/src/ATen/native/Distance.cpp", "cdist as a product from 26 rows on", (26,), (SWITCH, TILES)),
    "denormal_values": Anomaly("pytorch#23862", "an exponential with denormal results", (16,), ("values of the operands",)),
    "idle_threads": Anomaly("pytorch PR 76868", "items are divided among threads: 3 for 2", (3, 5), ("idle threads",)),
    "padded_rows": Anomaly("mlx#3852", "tiles of 32 rows: 33 cost as 64", (33,), (TILES, "more work than in proportion")),
}  # fmt: skip
DEPTHS = {"switched_convolution": 2, "few_rows": 2, "idle_threads": 1, "denormal_values": 2}


def _planted(name: str, batch: int) -> planted_steps.Step:
    return getattr(planted_steps, name)(batch, DEPTHS.get(name, 1))  # type: ignore[no-any-return]


for _name in ANOMALIES.keys() - globals().keys():
    globals()[_name] = functools.partial(_planted, _name)


def run(name: str, folder: Path) -> dict[str, Any]:
    """Diagnose one as a user would, and return what came first."""
    words = [sys.executable, "-m", "curvescope", "diagnose", "--step", f"benchmarks.published_live:{name}", "--batch",
             "1..64", "--json", "-o", str(folder / name)]  # fmt: skip
    began_s = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    (folder / f"{name}.json").write_text(done.stdout)
    return {**json.loads(done.stdout), "wall_s": time.monotonic() - began_s}


if __name__ == "__main__":
    out = Path(tempfile.mkdtemp())
    print(out)
    for name in sys.argv[1:] or ANOMALIES:
        document = run(name, out)
        print(name, f"{document['wall_s']:.0f} s", document["answers"][:1])
