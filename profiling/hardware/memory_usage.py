"""Peak memory of steps: memory of the CUDA allocator, or on a CPU the resident memory of this
process.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

_SHORT_SHARE = 0.25  # of the memory: below it, steps of other batch sizes are not kept


def reset_peak(device: str) -> bool:
    """Reset the peaks; returns False if the system does not allow it, so that peaks would include
    earlier ones.
    """
    if device != "cpu":
        _cuda().reset_peak_memory_stats(device)
        _cuda().reset_accumulated_memory_stats(device)
        return True
    try:
        # 5 resets the peak resident size (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def read_peak(device: str) -> dict[str, int | None]:
    """Columns of the `steps` table: bytes at the peak, bytes reserved, allocator retries; unknown
    values are None.
    """
    if device == "cpu":
        return {"peak_memory_bytes": _kilobytes("/proc/self/status", "VmHWM")}
    stats = _cuda().memory_stats(device)
    return {
        "peak_memory_bytes": stats.get("allocated_bytes.all.peak"),
        "reserved_memory_bytes": stats.get("reserved_bytes.all.peak"),
        "allocator_retries": stats.get("num_alloc_retries"),
    }


def read_current(device: str) -> int | None:
    """Bytes held now: by tensors of the CUDA allocator, or resident memory of this process; None if
    unknown.
    """
    if device == "cpu":
        return _kilobytes("/proc/self/status", "VmRSS")
    return int(_cuda().memory_allocated(device))


def memory_is_short(device: str) -> bool:
    """Whether less than a quarter of the memory is available: of the CUDA device, or of a CPU's
    machine.
    """
    if device != "cpu":
        free, total = _cuda().mem_get_info(device)
        free += _cuda().memory_reserved(device) - _cuda().memory_allocated(device)
        return bool(free < total * _SHORT_SHARE)
    available = available_bytes(device)
    installed = _kilobytes("/proc/meminfo", "MemTotal")
    return available is not None and installed is not None and available < installed * _SHORT_SHARE


def limit_memory(device: str, limit_bytes: int) -> None:
    """Limit the memory of this process: memory of the CUDA allocator, or on a CPU additional
    address space.
    """
    if device == "cpu":
        import resource

        limit = _kilobytes("/proc/self/status", "VmSize") or 0
        resource.setrlimit(resource.RLIMIT_AS, (limit + limit_bytes, limit + limit_bytes))
        return
    total = _cuda().get_device_properties(device).total_memory
    _cuda().set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def empty_cache(device: str) -> None:
    """Give blocks that the CUDA allocator of this process keeps back to the device; on a CPU
    nothing.
    """
    if device != "cpu":
        _cuda().empty_cache()


def allocatable_bytes(device: str) -> int:
    """Memory of a CUDA device that the allocator of this process has or can get, whatever other
    processes take.
    """
    return int(_cuda().mem_get_info(device)[0]) + int(_cuda().memory_reserved(device))


def available_bytes(device: str) -> int | None:
    """Memory of a device that this process can get without swapping, within its limits; None if
    unknown.
    """
    if device != "cpu":
        return int(_cuda().mem_get_info(device)[0])
    free = [
        _kilobytes("/proc/meminfo", "MemAvailable"),
        _control_group_bytes(Path("/sys/fs/cgroup")),
    ]
    return min((size for size in free if size is not None), default=None)


def _cuda() -> Any:
    import torch

    return torch.cuda


def _control_group_bytes(folder: Path) -> int | None:
    """Memory that the control group leaves (cgroups(7), version 2), file cache counted as used;
    None without limit.
    """
    with suppress(OSError, ValueError):
        return int((folder / "memory.max").read_text()) - int(
            (folder / "memory.current").read_text()
        )
    return None


def _kilobytes(path: str, name: str) -> int | None:
    """An entry of a file of the kernel that counts in kB, in bytes; None if the file or the entry
    is missing.
    """
    with suppress(OSError):
        if match := re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE):
            return int(match[1]) * 1024
    return None
