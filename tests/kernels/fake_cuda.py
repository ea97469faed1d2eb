"""A CUDA device that is numpy: what some entries of kernels/cuda say they do, written down from
their comments.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np


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
    """One launch; arguments are addresses and scalars in the order of the source.

    The other kernels do nothing.
    """
    if name == "sgemm_nn":
        a, b, c, m, n, k, alpha, _ = arguments
        assert grid == (-(-int(n) // 128), -(-int(m) // 128), 1)
        memory.at(c).reshape(m, n)[:] = alpha * (
            memory.at(a).reshape(m, k) @ memory.at(b).reshape(k, n)
        )
    elif name == "convolution_forward":  # by filters of 1 x 1
        image, weights, out, structure = arguments
        n, c, h, w, k, *_ = map(int, np.frombuffer(bytes(structure), np.int32))
        result = np.tensordot(
            memory.at(image).reshape(n, c, h, w), memory.at(weights).reshape(k, c), ([1], [1])
        )
        memory.at(out).reshape(n, k, h, w)[:] = np.moveaxis(result, 3, 1)
    elif name == "memory_copy":
        a, c, count4, _ = arguments
        memory.at(c)[: 4 * count4] = memory.at(a)[: 4 * count4]
    elif name == "memory_read":
        a, sums, least, count4, _ = arguments
        threads = grid[0] * block[0]
        vectors = np.zeros((-(-int(count4) // threads), threads, 4), np.float32)
        vectors.reshape(-1)[: 4 * count4] = memory.at(a)[: 4 * count4]
        found = vectors.sum(axis=(0, 2))
        for thread in np.flatnonzero(found > least):
            memory.at(sums)[thread] = found[thread]
    elif name == "chase_link":
        chain, following, count = arguments
        memory.at(chain)[:count] = np.uint64(chain) + 8 * memory.at(following)[:count].astype(
            np.uint64
        )
    elif name == "chase":
        start, steps, _, end, goes_on = arguments
        at = int(memory.at(end)[0]) if goes_on else int(start)
        for _ in range(steps):
            at = int(memory.at(start)[(at - int(start)) // 8])
            memory.visited.append(at)
        memory.at(end)[0] = at
    elif name == "peak_fp32":
        sums, a, b, rounds = arguments
        memory.at(sums)[: grid[0] * block[0]] = 512 * rounds * a * b


class FakeLibrary:
    """What the backend uses of `pycuda.driver` and of its device; events count launches, a
    millisecond each.
    """

    Context = SimpleNamespace(synchronize=lambda: None)

    def __init__(self, capability=(8, 0), sm_count=4):
        self.memory, self.launches, self.loaded = Memory(), [], []
        self.device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT=sm_count, L2_CACHE_SIZE=4096)
        self.get_attribute = lambda value: value
        self.name, self.total_memory = lambda: "Fake GPU", lambda: 1_000_000_000
        self.compute_capability = lambda: capability
        self.to_device = self.memory.put

    def Event(self):  # noqa: N802
        event = SimpleNamespace(query=lambda: False)
        event.record = lambda: setattr(event, "at", len(self.launches))
        event.time_since = lambda start: float(event.at - start.at)
        return event

    def module_from_buffer(self, cubin):
        def get_function(kernel):
            self.loaded.append((cubin, kernel))
            return partial(self._launch, kernel)

        return SimpleNamespace(get_function=get_function)

    def memcpy_dtoh(self, result, buffer):
        result[...] = self.memory.at(buffer).reshape(result.shape)

    def _launch(self, kernel, *arguments, grid, block):
        self.launches.append(kernel)
        run_kernel(self.memory, kernel, grid, block, arguments)
