"""Records what torch runs on the CPU of a process, in windows that are each written completely.

A window is an interval under torch's own profiler, on one thread: the leader, the first thread that
calls a module. It begins with a call of a module and ends where a step ends, at least half a second
later: after the optimizer, or before the next call of the model if nothing trains. An error ends
the recording of this process, never the program. The program's own Python loads this file by path,
so it needs only the standard library and torch.

Torch writes the end of an operator or range to the memory of its window, even when that window is
gone and another is open, which crashed programs. So only one thread is recorded, and no window
begins inside a range of an earlier one.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

VERSION = 2
LAYER_RANGE = "curvescope.layer:"
# Per process; a training step of ResNet-50 has some 3,000. Later events are not recorded, and cost
# nothing.
_MOST_EVENTS = 200_000
_KINETO_VARIABLE = "KINETO_LOG_LEVEL"
_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # drivers of NVIDIA, WSL 2, AMD


def runs_on_gpu(torch: Any) -> bool:
    """Whether torch's work goes to a GPU."""
    built_for_gpus = (
        torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None
    )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return built_for_gpus and not hidden and any(map(os.path.exists, _GPUS))


def start(torch: Any, folder: Any, kind: Any = None) -> None:
    """Record torch from now on; `kind` is the class of the recorder, for a GPU the class in
    `torch_ranges.py`.
    """
    if os.environ.get("CURVESCOPE_TORCH") == "off":
        return
    recorder = (kind or Recorder)(torch, folder)
    try:
        recorder.attach()
    except Exception as error:
        recorder.give_up(f"torch could not be recorded: {error!r}")


class _Calls(threading.local):
    """Open calls of modules in a thread, outermost first, and paths of the modules in the outermost
    one.
    """

    def __init__(self) -> None:
        self.open: list[tuple[Any, Any]] = []
        self.paths: dict[int, str] = {}
        self.inputs: list[set[Any]] = []  # autograd nodes of the inputs of each open call, on a GPU


def list_parts(module: Any) -> Any:
    """The modules in a module with their paths, and itself with an empty one.

    Keras's models keep their layers in lists, where torch sees none of them.
    """
    parts = list(module.named_modules())
    yield from parts
    layers = getattr(module, "_flatten_layers", None)
    if not callable(layers):
        return
    part_ids = {id(part) for _, part in parts}
    for layer in layers(include_self=False):
        path = getattr(layer, "path", None)
        if path and id(layer) not in part_ids:
            yield path.partition("/")[2].replace("/", ".") or path, layer


