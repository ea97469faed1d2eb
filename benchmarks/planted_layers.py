"""One slow layer in a small network, in ten kinds: whether the answer begins with that layer.

From batch 24 on the mixer of one block does something that costs time: a copy, fresh memory, a
wait, … Each kind is diagnosed as a user would; the first finding should name the mixer. With
nothing planted no layer should be named.

    python -m benchmarks.planted_layers                  # all kinds, a minute each
    python -m benchmarks.planted_layers --kinds "copy;nothing" --times 5
    python -m benchmarks.planted_layers --experiments    # and no other layer's cause is confirmed
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import curvescope
from benchmarks import planted_steps
from benchmarks.planted_causes import NULL_NETWORKS
from curvescope.analysis.render.found import CONFIRMED
from curvescope.analysis.render.page import Page

KEPT = Path(__file__).parent / "results" / "planted_layers.jsonl"
BATCHES = (8, 16, 24, 32)
PLANTED_AT = 24
_WIDTH, _TOKENS, _BLOCKS = 128, 64, 3
_TABLE = torch.randn(200_000, _WIDTH)  # 100 MB: no cache holds it
_FORTRAN = torch.randn(_WIDTH, _WIDTH).t()

Plant = Callable[[torch.Tensor], torch.Tensor]


def _copy(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x.transpose(0, 2).contiguous().transpose(0, 2).contiguous()
    return x


def _other_order(x: torch.Tensor) -> torch.Tensor:
    return x + 1e-6 * torch.einsum("btc,cd->btd", x.flip(1), _FORTRAN.flip(0))


def _fresh_memory(x: torch.Tensor) -> torch.Tensor:
    return x + 0 * torch.empty(24 << 20).fill_(1.0).sum()


def _wait(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return x


def _outgrown_cache(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[0] * _TOKENS) * 7919 % len(_TABLE)
    return x + 1e-6 * _TABLE[places.repeat(8)].view(8, *x.shape).sum(0)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.double().exp().log().float()


def _sample_by_sample(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([functional.gelu(row @ _FORTRAN) * 1e-3 + row for row in x])


def _denormals(x: torch.Tensor) -> torch.Tensor:
    small = torch.full_like(x, 1e-40)
    for _ in range(24):  # four cost less than 1 % of a step on an AMD EPYC
        small = small * 0.99
    return x + small


def _more_products(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = x + 1e-6 * (x @ _FORTRAN)
    return x


def _sort(x: torch.Tensor) -> torch.Tensor:
    return x + 0 * x.sort(dim=1).values


PLANTS: dict[str, Plant] = {
    "copy": _copy,
    "other order": _other_order,
    "fresh memory": _fresh_memory,
    "wait": _wait,
    "outgrown cache": _outgrown_cache,
    "double": _double,
    "sample by sample": _sample_by_sample,
    "denormals": _denormals,
    "more products": _more_products,
    "sort": _sort,
}
NOTHING = "nothing"
# Steps of equal parts, one after the other: no size can be slow.
EQUAL = "equal parts, "
_STEP_OF = "make_"
_EQUAL_BATCHES, _EQUAL_DEPTH = (1, 2, 3, 4, 6, 8), 2


class Mixer(nn.Module):
    """The layer with the plant."""

    def __init__(self, plant: Plant | None) -> None:
        super().__init__()
        self.plant, self.scale = plant, nn.Parameter(torch.ones(_WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale; from 24 samples on do what is planted, too."""
        if self.plant is not None and len(x) >= PLANTED_AT:
            x = self.plant(x)
        return x * self.scale


class Block(nn.Module):
    """A norm, the mixer and two products."""

    def __init__(self, plant: Plant | None) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(_WIDTH), Mixer(plant)
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual sum."""
        x = self.mixer(x)
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def make_steps(kind: str) -> Callable[[int], Callable[[], object]]:
    """A function of a batch size that makes training steps with a plant in one block of three, or
    steps of equal parts.
    """
    if kind.startswith(EQUAL):
        make_equal = planted_steps.micro_batches(kind.removeprefix(EQUAL))
        return lambda batch: make_equal(batch, _EQUAL_DEPTH)
    plant = PLANTS.get(kind)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(plant if block == 1 else None) for block in range(_BLOCKS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def make_step(batch: int) -> Callable[[], object]:
        x = torch.randn(batch, _TOKENS, _WIDTH)

        def step() -> object:
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    make_step.module = model  # type: ignore[attr-defined]
    make_step.__qualname__ = make_step.__name__ = _STEP_OF + kind.replace(" ", "_")
    return make_step


def __getattr__(name: str) -> Callable[[int], Callable[[], object]]:
    """The step of a kind, by the name under which an experiment's process imports it."""
    if not name.startswith(_STEP_OF):
        raise AttributeError(name)
    return make_steps(name.removeprefix(_STEP_OF).replace("_", " "))


def diagnose_kind(kind: str, seconds: float, has_experiments: bool) -> dict[str, object]:
    """Diagnose one kind; returns what the answer says first, and which causes of other layers an
    experiment confirmed.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = curvescope.diagnose(
            make_steps(kind),
            _EQUAL_BATCHES if kind.startswith(EQUAL) else BATCHES,
            device="cpu",
            time_limit_s=seconds,
            experiments_s=None if has_experiments else 0,
            output=Path(folder, "run"),
        )
        page = Page(found)
        listed = [(one.what, one.sure, dict(one.worth)) for one in page.entries[:3]]
        # What is proven to save stands before the layers.
        first = next((entry.what for entry in page.entries if entry.saving is None), "")
        confirmed = [entry for entry in page.entries if entry.sure == CONFIRMED]
        causes = [entry.what for entry in confirmed if entry.saving is None]
        return {
            "kind": kind,
            "seconds": seconds,
            "threads": torch.get_num_threads(),
            "verdict": page.verdict(),
            "found": listed,
            "experiments": has_experiments,
            "confirmed": [entry.what for entry in confirmed],
            "beside": [what for what in causes if "mixer" not in what],
            "right": "mixer" in first if kind in PLANTS else not _names_a_layer(page),
        }


def _names_a_layer(page: Page) -> bool:
    return any(one.is_slow_size and one.where is not None for one in page.entries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", help="some of them, between semicolons (default: all)")
    parser.add_argument("--times", type=int, default=1, help="times that each is diagnosed")
    parser.add_argument("--seconds", type=float, default=60.0, help="to measure each (default: 60)")
    parser.add_argument("--experiments", action="store_true", help="test the causes, too")
    args = parser.parse_args()
    known = [*PLANTS, NOTHING, *(EQUAL + network for network in NULL_NETWORKS)]
    kinds = args.kinds.split(";") if args.kinds else known
    if unknown := set(kinds) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    for kind in kinds * args.times:
        row = diagnose_kind(kind, args.seconds, args.experiments)
        with KEPT.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{kind:18} {'right' if row['right'] else 'WRONG'}  {row['verdict']}", flush=True)
        print(f"{'':18} {row['found'][:1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
