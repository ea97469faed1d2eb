"""Other processes on the device: their work is in the times of this one.

On a GPU NVML names them all; on a CPU those are named that measure with Curvescope too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...base.counted import counted
from ...base.errors import BackendMissingError
from . import register
from .nvml import NvmlDevice, find_device

PROC = Path("/proc")


class Disturbance(Protocol):
    """Processes that disturb a measurement."""

    @property
    def sentence(self) -> str:
        """What they are and what to do."""


@dataclass(frozen=True)
class Measurements:
    """Other measurements of Curvescope on the CPU of this one, which is slower for them, as they
    are for it.
    """

    names: dict[int, str]  # by process id

    @property
    def sentence(self) -> str:
        """What they are and what to do."""
        several = counted(len(self.names), "other measurement")
        named = ", ".join(f"{name} (process {number})" for number, name in self.names.items())
        verb = "runs" if len(self.names) == 1 else "run"
        return (
            f"{several} of Curvescope {verb} on this machine: {named}. They disturb each other: "
            "run one at a time."
        )


@dataclass(frozen=True)
class Neighbours:
    """Other processes with a context on a GPU, and the memory that they have there together."""

    pids: tuple[int, ...]  # those whose number is known
    # number of others; in a container NVML may give the numbers that the host has for them
    unknown: int
    memory_bytes: int | None

    @property
    def sentence(self) -> str:
        """What they are and what to do."""
        several = counted(len(self.pids) + self.unknown, "other process", "other processes")
        which = f" (process {', '.join(map(str, self.pids))})" if self.pids else ""
        held = "" if self.memory_bytes is None else f" with {self.memory_bytes / 1e9:.1f} GB"
        return (
            f"{several}{which}{held} used this GPU while it was measured, and what they did is in "
            "the times: stop them, and measure again."
        )


def find_neighbours(device: str) -> Disturbance | None:
    """The other processes on `cuda:N`, which are neither ancestors nor descendants of this one;
    None for none.

    On `cpu`, the other measurements of Curvescope.
    """
    if device == "cpu":
        others = register.others(_ancestors(os.getpid()))
        return Measurements(others) if others else None
    try:
        return neighbours_on(find_device(device))
    except BackendMissingError:
        return None


def neighbours_on(gpu: NvmlDevice, own: int | None = None) -> Neighbours | None:
    """The same for a GPU of NVML and a process, by default this one."""
    own = os.getpid() if own is None else own
    processes = gpu.read("nvmlDeviceGetComputeRunningProcesses") or []
    mine = _ancestors(own)
    family = [
        process for process in processes if process.pid in mine or own in _ancestors(process.pid)
    ]
    here = [
        process
        for process in processes
        if process not in family and (PROC / str(process.pid)).exists()
    ]
    elsewhere = [process for process in processes if process not in family and process not in here]
    # This process is one of those, too, where NVML does not know it by its own number.
    unknown = max(0, len(elsewhere) - (not any(process.pid == own for process in family)))
    if not here and not unknown:
        return None
    held = [process.usedGpuMemory for process in here]
    memory_bytes = None if unknown or None in held or not held else sum(held)
    return Neighbours(tuple(sorted(process.pid for process in here)), unknown, memory_bytes)


def _ancestors(pid: int) -> set[int]:
    """A process and those that started it, as far as /proc says."""
    ancestors: set[int] = set()
    while pid > 1 and pid not in ancestors:
        ancestors.add(pid)
        try:
            # The name of a process may hold spaces and parentheses.
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return ancestors
