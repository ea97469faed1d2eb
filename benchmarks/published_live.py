"""Published anomalies, live on a CPU: does `curvescope diagnose` name the size at which each lies,
and its cause?

    python -m benchmarks.published_live --folder FOLDER [NAME ...]
    python -m benchmarks.published_live                             # the table of the kept runs

Every anomaly was reported by users of another project, at the size and with the cause of
`ANOMALIES`; each stands in a small network here. The command gets the default sizes, 1, 2, 4 ...
64, whatever the size of the anomaly is.
"""

# ruff: noqa: E501 - rows of a table
from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import planted_steps
from benchmarks.evidence import markdown
from benchmarks.planted_causes import STILL, WORK, kept_runs
from benchmarks.public_steps import run, runs_of

KEPT = Path(__file__).parent / "results" / "published_live.jsonl"
# Runs in which other processes disturbed 2 to 65 % of the visits.
DISTURBED = KEPT.with_name("published_live_disturbed.jsonl")
LATER = KEPT.with_name("planted_causes_later.jsonl")

SWITCH, SLOW, TILES = "algorithm switch", "slow library call", "wave and tile quantisation"


class Applied(nn.Module):
    """A function of one tensor as a layer."""

    def __init__(self, function: Any, *weight: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(
            nn.Parameter(tensor, requires_grad=False) for tensor in weight
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.function(x, *self.weights)


def _around(layer: nn.Module, batch: int, *shape: int) -> planted_steps.Step:
    model = planted_steps.Around(1, layer)
    return planted_steps.forward(model, torch.randn(batch, 4, 64), torch.randn(batch, *shape))


def huge_blocks(batch: int) -> planted_steps.Step:
    """Fresh tensors of 2 MiB a sample: 32 MiB from 16 samples on, which glibc always maps anew."""
    return _around(Applied(lambda x: torch.ones(len(x), 2**19)), batch, 1)


def rows_fp32(batch: int) -> planted_steps.Step:
    """A product of 1024 inputs and 4096 outputs: fast for one row, slow for two to four."""
    return _around(Applied(functional.linear, torch.randn(4096, 1024) / 32), batch, 1024)


def dequantized(batch: int) -> planted_steps.Step:
    """A product with weights of 8 bits: from 32 rows on they are converted first, for a faster
    product.
    """

    def product(
        x: torch.Tensor, weight: torch.Tensor, quantized: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        return functional.linear(x, weight if len(x) < 32 else quantized.float() * scale)

    quantized, scale = (
        torch.randint(-128, 128, (2048, 2048), dtype=torch.int8),
        torch.rand(2048, 1) / 2048,
    )
    weights = quantized.float() * scale, quantized, scale
    return _around(Applied(product, *weights), batch, 2048)


def pointwise(batch: int) -> planted_steps.Step:
    """A 1x1 convolution on one thread: oneDNN from 16 samples on."""
    torch.set_num_threads(1)
    return _around(nn.Conv2d(64, 64, 1), batch, 64, 28, 28)


def padded_rows(batch: int) -> planted_steps.Step:
    """A product that fills tiles of 32 rows."""

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (functional.pad(x, (0, 0, 0, -len(x) % 32)) @ weight)[: len(x)]

    return _around(Applied(product, torch.randn(1024, 1024) / 32), batch, 1024)


@dataclass(frozen=True)
class Anomaly:
    """A published anomaly: where it was reported, what it is, the sizes before and at its jump, and
    its right causes.
    """

    source: str
    what: str
    sizes: tuple[int, ...]
    causes: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment that it needs


ANOMALIES = {
    # GNU's threads spin between operators by default, and begin at once.
    "threads_begin": Anomaly("pytorch PR 26886", "additions use all threads, which sleep, from 32,768 elements on", (32, 33), ("start of threads",), {"OMP_WAIT_POLICY": "passive"}),
    "huge_blocks": Anomaly("pytorch PR 107697", "memory is mapped anew from 32 MiB on", (15, 16), ("page faults",)),
    "switched_convolution": Anomaly("pytorch PR 2826", "NNPACK from batch 16 on", (15, 16), (SWITCH, "size of one call")),
    "rows_fp32": Anomaly("pytorch#131734", "few rows are slower than one or many", (1, 2), (SLOW, SWITCH)),
    "dequantized": Anomaly("llama.cpp#5986", "BLAS from 32 rows on, with weights converted first", (31, 32), (SWITCH, WORK)),
    "pointwise": Anomaly("pytorch, aten/src/ATen/native/Convolution.cpp", "1x1 convolutions through oneDNN from 16 samples on", (15, 16), (SWITCH, "size of one call")),
    "few_rows": Anomaly("pytorch, aten/src/ATen/native/Distance.cpp", "cdist as a product from 26 rows on", (25, 26), (SWITCH, TILES)),
    "denormal_values": Anomaly("pytorch#23862", "an exponential with denormal results", (15, 16), ("values of the operands",)),
    "idle_threads": Anomaly("pytorch PR 76868", "items are divided among threads: 3 for 2", (2, 3, 4), ("idle threads",)),
    "padded_rows": Anomaly("mlx#3852", "tiles of 32 rows: 33 cost as 64", (32, 33), (TILES, WORK)),
}  # fmt: skip
DEPTHS = {"switched_convolution": 2, "few_rows": 2, "denormal_values": 2}


def _planted(name: str, batch: int) -> planted_steps.Step:
    return getattr(planted_steps, name)(batch, DEPTHS.get(name, 1))  # type: ignore[no-any-return]


for _name in ANOMALIES.keys() - globals().keys():
    globals()[_name] = functools.partial(_planted, _name)


def at_its_size(name: str, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers on anomalies at the published size, right causes that are confirmed first."""
    sizes = ANOMALIES[name].sizes
    bends = (answer for answer in run["answers"] if answer["functional"]["kind"] != "fixed cost")
    placed = [
        one
        for one in bends
        if not {one["functional"]["at"], one["functional"]["to"]}.isdisjoint(sizes)
    ]
    return sorted(placed, key=lambda answer: not is_right(name, answer))


def is_right(name: str, answer: dict[str, Any]) -> bool:
    """Whether an answer has a published cause, confirmed by experiment or seen in the shapes."""
    return (
        answer["verdict"] in ("confirmed", "from shapes")
        and answer["cause"] in ANOMALIES[name].causes
    )


def found(name: str, run: dict[str, Any]) -> tuple[bool, bool]:
    """Whether an answer or a certain layer is at the right size, and whether a right cause is
    confirmed there.
    """
    placed = at_its_size(name, run)
    sizes = set(ANOMALIES[name].sizes)
    certain = [part for part in run.get("certain", ()) if sizes & set(part["sizes"])]
    by_shapes = WORK in ANOMALIES[name].causes and any(part["from_shapes"] for part in certain)
    is_confirmed = by_shapes or any(is_right(name, answer) for answer in placed)
    return bool(placed or certain), is_confirmed


def count_found(runs: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How many runs find the right size, and how many a right cause there."""
    scores = [found(run["step"], run) for run in runs]
    return sum(size for size, _ in scores), sum(cause for _, cause in scores)


HEAD = ("published", "answer", "size", "cause", "seconds")


def row(name: str, run: dict[str, Any]) -> list[str]:
    """Whether an answer is on an anomaly at the published size, and its cause confirmed there."""
    anomaly, answers = ANOMALIES[name], at_its_size(name, run) or run["answers"]
    said = [
        f"{one['functional']['label']}: {one['cause'] or 'no cause'} ({one['verdict']})"
        for one in answers[:1]
    ]
    size, cause = ("yes" if right else "no" for right in found(name, run))
    first = "".join(said) or "none"
    return [f"{anomaly.source}: {anomaly.what}", first, size, cause, f"{run['wall_s']:.0f}"]


def still() -> list[dict[str, Any]]:
    """The kept runs of steps that nothing makes faster."""
    return [one for one in kept_runs(LATER) if "saves" in one and one["name"] in STILL]


def main() -> None:
    """Diagnose the anomalies that are asked for; without a folder print the kept runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "anomalies", nargs="*", metavar="NAME", help=f"default: {', '.join(ANOMALIES)}"
    )
    parser.add_argument("--folder", type=Path, help="folder for the recordings")
    args = parser.parse_args()
    if args.folder is None:
        print(*markdown(HEAD, (row(run["step"], run) for run in runs_of(KEPT))), sep="\n")
        return
    for name in args.anomalies or ANOMALIES:
        step, variables = f"benchmarks.published_live:{name}", ANOMALIES[name].variables
        print(row(name, run(step, "1..64", args.folder, KEPT, **variables)), flush=True)


if __name__ == "__main__":
    main()
