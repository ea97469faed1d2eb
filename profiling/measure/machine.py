"""The machine that measures, as a recording describes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch, load_torch
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.energy import describe_energy
from ..hardware.host import describe_device, describe_host, describe_versions
from ..hardware.locked_clocks import read_locked_clock_hz
from ..hardware.nvml import describe_settings


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device and the machine around it."""

    device: dict[str, Any]
    device_settings: dict[str, Any] | None
    host: dict[str, Any]
    versions: dict[str, str | None]
    ceilings: dict[str, Any] | None  # measured peaks of the device
    cudnn_workspace_limit_mib: str | None  # of cuDNN's convolutions (CUDNN_CONV_WSCAP_DBG)
    clocks_missing: str | None  # why clocks are not sampled; None if they are
    # differs between machines, and between GPUs of one machine; compared, never stored
    identity: str
    energy: dict[str, Any] | None = None  # source of the steps' energies, see `describe_energy`
    locked_sm_clock_hz: int | None = None  # by Curvescope; None if it locked none

    @property
    def entry(self) -> dict[str, Any]:
        """Its entries of `recording.json`."""
        return {key: value for key, value in asdict(self).items() if key != "identity"}

    @property
    def kind(self) -> dict[str, Any]:
        """The properties that all machines of one recording must share."""
        torch = {
            "torch": self.versions["torch"],
            "cpu": self.host["cpu"],
            "cores": self.host["usable_cores"],
        }
        return {**self.device, **torch}


def describe_machine(device: str) -> Machine:
    """Describe this machine and one of its devices, `cpu` or `cuda:N`."""
    described = describe_device(device)
    if device == "cpu":
        gpu = "cpu"
    else:
        gpu = getattr(import_torch().cuda.get_device_properties(device), "uuid", device)
    return Machine(
        device=described,
        device_settings=describe_settings(device),
        host=describe_host(),
        versions=describe_versions(),
        ceilings=ceilings.entry_for(described),
        cudnn_workspace_limit_mib=os.environ.get("CUDNN_CONV_WSCAP_DBG"),
        clocks_missing=ClockSampler(device).missing,
        identity=f"{machine_identity()} {gpu}",
        energy=describe_energy(device),
        locked_sm_clock_hz=read_locked_clock_hz(),
    )


def different_facts(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, str]:
    """Facts of two descriptions that differ, each with both values in words."""
    both = {name: (recorded.get(name), here.get(name)) for name in sorted({*recorded, *here})}
    return {
        name: "{}: {} there, {} here".format(
            name, *("none" if value is None else value for value in values)
        )
        for name, values in both.items()
        if values[0] != values[1]
    }


# What a program sets itself, in a Python of its own: another run of it has the same.
_OF_PROGRAMS = ("threads", "torch")
_LIBRARIES = ("cuda", "cudnn", "driver")  # facts of a device that name its software, not the device


def check_same_machine(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Compare this machine with a recording's, by its `recording.json`, before its work runs again.

    Returns a sentence for each difference that leaves the device the same, e.g. in versions of
    libraries; another device or number of threads, and a recording that names no device, are an
    error.
    """
    recorded: Mapping[str, Any] | None = meta.get("device")
    if not recorded or not recorded.get("name"):
        raise CurvescopeError(
            "The recording does not say on which device it was made, so that nothing that runs "
            "here can be compared with it: measure here with `curvescope diagnose`."
        )
    ignored = _OF_PROGRAMS if meta.get("program") else ()
    recorded = {name: value for name, value in recorded.items() if name not in ignored}
    here = _like(recorded, meta.get("torch_device"))
    device = different_facts(recorded, {name: here.get(name) for name in recorded})
    if refused := [text for name, text in device.items() if name not in _LIBRARIES]:
        refused = [device["name"]] if "name" in device else refused  # all else follows from it
        raise CurvescopeError(
            f"It was recorded on another device ({'; '.join(refused)}), and what runs again is "
            "compared with it. Run it on the machine of the recording with as many threads, or "
            "measure here with `curvescope diagnose`."
        )
    settings = meta.get("device_settings") or {}
    if settings:
        set_to = different_facts(settings, describe_settings(str(meta.get("torch_device"))) or {})
    else:
        set_to = {}
    versions = meta.get("versions") or {}
    versions = {name: value for name, value in versions.items() if name not in ignored}
    packages = different_facts(versions, {name: describe_versions().get(name) for name in versions})
    return tuple(
        f"This machine differs: {text}."
        for text in (*device.values(), *set_to.values(), *packages.values())
    )


def _like(recorded: Mapping[str, Any], torch_device: str | None) -> dict[str, Any]:
    """The description of this machine's device that is most like a recorded one; for a CUDA device,
    of any of them.
    """
    if recorded.get("kind") != "cuda" and "compute_capability" not in recorded:
        if "threads" in recorded:
            load_torch()  # only a loaded torch has threads to describe
        return describe_device("cpu")
    cuda = import_torch().cuda
    names = [f"cuda:{index}" for index in range(cuda.device_count() if cuda.is_available() else 0)]
    if torch_device in names:
        names.insert(0, str(torch_device))
    devices = [describe_device(name) for name in names]
    return min(devices, key=lambda device: len(different_facts(recorded, device)), default={})


def machine_identity() -> str:
    """A text that names the boot of the machine and the time namespace; never stored."""
    boot = str(os.getpid())
    namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/time")
    return f"{boot} {namespace}"
