"""Facts of the recording machine; nothing that identifies a person or a host is read."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .nvml import driver_version

_PACKAGES = ("curvescope", "torch", "numpy", "pyarrow", "nvtx")
_CUBLAS = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu11")  # for CUDA 13, 12 and 11
_CPU_CAPACITY = re.compile(r"([0-9]+)([KM])")


def read_text(path: str | Path) -> str | None:
    """Text of a file of the kernel; None if it cannot be read."""
    with suppress(OSError):
        return Path(path).read_text().strip()
    return None


def cpu_name() -> str:
    """Name of the processor, or its architecture if it has none."""
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def cpu_features(cpuinfo: str | None = None) -> frozenset[str]:
    """Features of the processor, as the kernel names them, e.g. avx2; empty if it names none.

    The text of /proc/cpuinfo is read by default.
    """
    text = (read_text("/proc/cpuinfo") or "") if cpuinfo is None else cpuinfo
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


def last_level_cache_bytes() -> int | None:
    """Size of the largest cache of core 0; None if the kernel does not report it."""
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max(filter(None, map(cache_bytes, caches)), default=None)


def read_shared_cache_bytes(device: str) -> int | None:
    """Size of the cache that all of a device shares: the L2 of a GPU, the last level of a CPU; None
    if it is unknown.
    """
    if not device.startswith("cuda"):
        return last_level_cache_bytes()
    import torch

    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)


def cache_bytes(size: Path) -> int | None:
    """Parse a cache size file of the kernel, e.g. `512K`; None if unreadable."""
    match = _CPU_CAPACITY.fullmatch(read_text(size) or "")
    return None if match is None else int(match[1]) * (1 << 10 if match[2] == "K" else 1 << 20)


def usable_cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_cores() -> int | None:
    """Number of physical cores that this process may use; None if the kernel does not
    report them.
    """
    if hasattr(os, "sched_getaffinity"):
        usable = os.sched_getaffinity(0)
    else:
        usable = set(range(usable_cores()))
    siblings = {
        read_text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        for cpu in usable
    }
    return None if None in siblings else len(siblings)


def cpu_frequency_hz() -> int | None:
    """Current mean core clock, Hz; None if the kernel does not report it."""
    values = [
        float(m)
        for m in re.findall(
            r"^cpu MHz\s*:\s*([0-9.]+)", read_text("/proc/cpuinfo") or "", re.MULTILINE
        )
    ]
    return round(sum(values) / len(values) * 1e6) if values else None


def describe_host() -> dict[str, Any]:
    """CPU, usable cores, frequency governor, load average, kernel and Python; unknown facts are
    None.
    """
    return {
        "cpu": cpu_name(),
        "usable_cores": usable_cores(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def describe_versions() -> dict[str, str | None]:
    """Versions of the packages that determine the kernels; None for missing ones."""
    cublas = next(filter(None, map(_version, _CUBLAS)), None)
    return {**{package: _version(package) for package in _PACKAGES}, "cublas": cublas}


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    """The entries `host` and `versions` of a recording."""
    return {"host": describe_host(), "versions": describe_versions()}


def describe_device(device: str) -> dict[str, Any]:
    """The device of a workload: kind, name, and limits; for a CPU the threads of torch, if it is
    loaded.
    """
    if device == "cpu":
        loaded = sys.modules.get("torch")
        threads = {} if loaded is None else {"threads": loaded.get_num_threads()}
        return {"kind": "cpu", "name": cpu_name(), **threads}
    import torch

    facts = torch.cuda.get_device_properties(device)
    l2_bytes = read_shared_cache_bytes(device)
    return {
        "kind": "cuda",
        "name": facts.name,
        "compute_capability": f"{facts.major}.{facts.minor}",
        "sm_count": facts.multi_processor_count,
        "memory_bytes": facts.total_memory,
        **({"l2_cache_bytes": l2_bytes} if l2_bytes else {}),
        "cuda": torch.version.cuda,
        "cudnn": _cudnn_version(),
        "driver": driver_version(),
    }


def _cudnn_version() -> int | None:
    """Version of torch's cuDNN; None without one, and where it refuses the device, as one too old
    for it.
    """
    import torch

    try:
        version: int | None = torch.backends.cudnn.version()
    except RuntimeError:
        return None
    return version
