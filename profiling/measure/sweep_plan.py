"""A sweep over several networks and configurations, each visit in its own process, here or on the
workers of a cluster.

The plan is stored beside the recordings, so an interrupted sweep can be resumed. All visits of a
recording run on one kind of machine, because batch sizes are compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty as QueueEmpty
from queue import SimpleQueue
from typing import Any

from ...base.errors import CurvescopeError
from ...base.sizes import double
from ..hardware.register import register
from ..recording.inside import check_unlinked
from ..recording.plan_file import PlanFile
from ..recording.remote_store import AnyPath
from ..recording.store import META_FILE, RecordingWriter, open_recording
from .configuration import Configuration
from .loop import Progress, VisitWriter
from .machine import Machine, different_facts
from .protocol import Protocol
from .sites.command import Command
from .sites.machines import LocalMeasurer, Measurer
from .stopping import Complete, Until
from .sweep import Precise, describe_sweep, run_sweep, sweep_batches, why_unmeasured
from .visits import Empty, Visit, VisitPlan

_POLL_S = 0.2  # time until Ctrl-C is noticed
_LARGEST_TRIAL = 1 << 16  # largest batch size that the search tries

Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class SweepPlan:
    """The work of a sweep."""

    configurations: tuple[Configuration, ...]  # one recording each
    batches: tuple[int, ...]  # increasing
    # measure the largest size that fits, too, and the doubles of the last of `batches` up to it
    up_to_largest: bool
    protocol: Protocol


PLAN_FILE = PlanFile("sweep.json", "sweep", "sweep", 1, SweepPlan)


def sweep_recordings(folder: AnyPath) -> list[AnyPath]:
    """Folders of the recordings of a sweep that exist, in the plan's order."""
    paths = [
        folder / configuration.label for configuration in PLAN_FILE.read(folder).configurations
    ]
    return [path for path in paths if (path / META_FILE).is_file()]


def recordings_in(paths: Iterable[AnyPath]) -> list[AnyPath]:
    """Folders of recordings: each path itself, or the recordings of the sweep in it."""
    return [
        recording
        for path in paths
        for recording in (sweep_recordings(path) if (path / PLAN_FILE.name).is_file() else [path])
    ]


def run_plan(
    folder: AnyPath,
    plan: SweepPlan,
    report: Report = lambda _, __: None,
    precise: Precise = lambda _: False,
    measurers: Sequence[Measurer] = (),
) -> list[tuple[Configuration, str]]:
    """Measure everything in a plan that is missing in `folder`.

    `report` receives a configuration's label and progress after every visit. Measurers run in
    parallel, each with one configuration at a time; by default this machine measures alone. Returns
    configurations of which no batch size could be measured, and the reasons.

    Raises:
        CurvescopeError: a recording cannot be written, was started on another kind of device, or
            lost its measurer.
    """
    waiting: SimpleQueue[Configuration] = SimpleQueue()
    for configuration in plan.configurations:
        waiting.put(configuration)
    failed: list[tuple[Configuration, str]] = []

    def work(measurer: Measurer) -> None:
        while True:
            try:
                configuration = waiting.get_nowait()
            except QueueEmpty:
                measurer.done()
                return
            if isinstance(folder, Path):
                check_unlinked(folder, configuration.label)
            path = folder / configuration.label
            if why := _run_configuration(path, configuration, plan, measurer, report, precise):
                failed.append((configuration, why))

    if not measurers:
        with register(f"sweep into {folder}"), LocalMeasurer() as local:
            work(local)
        return failed
    with register(f"sweep into {folder}"), ThreadPoolExecutor(len(measurers)) as pool:
        working = [pool.submit(work, measurer) for measurer in measurers]
        try:
            # After a failure of one measurer, the others still measure everything else.
            while wait(working, timeout=_POLL_S).not_done:
                pass
        except BaseException:
            for measurer in measurers:
                measurer.stop()
            raise
    for done in working:
        done.result()
    return failed


