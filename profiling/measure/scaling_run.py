"""One rank of a scaling run: data-parallel steps on 1, 2, … devices, timed and recorded in
interleaved rounds.

All ranks run from the start, by commands of rank 0; a visit uses the first few of them, and the
others wait. One device steps the plain network; several step it under DistributedDataParallel, over
NCCL on GPUs and Gloo on CPUs.
"""

from __future__ import annotations

import copy
import gc
import importlib
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..recording.rank_info import META_KEY, RankInfo
from ..recording.store import META_FILE, RecordingWriter
from ..workload.input_pipeline import make_feed
from ..workload.network_step import Workload
from .loop import Loop, Progress, VisitWriter
from .machine import describe_machine
from .process_group import ProcessGroup
from .scaling_plan import (
    PLAN_FILE,
    ScalingPlan,
    ScalingPoint,
    complete_visits,
    is_complete,
    rank_folder_to_write,
    rank_recordings,
)
from .sites.here import LocalSteps
from .sites.ranks import RankSteps
from .sites.site import RUN, Facts
from .stopping import Complete, Until
from .sweep import Precise, describe_sweep
from .visits import Empty, Visit, VisitPlan


@dataclass(frozen=True)
class _Command:
    """The next visit, as rank 0 commands it."""

    point: ScalingPoint
    round_: int
    profiled_steps: int  # at most


