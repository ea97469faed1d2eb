"""One rank of a scaling run: data-parallel steps on 1, 2, … devices, timed and recorded in interleaved rounds.

All ranks of the launch are there from the start; a visit takes the first few of them, the others wait. So every number
of devices is visited in every round, and slow drift of the machine touches all of them alike. Rank 0 conducts: it says
what comes next, and the others follow. One device steps the plain network; several step it under
DistributedDataParallel, over NCCL on GPUs and Gloo on CPUs.
"""

from __future__ import annotations

import copy
import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..attribution.events import StepRows
from ..attribution.range_names import COLLECTIVES
from ..errors import CurvescopeError
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device
from ..recording.rank_info import META_KEY, Place
from ..recording.store import META_FILE, RecordingWriter, open_recording
from ..workload.input_pipeline import make_feed
from ..workload.network_step import Workload, import_torch
from .clock_alignment import ClockAlignment, Reading, alignment_of
from .experiment import Empty, Experiment, Progress, StepRow, Visit, VisitWriter
from .process_group import Team
from .scaling_plan import PLAN_FILE, ScalingPlan, ScalingPoint, is_complete, rank_folder, rank_recordings, whole_visits
from .sweep import describe_sweep
from .visit import discard_steps, profile_steps, time_steps
from .visit import visit as try_visit

# A process that starts to step on that many devices pays for more than a change of batch size does: DDP builds its
# buckets anew after the first step, and the second allocates them.
_FRESH_STEPS = 2
Precise = Callable[[Sequence[StepRow]], bool]


@dataclass(frozen=True)
class _Command:
    """The visit that rank 0 has the ranks make next.

    Attributes:
        point: number of devices, and the batch of each.
        round_: number of the round, from 0.
        steps: number of unprofiled steps.
        profiled_steps: most profiled ones.
        anew: whether the last visit was of another number of devices: every rank drops that workload, and those that
            step now make the new one together.
    """

    point: ScalingPoint
    round_: int
    steps: int
    profiled_steps: int
    anew: bool


@dataclass(frozen=True)
class _ReadClocks:
    """Compare the clocks of the nodes."""


