"""A user's own step: `make_step(batch)` returns a function that runs one step of whatever the user
trains.

It is called as it is. Layers come from hooks of its module, if one is given; the backward phase
from autograd's nodes, the optimizer phase from the ranges that torch's optimizers open. A step has
two optional attributes: `module`, whose layers are named, and `close`, which is called when another
batch size follows. Steps without it are kept for the next round, until memory runs short.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.harmless import home_as_tilde
from ..collect import inductor
from ..collect.compilations import count_compiled_functions, read_compilations
from ..frameworks import (
    accelerator_in_use,
    device_entry,
    list_used_frameworks,
    module_advice,
    restart_names,
    wait_for,
)
from ..hardware.host_usage import wait_until_quiet
from ..hardware.memory_usage import memory_is_short
from ..recording.axis import BATCH, Axis
from .any_workload import AnyWorkload, Ranges
from .networks import IMPORTING, load_function

MODE = "own"
_PROFILING = Path(__file__).resolve().parents[1]
MakeStep = Callable[..., Callable[[], object]]
# Steps that are tried for work that goes on after they return, for at most that time; more where
# fewer leave some undone. How long threads may spin after their work: Intel's OpenMP for 200 ms.
_TRIED_STEPS = (16, 256)
_TRIED_NS = 100_000_000
_SPINS_NS = 400_000_000
_WORKING_SHARE = 0.1  # of a time in which a process works it has a core, however busy the machine


def load_make_step(spec: str) -> MakeStep:
    """Load the function of `--step`."""
    return load_function("--step", spec, "package.module:make_step or path/to/file.py:make_step")


def spec_of(make_step: MakeStep) -> tuple[str | None, str | None]:
    """The value of `--step` that names a function, or, as a clause, why another process cannot
    import it.
    """
    name = getattr(make_step, "__qualname__", None)
    module = getattr(make_step, "__module__", None)
    if name is None or module is None:
        return (
            None,
            f"it is an object of type {type(make_step).__name__}, not a function of a module",
        )
    if "<lambda>" in name:
        return None, "it is a lambda"
    if "<locals>" in name:
        return None, f"it is defined inside the function {name.partition('.')[0]}"
    if "." in name:
        return None, "it is a method"
    if module == "__main__":
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        if file is None or not Path(file).is_file():
            return None, "it is defined in a notebook or an interactive session"
        path = os.path.relpath(file)
        module = home_as_tilde(os.path.abspath(file)) if path.startswith(os.pardir) else path
    return f"{module}:{name}", None


def global_name(make_step: MakeStep, value: object) -> str | None:
    """Name of the variable of a function's file that has a value, by which other processes find
    theirs.
    """
    variables = getattr(make_step, "__globals__", {})
    if value is None:
        return None
    return next((name for name, variable in variables.items() if variable is value), None)


def global_named(make_step: MakeStep, name: str | None) -> Any:
    """The variable of a function's file; None without a name, or if this process has none."""
    if name is None:
        return None
    return getattr(make_step, "__globals__", {}).get(name)


def _name_function(make_step: MakeStep) -> str:
    """The function's name in its class, without the functions that it is defined in."""
    name = getattr(make_step, "__qualname__", type(make_step).__name__)
    return str(name).rpartition("<locals>.")[2]


