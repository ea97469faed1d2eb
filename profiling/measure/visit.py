"""One visit of one batch size: discarded steps, unprofiled steps, marked ones, then
profiled ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...base.torch_runtime import has_torch
from ..attribution.events import StepRows
from ..attribution.operator_calls import CountWork
from ..attribution.operator_work import count_work
from ..attribution.outermost_operators import OperatorCalls
from ..attribution.range_names import name_forward
from ..collect import torch_step
from ..collect.framework_profile import record_step as record_by_framework
from ..collect.marks import Marks
from ..frameworks import framework_threads, framework_versions, memory_ran_out, own_profiler
from ..frameworks.adapter import Adapter
from ..hardware.energy import EnergyMeter, meter_of
from ..hardware.heap import FEW_FAULTS
from ..hardware.host_usage import host_use_between, read_host_use
from ..hardware.memory_usage import read_current, read_peak, reset_peak
from ..hardware.neighbours import find_neighbours
from ..hardware.reference import Reference
from ..hardware.stream_clock import StreamClock, stream_clock
from ..workload.any_workload import AnyWorkload, FirstProfiled
from ..workload.steps import ChangedSteps, Steps
from .visits import FAILED, OUT_OF_MEMORY, Empty, StepRow, Visit, VisitPlan

_GPU_WARM_UP_NS = 100_000_000
# Time of a visit's profiled steps, in steps: of the first of a size with those that look at its
# operators and memory.
_FIRST_PROFILE_STEPS = 5.0
_PROFILE_STEPS = 1.5
_MARK_NS = 1_700  # what a mark costs, as seen
_LIGHT = 0.002  # share of a step: marks that cost less leave its time as it is
# share of the time between steps, at a third of the power: then energies are 0.7 % too low
_MOST_WAITING = 0.01


def visit(
    workload: AnyWorkload,
    batch: int,
    how: VisitPlan,
    between: Callable[[], object] = lambda: None,
    reference: Reference | None = None,
) -> Visit | Empty:
    """Measure one batch size once; returns the steps, or `Empty`.

    It is empty if the batch does not fit the memory, or a step of the user failed.

    Args:
        workload: steps to measure.
        batch: batch size.
        how: how to measure.
        between: function that runs after every unprofiled step, outside its time, e.g. to sample
            clocks.
        reference: what runs beside timed steps, if it fits their time; its times are in the rows.
    """
    result = _visit(workload, batch, how, between, reference)
    if _is_short_of_memory(result) and workload.free_others():
        result = _visit(workload, batch, how, between, reference)
    if _is_short_of_memory(result):
        workload.release()
    return result


def _is_short_of_memory(result: Visit | Empty) -> bool:
    return result.why == OUT_OF_MEMORY if isinstance(result, Empty) else not result.profile_fits


def _visit(
    workload: AnyWorkload,
    batch: int,
    how: VisitPlan,
    between: Callable[[], object],
    reference: Reference | None,
) -> Visit | Empty:
    protocol = how.protocol
    unprofiled: list[StepRow] = []
    marked: list[list[dict[str, Any]]] = []
    profiled: list[StepRows] = []
    began_ns = workload.clock_ns()
    try:
        workload.load_libraries()
        is_new = workload.loaded != batch
        warm_ups = [discard_steps(workload, batch, protocol.discarded_steps)]
        count = protocol.steps_of_visit(batch, warm_ups[0].last_ns)
        if reference and not reference.fits(
            (protocol.discarded_steps + count) * warm_ups[0].last_ns
        ):
            reference = None
        held_before = read_current(workload.device) if workload.is_users else None
        unprofiled, marked = _time(workload, count, between, reference, light=how.light)
        if protocol.chooses_steps and _is_unlike(warm_ups[0].last_ns, unprofiled):
            further, marks_of_further = _time(workload, 1, between, light=how.light)
            unprofiled = unprofiled + further
            marked = marked + marks_of_further
        held = None if held_before is None else read_current(workload.device)
        grown = None
        if held is not None and held_before is not None:
            grown = (held - held_before) / len(unprofiled)
        by_framework = own_profiler() if workload.is_users else None
        records = by_framework is not None or has_torch()
        most = min(count, protocol.profiled_steps) if records else 0
        limit_ns: float = workload.clock_ns() - began_ns
        step_ns = unprofiled[-1]["duration_ns"]
        ends_ns = workload.clock_ns() + 1e9 * how.spare_s
        marks = most and by_framework is None and not how.light
        if marks and workload.clock_ns() + count * step_ns <= ends_ns:
            samples, marked = time_marked_steps(workload, count, between, reference)
            unprofiled += samples if not protocol.is_fixed and are_light(marked) else []
        first_profile = batch not in workload.first_profiled
        steps = _FIRST_PROFILE_STEPS if first_profile else _PROFILE_STEPS
        if not how.profile or workload.clock_ns() + steps * step_ns > ends_ns:
            most = 0
        limit_ns = min(limit_ns, ends_ns - workload.clock_ns())
        # One by one: if memory runs out, the steps before are kept.
        if by_framework is not None:
            profiled += profile_by_framework(workload, by_framework, most)
        else:
            for rows in profile_steps(
                workload, most, limit_ns, warm_up=lambda: warm_ups.append(warm_up_device(workload))
            ):
                profiled.append(rows)
        discarded = sum(warm_up.steps for warm_up in warm_ups)
        first = workload.first_profiled.get(batch)
        neighbours = find_neighbours(workload.device)
        return Visit(
            unprofiled,
            profiled,
            marked=marked,
            layer_classes=workload.layer_classes(),
            frameworks=framework_versions() if workload.is_users else {},
            framework_threads=framework_threads() if workload.is_users else {},
            setup_ns=warm_ups[0].setup_ns if is_new else None,
            discarded_steps=discarded,
            grown_bytes=grown,
            lines=first.lines if first else [],
            peak=first.peak if first else (),
            warning=neighbours.sentence if neighbours else None,
        )
    except (Exception, SystemExit) as error:
        empty = _empty(workload, error)
        if empty.why == FAILED:
            return empty
    # The profiler needs memory of its own: a step that fits without it was measured.
    return Visit(unprofiled, profiled, profile_fits=False, marked=marked) if unprofiled else empty


_UNLIKE = 1.3  # ratio of the time of a discarded step to that of any timed one


def _is_unlike(discarded_ns: int, timed: Sequence[StepRow]) -> bool:
    """Whether the discarded step took far longer, or less, than every timed one.

    It may be a slow step of the program, e.g. every second one: as many steps in each visit would
    always discard it. One step more makes the next visit begin elsewhere in the period.
    """
    times_ns = [row["duration_ns"] for row in timed]
    return bool(discarded_ns > _UNLIKE * max(times_ns) or _UNLIKE * discarded_ns < min(times_ns))


def _time(
    workload: AnyWorkload,
    count: int,
    between: Callable[[], object],
    reference: Reference | None = None,
    *,
    light: bool,
) -> tuple[list[StepRow], list[list[dict[str, Any]]]]:
    """Time steps of the loaded batch, and, where marks are light, their layers and phases."""
    if light:
        return time_marked_steps(workload, count, between, reference)
    clock = stream_clock(workload.device)
    return time_steps(workload, count, between, clock=clock, reference=reference), []


def _empty(workload: AnyWorkload, error: BaseException) -> Empty:
    """The result of a step that failed; the error itself is raised where it is none of a result."""
    if memory_ran_out(error):
        return Empty(OUT_OF_MEMORY, (str(error).strip() or type(error).__name__).splitlines()[0])
    if workload.errors_are_results:
        return Empty(FAILED, workload.describe_error(error))
    raise error


def count_page_faults(workload: AnyWorkload, result: Visit | Empty) -> None:
    """Run the step of a visit once more and give its operators their page faults, where steps on a
    CPU have many.

    Without a count the column `page_faults` stays null: of compiled steps, whose kernels are no
    operators, and of steps that run other operators, or fail, while they are counted.
    """
    if (
        isinstance(result, Empty)
        or not result.profiled
        or workload.cuda
        or workload.runs_compiled_graphs
    ):
        return
    if max((row.get("page_faults") or 0 for row in result.unprofiled), default=0) < FEW_FAULTS:
        return
    if (profiled_calls := result.profiled[0].operator_calls) is None:
        return
    try:
        counted = record_step(workload, watch=True).operator_calls
    except Exception:  # a user's step may fail in any way; the visit stays
        return
    if counted is None or (faults := _align_faults(profiled_calls, counted)) is None:
        return
    for row in profiled_calls.rows:
        row["page_faults"] = 0
    for index, number in zip(profiled_calls.row_of, faults, strict=True):
        profiled_calls.rows[index]["page_faults"] += number


def _align_faults(profiled: OperatorCalls, counted: OperatorCalls) -> list[int] | None:
    """The page faults of each known call; None if the counted step has not all of these calls in
    their order.

    A step that is counted also shows calls which autograd otherwise makes past the dispatcher, e.g.
    `aten::detach`.
    """
    faults: list[int] = []
    wanted = profiled.names
    for name, number in zip(counted.names, counted.faults or (), strict=True):
        if len(faults) < len(wanted) and name == wanted[len(faults)]:
            faults.append(number)
    return faults if len(faults) == len(wanted) else None


def warm_up_ns(device: str) -> int:
    """Time of steps, nanoseconds, that brings a device to its clocks.

    An idle GPU lowers them (an H200 from 1980 to 345 MHz); it idles for up to a second while the
    host converts a profile.
    """
    return 0 if device == "cpu" else _GPU_WARM_UP_NS


class WarmUp(NamedTuple):
    """Steps that are not recorded."""

    steps: int
    last_ns: int  # duration of the last one; 0 without a step
    setup_ns: int = 0  # of the first, and of making the steps


def warm_up_device(workload: Steps, count: int = 0) -> WarmUp:
    """Run steps of the loaded batch, at least `count`, until the device has its clocks."""
    first_ns = last_ns = together_ns = run = 0
    while run < count or together_ns < warm_up_ns(workload.device):
        _, last_ns = workload.time_step()
        first_ns = first_ns if run else last_ns
        together_ns += max(last_ns, 1)
        run += 1
    return WarmUp(run, last_ns, first_ns)


def prepare(workload: AnyWorkload, batch: int) -> int | Empty:
    """Make the steps of a batch size and run one; returns how long both took, nanoseconds, without
    imports.
    """
    try:
        workload.load_libraries()
        return discard_steps(workload, batch, 1).setup_ns
    except (Exception, SystemExit) as error:
        return _empty(workload, error)


def discard_steps(workload: Steps, batch: int, count: int) -> WarmUp:
    """Load a batch and run at least `count` steps that are not recorded."""
    began_ns = time.monotonic_ns()
    workload.load(batch)
    loaded_ns = time.monotonic_ns() - began_ns
    done = warm_up_device(workload, count)
    return done._replace(setup_ns=loaded_ns + done.setup_ns)


def time_steps(
    workload: Steps,
    count: int,
    between: Callable[[], object] = lambda: None,
    *,
    exactly: bool = False,
    clock: StreamClock | None = None,
    reference: Reference | None = None,
) -> list[StepRow]:
    """Time steps of the loaded batch; rows as in `Visit.unprofiled`.

    `between` is as of `visit`. With `exactly` no further steps run for their energy, e.g. because
    the steps of ranks meet. `clock` reads the SM clock in each step. The reference runs outside the
    steps; each has the mean time of its runs before and after. Where energy is read it does not
    run, as a device must not wait.
    """
    fresh_peak = reset_peak(workload.device)
    meter = meter_of(workload.device)
    joules = [meter.read()] if meter else []
    timed: list[StepRow] = []
    reads = [(0, reference.read(0.0))] if reference and not meter else []  # after so many steps
    unread_ns = 0
    for _ in range(count):
        before = read_host_use()
        if clock:
            clock.begin()
        start_ns, duration_ns = workload.time_step()
        clock_entry = {"sm_clock_hz": clock.end()} if clock else {}
        used = host_use_between(before, read_host_use())
        timed.append({"start_ns": start_ns, "duration_ns": duration_ns, **clock_entry, **used})
        if meter:
            joules.append(meter.read())
        between()
        unread_ns += duration_ns
        if reads and reference and (reference.is_due(unread_ns) or len(timed) == count):
            reads.append((len(timed), reference.read(unread_ns)))
            unread_ns = 0
    for (first, before_ns), (last, after_ns) in pairwise(reads):
        for row in timed[first:last]:
            row["reference_ns"] = round((before_ns + after_ns) / 2)
    if meter:
        share_energy(None if exactly else workload, timed, joules, meter)
    if not fresh_peak:
        return timed
    peak = read_peak(workload.device)
    return [{**row, **peak} for row in timed]


def share_energy(
    workload: Steps | None, timed: list[StepRow], joules: Sequence[float | None], meter: EnergyMeter
) -> None:
    """Give steps their energy, in the column `energy_uj`: shares by duration of the energy from the
    first to the last.

    Between timed steps the host is read, and a device that waits meanwhile has an idle one's power.
    Where that takes more than a hundredth of the time, the energy is of as many further steps of
    the workload, with nothing between; without one they have none, as have steps that together last
    less than the meter's least time. The meter was read before the first step and after each; None
    where it failed.
    """
    together_ns = sum(row["duration_ns"] for row in timed)
    if not timed or together_ns < meter.source.least_s * 1e9:
        return
    span_ns = timed[-1]["start_ns"] + timed[-1]["duration_ns"] - timed[0]["start_ns"]
    if span_ns - together_ns > _MOST_WAITING * span_ns:
        if workload is None:
            return
        span_ns = 0
        joules = [meter.read()]
        for index in range(len(timed)):
            span_ns += workload.time_step()[1]
            if meter.integrates or index + 1 == len(timed):
                joules.append(meter.read())
    readings = [reading for reading in joules if reading is not None]
    if len(readings) < len(joules) or (used_j := readings[-1] - readings[0]) <= 0:
        return
    for row in timed:
        row["energy_uj"] = round(used_j * 1e6 * row["duration_ns"] / span_ns)


def time_marked_steps(
    workload: AnyWorkload,
    count: int,
    between: Callable[[], object] = lambda: None,
    reference: Reference | None = None,
) -> tuple[list[StepRow], list[list[dict[str, Any]]]]:
    """Time steps of the loaded batch, and their layers and phases; rows as in `Visit.unprofiled`
    and `Visit.marked`.

    A device computes while the host goes on, so its steps have no marks. Layers are marked unless
    the step runs compiled graphs: a graph may look at the modules in it, and would be compiled
    again.
    """
    if workload.cuda:
        return [], []
    layers = [] if workload.runs_compiled_graphs else workload.layers()
    with Marks(workload.clock_ns).install(layers) as marks:
        steps = _MarkedSteps(workload, marks)
        rows = time_steps(steps, count, between, reference=reference)
    return [{**row, "marked": True} for row in rows], steps.marked[:count]


class _MarkedSteps(ChangedSteps):
    """Steps of the loaded batch whose time is that between their marks."""

    def __init__(self, workload: AnyWorkload, marks: Marks) -> None:
        super().__init__(workload)
        self.marked: list[list[dict[str, Any]]] = []
        self._marks = marks

    def time_step(self) -> tuple[int, int]:
        start_ns = self.workload.clock_ns()
        self.marked.append(self._marks.run(self.workload.run))
        return start_ns, sum(row["duration_ns"] for row in self.marked[-1])


def are_light(marked: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether the marks of each step cost next to nothing of it, so that its time is one of the
    unmarked step.
    """
    costs = [_MARK_NS * sum(row["marks"] for row in step) for step in marked]
    times = [sum(row["duration_ns"] for row in step) for step in marked]
    light = (cost <= _LIGHT * time for cost, time in zip(costs, times, strict=True))
    return bool(marked) and all(light)


