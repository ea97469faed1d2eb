"""A CUDA device that is numpy: what some entries of kernels/cuda say they do, written down from their comments."""

from __future__ import annotations

import numpy as np

from curvescope.kernels.backends.cuda_device import DeviceFacts
from curvescope.kernels.timers import EventApi

FACTS = DeviceFacts("Fake GPU", (8, 0), 4, 1_000_000_000, 4096)


class Memory:
    """Buffers at made-up addresses."""

    def __init__(self):
        self.arrays, self._next = {}, 0x7F00_0000_0000
        self.visited = []  # addresses that chases loaded

    def put(self, array):
        address, self._next = self._next, self._next + max(array.nbytes, 1) + 256
        self.arrays[address] = np.ascontiguousarray(array).copy()
        return address

    def at(self, address):
        return self.arrays[int(address)]


def run_kernel(memory, name, grid, block, arguments):
    """One launch; arguments are addresses and scalars in the order of the source. The other kernels do nothing."""
    if name == "sgemm_nn":
        a, b, c, m, n, k, alpha, _ = arguments
        assert grid == (-(-int(n) // 128), -(-int(m) // 128), 1)
        memory.at(c).reshape(m, n)[:] = alpha * (memory.at(a).reshape(m, k) @ memory.at(b).reshape(k, n))
    elif name == "convolution_forward":  # by filters of 1 x 1
        image, weights, out, structure = arguments
        n, c, h, w, k, *_ = map(int, np.frombuffer(bytes(structure), np.int32))
        result = np.tensordot(memory.at(image).reshape(n, c, h, w), memory.at(weights).reshape(k, c), ([1], [1]))
        memory.at(out).reshape(n, k, h, w)[:] = np.moveaxis(result, 3, 1)
    elif name == "memory_copy":
        a, c, count4, _ = arguments
        memory.at(c)[: 4 * count4] = memory.at(a)[: 4 * count4]
    elif name == "chase_link":
        chain, following, count = arguments
        memory.at(chain)[:count] = np.uint64(chain) + 8 * memory.at(following)[:count].astype(np.uint64)
    elif name == "chase":
        start, steps, _, end, goes_on = arguments
        at = int(memory.at(end)[0]) if goes_on else int(start)
        for _ in range(steps):
            at = int(memory.at(start)[(at - int(start)) // 8])
            memory.visited.append(at)
        memory.at(end)[0] = at
    elif name == "peak_fp32":
        sums, a, b, rounds = arguments
        memory.at(sums)[: grid[0] * block[0]] = 128 * rounds * a * b


class FakeDriver:
    """See `cubins.Driver`; events are a count of launches, a millisecond each."""

    facts = FACTS

    def __init__(self):
        self.memory, self.launches, self.loaded = Memory(), [], []
        self.events = EventApi(
            create=list,
            record=lambda event: event.append(len(self.launches)),
            elapsed_ms=lambda start, end: float(end[-1] - start[-1]),
            synchronize=lambda: None,
            done=lambda event: False,
        )

    def load(self, cubin, kernel):
        self.loaded.append((cubin, kernel))
        return kernel

    def upload(self, array):
        return self.memory.put(array)

    def download(self, buffer, like):
        return self.memory.at(buffer).reshape(like.shape)

    def address(self, buffer):
        return buffer

    def launcher(self, function, grid, block, arguments):
        def run():
            self.launches.append(function)
            run_kernel(self.memory, function, grid, block, arguments)

        return run
