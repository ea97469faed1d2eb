"""Times the steps of a program in its own process, then has a few of them profiled, and says when
there are enough.

A step ends where the program marks one: an optimizer of torch steps, torch's profiler is told of a
step, Keras ends a batch, a range that is named like a step ends, an optimizer of Keras steps, a
function that JAX or TensorFlow made is called again, in a program without an optimizer a model of
torch, Keras or ONNX Runtime is called again, or MLX evaluates. The last of these in the list
`_RANKS` that the program has is the mark. A range of `--step-range` is the step itself, and of
`--step-function` each call of that function ends one.

The program's own Python loads this file by path, so it needs only the standard library;
`host_usage.py` and the package `frameworks` are loaded by path too. It writes its findings into the
folder of the visit.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

VERSION = 1
VARIABLE = "CURVESCOPE_PROGRAM"  # JSON: what is wanted, see `Wanted`
RANGE = "ranges of the given name"
OPTIMIZER = "steps of a torch optimizer"
PROFILER = "steps of torch's profiler"
KERAS = "batches of Keras"
STEP_NAME = "ranges that are named like a step"
JITTED = "calls of a function of JAX or TensorFlow"
CALL = "calls of a model"
KERAS_OPTIMIZER = "steps of an optimizer of Keras"
PREDICTED = "batches of Keras without training"
EVALUATED = "calls of mlx.core.eval"
# Those that the profiler of JAX or TensorFlow can record.
_OF_FRAMEWORKS = (CALL, JITTED, PREDICTED, KERAS_OPTIMIZER, STEP_NAME, KERAS)
_RANKS = (EVALUATED, *_OF_FRAMEWORKS, PROFILER, OPTIMIZER, RANGE)
_SIGN_NS = 5_000_000_000  # between the signs of a program that it goes on
_NAMED = re.compile(r"(train(ing)?[ _])?(step|iter(ation)?|batch)([ _:#=]*\d+)?", re.IGNORECASE)


def are_enough(durations_ns: Any, steps: Any, visit_s: Any, under_way: Any = 0) -> bool:
    """Whether the timed steps of a visit are as many, or take as long, as was asked for.

    `steps` is the least and the most. The longest step counts for nothing: one that evaluates or
    saves does not take the time of the others. Of steps that are under way no duration is known:
    each counts as the mean of the others.
    """
    least, most = steps
    number = len(durations_ns) + under_way
    if number < least or number >= most:
        return bool(number >= most)
    others_ns = sum(durations_ns) - max(durations_ns, default=0)
    mean_ns = others_ns / max(len(durations_ns) - 1, 1)
    return bool(mean_ns * (number - 1) >= visit_s * 1e9)


class Marks:
    """Which of the events that a program shows end its steps."""

    profiler_of_jax: Any = None  # its profiler, and its class of ranges of steps
    calls: Any = None  # functions of JAX or TensorFlow that were called, see `framework_marks`

    def __init__(self, named: Any = None, function: Any = None) -> None:
        """Prepare; `named` is the name of the ranges that are the steps, `function` the name
        of the function whose calls are; without either any mark counts.
        """
        self._range = named
        self.function = function
        self._lock = threading.RLock()
        self._source: str | None = None
        self._mark: Any = None  # what marks the steps, e.g. the optimizer

    @property
    def is_written(self) -> bool:
        """Whether nothing is noted any more."""
        return False

    def _restart(self) -> None:
        """Forget the steps of a mark that is less than one that was found."""

    def _count(self, started: Any) -> None:
        """Note that a step ended."""

    def snapshot(self) -> Any:
        """The time, and what else is noted at the start of a step."""
        return time.monotonic_ns(), None

    def note_end(self, source: Any, mark: Any = None, started: Any = None) -> None:
        """Note that a step ended; `mark` is what marks it, `started` what `snapshot` gave at its
        start.
        """
        if self._range:
            wanted = RANGE
        elif self.function:
            wanted = JITTED
        else:
            wanted = source
        if self.is_written or source != wanted:
            return
        with self._lock:
            if self._source is not source:
                if self._source is not None and _RANKS.index(source) < _RANKS.index(self._source):
                    return
                self._source = source
                self._mark = mark
                self._restart()
            if mark is not self._mark:
                return
            self._count(started)

    def first(self, optimizer: Any, source: Any = OPTIMIZER) -> Any:
        """The first optimizer that steps, or model that runs, while it exists: it marks the
        steps.
        """
        kept = self._mark if isinstance(self._mark, weakref.ref) else None
        if kept is not None and kept() is not None and self._source == source:
            return kept if kept() is optimizer else None
        return weakref.ref(optimizer)

    def find_mark(self, source: Any) -> Any:
        """What marks the steps, if that is of a source; None otherwise."""
        return self._mark if self._source == source else None

    def forget_mark(self) -> None:
        """Let the next step that ends, of any source, begin anew."""
        self._source = None

    def _range_source(self, name: Any, names_steps: bool = False) -> Any:
        if self._range:
            return RANGE if str(name) == self._range else None
        return STEP_NAME if names_steps or _NAMED.fullmatch(str(name)) else None

    def follow_contexts(
        self, module: Any, attribute: str, name_of: Any, names_steps: bool = False
    ) -> None:
        """Follow the ranges of a class of contexts; with `names_steps` each is a step, whatever its
        name.
        """
        kind = getattr(module, attribute)
        steps = self
        opened = {}

        def make(self_: Any, *arguments: Any, **named: Any) -> None:
            kind.__init__(self_, *arguments, **named)
            with suppress(AttributeError):
                self_._curvescope_name = str((*arguments, *named.values(), "")[0])

        def enter(self_: Any) -> Any:
            result = kind.__enter__(self_)
            if (source := steps._range_source(name_of(self_), names_steps)) is not None:
                opened[id(self_)] = source, steps.snapshot()
            return result

        def left(self_: Any, *raised: Any) -> Any:
            result = kind.__exit__(self_, *raised)
            if (started := opened.pop(id(self_), None)) is not None:
                steps.note_end(started[0], None, started[1] if started[0] is RANGE else None)
            return result

        own = {
            "__init__": make,
            "__enter__": enter,
            "__exit__": left,
            "__module__": kind.__module__,
        }
        with suppress(TypeError):  # a class that cannot have others below it
            setattr(module, attribute, type(kind.__name__, (kind,), own))

    def follow_push_pop(self, module: Any, push_name: str, pop_name: str) -> None:
        """Follow the ranges that two functions begin and end."""
        push = getattr(module, push_name)
        pop = getattr(module, pop_name)
        opened = threading.local()

        def push_noted(message: Any = "", *arguments: Any, **named: Any) -> Any:
            source = self._range_source(message)
            opened.__dict__.setdefault("stack", []).append(
                (source, self.snapshot() if source else None)
            )
            return push(message, *arguments, **named)

        def pop_noted(*arguments: Any, **named: Any) -> Any:
            result = pop(*arguments, **named)
            stack = opened.__dict__.get("stack")
            source, started = stack.pop() if stack else (None, None)
            if source is not None:
                self.note_end(source, None, started if source is RANGE else None)
            return result

        setattr(module, push_name, push_noted)
        setattr(module, pop_name, pop_noted)


class Steps(Marks):
    """The steps of this process, which are timed."""

    def __init__(self, wanted: Any, load: Any) -> None:
        """Prepare; `load` loads a file or a package of Curvescope's by its name and path."""
        super().__init__(wanted["range"], wanted.get("function"))
        self.wanted = wanted
        self.load = load
        self._usage = load("_curvescope_host_usage", "hardware/host_usage.py")
        self._frameworks = load("_curvescope_frameworks", "frameworks/__init__.py")
        self._written = self._profiling = False
        self.torch: Any = None
        self._recorder: Any = None  # of the profiled steps
        self._refused: str | None = None  # why a change could not be made
        self._changes: dict[str, int] = {}  # how often each was made
        self.profiles_itself = False  # torch's only profiler is the program's
        self._signed_ns = -_SIGN_NS
        self._restart()
        atexit.register(self.write)

    @property
    def is_written(self) -> bool:
        """Whether nothing is timed any more."""
        return self._written

    def follow_processes(self) -> None:
        """Begin anew in a forked process, and write also where a process ends without Python's exit
        functions.
        """
        leave = os._exit

        def leaving(status: Any) -> Any:
            if self._seen:
                self.write()
            leave(status)

        os._exit = leaving
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._lock = threading.RLock()
        self._source = None
        self._recorder = None
        self._profiling = False
        self._restart()

    def _restart(self) -> None:
        self._last: Any = None  # time and resources at the end of the last step
        self._seen = 0  # steps that ended
        self._rows: list[dict[str, Any]] = []
        self._timed_at_ns: int | None = None  # when enough steps were timed
        self._events: list[Any] = []  # of CUDA, at both borders of each timed step
        self._gpu_ns: list[float] = []  # durations of the timed steps that it has ended
        self._first_ns: int | None = None

    def _count(self, started: Any) -> None:
        if (cuda := self._cuda()) is not None and cuda.is_current_stream_capturing():
            return  # a graph is captured: the step does not run
        now = self.snapshot()
        if now[0] - self._signed_ns >= _SIGN_NS:
            self._signed_ns = now[0]
            self._sign()
        self._seen += 1
        self._first_ns = self._first_ns or now[0]
        before = started or self._last
        self._last = now
        if self._seen <= self.wanted["discarded"] or before is None:
            if self._seen == self.wanted["discarded"]:
                self._reset_peak()
                self._last = self.snapshot()  # the reset is not of the next step
            return
        if self._profiling:
            self._count_profiled(now[0])
            return
        if self._timed_at_ns is None:
            self._time_step(before, now)
        if self._timed_at_ns is not None and not self._waits(now[0] - self._timed_at_ns):
            self._begin_profile()

    def _time_step(self, before: Any, now: Any) -> None:
        """Note a timed step, from its border with the step before it to that with the next."""
        self._rows.append(
            {
                "start_ns": before[0],
                "duration_ns": now[0] - before[0],
                **self._measure_use(before[1], now[1]),
            }
        )
        self._events.append((before[2], now[2]))
        if self._are_enough():
            self._timed_at_ns = now[0]

    def _waits(self, waited_ns: Any) -> bool:
        """Whether a function that computes a gradient may still be called, which then is the
        step.
        """
        if self._source != JITTED or waited_ns >= 1e9 * self.wanted.get("gradient_s", 0.0):
            return False
        return bool(self.calls.awaits_gradient(self._mark))

    def _sign(self) -> None:
        """Show that steps are seen: a program without them is ended after a while."""
        path = os.path.join(self.wanted["folder"], f"{os.getpid()}.seen")
        with suppress(OSError), open(path, "w"):
            os.utime(path)

    def _are_enough(self) -> bool:
        """Whether enough steps are timed: on a GPU by those that it has ended, as the host runs
        ahead of it.
        """
        durations_ns: list[float] = [row["duration_ns"] for row in self._rows]
        under_way = 0
        if self._are_timed_on_gpu():
            self._ask_gpu()
            under_way = len(durations_ns) - len(self._gpu_ns)
            durations_ns = self._gpu_ns
        return are_enough(durations_ns, self.wanted["steps"], self.wanted["visit_s"], under_way)

    def _ask_gpu(self) -> None:
        """Note how long the timed steps took that a GPU has ended, which is not waited for."""
        for before, after in self._events[len(self._gpu_ns) :]:
            if not after.query():
                return
            self._gpu_ns.append(float(before.elapsed_time(after)) * 1e6)

    def snapshot(self) -> Any:
        """The time, once all work is done, and the resources used so far; CUDA's work is timed by
        events.
        """
        for framework in self._frameworks.list_used_frameworks():
            framework.wait(None, "cpu")
        return time.monotonic_ns(), self._usage.read_host_use(), self._record_event()

    def _measure_use(self, before: Any, after: Any) -> dict[str, Any]:
        used: dict[str, Any] = self._usage.host_use_between(before, after)
        return used

    def _cuda(self) -> Any:
        """torch.cuda if the program uses it."""
        torch = sys.modules.get("torch")
        return torch.cuda if torch is not None and torch.cuda.is_initialized() else None

    def _computes_on_gpu(self) -> bool:
        """Whether torch has data on a GPU."""
        cuda = self._cuda()
        return cuda is not None and cuda.max_memory_allocated() > 0

    def _record_event(self) -> Any:
        """An event of CUDA, now; None where torch does not use it, or captures a graph."""
        cuda = self._cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def _are_timed_on_gpu(self) -> bool:
        return bool(self._events) and all(None not in borders for borders in self._events)

    def _reset_peak(self) -> None:
        with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        if (cuda := self._cuda()) is not None:
            cuda.reset_peak_memory_stats()

    def _peak(self) -> dict[str, Any]:
        if (cuda := self._cuda()) is not None:
            stats = cuda.memory_stats()
            return {
                "peak_memory_bytes": stats.get("allocated_bytes.all.peak"),
                "reserved_memory_bytes": stats.get("reserved_bytes.all.peak"),
                "allocator_retries": stats.get("num_alloc_retries"),
            }
        with suppress(OSError), open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return {"peak_memory_bytes": int(line.split()[1]) * 1024}
        return {}

    def _begin_profile(self) -> None:
        """Have the next steps profiled; the visit is complete where nothing profiles them."""
        self._finish_rows()
        wanted = self.wanted["profiled"] and self._source != RANGE
        self._recorder = self._recorder_of_framework() if wanted else None
        if self._recorder is None:
            self.write()
            return
        try:
            self._recorder.open_window()
        except Exception as error:
            self._recorder.give_up(f"the program could not be recorded: {error!r}")
            self.write()
            return
        self._sign()
        self._profiling = True
        self._is_profiled = False
        self._profiled = -self._recorder.discarded
        self._profile_began_ns = time.monotonic_ns()
        self._timed_ns = sum(row["duration_ns"] for row in self._rows)

    def _recorder_of_framework(self) -> Any:
        """The recorder of the steps: torch's own profiler, or a framework's on a CPU; None where
        nothing does.
        """
        folder = self.wanted["folder"]
        used = self._frameworks.own_profiler()
        if used is not None and self._source in _OF_FRAMEWORKS:
            windows = self.load(
                "_curvescope_framework_windows", "collect/startup/framework_windows.py"
            )
            if used.name == "jax":
                profiler = self.profiler_of_jax
                return windows.of_jax(*profiler, folder) if profiler else None
            return windows.of_tensorflow(used.module.profiler.experimental, folder)
        if self.torch is None or self.profiles_itself:
            return None
        windows = self.load("_curvescope_torch_windows", "collect/startup/torch_windows.py")
        kind = windows.Recorder
        if self._computes_on_gpu():
            self.load("_curvescope_kineto", "collect/startup/kineto.py")
            kind = self.load(
                "_curvescope_torch_kernels", "collect/startup/torch_kernels.py"
            ).KernelRecorder
        recorder = kind(self.torch, folder)
        try:
            recorder.attach()
        except Exception as error:
            recorder.give_up(f"torch could not be recorded: {error!r}")
            return None
        return recorder

    def _count_profiled(self, now_ns: Any) -> None:
        """Note the end of a profiled step; the last one ends the visit."""
        is_over = self._is_profiled
        if not is_over:
            self._profiled += 1
            self._recorder.end_step()
            # Profiling at most doubles the run, or adds one step.
            is_long = now_ns - self._profile_began_ns >= self._timed_ns
            enough = min(self.wanted["profiled"], self._recorder.most)
            self._is_profiled = self._profiled > 0 and (is_long or self._profiled >= enough)
        if self._is_profiled:
            self._sign()
            self._recorder.close_window(self.write, at_once=is_over)

    def _finish_rows(self) -> None:
        peak = self._peak()
        for row in self._rows:
            row.update(peak)
        if not self._are_timed_on_gpu():
            return
        self._cuda().synchronize()
        first = self._events[0][0]
        began_ns = self._rows[0]["start_ns"]
        for row, (before, after) in zip(self._rows, self._events):  # noqa: B905 - as long as the rows
            row["start_ns"] = began_ns + round(first.elapsed_time(before) * 1e6)
            row["duration_ns"] = round(before.elapsed_time(after) * 1e6)

    def write(self) -> None:
        """Write the findings, complete or not; nothing is timed after it."""
        with self._lock:
            if self._written:
                return
            self._written = True
            torch = sys.modules.get("torch")
            cuda = self._cuda()
            by_name = {
                "version": VERSION,
                "rank": os.environ.get("RANK"),
                "source": self._source,
                "mark": name_of(self._mark),
                "functions": self.calls.description if self.calls is not None else [],
                "seen": self._seen,
                "complete": self._refused is not None
                or (len(self._rows) >= self.wanted["steps"][0] and self._seen > 0),
                "refused": self._refused,
                "changes": self._changes,
                "rows": self._rows,
                "first_step_ns": self._first_ns,
                "device": f"cuda:{cuda.current_device()}"
                if cuda and self._computes_on_gpu()
                else "cpu",
                "threads": torch.get_num_threads() if torch is not None else None,
                "torch": str(torch.__version__) if torch is not None else None,
                "frameworks": self._frameworks.framework_versions(),
                "accelerator": self._frameworks.accelerator_in_use(),
            }
            path = os.path.join(self.wanted["folder"], f"{os.getpid()}.steps")
            with suppress(OSError):
                with open(path + ".part", "w") as file:
                    json.dump(by_name, file, default=str)
                os.replace(path + ".part", path)

    def refuse(self, why: Any) -> None:
        """Note why a change cannot be made, and end the visit."""
        self._refused = self._refused or str(why)
        self.write()

    def note_change(self, name: Any) -> None:
        """Note that a change was made."""
        self._changes[name] = self._changes.get(name, 0) + 1


def read_given_name(context: Any) -> str:
    """The name that a range was made with."""
    return str(getattr(context, "_curvescope_name", ""))


def name_of(mark: Any) -> Any:
    """The name of the function, or of its class, that marks the steps; None without it."""
    if isinstance(mark, weakref.ref):
        mark = mark()
    if isinstance(mark, tuple):  # a line, with its code first
        mark = mark[0]
    if mark is None:
        return None
    names = ("__qualname__", "co_qualname", "co_name")  # of a function, or of its code
    return next((getattr(mark, name) for name in names if hasattr(mark, name)), type(mark).__name__)
