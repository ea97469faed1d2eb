"""A sweep over several networks and settings, each visit in a process of its own, here or on the workers of a cluster.

A visit that runs out of memory, or takes its process down, costs one cell. The plan lies beside the recordings, so that
a sweep that was cut off, however it was, goes on with what is missing. One recording is of one kind of machine: batch
sizes are held against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from queue import Empty as NothingLeft
from queue import SimpleQueue
from typing import Any

from ..errors import CurvescopeError
from ..recording.plan_file import PlanFile
from ..recording.remote_store import AnyPath
from ..recording.store import META_FILE, RecordingWriter, open_recording
from .configuration import Setting
from .experiment import Empty, Progress, StepRow, Visit, VisitWriter
from .protocol import Protocol, doubled
from .sweep import describe_sweep, sweep_batches, why_empty
from .visit_processes import LocalMeasurer, Machine, Measurer

PLAN_FILE = PlanFile("sweep.json", "sweep", "sweep", 1)
_LOOK_S = 0.2  # how soon Ctrl-C is seen
_MOST = 1 << 16  # the largest batch size that a search tries


Report = Callable[[str, Progress], None]
Precise = Callable[[Sequence[StepRow]], bool]


@dataclass(frozen=True)
class Plan:
    """What a sweep is to measure.

    Attributes:
        settings: one recording each.
        batches: batch sizes, increasing.
        up_to_largest: go on doubling from the last of `batches` to the largest that fits, which is found by search and
            measured too; without `batches` it alone is measured.
        protocol: how each is measured.
    """

    settings: tuple[Setting, ...]
    batches: tuple[int, ...]
    up_to_largest: bool
    protocol: Protocol


def write_plan(folder: AnyPath, plan: Plan) -> None:
    """Begin a sweep in a new folder.

    Raises:
        CurvescopeError: something is already there, or it cannot be written.
    """
    PLAN_FILE.write(folder, plan)


def read_plan(folder: AnyPath) -> Plan:
    """The plan of a sweep.

    Raises:
        CurvescopeError: there is none in the folder, or it is not to be read.
    """
    return PLAN_FILE.read(folder, _plan_from)


def _plan_from(entry: dict[str, Any]) -> Plan:
    settings = tuple(setting_from(setting) for setting in entry["settings"])
    protocol = protocol_from(entry["protocol"])
    return Plan(**{**entry, "settings": settings, "batches": tuple(entry["batches"]), "protocol": protocol})


def setting_from(entry: Mapping[str, Any]) -> Setting:
    """The setting that a plan holds."""
    shape = entry["input_shape"]
    entry = {"mode" if name == "kind" else name: value for name, value in entry.items()}  # "kind" until version 0.1
    return Setting(**{**entry, "input_shape": None if shape is None else tuple(shape)})


def protocol_from(entry: Mapping[str, Any]) -> Protocol:
    """The protocol that a plan holds."""
    entry = dict(entry)
    if "profiled_rounds" in entry:  # until version 0.1 the first rounds had one profiled step in each visit
        entry["profiled_steps"] = min(1, entry.pop("profiled_rounds"))
    return Protocol(**{**entry, **{name: tuple(entry[name]) for name in ("rounds", "steps_per_visit")}})


def list_cells(folder: AnyPath) -> list[AnyPath]:
    """Folders of the recordings of a sweep that have begun, in the plan's order."""
    labels = [setting.label for setting in read_plan(folder).settings]
    return [folder / label for label in labels if (folder / label / META_FILE).is_file()]


