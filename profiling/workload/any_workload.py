"""What every workload does: run steps at the values of an axis, usually batch sizes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..attribution.library_calls import MklCall
from ..attribution.range_names import STEP_RANGE
from .annotate import annotate, layers_of

Ranges = Callable[[str], contextlib.AbstractContextManager[Any]]


class FirstProfiled(NamedTuple):
    """What the first profiled step of a batch size shows, slowly, for all later ones.

    Attributes:
        mkl_calls: MKL calls of its operators, in order.
        lines: rows of the table `lines`, without `batch`.
        peak: rows of the table `peaks`, without `batch`.
        numbers: values of the column `operators.numbers`, by layer, phase, operator and arguments.
    """

    mkl_calls: list[MklCall]
    lines: list[dict[str, Any]]
    peak: Sequence[dict[str, Any]] = ()
    numbers: Mapping[tuple[Any, ...], str] = MappingProxyType({})


class AnyWorkload:
    """Steps on one device. `network_step.Workload` runs a network, `own_step.OwnStep` a function of the user.

    Attributes:
        device: `cpu` or `cuda:N`.
        mode: one of training, forward, forward+backward, and own.
        precision: one of `STEP_PRECISIONS`; None if only the user's step knows.
        compiled: whether torch.compile runs the model, so that its modules are not called one by one.
        model: module whose layers are marked; None if there is none.
        clock_ns: clock that times steps, nanoseconds.
        first_profiled: what the first profiled step of each batch size showed, see `measure.visit.warm_up_profiler`.
        finds_peak: whether the first profiled step of a batch size runs once more to find what holds its memory.
        is_users: whether the user wrote the step, so that it may do anything.
        errors_are_results: whether an error of a step costs only its batch size.
    """

    device: str
    mode: str
    precision: str | None
    compiled: bool
    model: Any
    clock_ns: Callable[[], int]
    first_profiled: dict[int, FirstProfiled]
    finds_peak: bool = True
    is_users: bool = False
    errors_are_results: bool = False

    @property
    def name(self) -> str:
        """Name of the network or step."""
        raise NotImplementedError

    @property
    def spec(self) -> Mapping[str, Any]:
        """Entries of `recording.json` from which `measure.configuration.configuration_of` builds it again."""
        raise NotImplementedError

    @property
    def cuda(self) -> bool:
        """Whether the work runs on a CUDA device."""
        return self.device.startswith("cuda")

    def layers(self) -> list[tuple[str, Any]]:
        """Modules that can be marked, by path."""
        return [] if self.model is None or self.compiled else list(layers_of(self.model))

    def layer_classes(self) -> dict[str, str]:
        """Class of each module, by path."""
        modules = [] if self.model is None else layers_of(self.model)
        return {path: type(module).__name__ for path, module in modules}

    @property
    def loaded(self) -> int | None:
        """The loaded batch size; None for none."""
        raise NotImplementedError

    def load(self, batch: int) -> None:
        """Prepare the steps of one batch size; what an earlier one needed may be released."""
        raise NotImplementedError

    def try_step(self, batch: int) -> None:
        """Run one step, to check the workload before anything is recorded.

        Raises:
            CurvescopeError: the step cannot run.
        """
        raise NotImplementedError

    def time_step(self) -> tuple[int, int]:
        """Run one step; returns its start on the clock and its duration, both in nanoseconds."""
        return self.time_run(self.submit)

    def time_run(self, run: Callable[[], object]) -> tuple[int, int]:
        """Time a function that stands for one step; see `time_step`.

        Args:
            run: function that runs it without waiting for the device.
        """
        self._synchronize()
        start_ns = self.clock_ns()
        run()
        self._synchronize()
        return start_ns, self.clock_ns() - start_ns

    def annotated_steps(self, count: int) -> Iterator[int]:
        """Run steps of the loaded batch size in NVTX ranges of step, phase and layer, for a profiler of this process.

        Yields:
            The duration of each step, nanoseconds, including the cost of the ranges and the profiler.
        """
        import nvtx

        assert self.loaded is not None, "load() a batch first"
        # Hooks inside a compiled model would cause a recompilation: its steps have phases and no layers.
        unmarked = self.compiled or self.model is None
        with contextlib.nullcontext() if unmarked else annotate(self.model):
            for _ in range(count):
                self._synchronize()
                start = time.monotonic_ns()
                with nvtx.annotate(f"{STEP_RANGE}:batch size={self.loaded}"):
                    self.run(nvtx.annotate)
                yield time.monotonic_ns() - start

    def run(self, ranges: Ranges) -> None:
        """Run one step of the loaded batch size, and wait for the device.

        Args:
            ranges: function of a name that returns a context manager, which marks a phase.
        """
        self._run(ranges)
        self._synchronize()

    def submit(self) -> object:
        """Run one step of the loaded batch size, without waiting for the device.

        Returns:
            What describes its result: the loss, the output of a step that has only a forward pass, or what a user's
            step returns.
        """
        return self._run(lambda _: contextlib.nullcontext())

    def release(self) -> None:
        """Release the memory of the loaded batch size."""
        raise NotImplementedError

    def free_others(self) -> bool:
        """Release what it keeps for other batch sizes than the loaded one; returns whether that was anything."""
        return False

    def describe_error(self, error: BaseException) -> str:
        """What failed and how, for the user."""
        return f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]

    def _run(self, ranges: Ranges) -> object:
        raise NotImplementedError

    def _synchronize(self) -> None:
        if self.cuda:
            import torch

            torch.cuda.synchronize(self.device)
