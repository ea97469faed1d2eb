"""Steps of small real networks with one planted cause, for benchmarks/planted_causes.py.

Every function makes one step for `curvescope.diagnose`. `depth` is the number of blocks of the
network around the planted layer, which sets the effect's share of the step. With `planted=0` the
same network computes the same without the planted cause.
"""

# ruff: noqa: D102 - `forward` of modules that say what they do
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], object]

# Blocks above 32 MiB are mapped anew each time, whatever glibc learns from earlier ones.
_ALWAYS_MAPPED = 32 * 2**20  # floats
_LARGEST_KEPT = 31 * 2**18  # floats
NICE = "PLANTED_NICE"  # nice value that a busy neighbour takes


class ConvBlocks(nn.Sequential):
    """A small convolutional network."""

    def __init__(self, depth: int, channels: int = 32) -> None:
        super().__init__(*(self._block(channels) for _ in range(depth)))

    @staticmethod
    def _block(channels: int) -> nn.Module:
        convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU())


class MixerBlock(nn.Module):
    """Layer norm and a perceptron with a shortcut, on tokens."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.relu(self.up(self.norm(x))))


class AttentionBlock(nn.Module):
    """Self-attention and a perceptron, on tokens: a block of a transformer encoder."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.mix = MixerBlock(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = (
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        )
        return self.mix(x + self.out(mixed))


def _blocks(kind: str, depth: int, width: int = 64) -> nn.Module:
    makers: dict[str, Callable[[], nn.Module]] = {
        "mixer": lambda: MixerBlock(width, 4 * width),
        "attention": lambda: AttentionBlock(width),
    }
    return nn.Sequential(*(makers[kind]() for _ in range(depth)))


def forward(model: nn.Module, *inputs: torch.Tensor) -> Step:
    """A forward step of a model.

    glibc keeps blocks of up to the largest size that a process has freed so far, at most 32 MiB
    (mallopt(3)). So that the history of a process makes no page faults, it has freed such a block,
    as after the load of a checkpoint.
    """
    model.eval()
    torch.empty(_LARGEST_KEPT)

    def step() -> object:
        with torch.no_grad():
            return model(*inputs)

    step.module = model  # type: ignore[attr-defined]
    return step


class SlowProduct(nn.Module):
    """A classifier whose first fully connected layer is a product that MKL runs slowly from 2 rows
    on.
    """

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 32, 3, padding=1), ConvBlocks(depth)
        self.head = nn.Linear(6400, 1000)
        self.planted = planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(self.stem(x)).flatten(1)[:, :6400]
        if self.planted:
            return self.head(x)
        return torch.ops.mkldnn._linear_pointwise(
            x, self.head.weight, self.head.bias, "none", [], ""
        )


def slow_product(batch: int, depth: int, planted: int = 1) -> Step:
    """A product of 6400 inputs and 1000 outputs."""
    return forward(SlowProduct(depth, planted), torch.randn(batch, 3, 28, 28))


class TiedDecoder(nn.Module):
    """A text model whose decoder uses the table of embeddings, which lies the other way for its
    product.
    """

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.table = nn.Embedding(4096, 1024)
        self.body = _blocks("mixer", depth)
        self.decoder = nn.Linear(1024, 4096, bias=False)
        weight = self.table.weight.data
        self.decoder.weight.data = weight if planted else weight.t().contiguous().t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(
            self.body(self.table(x).view(len(x), -1, 64)).view(len(x), -1, 1024).mean(1)
        )


def tied_decoder(batch: int, depth: int, planted: int = 1) -> Step:
    """A decoder over a vocabulary of 4096."""
    return forward(TiedDecoder(depth, planted), torch.randint(4096, (batch, 4)))


class PatchNet(nn.Module):
    """A vision model on patches, with oneDNN off: from 16 samples on its convolution runs through
    NNPACK.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed, self.body = nn.Conv2d(16, 64, 1), _blocks("mixer", depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(F.avg_pool2d(self.embed(x), 4).flatten(2).transpose(1, 2)).mean(1)


def switched_convolution(batch: int, depth: int, planted: int = 1) -> Step:
    """A 1x1 convolution on images of 28x28."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    model = PatchNet(depth)
    if not planted:
        embed = model.embed.forward

        def in_parts(x: torch.Tensor) -> torch.Tensor:
            return torch.cat([embed(part) for part in x.split(8)])

        model.embed.forward = in_parts  # type: ignore[method-assign]
    return forward(model, torch.randn(batch, 16, 28, 28))


