"""What `curvescope doctor` says about a machine with NVIDIA's driver: whether its GPUs can be
recorded and measured.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .base.counted import counted
from .base.errors import BackendMissingError
from .profiling.hardware import nvml
from .profiling.hardware.clocks import throttle_names
from .profiling.hardware.cuda_driver import CudaDriver
from .profiling.hardware.energy import describe_energy
from .profiling.hardware.neighbours import neighbours_on

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_PERMISSION_REMEDY = (
    "allow all users by the module option NVreg_RestrictProfilingToAdminUsers=0 and a restart, or "
    "run as root: https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
# NVML's compute modes (nvml.h, nvmlComputeMode_t).
_COMPUTE_MODES = {
    0: "default",
    1: "exclusive to one thread",
    2: "prohibited",
    3: "exclusive to one process",
}


@dataclass(frozen=True)
class Check:
    """One checked item."""

    name: str  # name of the item
    found: bool  # whether it is available
    detail: str  # what was found, or what it is needed for
    remedy: str = ""  # how to get it; empty if nothing helps
    command: str = ""  # command that gets it, where an answer needs it; else empty


def check_gpus() -> Iterator[Check]:
    """Check driver, GPUs, permission, libcupti and collector; nothing on a machine without a
    driver.
    """
    try:
        driver = CudaDriver()
    except BackendMissingError:
        return
    version = f"{nvml.driver_version() or 'version not reported'}, CUDA {driver.version()}"
    try:
        count = driver.count_devices()
    except BackendMissingError as error:
        remedy = (
            "check that the kernel module is loaded, that the devices are visible, and "
            "CUDA_VISIBLE_DEVICES"
        )
        yield Check("NVIDIA driver", False, f"{version}: {error}", remedy)
        return
    yield Check("NVIDIA driver", True, f"{version}, {counted(count, 'device')} for this process")
    yield _nvml()
    for index in range(count):
        yield from _gpu(index)
    yield _permission()
    yield from _collector()


def _nvml() -> Check:
    try:
        library = nvml.open_nvml()
    except BackendMissingError as error:
        return Check("NVML", False, str(error), "clocks, power and energy are missing without it")
    return Check(
        "NVML", True, f"version {library.nvmlSystemGetNVMLVersion()}: clocks, power and energy"
    )


def _gpu(index: int) -> Iterator[Check]:
    """How a GPU is set; a mode in which another process cannot use it is a fault."""
    try:
        gpu = nvml.find_device(f"cuda:{index}")
    except BackendMissingError:
        return
    settings = nvml.describe_settings(f"cuda:{index}") or {}
    mode = gpu.read("nvmlDeviceGetComputeMode")
    now_mhz = gpu.read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
    reasons = gpu.read("nvmlDeviceGetCurrentClocksThrottleReasons")
    set_mhz = gpu.read("nvmlDeviceGetApplicationsClock", "NVML_CLOCK_SM")
    usual_mhz = gpu.read("nvmlDeviceGetDefaultApplicationsClock", "NVML_CLOCK_SM")
    most_hz, limit_w = settings.get("max_sm_clock_hz"), settings.get("power_limit_w")
    power = f"{limit_w:.0f} W" if limit_w else "not reported"
    clock = "not reported" if now_mhz is None else f"{now_mhz} MHz"
    if most_hz:
        clock += f" of at most {most_hz // 1_000_000}"
    if reasons:
        listed = throttle_names(reasons).replace("|", ", ")
        clock += f" ({listed})"
    parts = [
        str(gpu.read("nvmlDeviceGetName") or "name not reported"),
        f"compute mode {_COMPUTE_MODES.get(mode, 'not reported')}",
        f"persistence {_on(settings.get('persistence'))}",
        f"MIG {_on(settings.get('mig'))}",
        f"ECC {_on(settings.get('ecc'))}",
        f"power limit {power}",
        f"SM clock {clock}",
    ]
    if set_mhz is not None and usual_mhz is not None and set_mhz != usual_mhz:
        parts.append(f"application clock set to {set_mhz} MHz")
    energy = describe_energy(f"cuda:{index}")
    parts.append(f"energy by {energy['name']}" if "name" in energy else "no energy")
    if (others := neighbours_on(gpu)) is not None:
        parts.append(f"{len(others.pids) + others.unknown} other processes on it")
    parts.append("whether clocks are locked is not reported by any driver")
    shared = mode in (None, 0)
    remedy = "experiments, `sweep` and `counters` need it in several processes at once"
    command = "sudo nvidia-smi -c DEFAULT"
    yield Check(f"GPU {index}", shared, ", ".join(parts), "" if shared else remedy, command)


def _on(value: bool | None) -> str:
    return {True: "on", False: "off", None: "not reported"}[value]


def _permission() -> Check:
    """Who may profile: the driver's parameter RmProfilingAdminOnly."""
    name = "profiling permission"
    try:
        match = re.search(
            r"^RmProfilingAdminOnly:\s*(\d+)", DRIVER_PARAMETERS.read_text(), re.MULTILINE
        )
    except OSError:
        match = None
    if match is None:
        return Check(
            name,
            True,
            f"not reported ({DRIVER_PARAMETERS}); the self-test shows whether it is there",
        )
    if match[1] == "0":
        return Check(name, True, "all users (RmProfilingAdminOnly: 0)")
    root = os.geteuid() == 0
    said = "RmProfilingAdminOnly: 1: only root may read counters (ncu), and kernels on some drivers"
    return Check(
        name, root, f"{said}; this process is {'' if root else 'not '}root", _PERMISSION_REMEDY
    )


def _collector() -> Iterator[Check]:
    from .profiling.collect.self_test import run_counter_test, run_self_test

    name = "collector self-test"
    try:
        test = run_self_test()
    except BackendMissingError as error:
        yield Check(
            name,
            False,
            str(error),
            "without the collector, `diagnose` still records through torch's profiler",
        )
        return
    library = test.cupti_path or "none was found"
    if test.cupti_version is not None:
        library += f", API version {test.cupti_version}"
    works = test.status == "recording"
    fits = "fits the driver" if works else test.status
    yield Check(
        "libcupti",
        works,
        f"{library}: {fits}",
        "set CURVESCOPE_CUPTI to the path of another libcupti",
        "export CURVESCOPE_CUPTI=PATH",
    )
    yield Check(
        name,
        test.has_passed,
        f"{test.recorded} of {counted(test.launched, 'kernel')} recorded, {test.with_geometry} "
        f"with geometry, {test.seconds:.2f} s",
        "`curvescope record` loses GPU work here; the line above says why",
    )
    if test.cupti_path is None:
        return
    name, remedy = "counters", "`curvescope counters` counts under Nsight Compute (ncu) instead"
    try:
        kernels = run_counter_test(test.cupti_path)
    except BackendMissingError as error:
        yield Check(name, False, f"CUPTI counts no kernels: {error}", remedy)
        return
    yield Check(
        name, kernels > 0, f"CUPTI counted {kernels} of 10 kernels in the process itself", remedy
    )
