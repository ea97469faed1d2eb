"""The CUDA sources, run on the CPU as they stand, are exact on integers, and right as plans launch
them.
"""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from curvescope.kernels.catalog import KERNELS, tile_grid
from curvescope.kernels.conv import DIRECTIONS, Conv
from curvescope.kernels.cuda_plans import Buffer, convolution_launch, plan
from curvescope.kernels.gemm import TRANSPOSES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.memory import KINDS, Memory
from curvescope.kernels.mix import Mix
from curvescope.kernels.peak import PeakRounds

from ..tables import grade
from .emulation import Emulated, Guarded, compile_source

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="needs g++: apt-get install g++"
)


def integers(*shape, seed=0):
    """Small enough that every product and sum below is an exact fp32 number."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


SIZES = [(1, 1, 1), (128, 128, 8), (129, 3, 17), (5, 300, 9), (200, 140, 64)]
PRODUCTS = list(itertools.product(["nn", "nt", "tn", "tt"], SIZES))
# CI asks every size once, and every transpose of a size that fills no tile.
PRODUCTS_OF_CI = {row for row in PRODUCTS if row[0] == "nn" or row[1] == (129, 3, 17)}


@pytest.mark.parametrize(
    ("transposes", "size"), grade(PRODUCTS, quick=PRODUCTS[:2], in_ci=PRODUCTS_OF_CI), ids=str
)
def test_sgemm_is_exact_for_every_transpose(build, transposes, size):
    m, n, k = size
    a, b, c = integers(m, k, seed=1), integers(k, n, seed=2), integers(m, n, seed=3)
    operands = (
        a if transposes[0] == "n" else a.T.copy(),
        b if transposes[1] == "n" else b.T.copy(),
    )
    scalars = (np.int32(m), np.int32(n), np.int32(k), np.float32(2), np.float32(0.5))
    expected = 2 * a.astype(np.float64) @ b + 0.5 * c
    for falling in (False, True):
        result = Guarded(c)
        given = [Guarded(operand) for operand in operands]
        assert build("gemm").launch(
            f"sgemm_{transposes}", tile_grid(m, n), *given, result, *scalars, falling=falling
        )
        np.testing.assert_array_equal(result.array, expected)


def test_sgemm_with_beta_0_does_not_read_c(build):
    """As in BLAS: C may hold anything, also NaN."""
    a, b = integers(4, 6), integers(6, 5)
    result = Guarded(np.full((4, 5), np.nan, np.float32))
    scalars = (np.int32(4), np.int32(5), np.int32(6), np.float32(1), np.float32(0))
    build("gemm").launch("sgemm_nn", tile_grid(4, 5), Guarded(a), Guarded(b), result, *scalars)
    np.testing.assert_array_equal(result.array, a @ b)


CONVOLUTIONS = {
    "1x1": Conv(2, 5, 4, 3, 6, 1, 1),
    "3x3 padded": Conv(2, 3, 9, 7, 130, 3, 3, padding=(1, 1)),
    "strided, of which some pixels meet no filter": Conv(3, 4, 11, 8, 5, 3, 2, (3, 2), (1, 0)),
    "dilated": Conv(1, 2, 12, 13, 3, 3, 3, padding=(2, 3), dilation=(2, 3)),
    "strided and dilated": Conv(2, 3, 13, 12, 4, 3, 3, (2, 2), (2, 1), (2, 3)),
    "groups": Conv(2, 6, 7, 7, 9, 3, 3, padding=(1, 1), groups=3),
    "depthwise": Conv(2, 4, 6, 6, 8, 5, 5, (2, 2), (2, 2), groups=4),
    "many columns": Conv(2, 1, 15, 15, 2, 11, 11, padding=(5, 5)),
}


def reference(conv):
    """Launch, operands and result in float64 of each direction, by PyTorch."""
    x, w = integers(*conv.image_shape, seed=1), integers(*conv.weights_shape, seed=2)
    x64 = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    w64 = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    geometry = {
        "stride": conv.stride,
        "padding": conv.padding,
        "dilation": conv.dilation,
        "groups": conv.groups,
    }
    y = torch.nn.functional.conv2d(x64, w64, **geometry)
    dy = integers(*y.shape, seed=3)
    dx, dw = torch.autograd.grad(y, (x64, w64), torch.tensor(dy, dtype=torch.float64))
    cases = {
        "fwd": (x, w, y.detach().numpy()),
        "bwd_data": (dy, w, dx.numpy()),
        "bwd_weights": (x, dy, dw.numpy()),
    }
    return {
        d: (convolution_launch(replace(conv, direction=d)), *arrays) for d, arrays in cases.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("conv", list(CONVOLUTIONS.values()), ids=list(CONVOLUTIONS))
def test_convolutions_are_exact_in_all_directions(build, conv):
    cases = reference(conv)
    assert cases["fwd"][3].shape[2:] == conv.output
    for (launch, left, right, expected), falling in itertools.product(
        cases.values(), (False, True)
    ):
        result = Guarded(np.full(expected.shape, 99, np.float32))
        given = (Guarded(left), Guarded(right), result, launch.arguments[3])
        assert build("convolution").launch(launch.kernel, launch.grid, *given, falling=falling)
        np.testing.assert_array_equal(result.array, expected, err_msg=launch.kernel)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "replacement"),
    [
        ("__syncthreads();", ""),
        ("position % conv.out_w", "position % conv.out_h"),
        pytest.param(
            "i / 4 * kHalf + thread * 4",
            "i / 4 * kHalf + thread * 3",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "if (first_k > 0) multiply",
            "if (first_k > 8) multiply",
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["no barrier", "wrong width", "wrong element", "first stage left out"],
)
def test_a_planted_error_is_found(tmp_path, planted, replacement):
    compile_source(
        "convolution",
        tmp_path,
        ["convolution_forward"],
        lambda text: text.replace(planted, replacement),
    )
    broken = Emulated("convolution", tmp_path)
    launch, left, right, expected = reference(CONVOLUTIONS["3x3 padded"])["fwd"]
    found = []
    for falling in (False, True):
        result = Guarded(np.zeros(expected.shape, np.float32))
        given = (Guarded(left), Guarded(right), result, launch.arguments[3])
        broken.launch("convolution_forward", launch.grid, *given, falling=falling)
        found.append(np.array_equal(result.array, expected))
    assert not all(found)


@pytest.mark.slow
def test_memory_kernels_touch_every_element_once(build):
    memory, grid = build("memory"), (3, 1, 1)
    count4 = np.int64(3 * 256 + 37)  # the last threads have one element fewer
    a, b = integers(4 * count4, seed=1), integers(4 * count4, seed=2)
    scalar = np.float32(3)
    expected = {
        "memory_copy": ((a,), (count4,), a),
        "memory_scale": ((a,), (scalar, count4), 3 * a),
        "memory_add": ((a, b), (count4,), a + b),
        "memory_triad": ((a, b), (scalar, count4), a + 3 * b),
        "memory_write": ((), (scalar, count4), np.full_like(a, 3)),
    }
    for name, (inputs, scalars, result) in expected.items():
        out = Guarded(np.full_like(a, 99))
        for passes in (
            1,
            4,
        ):  # in each pass the blocks change places; the fourth is the first again
            assert memory.launch(name, grid, *map(Guarded, inputs), out, *scalars, np.int32(passes))
            np.testing.assert_array_equal(out.array, result, err_msg=name)


def test_reads_see_every_element_once(build):
    """One block of 256 threads: each stores the sum of its share, where that is above the least."""
    memory, ones = build("memory"), np.ones(4 * 256 * 3, np.float32)

    def sums(name, least, *scalars, passes=1):
        stored = Guarded(np.full(256, 99, np.float32))
        given = (Guarded(ones), stored, np.float32(least), *scalars, np.int32(passes))
        memory.launch(name, (1, 1, 1), *given)
        return set(stored.array)

    assert sums("memory_read", 11, np.int64(256 * 3)) == {12}
    assert sums("memory_read", 12, np.int64(256 * 3)) == {99}
    assert sums("memory_read", 11, np.int64(256 * 3), passes=3) == {36}
    ones[::3] = 2  # a stride of 3 meets only these
    assert sums("memory_read_strided", 7, np.int64(3), np.int64(256 * 4)) == {8}


@pytest.mark.slow
def test_the_chase_goes_once_around(build):
    order = np.random.default_rng(4).permutation(300)
    following = np.empty(300, np.uint32)
    following[order] = np.roll(order, -1)
    chain, cycles, end = (
        Guarded(np.zeros(300, np.uint64)),
        Guarded(np.zeros(1, np.int64)),
        Guarded(np.zeros(1, np.uint64)),
    )
    latency = build("latency")
    assert latency.launch("chase_link", (2, 1, 1), chain, Guarded(following), np.uint32(300))
    first = chain.array.ctypes.data
    np.testing.assert_array_equal(chain.array, first + 8 * following.astype(np.uint64))
    for steps in (16, 160, 304):  # the last goes around once and four on
        start = np.uint64(first + 8 * int(order[0]))
        assert latency.launch(
            "chase", (1, 1, 1), start, np.int64(steps), cycles, end, np.int32(False)
        )
        assert end.array[0] == first + 8 * int(order[steps % 300])
        assert cycles.array[0] > 0
        assert latency.launch("chase", (1, 1, 1), start, np.int64(32), cycles, end, np.int32(True))
        assert end.array[0] == first + 8 * int(order[(steps + 32) % 300])


@pytest.mark.parametrize(("kernel", "arguments"), [("empty", ()), ("spin", (np.int64(1000),))])
def test_kernels_without_a_result_end(build, kernel, arguments):
    assert build("launch").launch(kernel, (1, 1, 1), *arguments)


SOURCE_OF = {kernel.name: kernel.source for kernel in KERNELS}
FLOPS_OF = {kernel.name: kernel.flops_per_thread_round for kernel in KERNELS}
PROBLEMS = [
    *(Gemm(65, 33, 130, transpose) for transpose in TRANSPOSES),
    *(Conv(2, 4, 9, 7, 6, 3, 2, (2, 1), (1, 0), (1, 2), 2, direction) for direction in DIRECTIONS),
    *(Memory(kind, 4800) for kind in KINDS),
    Memory("read", 4800, 4),
    *(Mix(fmas, 32 * 4100) for fmas in (1, 3, 40)),
    Latency(64 * 100, loads=16 * 20),
    *(
        PeakRounds(name, 512, FLOPS_OF[name], name.removeprefix("peak_"))
        for name in ("peak_fp32", "peak_fp64")
    ),
]


@pytest.mark.first_rows(3)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_a_plan_computes_its_problem_with_the_real_source(build, problem):
    operands = problem.operands(np.random.default_rng(5))
    made = plan(problem, operands, lambda _: 2)
    buffers = [Guarded(buffer) for buffer in made.buffers]
    for launch in (*made.setup, made.checked or made.launch):
        assert (
            launch.block[0]
            <= {kernel.name: kernel.block_threads for kernel in KERNELS}[launch.kernel]
        )
        arguments = [
            buffers[each.index] if isinstance(each, Buffer) else each for each in launch.arguments
        ]
        assert build(SOURCE_OF[launch.kernel]).launch(launch.kernel, launch.grid, *arguments)
    result = made.read(
        lambda index: buffers[index].array, lambda index: buffers[index].array.ctypes.data
    )
    error = problem.error(operands, result)
    assert error.acceptable, error


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 3])
def test_a_read_that_leaves_out_its_last_elements_is_seen(tmp_path, stride):
    """Of 1,200 elements two blocks of 256 threads lack one vector, or one element."""
    problem = Memory("read", 4800, stride)
    operands = problem.operands(np.random.default_rng(5))
    operands[0][-2 * stride :] = 7  # whatever is left out is not zero
    made = plan(problem, operands, lambda _: 2)
    compile_source(
        "memory",
        tmp_path,
        [made.checked.kernel],
        lambda text: text.replace("i < count; i +=", "i < count - 1; i +="),
    )
    buffers = [Guarded(buffer) for buffer in made.buffers]
    arguments = [
        buffers[each.index] if isinstance(each, Buffer) else each for each in made.checked.arguments
    ]
    Emulated("memory", tmp_path).launch(made.checked.kernel, made.checked.grid, *arguments)
    result = made.read(lambda index: buffers[index].array, None)
    assert not problem.error(operands, result).acceptable
