"""The plan of a scaling run, `scale.json`, and the folder of its recordings, `devicesN/rankR` in
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..recording.inside import check_unlinked
from ..recording.plan_file import PlanFile
from ..recording.store import META_FILE, Recording, open_recording
from .configuration import Configuration
from .protocol import Protocol


@dataclass(frozen=True, order=True)
class ScalingPoint:
    """A condition of a scaling run: devices that step together, one rank each, and samples of each
    per step.
    """

    devices: int
    batch: int

    @property
    def total_batch(self) -> int:
        """Number of samples per step of all devices together."""
        return self.devices * self.batch


@dataclass(frozen=True)
class ScalingPlan:
    """The work of a scaling run."""

    configuration: Configuration  # its device is cpu or cuda, and each rank takes its own
    devices: tuple[int, ...]  # numbers of devices, increasing, starting at 1
    batch: int | None  # per device in weak scaling
    # of all devices together in strong scaling, divisible by every number of devices
    total_batch: int | None
    protocol: Protocol
    threads: int | None  # of each process on a CPU; None on GPUs
    source: str  # input pipeline, see `make_feed`
    timeout_s: float  # to wait for an unresponsive rank before the run is aborted

    @property
    def weak(self) -> tuple[ScalingPoint, ...]:
        """Points with a fixed batch size per device; the first is the reference of the others."""
        if self.batch is None:
            return ()
        return tuple(ScalingPoint(n, self.batch) for n in self.devices)

    @property
    def strong(self) -> tuple[ScalingPoint, ...]:
        """Points with a fixed total batch size."""
        total = self.total_batch
        return () if total is None else tuple(ScalingPoint(n, total // n) for n in self.devices)

    @property
    def points(self) -> tuple[ScalingPoint, ...]:
        """All points to measure.

        Strong scaling adds one device at every batch size, which separates the cost of smaller
        batches from the cost of more devices.
        """
        alone = (ScalingPoint(1, point.batch) for point in self.strong)
        return tuple(sorted({*self.weak, *self.strong, *alone}))


PLAN_FILE = PlanFile("scale.json", "scale", "scaling run", 1, ScalingPlan)


def rank_folder(folder: Path, devices: int, rank: int) -> Path:
    """Folder of the recording of one rank among `devices`."""
    return folder / f"devices{devices}" / f"rank{rank}"


def rank_folder_to_write(folder: Path, devices: int, rank: int) -> Path:
    """The same, for what writes in it; CurvescopeError if a folder on the way is a link."""
    path = rank_folder(folder, devices, rank)
    check_unlinked(folder, *path.relative_to(folder).parts)
    return path


def rank_recordings(folder: Path, devices: int) -> list[Recording]:
    """Recordings of all ranks at a number of devices, by rank; empty until every rank has started
    its own.
    """
    paths = [rank_folder(folder, devices, rank) for rank in range(devices)]
    if all((path / META_FILE).is_file() for path in paths):
        return [open_recording(path) for path in paths]
    return []


def complete_visits(recordings: Sequence[Recording]) -> set[str]:
    """Names of the part files that every rank has.

    A visit counts only if every rank finished it.
    """
    parts = [{part.stem for part in recording.parts("steps")} for recording in recordings]
    return set.intersection(*parts) if parts else set()


def is_complete(folder: Path, plan: ScalingPlan) -> bool:
    """Whether every recording of every number of devices is complete."""
    recordings = [rank_recordings(folder, devices) for devices in plan.devices]
    return all(ranks and all(recording.complete for recording in ranks) for ranks in recordings)
