"""A user's command: each visit runs it once, times some of its steps and profiles a few of them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from ....base.errors import CurvescopeError
from ...attribution.events import StepRows
from ...attribution.step_pattern import find_pattern
from ...collect.framework_profile import steps_after
from ...collect.kept_chunks import NotMergedError, begin
from ...collect.recorded_steps import steps_of
from ...collect.startup.program_changes import why_not_made
from ...collect.startup.program_steps import are_enough
from ...frameworks import device_entry, memory_ran_out
from ...hardware.clocks import ClockSampler
from ...recording.axis import Axis
from ...recording.remote_store import AnyPath
from ...recording.store import META_FILE, open_recording
from ...workload.program import MODE, Program, steps_of_lines
from ..configuration import Configuration
from ..program_run import NO_STEP_S, Found, last_words, run_program
from ..protocol import Protocol
from ..visits import FAILED, KILLED, OUT_OF_MEMORY, Empty, Visit, VisitPlan
from .site import ONE_VISIT, Facts, SweptSite

if TYPE_CHECKING:
    from typing_extensions import Self

# What marks steps, as `program_steps` looks for it, and the lines that do.
_MARKS = (
    "an optimizer of torch (also Lightning, accelerate and Hugging Face) or of Keras, "
    "torch.profiler's step(), batches of Keras, a function of jax.jit or tf.function, "
    "jax.profiler.StepTraceAnnotation, a range named step, iteration or batch (NVTX or "
    "torch.profiler.record_function), a model of torch or Keras that is "
    "called again"
)
_TO_MARK_BY_LINES = "`print(f'step {n}', flush=True)` after it and --step-line 'step {n}'"
_TO_MARK = (
    f"Mark one: `with torch.profiler.record_function('step'):` around it, or {_TO_MARK_BY_LINES}"
)
_NOT_FOLLOWED = (
    "no Python of it could be followed: it runs none, runs it with -I, -E or -S, or a script sets "
    "PYTHONPATH anew (write PYTHONPATH=src:$PYTHONPATH there). Steps of any program are marked by"
)
# Of a run whose steps are timed: until a function is called that the program has for training.
_GRADIENT_S = 20.0
_MOST_NAMED = 5  # functions, in a sentence
_OWN = "curvescope: "  # what a message of the hook in a program begins with
_STEPS, _VISIT_S = (1, 100), 1.5  # timed steps of a run, least and most, and seconds for them

_PERIODS = 4  # in a run, where slow steps were seen
_MOST_LONGER = 4  # times the steps of a run without slow ones
_Functions = tuple[str | None, Sequence[Mapping[str, Any]]]  # the mark, and all of them


# The first step of a run also builds and compiles.
IN_RUN = Facts(ONE_VISIT, discards=1, samples_clocks=True)
# Facts of a run that alternates with runs of other versions or variants: no process samples clocks.
IN_TURN = replace(IN_RUN, samples_clocks=False)


class Command(SweptSite):
    """A program, which runs anew for every visit."""

    def __init__(
        self,
        program: Program,
        axis: Axis,
        fixed: Mapping[str, int] | None = None,
        *,
        facts: Facts = IN_RUN,
        variables: Mapping[str, str] | None = None,
        changes: Sequence[str] = (),
    ) -> None:
        """Prepare; nothing runs.

        `variables` are further ones of the program's environment; `changes` are made in its
        process by `startup/program_changes.py`.
        """
        self._facts = facts
        self.program, self.axis, self.fixed = program, axis, dict(fixed or {})
        self.device = "cpu"
        self.startup_s: dict[int, list[float]] = {}
        self._longer = 1  # factor on the steps of a run
        self._short: list[int] = []  # timed steps of runs that ended before they had enough
        self._beside_s: list[float] = []
        self.source: str | None = None  # what marks the steps
        self._functions: dict[int, _Functions] = {}  # that were called, by value of the axis
        self.told: dict[str, Any] = {}  # by the program's process, see `program_steps.write`
        self._variables, self._changes = dict(variables or {}), tuple(changes)
        self._recording: AnyPath | None = None
        self._may_train = True  # whether runs wait for a function that computes a gradient
        self._begun: tuple[int, Visit | Empty] | None = None  # the first visit, and its value

    @classmethod
    def of(cls, configuration: Configuration, **how: Any) -> Self:
        """The program of a configuration; for `how` see the constructor."""
        axis = Axis(configuration.axis)
        fixed = dict(configuration.fixed)
        return cls(configuration.find_program(), axis, fixed, **how)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def spec(self) -> dict[str, Any]:
        """Entries of `recording.json`, from which `configuration_of` makes it again."""
        return {
            "network": self.name,
            **self.program.entry,
            "mode": MODE,
            "precision": None,
            "compiled": False,
            "axis": self.axis.entry,
            "fixed": self.fixed,
            "torch_device": self.device,
        }

    def begin(self, batches: Sequence[int], protocol: Protocol, recording: AnyPath) -> None:
        """Make the first visit, which shows the device and whether steps are found; it counts as a
        visit.

        The output of later runs is kept beside the recording.

        Raises:
            CurvescopeError: the program ended, or no steps were found.
        """
        self._recording = recording
        if self._begun is None:
            batch = min(batches)
            self._begun = batch, self._run(batch, VisitPlan(protocol))
        result = self._begun[1]
        if isinstance(result, Empty) and result.why == FAILED:
            raise CurvescopeError(result.detail)

    def facts(self) -> Facts:
        """What happens around timed steps."""
        return self._facts

    def visit(
        self, condition: int, how: VisitPlan, while_waiting: Callable[[], object] = lambda: None
    ) -> Visit | Empty:
        """Run the program once, unless the first visit is of this value, and was not asked for
        yet; `while_waiting` is called meanwhile.
        """
        if not self._facts.samples_clocks:
            return self._run(condition, how, while_waiting)
        with self._clocks:
            if self._begun is not None and self._begun[0] == condition:
                _, result = self._begun
                self._begun = (-1, self._begun[1])
            else:
                result = self._run(condition, how, self._clocks.sample_sometimes)
        return result if isinstance(result, Empty) else replace(result, clocks=self._clocks.take())

    def _run(
        self, batch: int, how: VisitPlan, while_running: Callable[[], object] = lambda: None
    ) -> Visit | Empty:
        """Run the program once for a value of the axis; `while_running` is called meanwhile."""
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="curvescope-") as folder:
            chunks = begin(Path(folder, "profile"), {"recording_type": "profile"})
            wanted = {
                **request_steps(how, batch, self.facts().discards, longer=self._longer),
                "changes": self._changes,
                "gradient_s": _GRADIENT_S if self._may_train else 0.0,
            }
            values = {**self.fixed, self.axis.name: batch}
            run = run_program(
                self.program,
                values,
                wanted,
                chunks.folder,
                variables=self._variables,
                log=self._log(batch),
                while_running=while_running,
            )
            result = self._read_visit(batch, run, wanted, chunks)
        if isinstance(result, Empty):
            steps_ns = 0
        else:
            steps_ns = sum(row["duration_ns"] for row in result.unprofiled)
        self._beside_s.append(max(time.monotonic() - began_s - steps_ns / 1e9, 0.0))
        return result

    def machine_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a machine, with what the program's own process tells: its threads and
        versions.
        """
        device = dict(entry["device"])
        versions = dict(entry["versions"])
        if device["kind"] == "cpu" and self.told.get("threads"):
            device["threads"] = self.told["threads"]
        versions["torch"] = self.told.get("torch")
        return device_entry(
            {**entry, "device": device, "versions": versions}, self.told.get("accelerator")
        )

    def start_s(self, condition: int) -> float | None:
        """Seconds of a run beside its timed steps: until the first one, and for the profile and the
        end.

        None if the run was made already.
        """
        if self._begun is not None and self._begun[0] == condition:
            return None
        return fmean(self._beside_s) if self._beside_s else 0.0

    def closing_entry(self) -> dict[str, Any]:
        """What marked the steps, the median time until the first one had ended, by value, and the
        fewest steps of runs that ended by themselves.
        """
        startup_s = {
            str(batch): round(median(seconds), 2) for batch, seconds in self.startup_s.items()
        }
        ended = {"ended_after_steps": min(self._short)} if self._short else {}
        marks = mark_entry(list(self._functions.values()))
        return {"steps_by": self.source, "startup_s": startup_s, **ended, **marks}

    @cached_property
    def _clocks(self) -> ClockSampler:
        return ClockSampler(self.device)  # which the first visit tells

    def _log(self, batch: int) -> Path | None:
        """The file for the output of the runs of a value; None before the recording is there, or if
        it is remote.
        """
        if not isinstance(self._recording, Path) or not (self._recording / META_FILE).is_file():
            return None
        return self._recording / f"output-{self.axis.name}{batch}.log"

    def _read_visit(
        self, batch: int, run: Found, wanted: Mapping[str, Any], chunks: Any
    ) -> Visit | Empty:
        steps = run.steps
        rows = steps["rows"] if steps else []
        if self.program.step_line is not None:
            # The first step ends with the first line, so it has no row, or no time of ours.
            rows = steps_of_lines(run.lines, self.program.step_line)[wanted["discarded"] - 1 :]
            self.source = f"lines of its output: {self.program.step_line}"
        elif steps is not None:
            mark = steps["mark"]
            self.source = steps["source"] and f"{steps['source']}{f' ({mark})' if mark else ''}"
        if steps is not None and steps.get("refused"):
            return Empty(FAILED, str(steps["refused"]))
        if len(rows) < wanted["steps"][0]:
            return self._why_not(run, rows)
        if never := [name for name in self._changes if not run.count_changes(name)]:
            unfollowed = "no Python of the program could be followed"
            why = why_not_made(never[0]) if run.processes else unfollowed
            return Empty(FAILED, f"not made: {why}")
        durations_ns = [row["duration_ns"] for row in rows]
        if run.code is not None and not are_enough(
            durations_ns, wanted["steps"], wanted["visit_s"]
        ):
            self._short.append(len(rows))
        if steps is not None:
            self.told = steps
            self.device = steps["device"]
            if self.program.step_line is None:
                functions = steps["functions"]
                self._functions[batch] = steps["mark"], functions
                trains = [of["name"] for of in functions if of["has_gradient"]]
                self._may_train = steps["mark"] in trains
        self._longer = self._longer_after(durations_ns)
        first_s = _first_step_s(steps, run)
        self.startup_s.setdefault(batch, []).append(first_s if first_s is not None else run.seconds)
        ended_ns = rows[-1]["start_ns"] + rows[-1]["duration_ns"]
        of_jax = steps_after(ended_ns, chunks.folder)
        profiled, classes = _read_profiled(chunks)
        return Visit(
            rows,
            of_jax or profiled,
            layer_classes=classes,
            frameworks=dict(steps["frameworks"]) if steps else {},
            discarded_steps=wanted["discarded"],
        )

    def _longer_after(self, durations_ns: Sequence[int]) -> int:
        """The factor on the steps of the next run: twice as many where slow steps were seen, until
        they show their period four times.
        """
        times_ns = np.array(durations_ns, np.float64)
        pattern = find_pattern(times_ns, np.zeros(len(times_ns), np.int64))
        shows_period = pattern.period is not None and len(times_ns) >= _PERIODS * pattern.period
        if not pattern.slow.any() or shows_period:
            return self._longer
        return min(2 * self._longer, _MOST_LONGER)

    def _why_not(self, run: Found, rows: Sequence[Any]) -> Empty:
        """Why a run has too few steps."""
        said = last_words(run.lines)
        text = "\n".join(line for _, line in run.lines)
        if run.code and memory_ran_out(RuntimeError(text)):
            return Empty(OUT_OF_MEMORY, said)
        if run.code is not None and run.code < 0:
            return Empty(KILLED, f"signal {-run.code}; its last line: {said}")
        if run.code:
            why = f"{self.name} ended with exit code {run.code}: {said}"
            # A single line is not said twice, and a message of ours names the program.
            alone = run.last_lines.strip() == said
            if alone and said.startswith(_OWN):
                return Empty(FAILED, said.removeprefix(_OWN))
            return Empty(FAILED, why if alone else f"{why}\n{run.last_lines}")
        ended = f"{self.name} {'was' if run.was_in_vain else ''} ended".replace("  ", " ")
        if run.was_in_vain:
            ended += " as no step ended for minutes (a longer --time-limit waits as long)"
        if rows or self.source is not None:
            more = "" if run.was_in_vain else ": give it more data or steps"
            return Empty(
                FAILED, f"{ended} after {len(rows)} timed steps, found by {self.source}{more}."
            )
        if self.program.step_range is not None:
            return Empty(
                FAILED, f"{ended}, and no range named {self.program.step_range} was seen in it."
            )
        if self.program.step_function is not None and run.was_followed:
            functions = [of for report in run.processes for of in report["functions"]]
            called = sorted({str(of["name"]) for of in functions if of["calls"]})
            others = f"; called were {', '.join(called[:_MOST_NAMED])}" if called else ""
            return Empty(
                FAILED,
                f"{ended}, and no function named {self.program.step_function} that JAX or "
                f"TensorFlow made was called in it{others}.",
            )
        if not run.was_followed:
            return Empty(FAILED, f"{ended}, and {_NOT_FOLLOWED} {_TO_MARK_BY_LINES}.")
        return Empty(
            FAILED,
            f"{ended}, and no steps were found in it. What was looked for: {_MARKS}. {_TO_MARK}. "
            f"Its last line: {said}",
        )


