"""CuPy backend: our own CUDA kernels launched by CuPy's driver module and timed by its events, in
the null stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import BackendMissingError
from ..problem import Array
from ..timers import EventApi, Run
from . import import_library
from .cubins import CubinBackend
from .cuda_device import DeviceFacts, device_index, device_name

_NULL_STREAM = 0


def open_backend(device: str | None) -> CubinBackend:
    """See `backends.open_backend`."""
    index = device_index(device, "cupy")
    cupy = import_library(
        "cupy",
        "This needs CuPy: `pip install 'curvescope[cuda12]'`, or `'curvescope[cuda13]'` for CUDA "
        "13 and `'curvescope[cuda11]'` for older drivers; Kepler needs `cupy-cuda11x==12.3`.",
    )
    try:
        cupy.cuda.Device(index).use()
        # creates the context, which before CUDA 12 the choice of a device does not
        cupy.cuda.runtime.free(0)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendMissingError(
            f"CuPy finds no CUDA device {index} ({error}): `curvescope doctor`."
        ) from error
    return CubinBackend("cupy", CupyDriver(cupy, index), index)


class CupyDriver:
    """See `cubins.Driver`."""

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy, self._driver = cupy, cupy.cuda.driver
        facts = cupy.cuda.runtime.getDeviceProperties(index)
        capability = (facts["major"], facts["minor"])
        sizes = (facts[name] for name in ("multiProcessorCount", "totalGlobalMem", "l2CacheSize"))
        self.facts = DeviceFacts(device_name(facts["name"]), capability, *sizes)
        cuda = cupy.cuda
        self.events = EventApi(
            cuda.Event,
            cuda.Device(index).synchronize,
            record=lambda event: event.record(cuda.Stream.null),
            elapsed_ms=cuda.get_elapsed_time,
            done=lambda event: event.done,
        )
        self._modules: list[int] = []  # unloaded with the process

    def load(self, cubin: bytes, kernel: str) -> int:
        self._modules.append(self._driver.moduleLoadData(cubin))
        function: int = self._driver.moduleGetFunction(self._modules[-1], kernel)
        return function

    def upload(self, array: Array) -> Any:
        return self._cupy.asarray(array)

    def download(self, buffer: Any, like: Array) -> Array:
        return np.asarray(self._cupy.asnumpy(buffer)).reshape(like.shape)

    def address(self, buffer: Any) -> int:
        return int(buffer.data.ptr)

    def launcher(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: tuple[Any, ...],
    ) -> Run:
        # As cuLaunchKernel wants them: values at stable addresses, and the array of the addresses.
        values = [np.array(self._scalar(argument)) for argument in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        address = int(pointers.ctypes.data) if values else 0
        launch = self._driver.launchKernel

        def run(_alive: Any = (arguments, values, pointers)) -> None:
            launch(function, *grid, *block, 0, _NULL_STREAM, address, 0)

        return run

    def _scalar(self, argument: Any) -> np.generic:
        return argument if isinstance(argument, np.generic) else np.uint64(self.address(argument))
