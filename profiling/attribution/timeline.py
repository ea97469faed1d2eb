"""Joins device work to the host: to its launch by correlation id, then to the range and step around
the launch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...base.errors import CurvescopeError
from ..recording.store import NO_STEP
from . import steps
from .columns import Growing, count_true, flags_of, pick
from .device_work import Captures, DeviceWork, Launches, Placed
from .launch_joins import Joiner
from .nesting import NONE, Bools, Codes, Ints, Nest
from .placement import BatchSpans, HostSpans, place
from .profile import AUTO, REPETITION, WHOLE, Options
from .range_names import RangeName

# A range of one of a network's layers, e.g. `layer_3_forward` or `encoder.block.0`.
_NUMBERED_LAYER = re.compile(r"(?i)(?<![a-z])(?:layer|block)s?[_. /-]?\d+")


class Timeline:
    """Joins ranges first, then API calls, then device work batch by batch, and keeps the results.

    `spans` are operators, push/pop ranges, start/end ranges and marks, `nested` the first two,
    `names` the texts of `spans.meanings`, `batch` the samples per step that the profile states.
    CurvescopeError: no range matches the user's pattern for step marks.
    """

    def __init__(
        self,
        spans: HostSpans,
        nested: HostSpans,
        names: Sequence[str],
        options: Options,
        batch: int | None = None,
    ) -> None:
        marks, self.steps_from = _marks(spans, names, options)
        self.marked = steps.MarkedSteps(marks)  # the steps that ranges mark
        self.placement = place(nested)
        self.step_rows: list[dict[str, Any]] = []  # of the `steps` table
        self.batch_from: str | None = None  # source of the steps' batch sizes; None if unknown
        # durations of all timed device work, and of that in steps, summed
        self.device_time_ns = (
            0,
            0,
        )
        # Number of kernels, memcpys and memsets that seem to begin before their launch, and the
        # largest lead in nanoseconds: a lower bound of the difference of the two clocks.
        self.before_launch = 0, 0
        self.lost = Counter(
            ranges_cut=self.placement.nest.cut,
            backward_without_forward=self.placement.unjoined,
            steps_cut=sum(of_process.crossing for of_process in marks),
        )
        self._options = options
        self._meanings = spans.meanings
        self._stated_batch = batch
        self._batches_of = BatchSpans.of(spans)
        self._nested = nested
        self._indivisible = None if self.marked else _indivisible(nested, self.placement.nest)
        self._in_operators = nested.call is not None and bool(np.any(nested.call != NONE))
        self._in_ranges = len(nested.start_ns) > 0
        self.join(Growing(Launches).rows())

    def place_calls(
        self, start_ns: Ints, process: Codes, thread: Ints, correlation: Ints
    ) -> Launches:
        """The ranges and marked steps of API calls."""
        range_ = self.placement.nest.innermost(thread, start_ns)
        return Launches(
            start_ns, process, correlation, range_, self.marked.step_of(process, start_ns)
        )

    def join(self, launches: Launches) -> None:
        """Store all API calls; required before `place_work`."""
        self._launches, self._joiner = launches, Joiner(launches.process, launches.correlation)

    def place_work(
        self,
        start_ns: Ints,
        timed: Bools,
        process: Codes,
        correlation: Ints,
        thread: Ints | None,
        captures: Captures | None = None,
    ) -> Placed:
        """Ranges and marked steps of device work, for `take`; several threads may call it at once.

        Starts are 0 where there is none. `thread` is set for work that the host itself does without
        a launch, else `NONE`. A launch replays a whole CUDA graph, so the range of such work is the
        one around its capture, where that is known.
        """
        launches = self._launches
        if len(launches.start_ns):
            launch = self._joiner.find(process, correlation)
            range_ = launches.range_[launch]
            step = launches.step[launch]
            ahead_ns = launches.start_ns[launch] - start_ns
            ahead_ns[~timed] = 0
            alone = launch == NONE
        else:
            range_, step, launch = np.full((3, len(start_ns)), NONE, np.int32)
            ahead_ns = np.zeros(len(start_ns), np.int64)
            alone = np.ones(len(start_ns), np.bool_)
        innermost = self.placement.nest.innermost
        if alone.any():
            range_[alone] = NONE
            ahead_ns[alone] = 0
            launched = timed & ~alone
            step[alone] = self.marked.step_without_launch(
                process[alone], start_ns[alone], start_ns[launched], step[launched]
            )
            if thread is not None:
                own = thread != NONE
                range_[own] = innermost(thread[own], start_ns[own])
                alone &= ~own
        if captures is not None:
            captured = captures.time_ns != NONE
            at_capture = innermost(captures.thread[captured], captures.time_ns[captured])
            range_[captured] = np.where(at_capture == NONE, range_[captured], at_capture)
        step[~timed] = NONE
        lost: Counter[str] = Counter()
        if thread is not None or (launches.correlation != NONE).any():
            # CUDA's calls count from 1: a migration of managed memory, with 0, has none.
            called = alone & (correlation != 0)
            lost["device_work_without_launch"] = count_true(called)
        if captures is not None:
            lost["graph_work_without_capture"] = count_true(captures.of_graph & ~captured)
        outside = range_ == NONE
        if self._in_operators:
            op = self.placement.op
            if len(op):
                outside |= op[range_] == NONE
            lost["device_work_without_operator"] = count_true(outside & ~alone)
        elif self._in_ranges:
            lost["device_work_without_range"] = count_true(outside & ~alone)
        if self.marked:
            lost["device_work_outside_steps"] = count_true(timed & (step == NONE))
        ahead = count_true(ahead_ns > 0), int(ahead_ns.max(initial=0))
        return Placed(range_, step, launch, ahead, lost)

    def take(
        self, placed: Placed, process: Codes, timed: Bools, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Count placed device work, and let its ends extend the marked steps; untimed work starts
        and ends at 0.
        """
        self.lost += placed.lost
        count, most_ns = placed.before_launch
        self.before_launch = self.before_launch[0] + count, max(self.before_launch[1], most_ns)
        if self.marked:
            self.marked.reach(placed.step, start_ns, end_ns)
            outside = (placed.step == NONE) & timed
            if outside.any():
                launched_ns = self._find_launch_times(placed.launch[outside], start_ns[outside])
                self.marked.hold(process[outside], launched_ns, end_ns[outside])
            self._add_time((end_ns - start_ns)[timed], placed.step[timed])

    def _find_launch_times(self, launch: Codes, start_ns: Ints) -> Ints:
        """When device work was launched; without a launch when it began."""
        if not len(self._launches.start_ns):
            return start_ns
        return np.where(launch == NONE, start_ns, self._launches.start_ns[launch])

    def _add_time(self, duration_ns: Ints, step: Codes) -> None:
        total, inside = self.device_time_ns
        mine = int(duration_ns[step != NONE].sum())
        self.device_time_ns = total + int(duration_ns.sum()), inside + mine

    def finish_marked_steps(self, placed: Iterable[tuple[Ints, Codes]]) -> None:
        """Make the rows of marked steps, after all device work: of its starts and steps, batch by
        batch.
        """
        windows = self.marked.windows()
        low = np.array([window.start_ns for window in windows])
        works = np.array([window.end_ns > window.start_ns for window in windows])
        for start_ns, step in placed:
            works[step[step != NONE]] = True
            # No work ends after its step, which ends with its last work.
            is_cut = (start_ns < low[step]) & (step != NONE)
            self.lost["device_work_cut_by_steps"] += count_true(is_cut)
        if not works.any():
            works[:] = True
        self.lost["steps_without_work"] = count_true(~works)
        self._describe(windows, works)

    def find_steps(self, work: DeviceWork, communicates: Bools) -> None:
        """Find steps without marks, and set the steps of all device work.

        Kernels whose name communicates do not decide: collectives may be one name over and over.
        """
        timed = work.timed
        kernels = timed & (work.kernel_name != NONE)
        if not kernels.any():
            return
        is_communication = np.append(communicates, False)[work.kernel_name]
        computing = kernels & ~is_communication
        windows = self._find_windows(work, computing if computing.any() else kernels)
        whole = steps.WHOLE if self._options.steps == WHOLE else NO_STEP
        self.steps_from = steps.REPETITION if windows else whole
        if not windows:
            first_ns, last_ns = work.start_ns[timed].min(), work.end_ns[timed].max()
            windows = [(int(first_ns), int(last_ns))]
        low, high = np.array(windows).T
        at = np.searchsorted(low, work.start_ns, side="right") - 1
        inside = timed & (at >= 0) & (work.start_ns <= high[-1])
        work.step = np.where(inside, at, NONE).astype(np.int32)
        duration_ns = work.end_ns - work.start_ns
        self._add_time(duration_ns[timed], work.step[timed])
        cut = inside & (work.end_ns > high[work.step])
        self.lost["device_work_outside_steps"] = count_true(timed & ~inside)
        self.lost["device_work_cut_by_steps"] = count_true(cut)
        repeated = [steps.Window(NONE, NONE, 0, *window) for window in windows]
        self._describe(repeated, np.ones(len(repeated), np.bool_))

    def _find_windows(self, work: DeviceWork, kernels: Bools) -> steps.Windows:
        """The windows of steps that repeat; none if all is one step."""
        wanted = self._options.steps
        if wanted == WHOLE:
            return []
        windows: steps.Windows = []
        if work.on_host[kernels].all():  # operators inside others may be missing in some steps
            windows = steps.whole_periods(*self._outermost_operators())
        if windows:  # the steps are all of the profile
            return windows
        columns: list[Any] = [work.kernel_name, work.start_ns, work.end_ns, work.stream]
        columns.append(self._units(work))
        windows = steps.find_repeated_windows(*(column[kernels] for column in columns))
        if windows and wanted == AUTO:
            start_ns = work.start_ns[work.timed]
            end_ns = work.end_ns[work.timed]
            if not steps.are_steps(windows, start_ns, end_ns) or self._are_layers(windows, work):
                return []
        if not windows and wanted == REPETITION:
            raise CurvescopeError(
                "--steps repetition: no sequence of kernels repeats three times; write "
                "`--steps whole`, or `--steps marks:REGEX` if ranges mark the steps."
            )
        return windows

    def _outermost_operators(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Names, starts, ends and threads of the operators of the host that lie in no other one."""
        spans = self._nested
        own = self._nested.is_operator
        rows = own & (self.placement.nest.parent == NONE)
        return spans.name[rows], spans.start_ns[rows], spans.end_ns[rows], spans.thread[rows]

    def _units(self, work: DeviceWork) -> Ints:
        """Number of what launched each row and lies in one step as a whole: a span of the host, or
        one API call.
        """
        spans = np.int64(len(self.placement.nest.parent))
        unit = np.where(work.launch == NONE, NONE, work.launch + spans)
        if self._indivisible is not None and len(self._indivisible):
            span = pick(self._indivisible, work.range_)
            unit = np.where(span == NONE, unit, span)
        return unit

    def _are_layers(self, windows: steps.Windows, work: DeviceWork) -> bool:
        """Whether the windows are layers of one step: modules, or ranges that number layers, work
        in less than half of them, on average.
        """
        modules = {meaning.layer for meaning in self._meanings if meaning.whole_layer}

        def is_of_module(layer: str) -> bool:
            return layer in modules or _NUMBERED_LAYER.search(layer) is not None

        is_module = np.append(flags_of(self.placement.layers, is_of_module), False)
        if not is_module.any() or not len(self.placement.layer):
            return False
        layer = pick(self.placement.layer, work.range_)
        low = np.array([start_ns for start_ns, _ in windows])
        at = np.searchsorted(low, work.start_ns, side="right") - 1
        placed = is_module[layer] & (at >= 0) & work.timed
        pairs = np.unique(np.stack([layer[placed], at[placed]]), axis=1)
        layers = len(np.unique(pairs[0]))
        return bool(pairs.shape[1] < 0.5 * len(windows) * layers)

    def _describe(self, windows: Sequence[steps.Window], works: Bools) -> None:
        """Make the rows of the windows that work: those without time and work are no steps."""
        batches = self._batches(len(windows))
        if self._options.batch is not None:
            self.batch_from = "the command line"
        elif any(window.batch for window in windows):
            self.batch_from = "the names of the marks"
        elif self._stated_batch is not None:
            self.batch_from = "the metadata of the trace"
        rounds: Counter[tuple[str | None, int]] = Counter()
        for step in np.flatnonzero(works).tolist():
            window, of_spans = windows[step], batches[step]
            batch = self._options.batch or window.batch or self._stated_batch or of_spans
            row: dict[str, Any] = {
                "step": step,
                "batch": batch or None,
                "round": 0,
                "index": step,
                "start_ns": window.start_ns,
                "duration_ns": window.end_ns - window.start_ns,
                "profiled": True,
                "process": None if window.process == NONE else window.process,
                **dict.fromkeys(("mode", "tokens", "context_tokens", "graph_batch")),
            }
            served = None if window.name == NONE else self._meanings[window.name].served
            if served:
                # A server mixes batch sizes over time: each step of one is a round of its own.
                alike = served.mode, served.batch
                row |= {
                    "round": rounds[alike],
                    "index": 0,
                    "mode": served.mode,
                    "tokens": served.tokens,
                    "context_tokens": served.context_tokens,
                    "graph_batch": served.graph_batch,
                }
                rounds[alike] += 1
            self.step_rows.append(row)

    def _batches(self, count: int) -> list[int]:
        """Batch size of each step, from its first span that tells one; 0 if unknown."""
        spans = self._batches_of
        for rows, source in spans.by_source():
            # The steps are windows of the device, spans lie on the host.
            if not self.marked and count > 1:
                values = np.unique(spans.batch[rows])
                filled = [int(values[0])] * count if len(values) == 1 else []
            else:
                step = np.zeros(len(rows), np.int32)
                if self.marked:
                    step = self.marked.step_of(spans.process[rows], spans.start_ns[rows])
                filled = [0] * count
                for row, at in zip(rows.tolist(), step.tolist(), strict=True):
                    if at != NONE and not filled[at]:
                        filled[at] = int(spans.batch[row])
            if any(filled):
                self.batch_from = source
                return filled
        return [0] * count


def _marks(
    spans: HostSpans, names: Sequence[str], options: Options
) -> tuple[list[steps.StepMarks], str]:
    pattern = options.step_pattern
    if pattern is not None:
        marks = steps.find_marks(spans, names, pattern)
        if not marks:
            raise CurvescopeError(
                f"--steps {options.steps}: no range has such a name; "
                "`curvescope breakdown --by layer` lists ranges."
            )
        return marks, steps.MARKS
    if options.steps != AUTO:
        return [], steps.NOTHING
    if marks := steps.find_marks(spans, names):
        return marks, steps.MARKS
    if marks := steps.optimizer_marks(spans, names):
        return marks, steps.OPTIMIZER_ENDS
    return [], steps.NOTHING


def _indivisible(spans: HostSpans, nested: Nest) -> Ints:
    """The outermost span around each, or itself, within which no step begins: operators, modules,
    phases, ...
    """
    whole = spans.where(_is_whole)
    return nested.outermost(np.where(whole, np.arange(len(whole)), NONE))


def _is_whole(meaning: RangeName) -> bool:
    has_meaning = {meaning.op, meaning.role, meaning.phase} != {None}
    return has_meaning and not meaning.step