class Recorder:
    """Records one process; see `torch_ranges.py` for one on a GPU."""

    _least_window_ns = 500_000_000
    _is_told = False  # where steps end, by `end_step`
    discarded = 0  # steps that end after `open_window` and are none of the window
    most = 100  # steps of the window

    def __init__(self, torch: Any, folder: Any) -> None:
        self._torch = torch
        self._folder = folder
        self._handles: list[Any] = []
        self._modules: Any = weakref.WeakKeyDictionary()
        self._classes: dict[str, str] = {}  # of the modules with a path
        self._has_profiled = False
        self._reset()

    def _reset(self) -> None:
        self._calls = _Calls()
        self._profile: Any = None
        self._lock = threading.RLock()  # held to begin or end a window
        self._leader: threading.Thread | None = None
        self._leader_id = 0  # the system's thread id
        self._has_followers = False  # whether other threads call modules too
        self._ranges: Any = weakref.WeakSet()  # the leader's open ranges that began in a window
        self._model: Any = None  # the first module that the leader calls
        self._optimizer: Any = None  # the first optimizer that steps; it marks the ends of steps
        # whether the model was called for training since the optimizer's last step
        self._is_training = False
        self._boundaries: list[tuple[int, str, int | None]] = []
        self._begin_ns = 0
        self._windows = self._events = 0
        self._then: Any = None  # what `close_window` calls once the open ranges have ended
        self._own_call = False

    def attach(self) -> None:
        """Hook modules and optimizers, and watch the program's own use of the profiler."""
        from torch.autograd import profiler

        self._profiler = profiler
        self._mark = self._torch._C._profiler._RecordFunctionFast
        self._yield_to_program_profiler(profiler)
        self._track_ranges(profiler.record_function)
        self._follow_calls()

    def _follow_calls(self) -> None:
        from multiprocessing import util

        self._silence_compile_warning()
        self._hook_calls()
        atexit.register(self.end)

        def end_with_worker(_: Any) -> None:  # which runs these instead of Python's exit functions
            util.Finalize(None, self.end, exitpriority=0)

        util.register_after_fork(self, end_with_worker)
        end_with_worker(self)
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def _hook_calls(self) -> None:
        from torch.nn.modules import module as modules
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handles = [
            modules.register_module_forward_pre_hook(self._hook(self._enter, "a module's call")),
            modules.register_module_forward_hook(
                self._hook(self._leave, "a module's call"), always_call=True
            ),
            register_optimizer_step_post_hook(
                self._hook(self._note_optimizer_step, "an optimizer's step")
            ),
        ]

    def _unhook_calls(self) -> None:
        handles = self._handles
        self._handles = []
        for handle in handles:
            handle.remove()

    def _hook(self, record: Any, what: str) -> Any:
        # torch.compile evaluates this condition while compiling, and compiles none of the rest.
        is_compiling = self._torch.compiler.is_compiling

        def hook(*arguments: Any) -> None:
            if is_compiling():
                return
            try:
                record(*arguments)
            except Exception as error:
                self.give_up(f"{what} could not be recorded: {error!r}")

        return hook

    def _enter(self, module: Any, arguments: Any) -> None:
        calls = self._calls
        if not calls.open:
            self._note_call(module, arguments)
            calls.paths = self._paths(module)
        mark = None
        if self._profile is not None and (path := calls.paths.get(id(module))):
            mark = self._mark_of(module, path)
            mark.__enter__()
        calls.open.append((module, mark))

    def _mark_of(self, module: Any, path: str) -> Any:  # noqa: ARG002
        return self._mark(LAYER_RANGE + path)

    def _leave(self, module: Any, arguments: Any, output: Any) -> None:  # noqa: ARG002
        calls = self._calls.open
        # An exception in one of the program's hooks may have left calls open.
        while calls:
            called, mark = calls.pop()
            if mark is not None:
                mark.__exit__(None, None, None)
            if called is module:
                break

    def _note_call(self, module: Any, arguments: Any) -> None:
        if not self._leads(module):
            return
        trains = self._torch.is_grad_enabled()
        is_model = self._model() is module
        ends_step = self._optimizer is None or not (trains or self._is_training)
        if is_model and ends_step and self._is_long():
            self._cut()
        with self._lock:
            if self._handles and self._profile is None and not self._ranges:
                self._boundaries = []
                profile = self._begin_profile()
                self._begin_ns = time.monotonic_ns()
                self._profile = profile
                self._has_profiled = True
        if is_model:
            self._is_training |= trains
            self._boundaries.append(
                (time.monotonic_ns(), "training" if trains else "call", self._batch(arguments))
            )

    def _leads(self, module: Any) -> bool:
        """Whether this thread is the leader: the first that calls a module, or the next if that one
        ended.
        """
        me = threading.current_thread()
        with self._lock:
            if self._leader is not me:
                if self._leader is not None and (
                    self._profile is not None or self._leader.is_alive()
                ):
                    if not self._has_followers:
                        self._has_followers = True
                        self._say("recorded on one thread only; other threads called modules too")
                    return False
                self._leader, self._leader_id = me, threading.get_native_id()
                self._model = None
                self._optimizer = None
                self._is_training = False
            if self._model is None:
                self._model = weakref.ref(module)
        return True

    def open_window(self) -> None:
        """Begin a window here, at the end of a step of this thread; `end_step` says where steps
        end.

        Only `close_window` ends it.
        """
        self._least_window_ns = sys.maxsize
        self._is_told = True
        with self._lock:
            self._leader, self._leader_id = threading.current_thread(), threading.get_native_id()
            self._boundaries, profile = [], self._begin_profile()
            self._begin_ns = time.monotonic_ns()
            self._profile = profile
            self._has_profiled = True

    def end_step(self) -> None:
        """Note that a step of the window ended."""
        self._boundaries.append((time.monotonic_ns(), "optimizer", None))

    def close_window(self, then: Any, *, at_once: bool = False) -> None:
        """Write the window that `open_window` began, record nothing more, and call a function.

        A range that is open, as an optimizer's is where its step ends, ends first, as it would be
        missing: unless it has to be at once.
        """
        if self._ranges and not at_once:
            self._then = then
            return
        self._then = None
        self._cut_or_give_up("the window")
        self._unhook_calls()
        then()

    def _note_optimizer_step(self, optimizer: Any, arguments: Any, named: Any) -> None:  # noqa: ARG002
        if self._profile is None or self._is_told or self._leader is not threading.current_thread():
            return
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._boundaries.append((time.monotonic_ns(), "optimizer", None))
            self._is_training = False
            if self._is_long():
                self._cut()

    def _is_long(self) -> bool:
        return (
            self._profile is not None
            and time.monotonic_ns() - self._begin_ns >= self._least_window_ns
        )

    def _batch(self, arguments: Any) -> int | None:
        """Samples in a call of the model: the first extent of the first tensor with two dimensions
        or more.
        """
        tensors = (argument for argument in arguments if isinstance(argument, self._torch.Tensor))
        return next((int(tensor.shape[0]) for tensor in tensors if tensor.dim() > 1), None)

    def _paths(self, module: Any) -> Any:
        """Paths of the modules in a module, by identity; outside the model they begin with the type
        of the module.
        """
        if module not in self._modules:
            root = "" if self._model is None or self._model() is module else type(module).__name__
            parts = [
                (".".join(filter(None, (root, path))), part) for path, part in list_parts(module)
            ]
            self._modules[module] = {id(part): path for path, part in parts}
            self._classes.update((path, type(part).__name__) for path, part in parts if path)
        return self._modules[module]

    def _options(self) -> dict[str, Any]:
        return {"use_kineto": True, "record_shapes": True}

    def _begin_profile(self) -> Any:
        profile = self._profiler.profile(**self._options())
        # Torch's profiler, initialised by the first window, writes to standard error below this
        # level.
        quiet = _KINETO_VARIABLE not in os.environ
        if quiet:
            os.environ[_KINETO_VARIABLE] = "99"
        try:
            self._call_profiler(profile.__enter__)
        finally:
            if quiet:
                os.environ.pop(_KINETO_VARIABLE, None)
        return profile

    def _call_profiler(self, call: Any, *arguments: Any) -> None:
        self._own_call = True
        try:
            call(*arguments)
        finally:
            self._own_call = False

    def _cut(self) -> None:
        with self._lock:
            profile = self._profile
            self._profile = None
            if profile is not None:
                self._write_window(profile)

    def _write_window(self, profile: Any) -> None:
        window = self._window()
        self._end_profile(profile)
        contents = self._contents_of(profile)
        self._write(f"{self._windows:06d}.window", {**window, **contents})
        self._windows += 1
        self._events += len(contents["events"])
        if self._events >= _MOST_EVENTS:
            self.give_up(f"recorded up to {self._events} operators; later ones were not recorded")

    def _window(self) -> dict[str, Any]:
        """The entry of a window that ends now, but its events."""
        about = {"version": VERSION, "process": os.getpid(), "thread": self._leader_id}
        times = {
            "window_ns": (self._begin_ns, time.monotonic_ns()),
            "clock_offset_ns": _clock_offset_ns(),
        }
        facts = {"boundaries": self._boundaries, "layer_classes": self._classes}
        return {**about, **times, **facts, "cpu_threads": self._torch.get_num_threads()}

    def _end_profile(self, profile: Any) -> None:
        self._call_profiler(profile.__exit__, None, None, None)

    def _contents_of(self, profile: Any) -> dict[str, Any]:
        events = profile.kineto_results.events()
        return {"events": [columns(event) for event in events if event.device_type().name == "CPU"]}

    def _write(self, name: Any, document: Any) -> None:
        path = os.path.join(self._folder, f"{os.getpid()}-{name}.json")
        try:
            with open(path + ".part", "w") as file:
                json.dump(document, file, default=str)
        except OSError:
            with suppress(OSError):
                # room on a full disk; who reads the folder counts the file
                os.truncate(path + ".part", 0)
            raise
        os.replace(path + ".part", path)

    def end(self) -> None:
        """Write the last window before the process ends."""
        if self._profile is not None and not self._may_end():
            self.give_up(
                "the last window is lost: it belongs to another thread than the one that ended the "
                "process"
            )
        self._cut_or_give_up("the last window")

    def _cut_or_give_up(self, what: str) -> None:
        try:
            self._cut()
        except Exception as error:
            self.give_up(f"{what} is lost: {error!r}")

    def give_up(self, why: Any) -> None:
        """Stop recording this process permanently, and write the reason."""
        with suppress(Exception):
            self._unhook_calls()
        profile = self._profile
        self._profile = None
        if profile is not None:
            with suppress(Exception):
                self._end_profile(profile)
        with suppress(Exception):
            self._say(why)

    def _say(self, status: Any) -> None:
        self._write("torch.status", {"version": VERSION, "process": os.getpid(), "status": status})

    def _yield_to_program_profiler(self, profiler: Any) -> None:
        """End the recording when the program starts torch's only profiler itself."""
        for name in ("_prepare_profiler", "_enable_profiler"):
            call = getattr(profiler, name)

            def yielding(*arguments: Any, _call: Any = call, **named: Any) -> Any:
                if not self._own_call and self._handles:
                    self.end()
                    self.give_up("recorded until the program used torch's profiler itself")
                return _call(*arguments, **named)

            setattr(profiler, name, yielding)

    def _track_ranges(self, record_function: Any) -> None:
        """Track open ranges (of the program, and of optimizer steps) that began in a window."""
        enter = record_function.__enter__
        leave = record_function.__exit__

        # functools.wraps lets TorchScript compile torch's own sources.
        @functools.wraps(enter)
        def entering(self_: Any) -> Any:
            if self._profile is not None and self._leader is threading.current_thread():
                self._ranges.add(self_)
            return enter(self_)

        @functools.wraps(leave)
        def leaving(self_: Any, *raised: Any) -> Any:
            self._ranges.discard(self_)
            result = leave(self_, *raised)
            if self._then is not None and not self._ranges:
                self.close_window(self._then)
            return result

        record_function.__enter__ = entering
        record_function.__exit__ = leaving

    def _silence_compile_warning(self) -> None:
        """Hide our hooks from torch.compile's warning about global module hooks: they do nothing in
        compiled code.
        """
        from torch.nn.modules import module as modules

        def has_any_global_hook() -> bool:
            forward = len(modules._global_forward_pre_hooks) + len(modules._global_forward_hooks)
            backward = modules._global_backward_pre_hooks or modules._global_backward_hooks
            return forward > len(self._handles[:2]) or bool(backward)

        if hasattr(modules, "_has_any_global_hook"):
            modules._has_any_global_hook = has_any_global_hook

    def _may_end(self) -> bool:
        """Whether torch allows this thread to end the window: only the thread that began it may."""
        return self._leader is threading.current_thread()

    def _before_fork(self) -> None:
        if self._profile is not None and self._may_end():
            self._cut_or_give_up("a window before a fork")

    def _after_fork(self) -> None:
        if self._profile is not None:
            # Another thread had a window open, and the child does not have that thread.
            with suppress(Exception):
                self._torch.autograd._enable_record_function(False)
            self._profile = None
            self.give_up("forked while another thread had a window open")
        if self._has_profiled:
            with suppress(Exception):
                _end_without_destructors()
        self._reset()


