"""Steps with a cause that was planted at one batch size, and what `explain` says of them, as a row.

Arguments: name of the plant, device, seconds to measure, seconds of experiments, file that gets the row. The steps are
matrix products in proportion to the batch size; at the largest size but one, and only there, something is added.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import scripts
import torch
from torch import nn

import curvescope
from curvescope.base.errors import CurvescopeError

BATCHES = (16, 32, 64, 128)
PLANTED_AT = 64
# Experiments make the steps again in other processes.
_DEVICE = os.environ.setdefault(
    "PLANTED_DEVICE", sys.argv[2] if __name__ == "__main__" else "cuda:0"
)
_WIDTH, _ROWS = 2048, 64  # of a product for each sample
Step = Callable[[], object]


def _network() -> nn.Module:
    return nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(8))).to(_DEVICE)


def _step(
    model: nn.Module, inputs: Callable[[], torch.Tensor], before: Step = lambda: None
) -> Step:
    def step() -> object:
        before()
        with torch.no_grad():
            return model(inputs())

    step.module = model  # type: ignore[attr-defined]
    return step


def _with(batch: int, planted: Step) -> Step:
    x = torch.randn(batch * _ROWS, _WIDTH, device=_DEVICE)
    return _step(_network(), lambda: x, planted if batch == PLANTED_AT else lambda: None)


def allocation(batch: int) -> Step:
    """Memory that the allocator gives back and takes anew in every step."""

    def planted() -> None:
        torch.empty(_WIDTH << 17, dtype=torch.uint8, device=_DEVICE)
        torch.cuda.empty_cache()

    return _with(batch, planted)


def pageable_copy(batch: int) -> Step:
    """An input that comes from pageable memory."""
    x = torch.randn(batch * _ROWS, _WIDTH)
    on_device = x.to(_DEVICE)
    return _step(_network(), lambda: x.to(_DEVICE) if batch == PLANTED_AT else on_device)


class Rows(nn.Module):
    """One block per row: so many rows that one block is left over for a further wave."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.softmax(x, -1)
        return x


def wave(batch: int) -> Step:
    """A batch one block past a wave: two blocks of 1,024 threads fit an SM."""
    sms = torch.cuda.get_device_properties(_DEVICE).multi_processor_count
    rows = 2 * sms * batch // PLANTED_AT + (batch == PLANTED_AT)
    x = torch.randn(rows, 16_384, device=_DEVICE)
    return _step(nn.Sequential(Rows()), lambda: x)


def switch(batch: int) -> Step:
    """Another algorithm, because only deterministic ones may run."""
    model = nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1) for _ in range(6))).to(_DEVICE)
    x = torch.randn(batch, 64, 56, 56, device=_DEVICE)

    def step() -> None:
        torch.backends.cudnn.deterministic = batch == PLANTED_AT
        model(x).sum().backward()

    step.module = model  # type: ignore[attr-defined]
    return step


EXPECTED = {
    allocation: "launch- or host-bound, memory pressure",
    pageable_copy: "launch- or host-bound",
    wave: "wave and tile quantisation",
    switch: "algorithm switch",
}


def row(plant: Callable[[int], Step], seconds: float, experiments_s: float) -> dict[str, str]:
    try:
        found = curvescope.diagnose(
            plant,
            BATCHES,
            device=_DEVICE,
            time_limit_s=seconds,
            experiments_s=experiments_s,
            output=plant.__name__,
        )
        answers = [f"{one.name}: {one.cause} ({one.verdict})" for one in found.answers][:3]
    except CurvescopeError as error:
        answers = [str(error)]
    said = "; ".join(answers) or "no answer"
    return {
        "planted": plant.__name__,
        "what": str(plant.__doc__),
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