def profile_by_framework(workload: AnyWorkload, adapter: Adapter, most: int) -> list[StepRows]:
    """Have a framework's own profiler record at most that many steps of the loaded batch, as far as
    it shows them.
    """
    results = (
        record_by_framework(adapter, lambda: workload.time_step(), workload.clock_ns())
        for _ in range(most)
    )
    recorded = [rows for rows in results if rows is not None]
    for rows in recorded:
        named = [kernel for kernel in rows.kernels if kernel.get("layer") is not None]
        for kernel in named:
            kernel["layer"] = workload.layer_of(kernel["layer"], kernel.get("op"))
        name_forward(named)  # once the layers of both passes have the same name
    return recorded


def profile_steps(
    workload: AnyWorkload,
    most: int,
    limit_ns: float,
    before: Callable[[], object] = lambda: None,
    warm_up: Callable[[], object] = lambda: None,
) -> Iterator[StepRows]:
    """Profile at most that many steps of the loaded batch, one profiler session each; yields the
    rows of each step.

    A session costs time besides its step: on two busy cores 30 to 60 ms for the 1,000 kernels of
    AlexNet, 0.2 to 0.6 s for the 7,500 of GoogLeNet, 1 s for the 17,000 of BERT-Base. So time
    limits the number: a step after the first starts only if it is expected to end within it. The
    first use of the profiler in a process, about a second, counts. `warm_up` runs before each
    session; for `before` see `torch_step.record_step`.
    """
    began_ns = workload.clock_ns()
    for number in range(1, most + 1):
        if number == 1:
            warm_up_profiler(workload)
        step_began_ns = workload.clock_ns()
        warm_up()
        yield record_step(workload, count_work, before)
        now_ns = workload.clock_ns()
        if now_ns - began_ns + (now_ns - step_began_ns) > limit_ns:
            return