def _end_without_destructors() -> None:
    """Let a forked child end like a worker of multiprocessing: without C++ destructors.

    Kineto joins a thread in one, which the child does not have: it would hang or abort. The C
    library runs these functions in reverse order: the collector writes its ranges, buffers are
    flushed, and the process ends.
    """
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)
    with suppress(OSError, KeyError):  # not loaded unless NVTX was used
        collector = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"], os.RTLD_NOW | os.RTLD_NOLOAD)
        libc.__cxa_atexit(collector.curvescope_record_stop, None, None)


def _clock_offset_ns() -> int:
    """Offset of the system clock, which torch uses, from the monotonic clock, by the readings
    closest together.
    """
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(9)]
    before, system, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return system - (before + after) // 2


def columns(event: Any) -> tuple[Any, ...]:
    """The entry of an event in a file."""
    # the system's thread id
    where = (
        event.name(),
        event.start_ns(),
        event.duration_ns(),
        event.device_resource_id(),
    )
    autograd = event.scope(), event.fwd_thread_id(), event.sequence_nr()
    if hasattr(event, "structured_input_strides"):  # not in old versions of torch
        shapes = event.structured_input_shapes()
        strides = event.structured_input_strides()
    else:
        shapes = event.shapes()
        strides = ()
    return (*where, *autograd, shapes, event.concrete_inputs(), event.dtypes(), strides)
