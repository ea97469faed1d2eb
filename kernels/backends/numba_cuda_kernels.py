"""The memory kernels and a tiled SGEMM in numba for CUDA, to compare its code with kernels/cuda.

Blocks of the memory kernels advance by the whole grid, so any grid covers any size.
"""

from __future__ import annotations

import numba
from numba import cuda

from ..memory import SCALAR

_SCALAR = numba.float32(SCALAR)
TILE = 16
SUM_THREADS = 128


@cuda.jit(device=True)
def first(pass_):
    """First element of a thread in a pass; each pass gives a block what another SM read before, see
    cuda/memory.cu.
    """
    return (cuda.blockIdx.x + pass_) % cuda.gridDim.x * cuda.blockDim.x + cuda.threadIdx.x


@cuda.jit
def copy(b, a, passes):
    """A = b."""
    for pass_ in range(passes):
        for i in range(first(pass_), a.size, cuda.gridsize(1)):
            a[i] = b[i]


@cuda.jit
def scale(b, a, passes):
    """A = s b."""
    for pass_ in range(passes):
        for i in range(first(pass_), a.size, cuda.gridsize(1)):
            a[i] = _SCALAR * b[i]


@cuda.jit
def add(b, c, a, passes):
    """A = b + c."""
    for pass_ in range(passes):
        for i in range(first(pass_), a.size, cuda.gridsize(1)):
            a[i] = b[i] + c[i]


@cuda.jit
def triad(b, c, a, passes):
    """A = b + s c."""
    for pass_ in range(passes):
        for i in range(first(pass_), a.size, cuda.gridsize(1)):
            a[i] = b[i] + _SCALAR * c[i]


@cuda.jit
def write(a, passes):
    """A = s."""
    for pass_ in range(passes):
        for i in range(first(pass_), a.size, cuda.gridsize(1)):
            a[i] = _SCALAR


@cuda.jit
def read(b, sums, passes):
    """Write each block's sum over all passes to its own element of `sums`, by halving; needs
    SUM_THREADS threads.
    """
    shared = cuda.shared.array(SUM_THREADS, numba.float32)
    own = numba.float32(0)
    for pass_ in range(passes):
        for i in range(first(pass_), b.size, cuda.gridsize(1)):
            own += b[i]
    thread = cuda.threadIdx.x
    shared[thread] = own
    half = SUM_THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            shared[thread] += shared[thread + half]
        half //= 2
    if thread == 0:
        sums[cuda.blockIdx.x] = shared[0]


@cuda.jit
def sgemm(left, right, out):
    """Out (rows, columns) = left (rows, depth) · right (depth, columns): one thread for each
    result, tile by tile.

    Tiles of both operands are loaded into shared memory once and read from there TILE times.
    """
    left_tile = cuda.shared.array((TILE, TILE), numba.float32)
    right_tile = cuda.shared.array((TILE, TILE), numba.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row = cuda.blockIdx.y * TILE + y
    column = cuda.blockIdx.x * TILE + x
    total = numba.float32(0)
    for first in range(0, left.shape[1], TILE):
        left_tile[y, x] = numba.float32(0)
        right_tile[y, x] = numba.float32(0)
        if row < left.shape[0] and first + x < left.shape[1]:
            left_tile[y, x] = left[row, first + x]
        if first + y < right.shape[0] and column < right.shape[1]:
            right_tile[y, x] = right[first + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left_tile[y, k] * right_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total
