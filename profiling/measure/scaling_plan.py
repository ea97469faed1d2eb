"""What a scaling run is to measure, as data, and the folder it is measured into.

DIR/scale.json                      the plan: it says which recordings belong together
DIR/devices1/rank0/                 one recording per number of devices and rank
DIR/devices4/rank0/ … rank3/
DIR/logs/                           what the ranks said, where torchrun was started from here
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..recording.plan_file import PlanFile
from ..recording.store import META_FILE, Recording, open_recording
from .configuration import Setting
from .protocol import Protocol
from .sweep_plan import protocol_from, setting_from

PLAN_FILE = PlanFile("scale.json", "scale", "scaling run", 1)


@dataclass(frozen=True, order=True)
class ScalingPoint:
    """What one visit measures.

    Attributes:
        devices: how many step together, a rank each.
        batch: samples in the step of each.
    """

    devices: int
    batch: int

    @property
    def total_batch(self) -> int:
        """Samples in a step of all devices."""
        return self.devices * self.batch


@dataclass(frozen=True)
class ScalingPlan:
    """What a scaling run measures.

    Attributes:
        setting: the network and how it runs; its device is cpu or cuda, of which each rank takes its own.
        devices: numbers of devices, increasing, the first of them 1.
        batch: of each device in weak scaling; null for none.
        total_batch: of all devices together in strong scaling; null for none. It divides by every number of devices.
        protocol: how often.
        threads: threads of each process on a CPU; null on GPUs.
        source: where batches come from, see `feeds`.
        timeout_s: a rank that keeps the others waiting longer ends the run.
    """

    setting: Setting
    devices: tuple[int, ...]
    batch: int | None
    total_batch: int | None
    protocol: Protocol
    threads: int | None
    source: str
    timeout_s: float

    @property
    def weak(self) -> tuple[ScalingPoint, ...]:
        """Points with the batch of each device fixed; the first is what the others are held against."""
        return () if self.batch is None else tuple(ScalingPoint(n, self.batch) for n in self.devices)

    @property
    def strong(self) -> tuple[ScalingPoint, ...]:
        """Points with the total fixed."""
        total = self.total_batch
        return () if total is None else tuple(ScalingPoint(n, total // n) for n in self.devices)

    @property
    def points(self) -> tuple[ScalingPoint, ...]:
        """All that is measured.

        Of strong scaling that is also one device at every batch size, to tell what the smaller batch costs from what
        the other devices cost.
        """
        alone = (ScalingPoint(1, point.batch) for point in self.strong)
        return tuple(sorted({*self.weak, *self.strong, *alone}))


def write_scaling_plan(folder: Path, plan: ScalingPlan) -> None:
    """Begin a scaling run in a new folder.

    Raises:
        CurvescopeError: something is already there, or it cannot be written.
    """
    PLAN_FILE.write(folder, plan)


def read_scaling_plan(folder: Path) -> ScalingPlan:
    """The plan of a scaling run.

    Raises:
        CurvescopeError: there is none in the folder, or it is not to be read.
    """
    return PLAN_FILE.read(folder, _plan_from)


def _plan_from(entry: dict[str, Any]) -> ScalingPlan:
    setting, protocol = setting_from(entry["setting"]), protocol_from(entry["protocol"])
    return ScalingPlan(**{**entry, "setting": setting, "devices": tuple(entry["devices"]), "protocol": protocol})


def rank_folder(folder: Path, devices: int, rank: int) -> Path:
    """Where a rank of that many devices is recorded."""
    return folder / f"devices{devices}" / f"rank{rank}"


def rank_recordings(folder: Path, devices: int) -> list[Recording]:
    """The recordings of all ranks of that many devices, in their order; empty unless every one has begun."""
    recordings = []
    for rank in range(devices):
        path = rank_folder(folder, devices, rank)
        if not (path / META_FILE).is_file():
            return []
        recordings.append(open_recording(path))
    return recordings


def whole_visits(recordings: Sequence[Recording]) -> set[str]:
    """Names of the parts that every rank has: a visit that some rank did not finish is none."""
    parts = [{part.stem for part in recording.parts("steps")} for recording in recordings]
    return set.intersection(*parts) if parts else set()


def is_complete(folder: Path, plan: ScalingPlan) -> bool:
    """Whether every rank of every number of devices came to its end."""
    recordings = [rank_recordings(folder, devices) for devices in plan.devices]
    return all(of_point and all(one.complete for one in of_point) for of_point in recordings)
