"""What is read from a cubin's ELF is what ptxas said when it made it, on every architecture."""

import re

import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.kernels import compile as nvrtc
from curvescope.kernels.cubin import read_cubin

from ..tables import ask_each, grade

# Every resource that is read, in amounts that no other has: shared memory of 1008 bytes, a local
# array of 320 that is indexed at run time, a module constant of 64, launch bounds of 96 threads, 28
# bytes of parameters, and a kernel that cannot keep 128 numbers in the 64 registers that a block of
# 1024 threads leaves it.
RESOURCES = """
__constant__ float table[16];

extern "C" __global__ void nothing() {}

extern "C" __global__ __launch_bounds__(96) void much(float* a, const float* b, long long n, int m) {
  __shared__ float shared[252];
  shared[threadIdx.x] = b[threadIdx.x] * table[n & 15];
  __syncthreads();
  float local[80];
  for (int i = 0; i < 80; ++i) local[i] = shared[(threadIdx.x + i * m) & 127];
  float sum = 0;
  for (int i = 0; i < m; ++i) sum += local[(i * m) % 80] * 1.2345678f;
  a[threadIdx.x] = sum;
}

extern "C" __global__ __launch_bounds__(1024) void spills(float* a, const volatile float* b) {
  float held[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) held[i] = b[i];
#pragma unroll
  for (int i = 0; i < 128; ++i) a[i] = held[i] * held[127 - i];
}

extern "C" __global__ void dynamic(float* a) {
  extern __shared__ float given[];
  given[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = given[31 - threadIdx.x];
}
"""  # noqa: E501
# Beyond sm_90 another NVRTC is needed: pip install nvidia-cuda-nvrtc.
BEYOND = (100, 120)


def compiled(source, architecture):
    """The cubin, and what ptxas says of its kernels."""
    try:
        compiler = nvrtc._compiler_of(source, architecture)
        options = (*nvrtc._options(source, architecture), "--ptxas-options=-v")
        return compiler.compile(source, options)
    except BackendMissingError as error:
        pytest.skip(str(error))


def assert_as_ptxas_says(cubin, log):
    """Returns the kernels by name, and the bytes that each stores by spills."""
    kernels = read_cubin(cubin)
    _, *parts = re.split(r"Compiling entry function '([^']+)'", log)
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    assert {kernel.name for kernel in kernels} == set(said)
    for kernel in kernels:
        report = said[kernel.name]
        assert f"{kernel.local_bytes} bytes stack frame" in report
        assert f"Used {kernel.registers_per_thread} registers" in report
        assert re.findall(r"(\d+) bytes smem", report) == [
            str(size) for size in (kernel.shared_bytes,) if size
        ]
    return {kernel.name: kernel for kernel in kernels}, read_spills(said)


def read_spills(said):
    """Bytes per thread that each kernel spills; older compilers say nothing of some."""
    spilled = {}
    for name, report in said.items():
        if stores := re.search(r"(\d+) bytes spill stores", report):
            spilled[name] = int(stores[1])
    return spilled


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES + BEYOND)
def test_every_figure_is_what_ptxas_says(architecture):
    kernels, stored = assert_as_ptxas_says(
        *compiled(nvrtc.CudaSource("resources", RESOURCES), architecture)
    )
    much = kernels["much"]
    assert (much.shared_bytes, much.local_bytes, much.max_threads, much.parameter_bytes) == (
        1008,
        320,
        96,
        28,
    )
    assert kernels["nothing"].max_threads is None
    assert (kernels["nothing"].shared_bytes, kernels["nothing"].local_bytes) == (0, 0)
    assert kernels["dynamic"].shared_bytes == 0  # what a launch adds is not in the file
    # A stack frame may be shared by what is never alive at once, so the stores can be more than it.
    assert stored["spills"] >= kernels["spills"].local_bytes > 0
    assert stored["much"] == 0


@pytest.mark.slow
@ask_each(("name", "architecture"), [("gemm", 35), ("convolution", 90)])
def test_our_tile_products_are_read_as_ptxas_says(name, architecture):
    (source,) = (source for source in nvrtc.own_sources() if source.name == name)
    kernels, _ = assert_as_ptxas_says(*compiled(source, architecture))
    assert_as_designed(kernels, architecture)


def assert_as_designed(kernels, architecture):
    # Two operands, two stages, 8 deep, 128 + 4 lines, 4 bytes; two blocks of 256 threads leave 128
    # registers, on an SM of sm_37, which has twice as many, 255.
    assert {kernel.shared_bytes for kernel in kernels.values()} == {2 * 2 * 8 * 132 * 4}
    assert all(
        kernel.registers_per_thread <= (255 if architecture == 37 else 128)
        for kernel in kernels.values()
    )


# Between 35 and 90, which the test above asks; CI compiles for one of them.
@pytest.mark.slow
@pytest.mark.parametrize("architecture", grade([37, 61, 86], quick=(), in_ci=(86,)))
def test_all_our_kernels_are_read_as_ptxas_says(architecture):
    for source in nvrtc.own_sources():
        kernels, stored = assert_as_ptxas_says(*compiled(source, architecture))
        if source.name in ("gemm", "convolution"):
            assert_as_designed(kernels, architecture)
        # A tile product holds 64 sums in 128 registers: it may lose a few around the loop, but none
        # of the sums.
        assert max(stored.values()) <= 32


def test_what_is_not_a_cubin_is_refused():
    for data in (b"", b"hello", b"\x7fELF\x02" + bytes(100)):
        with pytest.raises(CurvescopeError, match="cubin"):
            read_cubin(data)


def test_half_a_cubin_is_refused():
    """Cut anywhere, it is an error of ours, never another one and never half the kernels."""
    whole, _ = compiled(nvrtc.CudaSource("resources", RESOURCES), 60)
    for end in range(0, len(whole) - 1, 97):
        with pytest.raises(CurvescopeError, match="cubin"):
            read_cubin(whole[:end])
