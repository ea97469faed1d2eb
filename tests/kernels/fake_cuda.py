"""A CUDA device that is numpy: what the entries of kernels/cuda say they do, written down from their comments."""

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
    """One launch; arguments are addresses and scalars in the order of the source."""
    if name.startswith("sgemm_"):
        a, b, c, m, n, k, alpha, beta = arguments
        left, right = memory.at(a), memory.at(b)  # row-major: op(A) is m x k, op(B) is k x n
        left = left.reshape(m, k) if name[6] == "n" else left.reshape(k, m).T
        right = right.reshape(k, n) if name[7] == "n" else right.reshape(n, k).T
        assert grid == (-(-int(n) // 128), -(-int(m) // 128), 1)
        out = memory.at(c).reshape(m, n)
        out[:] = alpha * (left @ right) + (beta * out if beta else 0)
    elif name.startswith("convolution_"):
        convolve(memory, name, arguments)
    elif name == "memory_copy":
        a, c, count4, _ = arguments
        memory.at(c)[: 4 * count4] = memory.at(a)[: 4 * count4]
    elif name == "memory_scale":
        c, b, scalar, count4, _ = arguments
        memory.at(b)[: 4 * count4] = scalar * memory.at(c)[: 4 * count4]
    elif name == "memory_add":
        a, b, c, count4, _ = arguments
        memory.at(c)[: 4 * count4] = (memory.at(a) + memory.at(b))[: 4 * count4]
    elif name == "memory_triad":
        b, c, a, scalar, count4, _ = arguments
        memory.at(a)[: 4 * count4] = (memory.at(b) + scalar * memory.at(c))[: 4 * count4]
    elif name == "memory_write":
        a, value, count4, _ = arguments
        memory.at(a)[: 4 * count4] = value
    elif name == "chase_link":
        chain, following, count = arguments
        memory.at(chain)[:count] = np.uint64(chain) + 8 * memory.at(following)[:count].astype(np.uint64)
    elif name == "chase":
        start, steps, cycles, end, goes_on = arguments
        at = int(memory.at(end)[0]) if goes_on else int(start)
        for _ in range(steps):
            at = int(memory.at(start)[(at - int(start)) // 8])
            memory.visited.append(at)
        memory.at(end)[0] = at
        memory.at(cycles)[0] = 400 * steps
    elif name == "peak_fp32":
        sums, a, b, rounds = arguments
        memory.at(sums)[: grid[0] * block[0]] = 128 * rounds * a * b
    elif name not in ("memory_read", "memory_read_strided", "empty", "spin"):
        raise AssertionError(f"no such entry: {name}")


def convolve(memory, name, arguments):
    import torch

    first, second, out, structure = arguments
    fields = np.frombuffer(bytes(structure), np.int32)
    n, c, h, w, k, r, s, p, q, sh, sw, ph, pw, dh, dw, groups = map(int, fields)
    geometry = {"stride": (sh, sw), "padding": (ph, pw), "dilation": (dh, dw), "groups": groups}
    image, weights, result = (n, c, h, w), (k, c // groups, r, s), (n, k, p, q)
    shapes = {
        "convolution_forward": (image, weights),
        "convolution_backward_data": (result, weights),
        "convolution_backward_weights": (image, result),
    }[name]
    a, b = (torch.from_numpy(memory.at(x).reshape(y)) for x, y in zip((first, second), shapes, strict=True))
    if name == "convolution_forward":
        computed = torch.nn.functional.conv2d(a, b, **geometry)
    elif name == "convolution_backward_data":
        computed = torch.nn.grad.conv2d_input(image, b, a, **geometry)
    else:
        computed = torch.nn.grad.conv2d_weight(a, weights, b, **geometry)
    memory.at(out).reshape(-1)[:] = computed.numpy().reshape(-1)


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
