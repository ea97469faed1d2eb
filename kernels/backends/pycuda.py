"""PyCUDA backend: our own CUDA kernels launched as PyCUDA functions and timed by its events, in the
null stream.
"""

from __future__ import annotations

import atexit
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import BackendMissingError
from ..problem import Array
from ..timers import EventApi, Run
from . import import_library
from .cubins import CubinBackend
from .cuda_device import DeviceFacts, device_index


def open_backend(device: str | None) -> CubinBackend:
    """See `backends.open_backend`."""
    index = device_index(device, "pycuda")
    driver = import_library(
        "pycuda.driver",
        "This needs PyCUDA: `pip install 'curvescope[pycuda]'`. It is built against the CUDA "
        "toolkit: nvcc must be on PATH.",
    )
    try:
        driver.init()
        opened = driver.Device(index)
    except driver.Error as error:
        raise BackendMissingError(
            f"PyCUDA finds no CUDA device {index} ({error}): `curvescope doctor`."
        ) from error
    # The device's primary context, which torch and cupy use too.
    context = opened.retain_primary_context()
    context.push()
    atexit.register(context.pop)
    return CubinBackend("pycuda", PycudaDriver(driver, opened), index)


class PycudaDriver:
    """See `cubins.Driver`."""

    def __init__(self, driver: Any, device: Any) -> None:
        self._driver = driver
        attributes = driver.device_attribute
        self.facts = DeviceFacts(
            device.name(),
            device.compute_capability(),
            device.get_attribute(attributes.MULTIPROCESSOR_COUNT),
            device.total_memory(),
            device.get_attribute(attributes.L2_CACHE_SIZE),
        )
        self.events = EventApi(
            driver.Event,
            driver.Context.synchronize,
            elapsed_ms=lambda start, end: end.time_since(start),
        )
        self._modules: list[Any] = []  # keeps modules alive, which functions do not

    def load(self, cubin: bytes, kernel: str) -> Any:
        self._modules.append(self._driver.module_from_buffer(cubin))
        return self._modules[-1].get_function(kernel)

    def upload(self, array: Array) -> Any:
        return self._driver.to_device(np.ascontiguousarray(array))

    def download(self, buffer: Any, like: Array) -> Array:
        result = np.empty_like(like)
        self._driver.memcpy_dtoh(result, buffer)
        return result

    def address(self, buffer: Any) -> int:
        return int(buffer)

    def launcher(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: tuple[Any, ...],
    ) -> Run:
        return partial(function, *arguments, grid=grid, block=block)