def _run_configuration(
    path: AnyPath,
    configuration: Configuration,
    plan: SweepPlan,
    measurer: Measurer,
    report: Report,
    precise: Precise,
) -> str | None:
    """Make the missing visits of one recording; returns the reason if no batch size could be
    measured.
    """
    existing = open_recording(path) if (path / META_FILE).is_file() else None
    if existing is not None and existing.complete:
        return None if existing.parts("steps") else why_unmeasured(existing.meta)
    if configuration.program is not None:
        return _run_program(path, configuration, plan, report, precise)
    machine = measurer.describe(configuration.device)
    if isinstance(machine, Empty):
        return machine.detail
    if existing is not None:
        _check_device(path, existing.meta, machine)
        writer = RecordingWriter.resume(path, "steps")
    else:
        meta = describe_sweep(configuration.entry, plan.batches, plan.protocol)
        writer = RecordingWriter(path, meta | machine.entry)
    # machines that the recording names; a resumed one names each new one
    machines = [] if existing else [machine]

    def measure(batch: int) -> Visit | Empty:
        how = VisitPlan(plan.protocol, operators=not visits.has_operators(batch))
        result = measurer.visit(configuration, batch, how)
        if not any(measurer.machine is machine for machine in machines):
            machines.append(measurer.machine)
            entry = {"first_step": visits.next_step, **measurer.machine.entry}
            writer.update(went_on_at=[*writer.meta.get("went_on_at", []), entry])
        return result

    def fits(batch: int) -> bool:
        report(configuration.label, Progress(0.0, 0.0, f"does batch {batch} fit?"))
        return measurer.fits(configuration, batch)

    with writer:
        if plan.up_to_largest and "largest_batch" not in writer.meta:
            first = plan.batches[-1] if plan.batches else 1
            largest, too_large = find_largest(fits, first)
            between = double(first, largest) if plan.batches else ()
            batches = sorted({*plan.batches, *between, max(largest, 1)})
            writer.update(largest_batch=largest, smallest_too_large=too_large, batches=batches)
        visits = VisitWriter(writer, configuration.mode)

        def note(progress: Progress) -> None:
            report(configuration.label, replace(progress, steps=visits.steps))

        return sweep_batches(visits, measure, Until(Complete.of(plan.protocol), precise), note)


def _run_program(
    path: AnyPath, configuration: Configuration, plan: SweepPlan, report: Report, precise: Precise
) -> str | None:
    """Measure a program, whose runs are processes of their own; an interrupted recording of it is
    not resumed.
    """
    if (path / META_FILE).is_file():
        raise CurvescopeError(
            f"{path} was interrupted, and runs of a program are not resumed: remove it, and resume."
        )
    rule = Until[int](Complete.of(plan.protocol), precise)
    try:
        run_sweep(
            Command.of(configuration),
            plan.batches,
            plan.protocol,
            path,
            lambda progress: report(configuration.label, progress),
            rule,
        )
    except CurvescopeError as error:
        return str(error)
    return None


def _check_device(path: AnyPath, meta: Mapping[str, Any], machine: Machine) -> None:
    """Refuse to resume a recording on another kind of device, or with another lock of its clock."""
    locked = "locked_sm_clock_hz"
    there = {locked: meta.get(locked)}
    here = {locked: machine.locked_sm_clock_hz}
    device = meta.get("device") or {}
    differ = different_facts({**device, **there}, {**machine.device, **here}).values()
    if differ:
        raise CurvescopeError(
            f"{path} was started on another device ({'; '.join(differ)}), and batch sizes are "
            "compared with each other. Resume it on the same kind of device, or start a new sweep "
            "with another -o DIR."
        )


def find_largest(fits: Callable[[int], bool], first: int) -> tuple[int, int | None]:
    """Search the largest batch size that fits, by doubling from `first` and then by bisection to a
    32nd of the size.

    Returns it, 0 for none, and the smallest size that was too large, None if all sizes fit.
    """
    good = 0
    tried = first
    while tried <= _LARGEST_TRIAL and fits(tried):
        good = tried
        tried *= 2
    if tried > _LARGEST_TRIAL:
        return good, None
    bad = tried
    while bad - good > max(1, good // 32):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good, bad
