"""The CUDA driver library through ctypes: whether a GPU can be used, and empty kernels, without
torch or a toolkit.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...base.errors import BackendMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY = "libcuda.so.1"
_ATTRIBUTE = "cuDeviceGetAttribute"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (cuda.h)
# The driver compiles PTX for its device. Drivers since CUDA 10 know 6.3, and those of Kepler 4.3.
_PTX_HEAD = ".version {version}\n.target {target}\n.address_size 64\n"
KERNEL_NAME = "curvescope_empty"
_EMPTY_KERNEL = f".visible .entry {KERNEL_NAME}() {{ ret; }}\n"
# Attributes of a device (cuda.h, CU_DEVICE_ATTRIBUTE_*), and the factor to our unit.
_FACTS = {
    "sm_count": (16, 1),  # MULTIPROCESSOR_COUNT
    "l2_bytes": (38, 1),  # L2_CACHE_SIZE
    "clock_hz": (13, 1000),  # CLOCK_RATE, kHz
    "shared_memory_per_sm_bytes": (81, 1),  # MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    "registers_per_sm": (82, 1),  # MAX_REGISTERS_PER_MULTIPROCESSOR
}


class CudaDriver:
    """The library; every call raises a BackendMissingError that says why it failed.

    Reading its version touches no device; everything else initialises CUDA in this process.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise BackendMissingError(f"There is no CUDA driver ({error}).") from error

    def version(self) -> str:
        """The newest CUDA that the driver supports, e.g. 13.0."""
        number = self._integer("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def count_devices(self) -> int:
        """Number of devices that this process may use; an error e.g. if all are hidden from it."""
        self._call("cuInit", 0)
        return self._integer("cuDeviceGetCount")

    def describe(self, index: int) -> dict[str, Any]:
        """The `device` entry of a recording, in a process that uses CUDA."""
        memory_bytes = ctypes.c_size_t()
        name = ctypes.create_string_buffer(128)
        device = self._integer("cuDeviceGet", index)
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory_bytes), device)
        return {
            "kind": "cuda",
            "device": index,
            "name": name.value.decode(),
            "compute_capability": "{}.{}".format(*self._capability(device)),
            "memory_bytes": memory_bytes.value,
            **{
                fact: self._integer(_ATTRIBUTE, number, device) * factor
                for fact, (number, factor) in _FACTS.items()
            },
        }

    def current_context(self) -> int:
        """The CUDA context of this thread, as an address; an error if it has none."""
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if context.value is None:
            raise BackendMissingError("This thread has no CUDA context.")
        return context.value

    def synchronize(self) -> None:
        """Wait for the work of this thread's context."""
        self._call("cuCtxSynchronize")

    @contextmanager
    def empty_kernel(self, index: int = 0) -> Iterator[Any]:
        """A function that launches an empty kernel of one thread on a device, through
        cuLaunchKernel.
        """
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        device = self._integer("cuDeviceGet", index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxSetCurrent", context)
            function = self.load(_EMPTY_KERNEL, KERNEL_NAME, index)
            yield lambda: self.launch(function, 1)
            self.synchronize()
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", device)

    def load(self, ptx: str, kernel: str, index: int) -> ctypes.c_void_p:
        """A kernel of PTX without its head, in this thread's context on a device; it
        stays loaded.
        """
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        major, minor = self._capability(self._integer("cuDeviceGet", index))
        target = ("6.3", "sm_50") if major >= 5 else ("4.3", f"sm_{major}{minor}")
        text = _PTX_HEAD.format(version=target[0], target=target[1]) + ptx
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text.encode()))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        return function

    def launch(
        self, function: ctypes.c_void_p, blocks: int, stream: int = 0, *addresses: int
    ) -> None:
        """Launch blocks of one thread in a stream, with addresses as arguments."""
        values = [ctypes.c_uint64(address) for address in addresses]
        if values:
            arguments = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        else:
            arguments = None
        sizes = [ctypes.c_uint(size) for size in (blocks, 1, 1, 1, 1, 1, 0)]
        self._call("cuLaunchKernel", function, *sizes, ctypes.c_void_p(stream), arguments, None)

    def host_memory(self, size_bytes: int) -> tuple[int, Any]:
        """Memory of the host that kernels can write, in this thread's context: its address and its
        bytes.
        """
        address = ctypes.c_void_p()
        self._call("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        assert address.value is not None
        return address.value, (ctypes.c_char * size_bytes).from_address(address.value)

    def _capability(self, device: int) -> tuple[int, int]:
        return self._integer(_ATTRIBUTE, _MAJOR, device), self._integer(_ATTRIBUTE, _MINOR, device)

    def _integer(self, name: str, *arguments: Any) -> int:
        """The value that a function writes to its first argument."""
        value = ctypes.c_int()
        self._call(name, ctypes.byref(value), *arguments)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise BackendMissingError(f"The CUDA driver has no {name}.")
        code = function(*arguments)
        if code:
            text = ctypes.c_char_p()
            if hasattr(self._library, "cuGetErrorName"):
                self._library.cuGetErrorName(code, ctypes.byref(text))
            raise BackendMissingError(
                f"{name} answered {(text.value or b'').decode() or 'error'} ({code})."
            )


def count_gpus() -> int:
    """Number of GPUs that this process may use; 0 where there is no driver."""
    try:
        return CudaDriver().count_devices()
    except BackendMissingError:
        return 0
