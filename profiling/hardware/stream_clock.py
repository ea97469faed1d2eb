"""The SM clock while a GPU works: kernels before and after a step read the SMs' cycle counters and
the global timer.

NVML gives the clock of the moment, between steps of an idle card, which a power limit does not
lower. Cycles over time is the mean of what the step itself had. The kernels run outside the step's
time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from ...base.errors import BackendMissingError
from .cuda_driver import CudaDriver

_MOST_SMS = 256  # an SM's number is below it on every device so far; GB202 has 192
# The global timer advances by up to 1 µs at once on some devices: over such a time the clock is
# right within 0.5 %.
_LEAST_NS = 200_000
# One thread per SM writes the number of cycles and the time, both together, to the place of its SM.
_PTX = f"""
.visible .entry curvescope_clocks(.param .u64 places)
{{
  .reg .pred %beyond;
  .reg .b32 %sm;
  .reg .b64 %place, %offset, %cycles, %time;
  mov.u32 %sm, %smid;
  setp.ge.u32 %beyond, %sm, {_MOST_SMS};
  @%beyond ret;
  ld.param.u64 %place, [places];
  mul.wide.u32 %offset, %sm, 16;
  add.u64 %place, %place, %offset;
  mov.u64 %cycles, %clock64;
  mov.u64 %time, %globaltimer;
  st.v2.u64 [%place], {{%cycles, %time}};
  ret;
}}
"""


class StreamClock:
    """Measures the mean SM clock of work in a stream of `cuda:N`, in the context that this thread
    has.
    """

    def __init__(self, device: str, stream: Callable[[], int], driver: Any = None) -> None:
        self._stream, self._driver = stream, driver or CudaDriver()
        index = int(device.partition(":")[2] or 0)
        self._driver.current_context()
        facts = self._driver.describe(index)
        self._blocks = facts["sm_count"]
        self._kernel = self._driver.load(_PTX, "curvescope_clocks", index)
        self._address: int
        self._address, memory = self._driver.host_memory(2 * _MOST_SMS * 16)
        self._readings = np.frombuffer(memory, np.uint64).reshape(2, _MOST_SMS, 2)

    def begin(self) -> None:
        """Read the counters before the work; waits for nothing."""
        self._readings.fill(0)
        self._read(0)

    def end(self) -> int | None:
        """Read them after it, wait for that, and return the mean clock in between, Hz, median of
        the SMs.

        None if it was too short to tell, or the driver refused a reading, which no step depends on.
        """
        self._read(1)
        (cycles, times_ns), (last_cycles, last_ns) = np.moveaxis(
            self._readings.astype(np.int64), 2, 1
        )
        took_ns = last_ns - times_ns
        usable = (times_ns > 0) & (took_ns >= _LEAST_NS)
        if not usable.any():
            return None
        return round(float(np.median((last_cycles - cycles)[usable] / took_ns[usable])) * 1e9)

    def _read(self, which: int) -> None:
        with suppress(BackendMissingError):
            self._driver.launch(
                self._kernel, self._blocks, self._stream(), self._address + which * _MOST_SMS * 16
            )
            if which:
                self._driver.synchronize()


def stream_clock(device: str, *, in_torch: bool = True) -> StreamClock | None:
    """The clock of a device that this process works on, in torch's current stream or in the default
    stream.

    None for a CPU, where the driver does not allow it, and before the device is used.
    """
    if device == "cpu":
        return None
    try:
        return _open_clock(device, in_torch)
    except BackendMissingError:
        return None


@cache  # which keeps no failure
def _open_clock(device: str, in_torch: bool) -> StreamClock:
    def stream() -> int:
        if not in_torch:
            return 0
        import torch

        return int(torch.cuda.current_stream(device).cuda_stream)

    return StreamClock(device, stream)
