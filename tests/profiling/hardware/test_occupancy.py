"""Occupancy on cases worked by hand, and against NVIDIA's own calculator on all of a grid."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.hardware.occupancy import LIMITS, block_sizes_with_more, occupancy, registers_for_more

# Worked by hand from the table of the programming guide. A warp has 32 threads and takes its registers in units of 256:
# 32 registers are 1024 a warp, so 65536 last for 64 warps; 33 are 1280 (51 warps, but 12 in each of 4 partitions: 48).
CASES = [
    # architecture, threads, registers, shared -> blocks, occupancy, limiters
    # 3.5: 16 blocks of 2 warps are 32 of 64 warps.
    (35, 64, 32, 0, 16, 0.5, ("blocks",)),
    (35, 256, 32, 0, 8, 1.0, ("warps", "registers")),
    # 3.5: 48 KB hold one block of 25 KB.
    (35, 256, 32, 25 * 1024, 1, 0.125, ("shared memory",)),
    # 3.7 has twice the registers: 64 x 32 = 2048 a warp, 131072 last for 64 warps.
    (37, 256, 64, 0, 8, 1.0, ("warps", "registers")),
    (35, 256, 64, 0, 4, 0.5, ("registers",)),
    # 3.7: 112 KB hold 4 blocks of 25 KB.
    (37, 256, 32, 25 * 1024, 4, 0.5, ("shared memory",)),
    # 5.0: 32 blocks of 2 warps fill it; 64 KB hold 2 blocks of 25 KB, the 96 KB of 5.2 hold 3.
    (50, 64, 32, 0, 32, 1.0, ("warps", "blocks", "registers")),
    (50, 256, 32, 25 * 1024, 2, 0.25, ("shared memory",)),
    (52, 256, 32, 25 * 1024, 3, 0.375, ("shared memory",)),
    # 33 registers: 48 warps in 4 partitions of 12, 6 blocks of 8; on 6.0 in 2 partitions of 25, 50 warps: 6 blocks too,
    # but of 5 warps each 10 blocks instead of 9.
    (61, 256, 33, 0, 6, 0.75, ("registers",)),
    (60, 256, 33, 0, 6, 0.75, ("registers",)),
    (61, 160, 33, 0, 9, 45 / 64, ("registers",)),
    (60, 160, 33, 0, 10, 50 / 64, ("registers",)),
    # 7.0: 255 registers are 8160, rounded up to 8192: 8 warps. Our SGEMM: 128 registers, 16 warps, 2 blocks of 256.
    (70, 256, 255, 0, 1, 0.125, ("registers",)),
    (70, 256, 128, 16896, 2, 0.25, ("registers",)),
    (70, 1024, 32, 96 * 1024, 1, 0.5, ("shared memory",)),
    # 7.5 holds 32 warps: 4 blocks of 8, and at 64 registers nothing is lost.
    (75, 256, 64, 0, 4, 1.0, ("warps", "registers")),
    (75, 32, 16, 0, 16, 0.5, ("blocks",)),
    # 8.0: 164 KB hold 5 blocks of 31 KB + 1 KB; without the reserved one it would be 5 as well, but of 32 KB only 4.
    (80, 128, 32, 31 * 1024, 5, 20 / 64, ("shared memory",)),
    (80, 128, 32, 32 * 1024, 4, 16 / 64, ("shared memory",)),
    (80, 1024, 64, 163 * 1024, 1, 0.5, ("registers", "shared memory")),
    # 8.6 holds 48 warps: 1024 threads are 32, a second block does not fit; 768 are 24, two do.
    (86, 1024, 32, 0, 1, 32 / 48, ("warps",)),
    (86, 768, 32, 0, 2, 1.0, ("warps", "registers")),
    (86, 64, 32, 0, 16, 32 / 48, ("blocks",)),
    # 8.9 differs from 8.6 in its 24 blocks.
    (89, 64, 32, 0, 24, 1.0, ("warps", "blocks")),
    # 9.0: 228 KB hold 4 blocks of 56 KB + 1 KB exactly.
    (90, 128, 32, 56 * 1024, 4, 0.25, ("shared memory",)),
    (90, 128, 32, 56 * 1024 + 1, 3, 12 / 64, ("shared memory",)),
    # 10.0 is like 9.0; 12.0 like 8.9: 48 warps in 24 blocks, 100 KB, of which a block may have 99.
    (100, 128, 32, 56 * 1024, 4, 0.25, ("shared memory",)),
    (120, 64, 32, 0, 24, 1.0, ("warps", "blocks")),
    (120, 128, 32, 48 * 1024, 2, 8 / 48, ("shared memory",)),
    # A block of one thread takes a whole warp.
    (90, 1, 16, 0, 32, 0.5, ("blocks",)),
    # What cannot be launched: more shared memory than a block may have, 1024 threads with 65 registers (72 by units).
    (70, 128, 32, 96 * 1024 + 1, 0, 0.0, ("shared memory",)),
    (60, 1024, 65, 0, 0, 0.0, ("registers",)),
    # 172 registers are 5632 a warp. 9 warps would fit 6.0's two partitions as 10 (56320 of 65536), but they are counted
    # as 12 (67584) there too, for the rest of the family has four.
    (60, 280, 172, 0, 0, 0.0, ("registers",)),
]


@pytest.mark.parametrize(("architecture", "threads", "registers", "shared", "blocks", "fraction", "limiters"), CASES)
def test_occupancy_of_cases_worked_by_hand(architecture, threads, registers, shared, blocks, fraction, limiters):
    found = occupancy(architecture, threads, registers, shared)
    assert (found.blocks, found.fraction, found.limiters) == (blocks, pytest.approx(fraction), limiters)
    assert found.warps == blocks * -(-threads // 32)


def test_every_architecture_has_a_case():
    assert {case[0] for case in CASES} == set(LIMITS)


def test_block_sizes_that_would_lift_the_limit():
    # 8.6, 32 registers: 64 warps by registers, 48 resident. 1024 threads leave 16 warps empty; what divides 48, and
    # what comes nearer to it than 32, is more.
    more = block_sizes_with_more(86, 1024, 32)
    assert [size for size, fraction in more.items() if fraction == 1] == [96, 128, 192, 256, 384, 512, 768]
    assert all(2 / 3 < fraction <= 1 for fraction in more.values())
    assert 1024 not in more
    # 16 blocks hold back 64 threads on 3.5: from 96 on there is more.
    assert min(block_sizes_with_more(35, 64, 32)) == 96
    # Full is full, and launch bounds are kept.
    assert block_sizes_with_more(70, 256, 32) == {}
    assert max(block_sizes_with_more(35, 64, 32, most_threads=128)) == 128
    # At 128 registers 16 warps fit whatever the block: no size helps, fewer registers do: 2 blocks of 8 become 3.
    assert block_sizes_with_more(70, 256, 128) == {}
    assert registers_for_more(70, 256, 128) == 80
    assert registers_for_more(70, 256, 32) is None
    assert registers_for_more(35, 64, 16) is None  # blocks are the limit


def test_what_is_not_known_is_refused():
    with pytest.raises(CurvescopeError, match=r"sm_20 is unknown; known are sm_35, .*sm_120"):
        occupancy(20, 256, 32)
    for threads in (0, 1025):
        with pytest.raises(CurvescopeError, match="1 to 1024 threads"):
            occupancy(80, threads, 32)


# NVIDIA's calculator is a header of the CUDA runtime's wheel. It is given the limits of the table and answers with
# blocks per SM; what it knows itself (units, partitions, the check of a block) is compared on 6000 cases of each.
CALCULATOR = """
#include <cuda_occupancy.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** values) {
  std::vector<int> number;
  for (int i = 1; i < count; ++i) number.push_back(std::atoi(values[i]));
  cudaOccDeviceProp sm;
  sm.computeMajor = number[0] / 10;
  sm.computeMinor = number[0] % 10;
  sm.maxThreadsPerBlock = 1024;
  sm.maxThreadsPerMultiprocessor = number[1] * 32;
  sm.regsPerBlock = 65536;
  sm.regsPerMultiprocessor = number[2];
  sm.warpSize = 32;
  sm.sharedMemPerBlock = 49152;
  sm.sharedMemPerMultiprocessor = number[3];
  sm.sharedMemPerBlockOptin = number[4];
  sm.reservedSharedMemPerBlock = number[5];
  sm.numSms = 1;
  cudaOccDeviceState state;
  state.cacheConfig = CACHE_PREFER_SHARED;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  for (int threads : THREADS) {
    for (int registers : REGISTERS) {
      for (int shared : SHARED) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &sm, &kernel, &state, threads, shared)) return 1;
        std::printf("%d ", result.activeBlocksPerMultiprocessor);
      }
    }
  }
}
"""
GRID = {
    "THREADS": [1, 33, *range(32, 1025, 31)],
    "REGISTERS": [1, 8, 9, *range(16, 256, 13), 255],
    "SHARED": [0, 1, 129, 1024, 8 * 1024 + 100, 16 * 1024, 24 * 1024, 48 * 1024, 99 * 1024],
}


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    headers = [
        place
        for entry in sys.path
        if (place := Path(entry) / "nvidia" / "cuda_runtime" / "include" / "cuda_occupancy.h").is_file()
    ]
    if not headers or shutil.which("g++") is None:
        pytest.skip("needs g++ and NVIDIA's calculator: pip install nvidia-cuda-runtime-cu12")
    folder = tmp_path_factory.mktemp("calculator")
    text = CALCULATOR
    for name, values in GRID.items():
        text = text.replace(f": {name}", ": {" + ", ".join(map(str, values)) + "}")
    (folder / "calculator.cpp").write_text(text)
    command = ["g++", "-O1", "-w", f"-I{headers[0].parent}", str(folder / "calculator.cpp"), "-o", str(folder / "run")]
    subprocess.run(command, check=True, timeout=600)
    return folder / "run"


@pytest.mark.parametrize("architecture", list(LIMITS))
def test_occupancy_is_that_of_nvidias_calculator(calculator, architecture):
    limits = LIMITS[architecture]
    given = (
        limits.warps,
        limits.registers,
        limits.shared_bytes,
        limits.shared_block_bytes,
        limits.shared_reserved_bytes,
    )
    told = subprocess.run([calculator, str(architecture), *map(str, given)], capture_output=True, text=True, check=True)
    expected = iter(json.loads("[" + ",".join(told.stdout.split()) + "]"))
    differing = []
    for threads in GRID["THREADS"]:
        for registers in GRID["REGISTERS"]:
            for shared in GRID["SHARED"]:
                blocks = next(expected)
                if occupancy(architecture, threads, registers, shared).blocks != blocks:
                    differing.append((threads, registers, shared, blocks))
    assert differing == []
    assert next(expected, None) is None