def run_plan(
    folder: AnyPath,
    plan: Plan,
    report: Report = lambda _, __: None,
    precise: Precise = lambda _: False,
    measurers: Sequence[Measurer] = (),
) -> list[tuple[Setting, str]]:
    """Measure all of a plan that `folder` does not have yet.

    Args:
        folder: where the plan lies and the recordings go.
        plan: what to measure.
        report: told after every visit which setting stands where.
        precise: given the steps so far of a setting after every round, whether they are enough.
        measurers: who does it, each a setting at a time, all at once; without any this machine does.

    Returns:
        Settings that no batch size could be measured of, and why.

    Raises:
        CurvescopeError: a recording cannot be written, was begun on another kind of device, or lost who measured it.
        KeyboardInterrupt: passed on; what is recorded stays, to be gone on with.
    """
    waiting: SimpleQueue[Setting] = SimpleQueue()
    for setting in plan.settings:
        waiting.put(setting)
    failed: list[tuple[Setting, str]] = []

    def work(measurer: Measurer) -> None:
        while True:
            try:
                setting = waiting.get_nowait()
            except NothingLeft:
                measurer.done()
                return
            if why := _run_setting(folder / setting.label, setting, plan, measurer, report, precise):
                failed.append((setting, why))

    if not measurers:
        with LocalMeasurer() as here:
            work(here)
    else:
        with ThreadPoolExecutor(len(measurers)) as pool:
            working = [pool.submit(work, measurer) for measurer in measurers]
            try:
                # One that fails leaves its setting: the others go on with theirs, and what is left is theirs too.
                while wait(working, timeout=_LOOK_S).not_done:
                    pass
            except BaseException:
                for measurer in measurers:
                    measurer.stop()
                raise
        for done in working:
            done.result()
    return failed


def _run_setting(
    path: AnyPath,
    setting: Setting,
    plan: Plan,
    measurer: Measurer,
    report: Report,
    precise: Precise,
) -> str | None:
    begun = (path / META_FILE).is_file()
    if begun and (before := open_recording(path)).complete:
        return None if before.parts("steps") else why_empty(before.meta)
    machine = measurer.describe(setting.device)
    if isinstance(machine, Empty):
        return machine.detail
    if begun:
        _check_device(path, before.meta, machine)
        writer = RecordingWriter.resume(path, "steps")
    else:
        writer = RecordingWriter(path, _describe(setting, plan, machine))
    machines = [] if begun else [machine]  # that the recording names; a resumed one is measured on another

    def measure(batch: int) -> Visit | Empty:
        found = measurer.visit(setting, batch, plan.protocol)
        if not any(measurer.machine is known for known in machines):
            machines.append(measurer.machine)
            entry = {"first_step": visits.next_step, **measurer.machine.entry}
            writer.update(went_on_at=[*writer.meta.get("went_on_at", []), entry])
        return found

    def fits(batch: int) -> bool:
        report(setting.label, Progress(0.0, 0.0, f"does batch {batch} fit?"))
        return measurer.fits(setting, batch)

    with writer:
        if plan.up_to_largest and "largest_batch" not in writer.meta:
            first = plan.batches[-1] if plan.batches else 1
            largest, too_large = find_largest(fits, first)
            between = doubled(first, largest) if plan.batches else ()
            batches = sorted({*plan.batches, *between, max(largest, 1)})
            writer.update(largest_batch=largest, smallest_too_large=too_large, batches=batches)
        visits = VisitWriter(writer, setting.mode)
        return sweep_batches(visits, measure, plan.protocol, lambda one: report(setting.label, one), precise)


def _describe(setting: Setting, plan: Plan, machine: Machine) -> dict[str, Any]:
    meta = describe_sweep(setting.network, setting.mode, plan.batches, plan.protocol)
    meta |= {key: value for key, value in asdict(setting).items() if key not in ("network", "mode")}
    return meta | machine.entry


def _check_device(path: AnyPath, meta: Mapping[str, Any], machine: Machine) -> None:
    """Refuse to go on with a recording on another kind of device."""
    differ = sorted(
        f"{key}: {meta['device'].get(key)} there, {machine.device.get(key)} here"
        for key in {*meta["device"], *machine.device}
        if meta["device"].get(key) != machine.device.get(key)
    )
    if differ:
        raise CurvescopeError(
            f"{path} was begun on another device ({'; '.join(differ)}), and its batch sizes are held against each "
            "other. Go on with it on such a device, or begin anew with another -o DIR."
        )


def find_largest(fits: Callable[[int], bool], first: int) -> tuple[int, int | None]:
    """The largest batch size that fits, by doubling and then by halving the gap, and the smallest found too large.

    The search ends when the gap is within a 32nd of the size. Where not even `first` fits, smaller sizes are tried;
    0 where none does.
    """
    good, bad = 0, None
    tried = first
    while tried <= _MOST and fits(tried):
        good, tried = tried, tried * 2
    if tried > _MOST:
        return good, None
    bad = tried
    while bad - good > max(1, good // 32):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good, bad
