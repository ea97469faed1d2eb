"""Steps with a planted cause, for a GPU (planted.py) and for virtual cards
(benchmarks/virtual_causes.py).

Each is a network of products in proportion to the batch; at one batch size, and only there,
something is added. What is planted is in the step's code, or, on a virtual card, a line of the
card's configuration, which holds until the step ends. The variable CURVESCOPE_PLANTED, which the
processes of experiments inherit, has other sizes: `Sizes` as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

VARIABLE = "CURVESCOPE_PLANTED"
Step = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step.

    Attributes:
        device: the device, as torch names it.
        at: the batch size at which something is added.
        layers: products of the network, one after the other.
        width: rows and columns of a weight.
        rows: rows of a product for each sample; of a softmax for `wave`.
        amount: how much is added: kernels, allocations, or a share of the clock; 0: as the plant
            has it.
    """

    device: str = "cuda:0"
    at: int = 64
    layers: int = 4
    width: int = 2048
    rows: int = 512  # on an H100 a step of 64 takes 30 ms
    amount: float = 0


SIZES = Sizes(**json.loads(os.environ.get(VARIABLE, "{}")))
AT, _DEVICE = SIZES.at, SIZES.device

if "VIRTUAL_CARD" in os.environ:
    # What a process takes to start: in virtual time it were free, and experiments would start any
    # number.
    time.sleep(1)


@contextmanager
def planted(line: str, batch: int, at: int = AT) -> Iterator[None]:
    """The virtual card as a line of its configuration says while the block runs, at one batch size
    only.
    """
    configure = ctypes.CDLL(None).virtual_card_configure
    if batch == at:
        configure(f"plant {line}".encode())
    yield
    configure(b"forget_plants")


def with_module(step: Step, module: nn.Module) -> Step:
    """The step, which says what its layers are."""
    step.module = module  # type: ignore[attr-defined]
    return step


def network(width: int = SIZES.width) -> nn.Module:
    layers = (nn.Linear(width, width, bias=False) for _ in range(SIZES.layers))
    return nn.Sequential(*layers).to(_DEVICE)


def forward(batch: int, line: str = "", rows: int = SIZES.rows, width: int = SIZES.width) -> Step:
    """A forward pass of the network; at one batch size with what is planted."""
    model, x = network(width), torch.empty(batch * rows, width, device=_DEVICE)

    @torch.no_grad()
    def step() -> object:
        if not line:
            return model(x)
        with planted(line, batch):
            return model(x)

    return with_module(step, model)


def allocation(batch: int) -> Step:
    """Memory that the allocator gives back and takes anew in every step."""
    step = forward(batch)

    def allocating() -> object:
        if batch == AT:
            for _ in range(int(SIZES.amount) or 20):
                # More than what is left of another size's buffer, which the allocator would give.
                torch.empty(1 << 30, dtype=torch.uint8, device=_DEVICE)
                torch.cuda.empty_cache()
        return step()

    return with_module(allocating, step.module)  # type: ignore[attr-defined]


def pageable_copy(batch: int) -> Step:
    """An input that comes from pageable memory."""
    model, x = network(), torch.empty(batch * SIZES.rows, SIZES.width)
    on_device = x.to(_DEVICE)

    @torch.no_grad()
    def step() -> object:
        return model(x.to(_DEVICE) if batch == AT else on_device)

    return with_module(step, model)


class Rows(nn.Module):
    """Softmax over long rows: one block of 1,024 threads a row, of which two fit an SM."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.softmax(x, -1)
        return x


def wave(batch: int) -> Step:
    """Some rows a sample: of five, 52 samples fill a wave of 264 blocks of an H100, so that 64 take
    a second one.
    """
    model = nn.Sequential(Rows())
    x = torch.empty(SIZES.rows * batch, 16_384, device=_DEVICE)
    return with_module(lambda: model(x), model)


def one_block_past(batch: int) -> Step:
    """Rows that fill a wave with the batch size at which something is planted; there, and only
    there, one more.
    """
    model = nn.Sequential(Rows())
    sms = torch.cuda.get_device_properties(_DEVICE).multi_processor_count
    x = torch.empty(2 * sms * batch // AT + (batch == AT), 16_384, device=_DEVICE)
    return with_module(lambda: model(x), model)


def clock(batch: int) -> Step:
    """A clock of 60 %."""
    return forward(batch, f"clock {SIZES.amount or 0.6}")


def switch(batch: int) -> Step:
    """Another kernel from 64 samples on, which takes 1.7 times as long."""
    return forward(batch)


class Small(nn.Module):
    """Many additions of few elements, one after the other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = x[:1, :32]
        for _ in range(self.count):
            part = part + 1.0
        return x


