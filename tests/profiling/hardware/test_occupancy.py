"""Occupancy on cases worked by hand, and against NVIDIA's own calculator on all of a grid."""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from curvescope.profiling.hardware.occupancy import (
    LIMITS,
    occupancy_of,
)

from ...tables import ask_each

# Worked by hand from the table of the programming guide. A warp has 32 threads and takes its
# registers in units of 256: 32 registers are 1024 a warp, so 65536 last for 64 warps; 33 are 1280
# (51 warps, but 12 in each of 4 partitions: 48).
CASES = [
    # architecture, threads, registers, shared -> blocks, occupancy, limiters
    (35, 64, 32, 0, 16, 0.5, ("blocks",)),  # 16 blocks of 2 warps are 32 of 64
    (35, 256, 32, 0, 8, 1.0, ("warps", "registers")),
    (35, 256, 32, 25 * 1024, 1, 0.125, ("shared memory",)),  # 48 KB hold one block
    (37, 256, 64, 0, 8, 1.0, ("warps", "registers")),  # twice the registers
    # 33 registers: on 6.0 2 partitions of 25 warps, 10 blocks of 5; on 6.1 4 of 12, 9 blocks.
    (60, 160, 33, 0, 10, 50 / 64, ("registers",)),
    (61, 160, 33, 0, 9, 45 / 64, ("registers",)),
    (70, 256, 255, 0, 1, 0.125, ("registers",)),  # 8160 a warp, rounded up to 8192: 8 warps
    # 164 KB hold 5 blocks of 31 KB + 1 KB, 4 of 32 KB + 1 KB.
    (80, 128, 32, 31 * 1024, 5, 20 / 64, ("shared memory",)),
    (80, 128, 32, 32 * 1024, 4, 16 / 64, ("shared memory",)),
    (86, 1024, 32, 0, 1, 32 / 48, ("warps",)),  # a second block of 32 warps does not fit
    (90, 128, 32, 56 * 1024, 4, 0.25, ("shared memory",)),  # 228 KB hold 4 of 56 KB + 1 KB exactly
    (90, 128, 32, 56 * 1024 + 1, 3, 12 / 64, ("shared memory",)),
    (90, 1, 16, 0, 32, 0.5, ("blocks",)),  # a block of one thread takes a whole warp
    # What cannot be launched: more shared memory than a block may have, 1024 threads with 65
    # registers (72 by units).
    (70, 128, 32, 96 * 1024 + 1, 0, 0.0, ("shared memory",)),
    (60, 1024, 65, 0, 0, 0.0, ("registers",)),
    # 9 warps of 5632 registers would fit 6.0's two partitions as 10, but they are counted as 12
    # there too.
    (60, 280, 172, 0, 0, 0.0, ("registers",)),
]


@ask_each(
    ("architecture", "threads", "registers", "shared", "blocks", "fraction", "limiters"), CASES
)
def test_occupancy_of_cases_worked_by_hand(
    architecture, threads, registers, shared, blocks, fraction, limiters
):
    found = occupancy_of(LIMITS[architecture], threads, registers, shared)
    assert (found.blocks, found.fraction, found.limiters) == (
        blocks,
        pytest.approx(fraction),
        limiters,
    )
    assert found.warps == blocks * -(-threads // 32)


# NVIDIA's calculator is given the limits of the table; what it knows itself (units, partitions, the
# check of a block) is compared on 6000 cases of each.
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
        if (
            place := Path(entry) / "nvidia" / "cuda_runtime" / "include" / "cuda_occupancy.h"
        ).is_file()
    ]
    if not headers or shutil.which("g++") is None:
        pytest.skip("needs g++ and NVIDIA's calculator: pip install nvidia-cuda-runtime-cu12")
    program = tmp_path_factory.mktemp("calculator") / "run"
    grid = [f"-D{name}={','.join(map(str, values))}" for name, values in GRID.items()]
    source = Path(__file__).with_name("calculator.cpp")
    command = ["g++", "-O1", "-w", f"-I{headers[0].parent}", *grid, source, "-o", program]
    subprocess.run(command, check=True, timeout=600)
    return program


@pytest.mark.first_rows(4)
@pytest.mark.parametrize("architecture", list(LIMITS))
def test_occupancy_is_that_of_nvidias_calculator(calculator, architecture):
    sm = LIMITS[architecture]
    given = (
        sm.warps,
        sm.registers,
        sm.shared_bytes,
        sm.shared_block_bytes,
        sm.shared_reserved_bytes,
    )
    told = subprocess.run(
        [calculator, str(architecture), *map(str, given)],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = list(map(int, told.stdout.split()))
    launches = list(product(*GRID.values()))
    found = [occupancy_of(LIMITS[architecture], *launch).blocks for launch in launches]
    differing = [each for each in zip(launches, found, expected, strict=True) if each[1] != each[2]]
    assert differing == []