class Unfolded(nn.Module):
    """A convolution that the model itself runs in another way from 16 samples on: as a product of
    patches.
    """

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.weight, self.planted = nn.Parameter(torch.randn(32, 32, 3, 3) / 20), planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) < 16 or not self.planted:
            return F.conv2d(x, self.weight, padding=1)
        return (self.weight.flatten(1) @ F.unfold(x, 3, padding=1)).view(x.shape)


class OwnSwitchNet(nn.Module):
    """A convolutional network with one such layer."""

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.stem, self.special, self.body = (
            nn.Conv2d(3, 32, 3, padding=1),
            Unfolded(planted),
            ConvBlocks(depth),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.special(self.stem(x))).mean((2, 3))


def own_switch(batch: int, depth: int, planted: int = 1) -> Step:
    """A convolution of 32 channels on images of 28x28."""
    return forward(OwnSwitchNet(depth, planted), torch.randn(batch, 3, 28, 28))


class Prototypes(nn.Module):
    """Distances to prototypes, which PyTorch computes one by one up to 25 rows, and as a product
    from 26 on.
    """

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.points, self.planted = nn.Parameter(torch.randn(16, 8192)), planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mode = "use_mm_for_euclid_dist_if_necessary" if self.planted else "use_mm_for_euclid_dist"
        return torch.cdist(x, self.points, compute_mode=mode)