def run_rank(
    folder: Path,
    plan: ScalingPlan,
    team: Team,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Precise = lambda _: False,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    """Measure what `folder` does not have yet, as one rank of an entered team.

    Args:
        folder: of the plan, on a file system that all nodes share.
        plan: what to measure; the same on all ranks.
        team: all ranks.
        report: receives the progress of rank 0 after every visit.
        precise: says whether rank 0's rows of `steps` are enough; their batch is the index of the point in the plan.
        clock_s: the clock of the time limit.

    Raises:
        CurvescopeError: too few processes or devices, a batch that does not fit, or a folder that cannot be written.
    """
    team.check_size(plan.devices)
    if not all(team.gather((folder / PLAN_FILE.name).is_file())):
        raise CurvescopeError(f"{folder} is not seen by all ranks: give -o DIR on a file system that all nodes share.")
    _Rank(folder, plan, team, report, precise, clock_s).run()


def device_of(plan: ScalingPlan, place: Place) -> str:
    """The device of a rank.

    Raises:
        CurvescopeError: its node has too few.
    """
    if plan.setting.device == "cpu":
        return "cpu"
    count = int(import_torch().cuda.device_count())
    # Slurm may show each task its own GPU only.
    index = 0 if count == 1 and "SLURM_LOCALID" in os.environ else place.local_rank
    if index >= count:
        raise CurvescopeError(
            f"Rank {place.rank} is process {place.local_rank} of its node, which has {count} GPUs: start one process "
            "per GPU."
        )
    return f"cuda:{index}"


class _Rank:
    def __init__(
        self,
        folder: Path,
        plan: ScalingPlan,
        team: Team,
        report: Callable[[Progress], None],
        precise: Precise,
        clock_s: Callable[[], float],
    ) -> None:
        torch = import_torch()
        self._folder, self._plan, self._team, self._report, self._precise = folder, plan, team, report, precise
        self._clock_s = clock_s
        self._device = device_of(plan, team.place)
        if plan.threads is not None:
            torch.set_num_threads(plan.threads)
        if self._device != "cpu":
            torch.cuda.set_device(self._device)
        network = plan.setting.find_network()
        model = network.build()  # once: every workload starts from a copy of it
        self._network = replace(network, build=lambda: copy.deepcopy(model))
        self._clocks = ClockSampler(self._device)
        self._readings: list[Reading] = []
        self._visits: dict[int, VisitWriter] = {}  # by number of devices, of those that this rank is one of
        self._workload: Workload | None = None  # of the last visit
        self._devices = 0  # of the last visit
        self._step_ns: dict[int, int] = {}  # by batch size of a device
        self._cheap_profiles: dict[ScalingPoint, int] = {}  # most steps of the next visit, by the time of the last
        self._too_large: dict[int, Empty] = {}

    def run(self) -> None:
        backend = "gloo" if self._device == "cpu" else "nccl"
        self._team.make_groups([n for n in self._plan.devices if n > 1], backend)
        whole = self._team.tell(self._find_whole() if self._leads else None)
        if whole is None:
            return
        with ExitStack() as stack:
            for devices in self._plan.devices:
                if (place := self._team.place_among(devices)) is not None:
                    writer = stack.enter_context(self._open(devices, place, whole[devices]))
                    self._visits[devices] = VisitWriter(writer, self._plan.setting.mode)
            self._try_batches()
            if self._leads:
                self._lead()
            else:
                while (command := self._team.tell(None)) is not None:
                    self._obey(command)

    @property
    def _leads(self) -> bool:
        return self._team.place.rank == 0

    def _find_whole(self) -> dict[int, set[str]] | None:
        """The visits that every rank has, by number of devices; None if nothing is left to do."""
        if is_complete(self._folder, self._plan):
            return None
        return {n: whole_visits(rank_recordings(self._folder, n)) for n in self._plan.devices}

    def _open(self, devices: int, place: Place, whole: set[str]) -> RecordingWriter:
        path = rank_folder(self._folder, devices, place.rank)
        if (path / META_FILE).is_file():
            for part in open_recording(path).parts("steps"):
                if part.stem not in whole:
                    part.unlink()  # some other rank did not finish this visit
            self._readings = list(alignment_of(open_recording(path).meta[META_KEY].get("clock")).readings)
            return RecordingWriter.resume(path, "steps")
        plan, setting = self._plan, self._plan.setting
        batches = sorted(point.batch for point in plan.points if point.devices == devices)
        meta = describe_sweep(setting.network, setting.mode, batches, plan.protocol)
        device = describe_device(self._device)
        meta |= {
            "precision": setting.precision,
            "compiled": False,
            "input": plan.source,
            "device": device,
            "ceilings": ceilings.entry_for(device),
            "clocks_missing": self._clocks.missing,
            META_KEY: place.entry(),
        }
        return RecordingWriter(path, meta)

    def _try_batches(self) -> None:
        """Step every batch size on every device alone: does it fit, and how long does it take?"""
        once = replace(self._plan.protocol, discarded_steps=1, steps_per_visit=(1, 1), profiled_steps=0, images=None)
        workload = self._make_workload(1)
        for batch in sorted({point.batch for point in self._plan.points}):
            try:
                found = try_visit(workload, batch, once)
            except CurvescopeError:
                raise
            except Exception:
                workload.try_step(batch)  # says what failed in words for the user
                raise
            failed = found if isinstance(found, Empty) else None
            step_ns = 0 if isinstance(found, Empty) else found.unprofiled[-1]["duration_ns"]
            outcomes = self._team.gather((failed, step_ns))
            if (empty := next((failed for failed, _ in outcomes if failed is not None), None)) is not None:
                self._too_large[batch] = empty
                for devices, visits in self._visits.items():
                    if ScalingPoint(devices, batch) in self._plan.points:
                        visits.writer.update(empty=[{"batch": batch, "round": 0, **asdict(empty)}])
            self._step_ns[batch] = max(step_ns for _, step_ns in outcomes)
        workload.release()
        if len(self._too_large) == len(self._step_ns):
            batch, empty = next(iter(self._too_large.items()))
            raise CurvescopeError(
                f"{self._network.name} does not fit: batch {batch} on one device: {empty.why} ({empty.detail}). "
                "Choose a smaller --batch."
            )

    def _lead(self) -> None:
        """On rank 0: say what the ranks do, and do it with them."""
        plan, read_clocks = self._plan, len(set(self._team.nodes)) > 1
        order = {point: index for index, point in enumerate(plan.points)}

        def begin_round() -> None:
            if read_clocks:
                self._command(_ReadClocks())

        def steps() -> list[StepRow]:
            return [
                {**row, "batch": order[ScalingPoint(devices, row["batch"])]}
                for devices, visits in self._visits.items()
                for row in visits.steps
            ]

        Experiment(
            plan.points,
            self._command_visit,
            plan.protocol.rounds,
            plan.protocol.time_limit_s,
            finished=lambda point: point.batch in self._too_large,
            visited=lambda point, round_: self._visits[point.devices].has(point.batch, round_),
            precise=lambda: self._precise(steps()),
            group=lambda point: point.devices,
            begin_round=begin_round,
            label=lambda point: f"{point.devices} devices",
            report=self._report,
            clock_s=self._clock_s,
        ).run()
        begin_round()
        self._team.tell(None)

    def _command_visit(self, point: ScalingPoint, round_: int) -> None:
        protocol = self._plan.protocol
        steps = protocol.steps_of_visit(point.total_batch, self._step_ns[point.batch])
        profiled = min(steps, protocol.profiled_steps, self._cheap_profiles.get(point, 1))
        self._command(_Command(point, round_, steps, profiled, point.devices != self._devices))
        self._devices = point.devices

    def _command(self, command: _Command | _ReadClocks) -> None:
        self._team.tell(command)
        self._obey(command)

    def _obey(self, command: _Command | _ReadClocks) -> None:
        if isinstance(command, _ReadClocks):
            self._read_clocks()
            return
        if command.anew:
            self._drop_workload()
        if command.point.devices in self._visits:
            self._visit(command)

    def _read_clocks(self) -> None:
        reading = self._team.read_clocks()
        if reading is not None:
            self._readings = sorted([*self._readings, reading], key=lambda one: one.at_ns)
        for devices, visits in self._visits.items():
            place = self._team.place_among(devices)
            assert place is not None
            visits.writer.update(**{META_KEY: place.entry(ClockAlignment(tuple(self._readings)).entry())})

    def _drop_workload(self) -> None:
        if self._workload is not None:
            self._workload.release()
            self._workload = None
            gc.collect()  # DDP and its hooks refer to each other

    def _make_workload(self, devices: int) -> Workload:
        """The network ready to step on so many devices."""
        place = self._team.place_among(devices) or self._team.place
        feed = make_feed(self._plan.source, self._network, self._device, place.rank, devices)
        setting = self._plan.setting
        wrap = self._parallel(devices) if devices > 1 else None
        return Workload(self._network, self._device, setting.mode, setting.precision, wrap=wrap, feed=feed)

    def _parallel(self, devices: int) -> Callable[[Any], Any]:
        from torch.nn.parallel import DistributedDataParallel

        where = None if self._device == "cpu" else [int(self._device.partition(":")[2])]
        return lambda model: DistributedDataParallel(
            model, device_ids=where, process_group=self._team.group(devices), gradient_as_bucket_view=False
        )

    def _visit(self, command: _Command) -> None:
        point, protocol = command.point, self._plan.protocol
        workload = self._workload = self._workload or self._make_workload(point.devices)
        discarded = protocol.discarded_steps + command.anew * _FRESH_STEPS
        with self._clocks:
            began_ns = workload.clock_ns()
            discard_steps(workload, point.batch, discarded)
            unprofiled = time_steps(workload, command.steps)
            timed_ns = workload.clock_ns() - began_ns
            profiled: list[StepRows] = []
            # The profiler starts at another moment on each rank: they step once together before each step that
            # counts, so that it begins as apart as they are by themselves. All ranks profile the same number.
            for rows in profile_steps(workload, command.profiled_steps, math.inf, before=workload.time_step):
                for row in rows.kernels:
                    if str(row["op"]).startswith(COLLECTIVES):
                        row["communicator"] = f"{point.devices} devices"
                profiled.append(rows)
        if profiled:
            profiled_ns = workload.clock_ns() - began_ns - timed_ns
            self._cheap_profiles[point] = max(1, timed_ns * len(profiled) // max(profiled_ns, 1))
        visits = self._visits[point.devices]
        visits.writer.update(discarded_steps=visits.writer.meta.get("discarded_steps", 0) + discarded)
        visits.write(point.batch, command.round_, Visit(unprofiled, profiled, clocks=self._clocks.take()))