def mark_entry(by_size: Sequence[_Functions]) -> dict[str, Any]:
    """Whether the function that marks steps gets arguments of the same shapes at all sizes, and
    then which functions may be the step in its place; empty where nothing tells.
    """
    marks = {mark for mark, _ in by_size}
    shapes: dict[str, list[str | None]] = {}
    for _, functions in by_size:
        for function in functions:
            shapes.setdefault(function["name"], []).append(function["shapes"])
    sizes = shapes.get(str(*marks), []) if len(marks) == 1 else []
    if len(by_size) < 2 or len(sizes) < len(by_size) or None in sizes or len(set(sizes)) > 1:
        return {}
    trains = {of["name"] for _, functions in by_size for of in functions if of["has_gradient"]}
    varies = {name for name, passed in shapes.items() if len(set(passed)) == len(by_size)}
    return {"same_shapes": True, "may_be_steps": sorted((varies | trains) - marks)[:_MOST_NAMED]}


def request_steps(how: VisitPlan, batch: int, discards: int, *, longer: int = 1) -> dict[str, Any]:
    """The steps that a run is asked for.

    Unless the protocol fixes their number, they are more than in a visit of other steps: a start
    takes seconds. `longer` is a factor on them where slow steps were seen. `discards` are steps
    that are not recorded, besides the protocol's.
    """
    protocol = how.protocol
    least, most = protocol.steps_per_visit
    visit_s = protocol.visit_s
    if protocol.images is not None:
        least = most = protocol.steps_of_visit(batch, 0)
    elif least < most:
        least = max(least, _STEPS[0])
        most = longer * max(most, _STEPS[1])
        visit_s = longer * max(visit_s, _VISIT_S)
    return {
        "discarded": protocol.discarded_steps + discards,
        "steps": [least, most],
        "visit_s": visit_s,
        "patience_s": max(NO_STEP_S, protocol.time_limit_s or 0.0),
        "profiled": protocol.profiled_steps if how.profile else 0,
    }


def _first_step_s(steps: Mapping[str, Any] | None, run: Found) -> float | None:
    """Seconds from the start of the run to the end of its first step."""
    if steps is None or steps.get("first_step_ns") is None:
        return None
    return max((int(steps["first_step_ns"]) - run.began_ns) / 1e9, 0.0)


def _read_profiled(chunks: Any) -> tuple[list[StepRows], dict[str, str]]:
    """The profiled steps of a run, and the classes of its layers."""
    try:
        chunks.merge()
    except NotMergedError as error:
        print(f"curvescope: {error}", file=sys.stderr)
        return [], {}
    recording = open_recording(chunks.writer.path)
    # A step without a kernel was not recorded: the program used torch's profiler itself.
    profiled = [step for step in steps_of(recording) if step.kernels]
    return profiled, dict(recording.meta.get("layer_classes") or {})