class OwnStep(AnyWorkload):
    """Steps of a user's `make_step`."""

    mode = MODE
    precision: str | None = None
    compiled = False
    is_users = True

    def __init__(
        self,
        make_step: MakeStep,
        device: str | None = None,
        *,
        name: str | None = None,
        spec: str | None = None,
        module: Any = None,
        axis: Axis | None = None,
        fixed: Mapping[str, int] | None = None,
        errors_are_results: bool = True,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Prepare; nothing of the user's runs before `load`.

        `make_step` takes a value of the axis and returns a function that runs one step. A batch
        size alone is passed by position; other axes, and several, by name. Without a device,
        `try_step` finds the one that the step uses. `spec`, the value of `--step` that names the
        function, is found by default; so is the module whose layers are named, as attribute
        `module` of the step or of `make_step`.
        """
        self.device = device or "cpu"
        self._device_is_given = device is not None
        self.axis, self.fixed = axis or Axis(), dict(fixed or {})
        self.clock_ns = clock_ns
        self.first_profiled = {}
        self.errors_are_results = errors_are_results
        self._spec, self._not_importable = (spec, None) if spec is not None else spec_of(make_step)
        self._make_step = make_step
        self._module = module
        self._name = name or self._spec or _name_function(make_step)
        self._kept: dict[int, Callable[[], object]] = {}
        self._calls: dict[int, int] = {}  # of each step that was made
        self._loaded: int | None = None
        self._graphs_before = len(inductor.COMPILED)
        self.compiled_before = read_compilations()
        self.model = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "network": self._name,
            "step": self._spec,
            "step_not_importable": self._not_importable,
            "step_module": global_name(self._make_step, self._module),
            "mode": self.mode,
            "precision": self.precision,
            "compiled": self.compiled,
            "axis": self.axis.entry,
            "fixed": self.fixed,
            "torch_device": self.device,
        }

    @property
    def loaded(self) -> int | None:
        return self._loaded

    @property
    def runs_compiled_graphs(self) -> bool:
        by_inductor = len(inductor.COMPILED) > self._graphs_before
        before = 0 if self.compiled_before is None else self.compiled_before.compiled
        return self.compiled or by_inductor or count_compiled_functions() > before

    def load(self, batch: int) -> None:
        """Make the step of one value, or take the one of an earlier round.

        Its own errors are passed on.
        """
        if batch == self._loaded:
            return
        if self._loaded is not None and hasattr(self._kept.get(self._loaded), "close"):
            self._drop(self._loaded)
        self._loaded = None
        inductor.keep_kernels()
        if batch not in self._kept:
            if memory_is_short(self.device):
                self.release()
            self._kept[batch] = self._make(batch)
            self._calls[batch] = 0
            inductor.keep_kernels()  # if `make_step` imported torch
        self._loaded, self.model = batch, self._find_module(self._kept[batch])
        inductor.name_modules(self.model)

    def try_step(self, batch: int) -> None:
        """Run one step, to check what `make_step` returns before anything is recorded, and to find
        the device.

        Errors of the step itself are results of the sweep, if `errors_are_results`.
        """
        self._refuse_other_arguments(batch)
        began_ns = time.monotonic_ns()
        try:
            self.load(batch)
            began_ns = time.monotonic_ns()
            result = self.submit()
            self._synchronize(result)
        except (Exception, SystemExit) as error:
            if isinstance(error, CurvescopeError) or not self.errors_are_results:
                raise
            self.release()
            return
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            raise CurvescopeError(
                f"The step that {self._describe_call(batch)} returned is "
                f"{_article(type(result).__name__)} function: calling it runs nothing. Return a "
                "plain function that runs one step."
            )
        self._settle_device()
        self._refuse_unfinished(began_ns)

    def machine_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a machine, with the device of a framework that torch does not know."""
        return device_entry(entry, accelerator_in_use())

    def _refuse_unfinished(self, began_ns: int) -> None:
        """Refuse a step whose work goes on after it returned, where nothing tells how to wait for
        it.

        Threads may also spin a little after their work. So several steps run: work that they leave
        undone takes longer.
        """
        step = None if self._loaded is None else self._kept.get(self._loaded)
        spins = (
            os.environ.get("OMP_WAIT_POLICY", "").lower() == "active"
            or "KMP_BLOCKTIME" in os.environ
        )
        if self.cuda or spins or getattr(step, "waits", False):
            return
        used = list_used_frameworks()
        steps = 1
        if not used and not self._leaves_work(began_ns, steps):
            return
        for most in _TRIED_STEPS:
            began_ns = time.monotonic_ns()
            steps = 0
            result = None
            while steps < most and time.monotonic_ns() - began_ns < _TRIED_NS:
                result = self.submit()
                steps = steps + 1
            self._synchronize(result)
            if not self._leaves_work(began_ns, steps):
                return

    def _leaves_work(self, began_ns: int, steps: int) -> bool:
        """Whether the process computes for longer after its latest steps than these took, from
        their begin.

        Raises:
            CurvescopeError: it does so for longer than threads spin.
        """
        returned_ns = time.monotonic_ns()
        used_ns = time.process_time_ns()
        took_ns = returned_ns - began_ns
        least_ns = max(_SPINS_NS, took_ns)
        wait_until_quiet(2 * least_ns / 1e9)
        worked_on_ns = time.monotonic_ns() - returned_ns
        # A process that does nothing also waits long for a core, on a busy machine.
        used_ns = time.process_time_ns() - used_ns
        if worked_on_ns > least_ns and used_ns > _WORKING_SHARE * least_ns:
            lines = [f"`{adapter.waiting}` in {adapter.name}" for adapter in list_used_frameworks()]
            raise CurvescopeError(
                f"{self.name} does not wait for its work: its process computed for "
                f"{worked_on_ns / 1e6:.0f} ms after {counted(steps, 'step')} had returned, in "
                f"{took_ns / 1e6:.3g} ms. Let the step "
                f"wait{': ' if lines else ''}{' or '.join(lines)}. If that is other work, e.g. "
                "loading data ahead, set `step.waits = True` in `make_step`."
            )
        return worked_on_ns > took_ns

    def _refuse_other_arguments(self, batch: int) -> None:
        """Refuse a function that cannot be called with the axis's values, before anything is
        recorded.
        """
        arguments = self._arguments(batch)
        try:
            signature = inspect.signature(self._make_step)
        except (TypeError, ValueError):  # of C
            return
        try:
            signature.bind(batch) if set(arguments) == {BATCH} else signature.bind(**arguments)
        except TypeError as error:
            raise CurvescopeError(
                f"{self._describe_call(batch)} cannot be called: {error}. Name a function that "
                "takes a batch size and returns a function that runs one step, e.g. "
                "`def make_step(batch)`."
            ) from error

    def release(self) -> None:
        for batch in list(self._kept):
            self._drop(batch)
        self._loaded = self.model = None
        self._empty_cache()

    def free_others(self, but: Sequence[int] = ()) -> bool:
        others = [batch for batch in self._kept if batch not in (self._loaded, *but)]
        for batch in others:
            self._drop(batch)
        if others:
            self._empty_cache()
        return bool(others)

    def describe_error(self, error: BaseException) -> str:
        what = super().describe_error(error)
        if isinstance(error, CurvescopeError):
            return str(error)
        frames = traceback.extract_tb(error.__traceback__)
        users_frames = [frame for frame in frames if _is_users(frame.filename)]
        where = ""
        if users_frames:
            last = users_frames[-1]
            where = f" ({Path(last.filename).name}, line {last.lineno})"
        calls = None if self._loaded is None else self._calls.get(self._loaded)
        call = f"call {calls} of the step" if calls else "make_step"
        return f"{call} raised {what}{where}"

    def _make(self, batch: int) -> Callable[[], object]:
        restart_names()
        arguments = self._arguments(batch)
        step = self._make_step(batch) if set(arguments) == {BATCH} else self._make_step(**arguments)
        if not callable(step):
            raise CurvescopeError(
                f"{self._describe_call(batch)} returned {_describe_value(step)}: return a function "
                "without arguments that runs one step."
            )
        return step

    def _find_module(self, step: Callable[[], object]) -> Any:
        candidates = (
            self._module,
            getattr(step, "module", None),
            getattr(self._make_step, "module", None),
        )
        module = next((candidate for candidate in candidates if candidate is not None), None)
        if module is not None and not hasattr(module, "named_modules"):
            raise CurvescopeError(
                f"The `module` of {self._name} is {_describe_value(module)}, not a torch module: "
                + (module_advice(module) or "give the model whose layers should be named, or none.")
            )
        return module

    def _arguments(self, batch: int) -> dict[str, int]:
        return {**self.fixed, self.axis.name: batch}

    def _describe_call(self, batch: int) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self._arguments(batch).items())
        return f"{self._name}({arguments})"

    def _run(self, ranges: Ranges) -> object:
        del ranges  # phases come from autograd and the optimizer
        assert self._loaded is not None, "load() a batch first"
        self._calls[self._loaded] += 1
        return self._kept[self._loaded]()

    def _synchronize(self, result: object = None) -> None:
        wait_for(result, self.device)

    def _settle_device(self) -> None:
        """Find the device that the step uses, after a step; refuse another one than the given."""
        torch = sys.modules.get("torch")
        used = False
        if torch is not None and torch.cuda.is_initialized():
            used = torch.cuda.max_memory_allocated() > 0
        if not self._device_is_given:
            if torch is not None and used:
                self.device = f"cuda:{torch.cuda.current_device()}"
            return
        parameters = () if self.model is None else self.model.parameters()
        if not self.cuda and any(parameter.is_cuda for parameter in parameters):
            raise CurvescopeError(
                f"{self._name} uses a CUDA device: measure it with --device cuda."
            )
        if self.cuda and not used:
            raise CurvescopeError(
                f"{self._name} does not use {self.device}: measure it with --device cpu."
            )

    def _drop(self, batch: int) -> None:
        step = self._kept.pop(batch)
        if callable(close := getattr(step, "close", None)):
            close()

    def _empty_cache(self) -> None:
        if self.cuda:
            import torch

            torch.cuda.empty_cache()


def refuse_while_importing() -> None:
    """Refuse to measure while the module of a `--step` is imported, which would measure without an
    end.
    """
    if IMPORTING:
        raise CurvescopeError(
            "curvescope.diagnose() ran while the module of its step was imported: put the call "
            "under "
            '`if __name__ == "__main__":`.'
        )


def _describe_value(value: object) -> str:
    if value is None:
        return "nothing (None)"
    return _article(type(value).__name__)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _is_users(filename: str) -> bool:
    """Whether a file is neither Curvescope's nor of an installed package."""
    if "-packages" in filename or filename.startswith("<"):
        return False
    return _PROFILING not in Path(filename).resolve().parents
