"""One rank of a scaling run: data-parallel steps on 1, 2, … devices, timed and recorded in interleaved rounds.

All ranks of the launch are there from the start; a visit takes the first few of them, the others wait. So every number
of devices is visited in every round, and slow drift of the machine touches all of them alike. Rank 0 conducts: it says
what comes next, and the others follow. One device steps the plain network; several step it under
DistributedDataParallel, over NCCL on GPUs and Gloo on CPUs.
"""

from __future__ import annotations

import copy
import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..attribution.events import COLLECTIVES, INPUT_PHASE, PHASE_RANGE
from ..errors import CurvescopeError
from ..hardware import ceilings
from ..hardware.clocks import ClockSampler
from ..hardware.host import describe_device
from ..recording.rank_info import META_KEY, Place
from ..recording.store import META_FILE, RecordingWriter, columns_of, open_recording
from ..workload.input_pipeline import make_feed
from ..workload.network_step import Workload, import_torch
from .clock_alignment import ClockAlignment, Reading, alignment_of
from .process_group import Team
from .progress import Pace, Progress
from .scaling_plan import PLAN_FILE, ScalingPlan, ScalingPoint, is_complete, rank_folder, rank_recordings, whole_visits
from .sweep import describe_sweep
from .visit import Empty, count_work, part_of_visit, time_steps
from .visit import visit as try_visit

_SEED = 0
# A process that starts to step on that many devices pays for more than a change of batch size does: DDP builds its
# buckets anew after the first step, and the second allocates them.
_FRESH_STEPS = 2
Precise = Callable[[Sequence[dict[str, Any]]], bool]


@dataclass(frozen=True)
class _Visit:
    """What rank 0 tells the others to do next.

    Attributes:
        point: how many devices, and the batch of each.
        repeat: of which round.
        steps: timed ones.
        profile: end with a profiled step.
        anew: the last visit was of another number of devices: everyone drops that workload, for the ranks that step
            now have to make the new one together.
    """

    point: ScalingPoint
    repeat: int
    steps: int
    profile: bool
    anew: bool


@dataclass(frozen=True)
class _ReadClocks:
    """Hold the clocks of the nodes against each other."""