def run_rank(
    folder: Path,
    plan: ScalingPlan,
    ranks: ProcessGroup,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Precise = lambda _: False,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Measure everything that is missing in a plan's folder, which all nodes share, as one rank of
    a launch.

    `report` receives the progress of rank 0 after every visit; `precise` is a stopping rule, a
    function of the rows of `steps` of rank 0 at one number of devices.
    """
    ranks.check_size(plan.devices)
    if not all(ranks.gather((folder / PLAN_FILE.name).is_file())):
        raise CurvescopeError(
            f"Not all ranks can read {folder}: give -o DIR on a file system that all nodes share."
        )
    # A collection, at each change of the number of devices, would otherwise visit all that is
    # imported: 0.2 s.
    importlib.import_module("torch._dynamo")  # which the first optimizer imports
    gc.freeze()
    try:
        _Rank(folder, plan, ranks, report, precise, clock_s).run()
    finally:
        gc.unfreeze()


def device_of(plan: ScalingPlan, rank_info: RankInfo) -> str:
    """The device of a rank; an error if its node has too few."""
    if plan.configuration.device == "cpu":
        return "cpu"
    count = int(import_torch().cuda.device_count())
    # Slurm may show each task its own GPU only.
    index = 0 if count == 1 and "SLURM_LOCALID" in os.environ else rank_info.local_rank
    if index >= count:
        raise CurvescopeError(
            f"Rank {rank_info.rank} is process {rank_info.local_rank} of its node, which has "
            f"{counted(count, 'GPU')}: start one process per GPU."
        )
    return f"cuda:{index}"


class _Rank:
    def __init__(
        self,
        folder: Path,
        plan: ScalingPlan,
        ranks: ProcessGroup,
        report: Callable[[Progress], None],
        precise: Precise,
        clock_s: Callable[[], float],
    ) -> None:
        torch = import_torch()
        self._folder = folder
        self._plan = plan
        self._ranks = ranks
        self._report = report
        self._precise = precise
        self._clock_s = clock_s
        self._leads = ranks.rank_info.rank == 0
        self._device = device_of(plan, ranks.rank_info)
        if plan.threads is not None:
            torch.set_num_threads(plan.threads)
        if self._device != "cpu":
            torch.cuda.set_device(self._device)
        network = plan.configuration.find_network()
        model = network.build()  # every workload starts from a copy of it
        self._network = replace(network, build=lambda: copy.deepcopy(model))
        self._visits: dict[int, VisitWriter] = {}  # by number of devices, if this rank takes part
        self._steps: RankSteps | None = None  # of the last visit
        self._devices = 0  # of the last visit
        self._step_ns: dict[int, int] = {}  # by batch size per device
        # maximum for the next visit, from the time of the last
        self._cheap_profiles: dict[ScalingPoint, int] = {}
        self._too_large: dict[int, Empty] = {}

    def run(self) -> None:
        backend = "gloo" if self._device == "cpu" else "nccl"
        self._ranks.make_groups([n for n in self._plan.devices if n > 1], backend)
        complete = self._ranks.broadcast(self._find_complete_visits() if self._leads else None)
        if complete is None:
            return
        with ExitStack() as stack:
            for devices in self._plan.devices:
                if (rank := self._ranks.rank_among(devices)) is not None:
                    writer = stack.enter_context(self._open(devices, rank, complete[devices]))
                    self._visits[devices] = VisitWriter(writer, self._plan.configuration.mode)
            self._try_batches()
            if self._leads:
                self._lead()
            else:
                while (command := self._ranks.broadcast(None)) is not None:
                    self._obey(command)

    def _find_complete_visits(self) -> dict[int, set[str]] | None:
        """The visits that every rank has, by number of devices; None if the run is complete."""
        if is_complete(self._folder, self._plan):
            return None
        return {n: complete_visits(rank_recordings(self._folder, n)) for n in self._plan.devices}

    def _open(self, devices: int, rank_info: RankInfo, complete: set[str]) -> RecordingWriter:
        path = rank_folder_to_write(self._folder, devices, rank_info.rank)
        if (path / META_FILE).is_file():
            return RecordingWriter.resume(path, "steps", whole=complete)
        plan = self._plan
        batches = sorted(point.batch for point in plan.points if point.devices == devices)
        meta = describe_sweep(plan.configuration.entry, batches, plan.protocol)
        meta |= {"compiled": False, "input": plan.source}
        meta |= {**describe_machine(self._device).entry, META_KEY: rank_info.entry()}
        return RecordingWriter(path, meta)

    def _try_batches(self) -> None:
        """Step every batch size on every device alone, to learn whether it fits and how long a step
        takes.
        """
        once = replace(
            self._plan.protocol,
            discarded_steps=1,
            steps_per_visit=(1, 1),
            profiled_steps=0,
            images=None,
        )
        workload = self._make_workload(1)
        alone = LocalSteps(workload, Facts(RUN))
        for batch in sorted({point.batch for point in self._plan.points}):
            try:
                result = alone.visit(batch, VisitPlan(once))
            except CurvescopeError:
                raise
            except Exception:
                workload.try_step(batch)  # raises the same error with a message for the user
                raise
            outcomes = self._ranks.gather(
                result if isinstance(result, Empty) else result.unprofiled[-1]["duration_ns"]
            )
            if (
                empty := next((outcome for outcome in outcomes if isinstance(outcome, Empty)), None)
            ) is not None:
                self._too_large[batch] = empty
                for devices, visits in self._visits.items():
                    if ScalingPoint(devices, batch) in self._plan.points:
                        visits.write_unmeasured(batch, 0, empty)
            else:
                self._step_ns[batch] = max(outcomes)
        alone.end()
        if not self._step_ns:
            batch, empty = next(iter(self._too_large.items()))
            raise CurvescopeError(
                f"{self._network.name} does not fit: batch {batch} on one device: {empty.why} "
                f"({empty.detail}). Choose a smaller --at."
            )

    def _lead(self) -> None:
        """On rank 0: command all visits, and take part in them."""
        plan = self._plan

        def precise(_: object) -> bool:
            return all(
                self._precise(visits.steps) for visits in self._visits.values() if visits.steps
            )

        Loop(
            conditions=plan.points,
            visit=self._command_visit,
            rule=Until(Complete.of(plan.protocol), precise),
            finished=lambda point: point.batch in self._too_large,
            visited=lambda point, round_: self._visits[point.devices].has(point.batch, round_),
            group=lambda point: point.devices,
            label=lambda point: counted(point.devices, "device"),
            report=self._report,
            clock_s=self._clock_s,
        ).run()
        self._ranks.broadcast(None)

    def _command_visit(self, point: ScalingPoint, round_: int) -> None:
        profiled = min(self._plan.protocol.profiled_steps, self._cheap_profiles.get(point, 1))
        command = _Command(point, round_, profiled)
        self._ranks.broadcast(command)
        self._obey(command)

    def _obey(self, command: _Command) -> None:
        if command.point.devices != self._devices:
            self._devices = command.point.devices
            if self._steps is not None:
                self._steps.end()
                self._steps = None
                gc.collect()  # DDP and its hooks refer to each other
        if self._devices in self._visits:
            self._visit(command)

    def _make_workload(self, devices: int) -> Workload:
        """Build the network for steps on a number of devices."""
        from torch.nn.parallel import DistributedDataParallel

        rank = self._ranks.rank_among(devices) or self._ranks.rank_info
        feed = make_feed(self._plan.source, self._network, self._device, rank.rank, devices)
        configuration = self._plan.configuration
        ids = None if self._device == "cpu" else [int(self._device.partition(":")[2])]

        def wrap(model: Any) -> Any:
            return DistributedDataParallel(
                model, device_ids=ids, process_group=self._ranks.groups[devices]
            )

        how = configuration.mode, configuration.precision or "fp32"
        return Workload(
            self._network, self._device, *how, wrap=wrap if devices > 1 else None, feed=feed
        )

    def _visit(self, command: _Command) -> None:
        point = command.point
        if self._steps is None:  # the ranks of this visit build them together
            workload = self._make_workload(point.devices)
            self._steps = RankSteps(workload, point.devices, self._step_ns)
        protocol = replace(self._plan.protocol, profiled_steps=command.profiled_steps)
        result = self._steps.visit(point.batch, VisitPlan(protocol, command.round_))
        assert isinstance(result, Visit)
        if point.batch in self._steps.cheap_profiles:
            self._cheap_profiles[point] = self._steps.cheap_profiles[point.batch]
        visits = self._visits[point.devices]
        discarded = visits.writer.meta.get("discarded_steps", 0) + result.discarded_steps
        visits.writer.update(discarded_steps=discarded)
        visits.write(point.batch, command.round_, result)
