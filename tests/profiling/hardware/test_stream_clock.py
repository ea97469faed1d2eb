"""The SM clock of a step, counted by kernels around it, on a card that NVML would ask only when it
is idle.
"""

import ctypes
import subprocess
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.profiling.hardware import cuda_driver, stream_clock
from curvescope.profiling.hardware.cuda_driver import CudaDriver
from curvescope.profiling.hardware.stream_clock import StreamClock
from curvescope.profiling.measure.visit import time_steps

from ...tables import ask_each


class Card:
    """A GPU whose SMs run at 1,980 MHz while idle and at 1,200 in a step, under a power cap; its
    driver and steps.

    Each SM began to count at another time, and the last SM has no block of the second launch.
    """

    device = "cpu"  # whose memory and energy may be asked for

    def __init__(self, step_ns):
        self.now_ns, self.cycles, self.step_ns, self.launches = 1_000_000_000, 5_000_000, step_ns, 0

    def spend(self, ns, hz):
        self.now_ns += ns
        self.cycles += ns * hz // 10**9

    def time_step(self):
        began_ns = self.now_ns
        self.spend(self.step_ns, 1_200_000_000)
        return began_ns, self.step_ns

    def current_context(self):
        return 1

    def describe(self, index):
        return {"sm_count": 132}

    def load(self, ptx, kernel, index):
        assert f".visible .entry {kernel}(" in ptx

    def host_memory(self, size):
        self.memory = (ctypes.c_uint64 * (size // 8))()
        return ctypes.addressof(self.memory), (ctypes.c_char * size).from_buffer(self.memory)

    def launch(self, kernel, blocks, stream, address):
        assert stream == 7
        place = (address - ctypes.addressof(self.memory)) // 8
        for sm in range(blocks - self.launches % 2):
            self.memory[place + 2 * sm : place + 2 * sm + 2] = [
                self.cycles + 1000 * sm,
                self.now_ns,
            ]
        self.launches += 1

    def synchronize(self):
        self.spend(1_000, 1_980_000_000)


@ask_each(("step_ms", "clock_hz"), [(20, 1_200_000_000), (0.5, 1_200_000_000), (0.1, None)])
def test_a_step_under_a_power_cap_has_the_clock_that_it_had_itself(step_ms, clock_hz):
    """Between steps the host reads counters for a millisecond, and the clock is back."""
    card = Card(round(step_ms * 1e6))
    clock = StreamClock("cuda:0", lambda: 7, card)
    between = lambda: card.spend(1_000_000, 1_980_000_000)  # noqa: E731
    rows = time_steps(card, 3, between, exactly=True, clock=clock)
    assert [row["sm_clock_hz"] for row in rows] == [clock_hz] * 3
    assert [row["duration_ns"] for row in rows] == [card.step_ns] * 3  # the readings are outside


def test_a_driver_that_refuses_a_reading_costs_the_clock_and_not_the_step():
    card = Card(20_000_000)
    clock = StreamClock("cuda:0", lambda: 7, card)

    def refused(*_):
        raise BackendMissingError(
            "cuLaunchKernel answered CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)."
        )

    card.launch = refused
    assert [row["sm_clock_hz"] for row in time_steps(card, 2, exactly=True, clock=clock)] == [
        None,
        None,
    ]


@pytest.mark.parametrize("architecture", [50, 70, 80, 90, 100, 120])
def test_the_kernel_assembles_and_reads_both_counters_before_it_writes(architecture, tmp_path):
    ptxas = _of_package()
    if ptxas is None:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc-cu12")
    head = cuda_driver._PTX_HEAD.format(version="6.3", target="sm_50")
    source, cubin = tmp_path / "clock.ptx", tmp_path / "clock.cubin"
    source.write_text(head + stream_clock._PTX)
    subprocess.run([ptxas, f"-arch=sm_{architecture}", source, "-o", cubin], check=True)
    assert cubin.stat().st_size


def _of_package():
    try:
        import nvidia
    except ImportError:
        return None
    return next(
        (tool for folder in nvidia.__path__ for tool in Path(folder).glob("*/bin/ptxas")), None
    )


def test_a_machine_without_driver_has_no_clock():
    try:
        CudaDriver()
    except BackendMissingError:
        assert stream_clock.stream_clock("cuda:0") is None
    assert stream_clock.stream_clock("cpu") is None
