"""What every workload does: run steps at the values of an axis, usually batch sizes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..attribution.library_calls import MklCall
from ..attribution.range_names import STEP_RANGE
from ..collect.compilations import Compilations
from .annotate import annotate, layers_of
from .steps import Steps

Ranges = Callable[[str], contextlib.AbstractContextManager[Any]]


class FirstProfiled(NamedTuple):
    """What the first profiled step of a batch size shows, slowly, for all later ones."""

    mkl_calls: list[MklCall]  # of its operators, in order
    lines: list[dict[str, Any]]  # rows of the table `lines`, without `batch`
    peak: Sequence[dict[str, Any]] = ()  # rows of the table `peaks`, without `batch`
    # Values of the column `operators.numbers`, by layer, phase, operator and arguments.
    numbers: Mapping[tuple[Any, ...], str] = MappingProxyType({})


class AnyWorkload(Steps):
    """Steps on one device.

    `network_step.Workload` runs a network, `own_step.OwnStep` a function of the user.
    """

    mode: str  # training, forward, forward+backward, or own
    precision: str | None  # one of `STEP_PRECISIONS`; None if only the user's step knows
    compiled: bool  # by torch.compile, so that its modules are not called one by one
    model: Any  # whose layers are marked; None if there is none
    clock_ns: Callable[[], int]  # times steps
    first_profiled: dict[int, FirstProfiled]  # by batch size
    # run the first profiled step of a batch size once more to find what holds its memory
    finds_peak: bool = True
    is_users: bool = False  # the user wrote the step, so it may do anything
    errors_are_results: bool = False  # an error of a step costs only its batch size
    # what torch.compile had compiled in this process before anything of the step ran
    compiled_before: Compilations | None = None

    @property
    def name(self) -> str:
        """Name of the network or step."""
        raise NotImplementedError

    @property
    def spec(self) -> Mapping[str, Any]:
        """Entries of `recording.json` from which `measure.configuration.configuration_of` builds it
        again.
        """
        raise NotImplementedError

    @property
    def cuda(self) -> bool:
        """Whether the work runs on a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def runs_compiled_graphs(self) -> bool:
        """Whether torch.compile compiled the step, or parts of it that ran so far."""
        return self.compiled

    def layers(self) -> list[tuple[str, Any]]:
        """Modules that can be marked, by path."""
        if self.model is None or self.compiled:
            return []
        return list(layers_of(self.model))

    def layer_of(self, path: str, operator: str | None = None) -> str:
        """The layer of a kernel of an operator, whose scope the profiler of a framework names."""
        del operator
        return path

    def layer_classes(self) -> dict[str, str]:
        """Class of each module, by path."""
        if self.model is None:
            return {}
        return {path: type(module).__name__ for path, module in layers_of(self.model)}

    def trainables(self) -> list[Any]:
        """Tensors that a step may change for the steps after it, as far as they are known."""
        if self.model is None or self.mode == "forward":
            return []
        return [*self.model.parameters(), *self.model.buffers()]

    def load_libraries(self) -> None:
        """Import what its steps need, so that making a step is no import."""

    @property
    def loaded(self) -> int | None:
        """The loaded batch size; None for none."""
        raise NotImplementedError

    def try_step(self, batch: int) -> None:
        """Run one step, to check the workload before anything is recorded."""
        raise NotImplementedError

    def time_run(self, run: Callable[[], object]) -> tuple[int, int]:
        self._synchronize()
        start_ns = self.clock_ns()
        result = run()
        self._synchronize(result)
        return start_ns, self.clock_ns() - start_ns

    def machine_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of `recording.json` that describe the machine, with what only the steps'
        process knows.
        """
        return dict(entry)

    def run_annotated(self, count: int) -> Iterator[int]:
        """Run steps of the loaded batch size in NVTX ranges of step, phase and layer, for a
        profiler of this process.

        Yields the duration of each step, nanoseconds, including the cost of the ranges and the
        profiler.
        """
        import nvtx

        assert self.loaded is not None, "load() a batch first"
        # Hooks inside a compiled model would cause a recompilation: its steps have phases and no
        # layers.
        unmarked = self.compiled or self.model is None
        with contextlib.nullcontext() if unmarked else annotate(self.model):
            for _ in range(count):
                self._synchronize()
                start = time.monotonic_ns()
                with nvtx.annotate(f"{STEP_RANGE}:batch size={self.loaded}"):
                    self.run(nvtx.annotate)
                yield time.monotonic_ns() - start

    def run(self, ranges: Ranges) -> None:
        """Run one step of the loaded batch size, phases in contexts of `ranges`, and wait for the
        device.
        """
        result = self._run(ranges)
        self._synchronize(result)

    def submit(self) -> object:
        return self._run(lambda _: contextlib.nullcontext())

    def release(self) -> None:
        """Release the memory of the loaded batch size."""
        raise NotImplementedError

    def free_others(self, but: Sequence[int] = ()) -> bool:  # noqa: ARG002 - it keeps none
        """Release the memory of other batch sizes than the loaded one and these; returns whether
        that was anything.
        """
        return False

    def describe_error(self, error: BaseException) -> str:
        """What failed and how, for the user."""
        return f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]

    def _run(self, ranges: Ranges) -> object:
        raise NotImplementedError

    def _synchronize(self, result: object = None) -> None:
        """Wait for the device; `result` came from a step, which some frameworks wait for."""
        del result
        if self.cuda:
            import torch

            torch.cuda.synchronize(self.device)
