"""The memory, mix, latency and peak kernels for the CPU, compiled by numba at their first call.

The functions for one thread are separate because LLVM vectorises them fully. Inside the parallel
loop they reached a quarter of the L1 bandwidth. They repeat passes, so that with small caches not
the start of the threads is timed.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange

from ..memory import SCALAR


@njit(cache=True)
def _copy(passes, b, a):
    for _ in range(passes):
        for i in range(a.size):
            a[i] = b[i]


@njit(cache=True)
def _scale(passes, b, a):
    s = a.dtype.type(SCALAR)
    for _ in range(passes):
        for i in range(a.size):
            a[i] = s * b[i]


@njit(cache=True)
def _add(passes, b, c, a):
    for _ in range(passes):
        for i in range(a.size):
            a[i] = b[i] + c[i]


@njit(cache=True)
def _triad(passes, b, c, a):
    s = a.dtype.type(SCALAR)
    for _ in range(passes):
        for i in range(a.size):
            a[i] = b[i] + s * c[i]


# A sum in any order; without permission to reorder it would be one chain of additions, limited by
# their latency.
@njit(cache=True, fastmath={"reassoc", "nsz"})
def _read(passes, b, a):
    for _ in range(passes):
        total = b.dtype.type(0)
        for i in range(b.size):
            total += b[i]
        a[0] = total


@njit(cache=True)
def _write(passes, a):
    s = a.dtype.type(SCALAR)
    for _ in range(passes):
        for i in range(a.size):
            a[i] = s


def _share(part, arrays):
    """The wrapper that gives each thread its slice of one, two or three arrays."""
    if arrays == 1:

        @njit(parallel=True)
        def run(passes, a):
            threads = numba.get_num_threads()
            for t in prange(threads):
                low, high = t * a.size // threads, (t + 1) * a.size // threads
                part(passes, a[low:high])
    elif arrays == 2:

        @njit(parallel=True)
        def run(passes, b, a):
            threads = numba.get_num_threads()
            for t in prange(threads):
                low, high = t * a.size // threads, (t + 1) * a.size // threads
                part(passes, b[low:high], a[low:high])
    else:

        @njit(parallel=True)
        def run(passes, b, c, a):
            threads = numba.get_num_threads()
            for t in prange(threads):
                low, high = t * a.size // threads, (t + 1) * a.size // threads
                part(passes, b[low:high], c[low:high], a[low:high])

    return run


@njit(parallel=True)
def read(passes, b, sums):
    """Write each thread's sum to its own element of `sums`; the elements lie a cache line apart."""
    threads = numba.get_num_threads()
    apart = sums.size // threads
    for t in prange(threads):
        _read(
            passes,
            b[t * b.size // threads : (t + 1) * b.size // threads],
            sums[t * apart : (t + 1) * apart],
        )


KERNELS = {
    "copy": _share(_copy, 2),
    "scale": _share(_scale, 2),
    "add": _share(_add, 3),
    "triad": _share(_triad, 3),
    "read": read,
    "write": _share(_write, 1),
}


@njit(cache=True)
def chase(loads, buffer, last):
    """Follow the chain from where the last call ended; each load depends on the previous one."""
    index = last[0]
    for _ in range(loads):
        index = buffer[index]
    last[0] = index


def create_fused_multiply_adds(width):
    """Create the kernel that runs `width` chains in every thread: a constant, so that LLVM keeps
    them in registers.

    Contraction of x · a + b to one instruction is allowed because it is what the benchmark
    measures.
    """

    @njit(parallel=True, fastmath={"contract"})
    def run(steps, a, b, start, end):
        for t in prange(start.shape[0]):
            x = np.empty(width, start.dtype)
            for i in range(width):
                x[i] = start[t, i]
            for _ in range(steps):
                for i in range(width):
                    x[i] = x[i] * a + b
            for i in range(width):
                end[t, i] = x[i]

    return run


def create_mix(width):
    """Create the kernel that takes `width` elements to registers, multiplies and adds, and writes
    them.
    """

    @njit(fastmath={"contract"})
    def part(fmas, a, b, x, y):
        inside = np.empty(width, x.dtype)
        whole = x.size // width * width
        for first in range(0, whole, width):
            for i in range(width):
                inside[i] = x[first + i]
            for _ in range(fmas):
                for i in range(width):
                    inside[i] = inside[i] * a + b
            for i in range(width):
                y[first + i] = inside[i]
        for i in range(whole, x.size):
            value = x[i]
            for _ in range(fmas):
                value = value * a + b
            y[i] = value

    @njit(parallel=True)
    def run(fmas, a, b, x, y):
        threads = numba.get_num_threads()
        for t in prange(threads):
            low, high = t * x.size // threads, (t + 1) * x.size // threads
            part(fmas, a, b, x[low:high], y[low:high])

    return run


@njit(cache=True)
def add_one(number):
    """The smallest possible call."""
    number[0] += 1
