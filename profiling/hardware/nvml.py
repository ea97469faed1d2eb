"""NVML, NVIDIA's management library: facts, clocks, power and energy of GPUs.

Nothing else imports its binding.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import BackendMissingError

_DRIVER_VERSION = Path("/sys/module/nvidia/version")


@dataclass(frozen=True)
class NvmlDevice:
    """One GPU: the module `pynvml`, and NVML's handle."""

    library: Any
    handle: Any

    def read(
        self, query: str, *arguments: Any, into: Callable[[Any], Any] = lambda answer: answer
    ) -> Any:
        """The answer of a function of NVML that takes the handle first; a text argument names a
        constant of NVML.

        None where the GPU, the driver or the binding does not give it; else `into` converts it.
        """
        try:
            values = [
                getattr(self.library, word) if isinstance(word, str) else word for word in arguments
            ]
            answer = getattr(self.library, query)(self.handle, *values)
        except (AttributeError, self.library.NVMLError):
            return None
        return None if answer is None else into(answer)


def open_nvml() -> Any:
    """The module `pynvml`, opened, which costs nothing again; an error without binding
    or driver.
    """
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise BackendMissingError(
            "NVML needs its Python binding: pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
    except (
        Exception
    ) as error:  # NVML's own errors, whose classes only the module has: no driver, no permission
        raise BackendMissingError(f"NVML cannot be used ({error})") from error
    return pynvml


def find_device(device: str) -> NvmlDevice:
    """The GPU that CUDA counts as `cuda:N`; an error if NVML is missing or does not know it."""
    library = open_nvml()
    index = int(device.partition(":")[2] or 0)
    try:
        return NvmlDevice(library, _find_handle(library, index))
    except BackendMissingError:
        raise
    except Exception as error:  # an unknown device: NVML's own error
        raise BackendMissingError(f"NVML cannot find {device} ({error})") from error


def _find_handle(library: Any, index: int) -> Any:
    """NVML counts GPUs by their slots, CUDA the fastest first."""
    if (bus_id := _cuda_bus_id(index)) is not None:
        return library.nvmlDeviceGetHandleByPciBusId(bus_id)
    visible = [
        part.strip()
        for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if part.strip()
    ]
    wanted = visible[index] if index < len(visible) else str(index)
    if not wanted.isdigit():
        return library.nvmlDeviceGetHandleByUUID(wanted)
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        handles = map(library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount()))
        if len({library.nvmlDeviceGetName(handle) for handle in handles}) > 1:
            raise BackendMissingError(
                "this machine has several kinds of GPU, and NVML numbers them in another order "
                f"than CUDA, so NVML's number of cuda:{index} is unknown: set "
                "CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
    return library.nvmlDeviceGetHandleByIndex(int(wanted))


def _cuda_bus_id(index: int) -> str | None:
    """PCI bus id of a CUDA device, without loading the driver: processes forked later could not use
    CUDA.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (AttributeError, OSError):
        return None
    device = ctypes.c_int()
    bus_id = ctypes.create_string_buffer(32)
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetPCIBusId(
        bus_id, len(bus_id), device
    ):
        return None
    return bus_id.value.decode()


def driver_version() -> str | None:
    """Version of NVIDIA's driver, e.g. 580.159.03; None if unknown."""
    try:
        return _DRIVER_VERSION.read_text().strip()
    except OSError:  # e.g. under WSL
        try:
            return str(open_nvml().nvmlSystemGetDriverVersion())
        except Exception:  # NVML's own errors, or no binding
            return None


def describe_settings(device: str) -> dict[str, Any] | None:
    """Power limit, ECC, MIG, persistence mode and maximum clocks of `cuda:N`; None for a CPU and
    without NVML.
    """
    if device == "cpu":
        return None
    try:
        gpu = find_device(device)
    except BackendMissingError:
        return None
    return {
        "power_limit_w": gpu.read("nvmlDeviceGetEnforcedPowerLimit", into=from_milli),
        # Modes are a pair: now, and after a restart.
        "ecc": gpu.read("nvmlDeviceGetEccMode", into=lambda modes: bool(modes[0])),
        "mig": gpu.read("nvmlDeviceGetMigMode", into=lambda modes: bool(modes[0])),
        "persistence": gpu.read("nvmlDeviceGetPersistenceMode", into=bool),
        "max_sm_clock_hz": gpu.read("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM", into=from_mhz),
        "max_memory_clock_hz": gpu.read(
            "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM", into=from_mhz
        ),
    }


def from_milli(value: float) -> float:
    """NVML's unit of power and energy, e.g. mW, to ours."""
    return value / 1000


def from_mhz(value: int) -> int:
    """NVML's unit of clocks, MHz, to Hz."""
    return value * 1_000_000