def launches(batch: int) -> Step:
    """3,000 small kernels, which end sooner than the host launches them."""
    count = int(SIZES.amount) or 3000
    model = nn.Sequential(*network(), Small(count if batch == AT else 0))
    x = torch.empty(batch * SIZES.rows, SIZES.width, device=_DEVICE)

    @torch.no_grad()
    def step() -> object:
        return model(x)

    return with_module(step, model)


def parts(batch: int) -> Step:
    """`batch` equal parts one after the other, as with accumulated gradients: in proportion by
    construction.
    """
    model, x = network(), torch.empty(512, SIZES.width, device=_DEVICE)

    @torch.no_grad()
    def step() -> object:
        for _ in range(batch):
            out = model(x)
        return out

    return with_module(step, model)


def beside(batch: int) -> Step:
    """A collective on another stream (the card gives the name of one to the kernel that sleeps)."""
    step, side = parts(batch), torch.cuda.Stream()

    def step_beside() -> object:
        main = torch.cuda.current_stream()
        if batch == AT:
            side.wait_stream(main)
            with torch.cuda.stream(side):
                torch.cuda._sleep(int(SIZES.amount) or 20_000_000)
        out = step()
        main.wait_stream(side)
        return out

    return with_module(step_beside, step.module)  # type: ignore[attr-defined]


def full_memory(batch: int) -> Step:
    """Convolutions whose workspace no longer fits 8 GiB at 128, so that cuDNN takes an algorithm
    without one.
    """
    torch.backends.cudnn.benchmark = True
    convolutions = (nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(4))
    model, x = (
        nn.Sequential(*convolutions).to(_DEVICE),
        torch.empty(batch, 64, 64, 64, device=_DEVICE),
    )
    activations = 3.5  # input, output, and half of a workspace as large as that
    capacity = torch.cuda.get_device_properties(_DEVICE).total_memory
    of_sample = (capacity - activations * 4 * 128 * 64**3) / 128
    kept = torch.empty(int(batch * of_sample), dtype=torch.uint8, device=_DEVICE)

    @torch.no_grad()
    def step() -> object:
        assert len(kept)
        return model(x)

    return with_module(step, model)


def bend_at_8(batch: int) -> Step:
    """Another kernel at 8 samples only, which takes 1.5 times as long; 30 blocks fill the 15 SMs of
    a K40.
    """
    return forward(batch)


class Scale(nn.Module):
    """y = x * w over arrays that stay from step to step."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.x, self.w, self.y = (torch.empty(elements, device=_DEVICE) for _ in range(3))

    def forward(self) -> None:
        for _ in range(200):
            torch.mul(self.x, self.w, out=self.y)


def cache(batch: int) -> Step:
    """Arrays of 0.5 MB a sample, which outgrow the 50 MB of the L2 between 64 and 128 samples."""
    model = Scale(batch * 43_000)
    return with_module(lambda: model(), model)


class Precision(nn.Module):
    """A product in bf16, and in fp32 at some batch sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(SIZES.width, SIZES.width, device=_DEVICE))
        self.short = nn.Parameter(self.weight.detach().bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.short if x.dtype == torch.bfloat16 else self.weight
        for _ in range(8):
            x = x @ weight
        return x


def precision(batch: int) -> Step:
    """fp32 instead of bf16."""
    model = nn.Sequential(Precision())
    kind = torch.float32 if batch == AT else torch.bfloat16
    x = torch.empty(batch * SIZES.rows, SIZES.width, device=_DEVICE, dtype=kind)

    @torch.no_grad()
    def step() -> object:
        return model(x)

    return with_module(step, model)


def deterministic(batch: int) -> Step:
    """Another algorithm of convolutions, because only deterministic ones may run."""
    convolutions = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(6))
    model, x = (
        nn.Sequential(*convolutions).to(_DEVICE),
        torch.empty(batch, 64, 56, 56, device=_DEVICE),
    )

    def step() -> None:
        torch.backends.cudnn.deterministic = batch == AT
        model(x).sum().backward()

    return with_module(step, model)
