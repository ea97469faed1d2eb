"""NVML, NVIDIA's management library: facts, clocks, power and energy of GPUs. Nothing else imports its binding."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import BackendMissingError

_DRIVER_VERSION = Path("/sys/module/nvidia/version")


@dataclass(frozen=True)
class NvmlDevice:
    """One GPU.

    Attributes:
        library: the module `pynvml`.
        handle: NVML's handle of the GPU.
    """

    library: Any
    handle: Any

    def read(self, query: str, *arguments: Any) -> Any:
        """Ask one question.

        Args:
            query: name of a function of NVML whose first argument is the handle.
            arguments: arguments after the handle; a text names a constant of NVML.

        Returns:
            The answer; None where the GPU, the driver or the binding does not give it.
        """
        try:
            values = [getattr(self.library, word) if isinstance(word, str) else word for word in arguments]
            return getattr(self.library, query)(self.handle, *values)
        except (AttributeError, self.library.NVMLError):
            return None


def open_nvml() -> Any:
    """Open the library; a second call costs nothing.

    Returns:
        The module `pynvml`.

    Raises:
        BackendMissingError: the binding is not installed, or there is no driver.
    """
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise BackendMissingError("NVML needs its Python binding: pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except Exception as error:  # NVML's own errors, whose classes only the module has: no driver, no permission
        raise BackendMissingError(f"NVML cannot be used ({error})") from error
    return pynvml


def find_device(device: str) -> NvmlDevice:
    """Find the GPU that CUDA counts as `cuda:N`.

    Raises:
        BackendMissingError: see `open_nvml`; or NVML does not know the device.
    """
    library, index = open_nvml(), int(device.partition(":")[2] or 0)
    try:
        return NvmlDevice(library, _find_handle(library, index))
    except BackendMissingError:
        raise
    except Exception as error:  # an unknown device: NVML's own error
        raise BackendMissingError(f"NVML cannot find {device} ({error})") from error


def _find_handle(library: Any, index: int) -> Any:
    """NVML's handle of a CUDA device: NVML counts GPUs by their slots, CUDA the fastest first."""
    if (bus_id := _cuda_bus_id(index)) is not None:
        return library.nvmlDeviceGetHandleByPciBusId(bus_id)
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    wanted = visible[index] if index < len(visible) else str(index)
    if not wanted.isdigit():
        return library.nvmlDeviceGetHandleByUUID(wanted)
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        handles = map(library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount()))
        if len({library.nvmlDeviceGetName(handle) for handle in handles}) > 1:
            raise BackendMissingError(
                f"this machine has several kinds of GPU, and NVML numbers them in another order than CUDA, so NVML's "
                f"number of cuda:{index} is unknown: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
    return library.nvmlDeviceGetHandleByIndex(int(wanted))


def _cuda_bus_id(index: int) -> str | None:
    """PCI bus id of a CUDA device; None if this process does not use CUDA.

    The driver is neither loaded nor initialised for this: processes forked later could not use CUDA.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (AttributeError, OSError):
        return None
    device, bus_id = ctypes.c_int(), ctypes.create_string_buffer(32)
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetPCIBusId(bus_id, len(bus_id), device):
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
    """How a GPU is set.

    Args:
        device: `cpu` or `cuda:N` with CUDA's device index.

    Returns:
        Power limit, ECC, MIG, persistence mode and maximum clocks, None for what the GPU does not report; None for a
        CPU and without NVML.
    """
    if device == "cpu":
        return None
    try:
        gpu = find_device(device)
    except BackendMissingError:
        return None
    limit_mw = gpu.read("nvmlDeviceGetEnforcedPowerLimit")
    modes = {"ecc": gpu.read("nvmlDeviceGetEccMode"), "mig": gpu.read("nvmlDeviceGetMigMode")}  # now, after a restart
    persistence = gpu.read("nvmlDeviceGetPersistenceMode")
    clocks_mhz = {
        "max_sm_clock_hz": gpu.read("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
        "max_memory_clock_hz": gpu.read("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM"),
    }
    return {
        "power_limit_w": None if limit_mw is None else limit_mw / 1000,
        **{name: None if mode is None else bool(mode[0]) for name, mode in modes.items()},
        "persistence": None if persistence is None else bool(persistence),
        **{name: None if mhz is None else mhz * 1_000_000 for name, mhz in clocks_mhz.items()},
    }
