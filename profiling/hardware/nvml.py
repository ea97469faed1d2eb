"""NVML, NVIDIA's management library: facts, clocks, power and energy of GPUs. Nothing else imports its binding."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..errors import BackendMissingError


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
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    wanted = visible[index] if index < len(visible) else str(index)
    by_uuid = not wanted.isdigit()
    find = library.nvmlDeviceGetHandleByUUID if by_uuid else library.nvmlDeviceGetHandleByIndex
    try:
        return NvmlDevice(library, find(wanted if by_uuid else int(wanted)))
    except Exception as error:  # an unknown device: NVML's own error
        raise BackendMissingError(f"NVML cannot find {device} ({error})") from error