def run_rank(
    folder: Path,
    plan: ScalingPlan,
    team: Team,
    report: Callable[[Progress], None] = lambda _: None,
    precise: Precise = lambda _: False,
) -> None:
    """Measure what `folder` does not have yet, as one rank of an entered team.

    Args:
        folder: of the plan, on a file system that all nodes share.
        plan: what to measure; the same on all ranks.
        team: all ranks.
        report: told by rank 0 after every visit where the run stands.
        precise: given rank 0's rows of `steps`, their batch being the place of the point in the plan, whether they
            are enough.

    Raises:
        CurvescopeError: too few processes or devices, a batch that does not fit, or a folder that cannot be written.
    """
    team.check_size(plan.devices)
    if not all(team.gather((folder / PLAN_FILE.name).is_file())):
        raise CurvescopeError(f"{folder} is not seen by all ranks: give -o DIR on a file system that all nodes share.")
    _Rank(folder, plan, team, report, precise).run()


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
    ) -> None:
        torch = import_torch()
        self._folder, self._plan, self._team, self._report, self._precise = folder, plan, team, report, precise
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
        self._writers: dict[int, RecordingWriter] = {}
        self._workload: Workload | None = None  # of the visit that was last
        self._next_step: dict[int, int] = {}
        self._step_ns: dict[int, int] = {}  # by batch size of a device
        self._steps: list[dict[str, Any]] = []  # rank 0's, for `precise`
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
                    writer = self._open(devices, place, whole[devices])
                    self._writers[devices] = stack.enter_context(writer)
            self._try_batches()
            self._follow(whole)

    @property
    def _leads(self) -> bool:
        return self._team.place.rank == 0

    def _find_whole(self) -> dict[int, set[str]] | None:
        """The visits that are there, by number of devices; null where nothing is left to do."""
        if is_complete(self._folder, self._plan):
            return None
        return {n: whole_visits(rank_recordings(self._folder, n)) for n in self._plan.devices}

    def _open(self, devices: int, place: Place, whole: set[str]) -> RecordingWriter:
        path = rank_folder(self._folder, devices, place.rank)
        self._next_step[devices] = 0
        if (path / META_FILE).is_file():
            for part in open_recording(path).parts("steps"):
                if part.stem not in whole:
                    part.unlink()  # some other rank did not finish this visit
            before = open_recording(path)
            self._next_step[devices] = max(before.arrow("steps", ("step",))["step"].to_pylist(), default=-1) + 1
            self._readings = list(alignment_of(before.meta[META_KEY].get("clock")).readings)
            return RecordingWriter.resume(path, "steps")
        plan, setting = self._plan, self._plan.setting
        batches = sorted(point.batch for point in plan.points if point.devices == devices)
        meta = describe_sweep(setting.network, setting.kind, batches, plan.protocol)
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
        once = replace(self._plan.protocol, discarded_steps=1, steps_per_visit=(1, 1), images=None)
        workload = self._make_workload(1)
        for batch in sorted({point.batch for point in self._plan.points}):
            try:
                found = try_visit(workload, batch, once, profile=False)
            except CurvescopeError:
                raise
            except Exception:
                workload.try_step(batch)  # says what failed in words for the user
                raise
            failed = found if isinstance(found, Empty) else None
            step_ns = 0 if isinstance(found, Empty) else found.timed[-1]["duration_ns"]
            outcomes = self._team.gather((failed, step_ns))
            if (empty := next((failed for failed, _ in outcomes if failed is not None), None)) is not None:
                self._too_large[batch] = empty
                for devices, writer in self._writers.items():
                    if ScalingPoint(devices, batch) in self._plan.points:
                        writer.update(empty=[{"batch": batch, "round": 0, **asdict(empty)}])
            self._step_ns[batch] = max(step_ns for _, step_ns in outcomes)
        workload.release()
        if len(self._too_large) == len(self._step_ns):
            batch, empty = next(iter(self._too_large.items()))
            raise CurvescopeError(
                f"{self._network.name} does not fit: batch {batch} on one device: {empty.why} ({empty.detail}). "
                "Choose a smaller --batch."
            )

    def _follow(self, whole: dict[int, set[str]]) -> None:
        """Do what rank 0 says until it says that nothing is left."""
        commands = self._conduct(whole) if self._leads else iter(())
        while (command := self._team.tell(next(commands, None))) is not None:
            if isinstance(command, _ReadClocks):
                self._read_clocks()
                continue
            if command.anew:
                self._drop_workload()
            if command.point.devices in self._writers:
                self._visit(command)

    def _conduct(self, whole: dict[int, set[str]]) -> Iterator[_Visit | _ReadClocks]:
        protocol = self._plan.protocol
        several_nodes = len(set(self._team.nodes)) > 1
        pace: Pace[ScalingPoint] = Pace(protocol)
        stepping = 0
        for repeat, order in self._rounds(whole):
            missing = [point for point in order if point.batch not in self._too_large]
            enough = repeat >= protocol.rounds[0]
            if enough and missing and (not pace.has_time_for(missing) or self._precise(self._steps)):
                break
            if several_nodes:
                yield _ReadClocks()
            for place, point in enumerate(missing):
                steps = protocol.steps_of_visit(point.total_batch, self._step_ns[point.batch])
                with pace.visit(point):  # until the next command is asked for
                    yield _Visit(point, repeat, steps, repeat < protocol.profiled_rounds, point.devices != stepping)
                stepping = point.devices
                doing = f"round {repeat + 1}, {point.devices} devices"
                self._report(pace.progress(missing[place + 1 :], repeat, doing))
        if several_nodes:
            yield _ReadClocks()

    def _rounds(self, whole: dict[int, set[str]]) -> Iterator[tuple[int, list[ScalingPoint]]]:
        """What every round has to visit: in the first upwards, later by device count in shuffled order."""
        shuffled = random.Random(_SEED)  # noqa: S311 - an order of measurement, no secret
        for repeat in range(self._plan.protocol.rounds[1]):
            counts = list(self._plan.devices)
            if repeat:
                shuffled.shuffle(counts)
            yield (
                repeat,
                [
                    point
                    for devices in counts
                    for point in self._plan.points
                    if point.devices == devices and part_of_visit(point.batch, repeat) not in whole[devices]
                ],
            )

    def _read_clocks(self) -> None:
        reading = self._team.read_clocks()
        if reading is not None:
            self._readings = sorted([*self._readings, reading], key=lambda one: one.at_ns)
        for devices, writer in self._writers.items():
            place = self._team.place_among(devices)
            assert place is not None
            writer.update(**{META_KEY: place.entry(ClockAlignment(tuple(self._readings)).entry())})

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
        return Workload(self._network, self._device, setting.kind, setting.precision, wrap=wrap, feed=feed)

    def _parallel(self, devices: int) -> Callable[[Any], Any]:
        from torch.nn.parallel import DistributedDataParallel

        where = None if self._device == "cpu" else [int(self._device.partition(":")[2])]
        return lambda model: DistributedDataParallel(
            model, device_ids=where, process_group=self._team.group(devices), gradient_as_bucket_view=False
        )

    def _visit(self, told: _Visit) -> None:
        devices, batch = told.point.devices, told.point.batch
        workload = self._workload = self._workload or self._make_workload(devices)
        discarded = self._plan.protocol.discarded_steps + told.anew * _FRESH_STEPS
        with self._clocks:
            workload.load(batch)
            for _ in range(discarded):
                workload.time_step()
            timed = time_steps(workload, told.steps)
            profiled = None
            if told.profile:
                workload.warm_up_profiler()
                # The profiler starts at another moment on each rank: they step once together before the step that
                # counts, so that it begins as apart as they are by themselves.
                profiled = workload.record_step(count_work, before=workload.time_step)
        rows = [self._row(told, index, row, profiled=False) for index, row in enumerate(timed)]
        writer, part = self._writers[devices], part_of_visit(batch, told.repeat)
        writer.update(discarded_steps=writer.meta.get("discarded_steps", 0) + discarded)
        if profiled is not None:
            (start_ns, duration_ns), *_ = profiled.windows
            rows.append(self._row(told, len(rows), {"start_ns": start_ns, "duration_ns": duration_ns}, profiled=True))
            step = rows[-1]["step"]
            for row in profiled.kernels:
                row["step"] = step
                if str(row["op"]).startswith(COLLECTIVES):
                    row["communicator"] = f"{devices} devices"
            writer.write("kernels", columns_of(profiled.kernels), part)
            writer.write("ranges", columns_of([_input_range(window, step) for window in profiled.inputs]), part)
            for name, count in profiled.lost.items():
                writer.count_lost(name, count)
        writer.write("clocks", columns_of(self._clocks.take()), part)
        writer.write("steps", columns_of(rows), part)
        if self._leads:
            place = self._plan.points.index(told.point)
            self._steps += [{**row, "batch": place} for row in rows]

    def _row(self, told: _Visit, index: int, timed: dict[str, Any], profiled: bool) -> dict[str, Any]:
        number = self._next_step[told.point.devices]
        self._next_step[told.point.devices] += 1
        return {
            "step": number,
            "batch": told.point.batch,
            "repeat": told.repeat,
            "index": index,
            "phase": self._plan.setting.kind,
            "profiled": profiled,
            **timed,
        }


def _input_range(window: tuple[int, int], step: int) -> dict[str, Any]:
    start_ns, duration_ns = window
    name = PHASE_RANGE + INPUT_PHASE
    return {
        "name": name,
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "kind": "push_pop",
        "step": step,
        "source": "torch",
    }