def warm_up_profiler(workload: AnyWorkload) -> None:
    """Profile one step that is not recorded, because the first start of the profiler and its
    libraries is slow.

    It shows what costs so much that no other step pays it: on a CPU the names of MKL's calls, which
    MKL prints, the lines of the program, and what holds the memory.
    """
    assert workload.loaded is not None, "load() a batch first"
    first_profiled = workload.first_profiled
    if workload.loaded in first_profiled:
        return
    watch = not workload.runs_compiled_graphs
    # replays allocate nothing
    finds_peak = workload.finds_peak and not workload.spec.get("graphed", False)
    try:
        looks = watch and not workload.cuda
        rows = record_step(workload, watch=watch, memory=finds_peak, look_at_numbers=looks)
        calls = rows.operator_calls.rows if rows.operator_calls else []
        numbers = {_identity(row): row["numbers"] for row in calls if row.get("numbers")}
        first = FirstProfiled(
            rows.mkl_calls, rows.operator_calls.lines if rows.operator_calls else [], (), numbers
        )
        first_profiled[workload.loaded] = first
        if finds_peak:
            peak = record_step(workload, watch=watch, samples=False, memory=True).peak
            first_profiled[workload.loaded] = first._replace(peak=peak)
    except Exception:  # a user's step may refuse to be watched, in any way
        first_profiled.pop(workload.loaded, None)
        first_profiled[workload.loaded] = FirstProfiled(record_step(workload).mkl_calls, [])


def record_step(
    workload: AnyWorkload,
    count: CountWork | None = None,
    before: Callable[[], object] = lambda: None,
    **how: bool,
) -> StepRows:
    """Run one step of the loaded batch under the profiler; for the arguments see
    `torch_step.record_step`.
    """
    first = None if workload.loaded is None else workload.first_profiled.get(workload.loaded)
    rows = torch_step.record_step(
        workload.run,
        workload.layers(),
        device=workload.device,
        count_work=count,
        before=before,
        mkl_calls=None if first is None else first.mkl_calls,
        **how,
    )
    if first is not None and rows.operator_calls is not None:
        for row in rows.operator_calls.rows:
            row["numbers"] = first.numbers.get(_identity(row))
    return rows


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["layer"], row["phase"], row["op"], row["arguments"]
