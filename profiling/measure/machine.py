"""The machine that measures, as a recording describes it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device, describe_host, describe_versions
from ..workload.network_step import import_torch
from .clock_alignment import clock_identity


@dataclass(frozen=True)
class Machine:
    """A device and the machine around it.

    Attributes:
        device: result of `describe_device`.
        host: result of `describe_host`.
        versions: result of `describe_versions`.
        ceilings: measured peaks of the device; None if there are none.
        cudnn_workspace_limit_mib: workspace limit of cuDNN's convolutions (CUDNN_CONV_WSCAP_DBG).
        clocks_missing: reason why clocks are not sampled; None if they are.
        identity: text that differs between machines, and between GPUs of one machine; compared, never stored.
    """

    device: dict[str, Any]
    host: dict[str, Any]
    versions: dict[str, str | None]
    ceilings: dict[str, Any] | None
    cudnn_workspace_limit_mib: str | None
    clocks_missing: str | None
    identity: str

    @property
    def entry(self) -> dict[str, Any]:
        """Its entries of `recording.json`."""
        return {key: value for key, value in asdict(self).items() if key != "identity"}

    @property
    def kind(self) -> dict[str, Any]:
        """The properties that all machines of one recording must share."""
        torch = {"torch": self.versions["torch"], "cpu": self.host["cpu"], "cores": self.host["usable_cores"]}
        return {**self.device, **torch}


def describe_machine(device: str) -> Machine:
    """Describe this machine and one of its devices, `cpu` or `cuda:N`."""
    described = describe_device(device)
    gpu = "cpu" if device == "cpu" else getattr(import_torch().cuda.get_device_properties(device), "uuid", device)
    return Machine(
        described,
        describe_host(),
        describe_versions(),
        ceilings.entry_for(described),
        os.environ.get("CUDNN_CONV_WSCAP_DBG"),
        ClockSampler(device).missing,
        f"{clock_identity()} {gpu}",
    )
