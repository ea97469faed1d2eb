"""Models whose step really has a cause on this machine's CPU from a batch of 4 on (the convolution
from 16).

They are handed to `curvescope` as factories, and run in processes of their own: some of them change
the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn

FROM_BATCH = 4
REPEATED = 12
_MADV_DONTNEED = 4  # madvise(2), Linux


class WaitsForItsInput(nn.Module):
    """Sleeps, as for a loader that is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) >= FROM_BATCH:
            time.sleep(0.1)
        return self.conv(x).mean((2, 3))


class Convolution(nn.Module):
    """With one thread torch computes a 1x1 convolution of up to 15 samples by GEMM, from 16 on by
    oneDNN.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


class Scale(nn.Module):
    """y = x * w over arrays that stay: three streams of memory."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, w, out=y)


class OutgrowsTheCache(nn.Module):
    """Three arrays of 3 MiB a sample: 18 MiB at a batch of 2, 36 MiB at 4, on either side of a
    cache of 32 MiB.
    """

    repeated = REPEATED

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()
        self.arrays: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.arrays:
            self.arrays = {len(x): (torch.ones_like(x), torch.empty_like(x))}
        for _ in range(self.repeated):
            y = self.scale(x, *self.arrays[len(x)])
        return y[:, :4].clone()


class FreshMemory(OutgrowsTheCache):
    """The same over 12 MiB a sample, beyond the cache at every batch; from a batch of 4 on the
    result's memory is given back to the system after each use, as an allocator without a cache
    does, and has to be faulted in anew.
    """

    repeated = REPEATED // 4

    def __init__(self) -> None:
        super().__init__()
        self.scale.register_forward_hook(self.give_back)

    def give_back(self, _module: nn.Module, _inputs: object, y: torch.Tensor) -> None:
        """madvise(MADV_DONTNEED) over its whole pages."""
        if len(y) < FROM_BATCH:
            return
        page = os.sysconf("SC_PAGE_SIZE")
        first = -(-y.data_ptr() // page) * page
        length = (y.data_ptr() + y.nbytes - first) // page * page
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise")


class BusyNeighbour(nn.Module):
    """Keeps to one core, and from a batch of 4 on another process spins on it."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(1024, 1024)
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        # It inherits the core, and is killed as this process ends, stopped or not (prctl(2),
        # PR_SET_PDEATHSIG).
        spin = "import ctypes\nctypes.CDLL(None).prctl(1, 9)\nwhile True: sum(range(10**6))"
        self.spinning = subprocess.Popen([sys.executable, "-c", spin])
        self.spinning.send_signal(signal.SIGSTOP)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.spinning.send_signal(signal.SIGCONT if len(x) >= FROM_BATCH else signal.SIGSTOP)
        for _ in range(REPEATED):
            x = self.product(x)
        return x[:, 0, :4]