class PrototypeNet(nn.Module):
    """A few-shot classifier with such a layer."""

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.body, self.nearest = _blocks("mixer", depth), Prototypes(planted)

    def forward(self, x: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.nearest(features) + self.body(x).mean((1, 2)).unsqueeze(1)


def few_rows(batch: int, depth: int, planted: int = 1) -> Step:
    """16 prototypes of 8192 numbers."""
    return forward(
        PrototypeNet(depth, planted), torch.randn(batch, 4, 64), torch.randn(batch, 8192)
    )


class Workspace(nn.Module):
    """Copies its input into a workspace for the longest sequence, of which glibc gives back every
    page afterwards.
    """

    def __init__(self, from_batch: int, rows: int | None, planted: int) -> None:
        super().__init__()
        self.from_batch, self.rows, self.planted = from_batch, rows, planted
        self.kept: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fresh = self.planted and len(x) >= self.from_batch
        if not fresh and len(x) not in self.kept:
            self.kept = {len(x): torch.empty(_ALWAYS_MAPPED)}
        space = torch.empty(_ALWAYS_MAPPED) if fresh else self.kept[len(x)]
        rows = self.rows or len(x) * 96
        used = space[: rows * 1024].view(rows, 1024)
        used.copy_(x.flatten(1)[0, :1024].expand(rows, 1024))
        return x + used[:: max(1, rows // len(x))][: len(x), : x[0].numel()].view(x.shape)


class WorkspaceNet(nn.Module):
    """A transformer encoder with such a layer."""

    def __init__(self, depth: int, workspace: nn.Module) -> None:
        super().__init__()
        self.gather, self.body = workspace, _blocks("attention", depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.gather(x)).mean(1)


def fresh_memory(batch: int, depth: int, planted: int = 1) -> Step:
    """Fresh memory from 16 samples on, 6 MB."""
    return forward(WorkspaceNet(depth, Workspace(16, None, planted)), torch.randn(batch, 16, 64))


def fresh_memory_always(batch: int, depth: int, planted: int = 1) -> Step:
    """Fresh memory at every batch size, 6 MB."""
    return forward(WorkspaceNet(depth, Workspace(1, 1536, planted)), torch.randn(batch, 16, 64))


class Scale(nn.Module):
    """y = x * w over arrays that stay from step to step: 0.7 MiB a sample, so that 64 samples
    outgrow 32 MiB of cache.
    """

    def __init__(self, batch: int, planted: int) -> None:
        super().__init__()
        rows = batch if planted else min(batch, 4)
        self.again = batch // rows
        self.x, self.w, self.y = (torch.ones(rows, 60_000) for _ in range(3))

    def forward(self) -> torch.Tensor:
        for _ in range(self.again):
            torch.mul(self.x, self.w, out=self.y)
        return self.y[:1, :64]


class CacheNet(nn.Module):
    """A perceptron on tokens, with a layer that reads and writes its large state."""

    def __init__(self, depth: int, batch: int, planted: int) -> None:
        super().__init__()
        self.body, self.scale = _blocks("mixer", depth), Scale(batch, planted)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x + self.scale())


def outgrown_cache(batch: int, depth: int, planted: int = 1) -> Step:
    """A state of 180,000 numbers a sample."""
    return forward(CacheNet(depth, batch, planted), torch.randn(batch, 4, 64))


class TopK(nn.Module):
    """The best ten of many candidates for each sample: one thread a sample."""

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.planted = planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.planted:
            return torch.topk(x, 10).values
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        best = torch.topk(x, 10).values
        torch.set_num_threads(threads)
        return best


class RetrievalNet(nn.Module):
    """A transformer encoder that ranks candidates."""

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.body, self.best = _blocks("attention", depth), TopK(planted)

    def forward(self, x: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        return self.best(candidates) + self.body(x).mean()


def idle_threads(batch: int, depth: int, planted: int = 1) -> Step:
    """A million candidates a sample."""
    return forward(
        RetrievalNet(depth, planted), torch.randn(batch, 32, 64), torch.randn(batch, 1_000_000)
    )


class Fourier(nn.Module):
    """Mixes tokens by a Fourier transform, which is slow for prime lengths."""

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.planted = planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[1]
        if not self.planted and tokens % 8:
            x = F.pad(x, (0, 0, 0, 8 - tokens % 8))
        return torch.fft.fft(x, dim=1).real[:, :tokens]


class FourierNet(nn.Module):
    """A text model with one such layer."""

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.mixing, self.body = Fourier(planted), _blocks("mixer", depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.mixing(x)).mean(1)


def odd_length(tokens: int, depth: int, planted: int = 1) -> Step:
    """32 sequences."""
    return forward(FourierNet(depth, planted), torch.randn(32, tokens, 64))


class Positions(nn.Module):
    """Works out positional terms in Python in every step."""

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.kept = None if planted else self.table()

    @staticmethod
    def table() -> torch.Tensor:
        rows = [[((i * 7 + j * 3) % 11 - 5) / 50 for j in range(64)] for i in range(64)]
        return torch.tensor(rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.table() if self.kept is None else self.kept)


class PositionNet(nn.Module):
    """A transformer encoder with such a layer."""

    def __init__(self, depth: int, planted: int) -> None:
        super().__init__()
        self.positions, self.body = Positions(planted), _blocks("attention", depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.positions(x)).mean(1)


def host_work(batch: int, depth: int, planted: int = 1) -> Step:
    """64 tokens a sample."""
    return forward(PositionNet(depth, planted), torch.randn(batch, 64, 64))


class Around(nn.Module):
    """A perceptron on tokens, with a layer on further features."""

    def __init__(self, depth: int, layer: nn.Module) -> None:
        super().__init__()
        self.body, self.special = _blocks("mixer", depth), layer

    def forward(self, x: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((1, 2)) + self.special(features).flatten(1).mean(1)


class Energies(nn.Module):
    """exp(-energy), whose results are denormal numbers for energies of 90."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-x)


def denormal_values(batch: int, depth: int, planted: int = 1) -> Step:
    """20,000 energies a sample; from 16 samples on half of them are large."""
    energies = torch.ones(batch, 20_000)
    if planted and batch >= 16:
        energies[batch // 2 :] = 90.0
    return forward(Around(depth, Energies()), torch.randn(batch, 4, 64), energies)


class SharedMatrix(nn.Module):
    """A product with one matrix, written as a batch of products: PyTorch copies the matrix for each
    sample.
    """

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.matrix, self.planted = (
            nn.Parameter(torch.randn(512, 512, dtype=torch.bfloat16) / 23),
            planted,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.bfloat16()
        if not self.planted:
            return (half.flatten(0, 1) @ self.matrix).view(x.shape).float()
        return torch.bmm(half, self.matrix.expand(len(x), 512, 512)).float()


def shared_matrix(batch: int, depth: int, planted: int = 1) -> Step:
    """4 rows of 512 numbers a sample, in bf16."""
    return forward(
        Around(depth, SharedMatrix(planted)), torch.randn(batch, 4, 64), torch.randn(batch, 4, 512)
    )


class HalfFrom16(nn.Module):
    """A product that the model itself computes in fp16 from 16 samples on."""

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.weight, self.planted = nn.Parameter(torch.randn(1024, 512) / 23), planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) < 16 or not self.planted:
            return F.linear(x, self.weight)
        return F.linear(x.half(), self.weight.half()).float()


def other_precision(batch: int, depth: int, planted: int = 1) -> Step:
    """A product of 512 inputs and 1024 outputs."""
    return forward(
        Around(depth, HalfFrom16(planted)), torch.randn(batch, 4, 64), torch.randn(batch, 512)
    )


class Shifts(nn.Module):
    """Additions, which PyTorch divides among threads from 32,768 elements on."""

    def __init__(self, planted: int) -> None:
        super().__init__()
        self.planted = planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        threads = torch.get_num_threads()
        torch.set_num_threads(threads if self.planted else 1)
        for _ in range(20):
            x = x + 1.0
        torch.set_num_threads(threads)
        return x


def threads_begin(batch: int, depth: int, planted: int = 1) -> Step:
    """20 additions of 1,024 numbers a sample."""
    return forward(
        Around(depth, Shifts(planted)), torch.randn(batch, 1, 64), torch.randn(batch, 1024)
    )


_NEIGHBOUR = """
import ctypes, os, select, sys, time
ctypes.CDLL(None).prctl(1, 9)  # it ends with its parent (prctl(2), PR_SET_PDEATHSIG)
os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
busy_s = 1e-4 * int(sys.argv[2])  # of 10 ms
idle_s = max(0.01 - 2 * busy_s, 0.0)  # it shares the core while it computes
while words := os.read(0, 4096):  # nothing: the parent has ended
    at_work = words[-1:] == b"b"
    while at_work and not select.select([0], [], [], 0)[0]:
        until_s = time.process_time() + busy_s
        while time.process_time() < until_s:
            pass
        time.sleep(idle_s)
"""


class Neighbour:
    """A process on the same core, e.g. one that loads data, which computes in some percent of the
    time of each step.
    """

    def __init__(self, percent: int) -> None:
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        words = [sys.executable, "-c", _NEIGHBOUR, os.environ.get(NICE, "0"), str(percent)]
        # A neighbour that outlived its parent must not hold the pipes of whoever reads what that
        # wrote.
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, bufsize=0
        )

    def tell(self, word: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Encoder(nn.Module):
    """A transformer encoder."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.body = _blocks("attention", depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean(1)


def busy_neighbour(batch: int, depth: int, planted: int = 1) -> Step:
    """A neighbour that takes `depth` percent of the time of every step of at least 8 samples."""
    step = forward(Encoder(12), torch.randn(batch, 64, 64))
    if not planted or batch < 8:
        return step
    neighbour = Neighbour(depth)

    def disturbed() -> object:
        neighbour.tell(b"b")
        result = step()
        neighbour.tell(b"e")
        return result

    disturbed.module = step.module  # type: ignore[attr-defined]
    disturbed.close = neighbour.close  # type: ignore[attr-defined]
    return disturbed


class Waiting(nn.Module):
    """Waits some milliseconds, as for an answer from elsewhere."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(2e-3 * self.depth)
        return x


class Product(nn.Module):
    """A product in double precision, whose result lies in the same memory each time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.out = (
            torch.randn(256, 256, dtype=torch.float64),
            torch.empty(256, 256, dtype=torch.float64),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, self.weight, out=self.out)


def micro_batches(kind: str) -> Callable[..., Step]:
    """Makes steps that run `batch` equal parts, one after the other: their time is proportional by
    construction.
    """

    def make(batch: int, depth: int) -> Step:
        models: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
            "convolution": lambda: (ConvBlocks(depth), torch.randn(4, 32, 28, 28)),
            "perceptron": lambda: (_blocks("mixer", depth), torch.randn(4, 64, 64)),
            "encoder": lambda: (_blocks("attention", depth), torch.randn(4, 64, 64)),
            "bag": lambda: (
                nn.Sequential(nn.EmbeddingBag(1000, 256), _blocks("mixer", depth, 256)),
                torch.randint(1000, (64, 64)),
            ),
            "recurrent": lambda: (nn.LSTM(64, 64, depth), torch.randn(24, 8, 64)),
            "waiting": lambda: (Waiting(depth), torch.ones(1)),
            "product": lambda: (Product(), torch.randn(256, 256, dtype=torch.float64)),
        }
        model, x = models[kind]()
        one = forward(model, x)

        def step() -> object:
            for _ in range(batch):
                out = one()
            return out

        step.module = model  # type: ignore[attr-defined]
        return step

    make.__qualname__ = make.__name__ = f"{kind}_parts"
    return make


convolution_parts = micro_batches("convolution")
perceptron_parts = micro_batches("perceptron")
encoder_parts = micro_batches("encoder")
bag_parts = micro_batches("bag")
recurrent_parts = micro_batches("recurrent")
waiting_parts = micro_batches("waiting")
product_parts = micro_batches("product")
