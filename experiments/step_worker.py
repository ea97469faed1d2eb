"""A process that runs the steps of one variant: unmodified, or with one factor changed.

It stays until the experiment ends, because effects build up over steps: the heap, the allocator's
caches, compiled code. Between its visits it must not disturb the others: its threads wait without a
core, see `STAYS`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..profiling.hardware.host_usage import wait_until_quiet
from ..profiling.hardware.memory_usage import available_bytes, read_peak
from ..profiling.measure.processes import ChildProcess, Interpreter
from ..profiling.measure.protocol import Protocol
from ..profiling.measure.sites.here import LocalSteps, build_workload
from ..profiling.measure.sites.process import Process
from ..profiling.measure.sites.site import STAYS
from ..profiling.measure.visit import discard_steps, time_steps
from ..profiling.measure.visits import Empty, Visit, VisitPlan
from ..profiling.workload.steps import Steps
from .factor import Target
from .factors import step_change

SEED = 0
# context and kernels of torch in one process, beside the allocator's memory
CUDA_CONTEXT_BYTES = 600 * 10**6

# a number of a result, and the scale that its difference is compared with
Number = tuple[float, float]


@dataclass(frozen=True)
class Ready:
    """What the first steps of a worker showed."""

    # numbers of the result of one step from the same seed, by batch size
    results: dict[int, tuple[Number, ...]]
    draws: bool  # whether a step draws random numbers
    peak_bytes: int | None  # most memory that the process took; None if unknown
    quiet: bool = True  # whether its threads leave the cores to others between steps


class StepWorker(Process):
    """This process's end of the worker of one variant; `while_waiting` is called twice a second."""

    def __init__(self, target: Target, factor: str | None) -> None:
        if variables := step_change(factor).environment:
            super().__init__(Interpreter(variables, _Variant, target, factor))
        else:
            super().__init__(ChildProcess(_Variant, target, factor))

    def warm_up(self, while_waiting: Callable[[], object] = lambda: None) -> Ready | Empty:
        """Build the steps and run one of each batch size."""
        result: Ready | Empty = self.child.call("warm_up", while_waiting=while_waiting)
        return result

    def visit(
        self, condition: int, how: VisitPlan, while_waiting: Callable[[], object] = lambda: None
    ) -> Visit | Empty:
        """Time steps; their rows are of the table `experiments`, without the columns of the
        experiment.
        """
        result: Visit | Empty = self.child.call(
            "visit", condition, how, while_waiting=while_waiting
        )
        return result

    def available_bytes(self) -> int | None:
        """Memory that further processes can take on the steps' device; None if unknown."""
        available = self.child.call("available_bytes")
        return available if isinstance(available, int) else None


class _Variant(LocalSteps):
    """In the process of a variant: its steps."""

    _last_batch, _last_ns = 0, 0  # batch size of the last step, and its duration

    def __init__(self, target: Target, name: str | None) -> None:
        change = step_change(name)
        self._batches, self._compiled_before = target.batches, target.compiled_before
        change.prepare(target)
        super().__init__(build_workload(target.configuration), STAYS)
        self._steps: Steps = change.change(self.workload, target)

    def warm_up(self) -> Ready:
        results: dict[int, tuple[Number, ...]] = {}
        draws = False

        for batch in self._compiled_before:  # how often torch may compile depends on them
            self._steps.load(batch)
            self._steps.submit()
        for batch in self._batches:
            _seed()
            self._steps.load(batch)
            _seed()
            before = _random_state(self._steps.device)
            began_ns = time.monotonic_ns()
            result = self._steps.submit()
            self._last_batch, self._last_ns = batch, time.monotonic_ns() - began_ns
            draws |= before != _random_state(self._steps.device)
            results[batch] = tuple(_numbers(result, self.workload.model))
        device = self._steps.device
        peak = read_peak(device)
        reserved = peak.get("reserved_memory_bytes")
        took = (
            peak.get("peak_memory_bytes")
            if device == "cpu"
            else reserved and reserved + CUDA_CONTEXT_BYTES
        )
        return Ready(results, draws, took, wait_until_quiet())

    def _measure(self, condition: int, how: VisitPlan) -> Visit:
        protocol = how.protocol
        if discarded := protocol.discarded_steps - self._is_warm(condition, protocol):
            self._last_ns = discard_steps(self._steps, condition, discarded).last_ns
        count = protocol.steps_of_visit(condition, self._last_ns)
        rows = time_steps(self._steps, count, exactly=True)
        self._last_batch, self._last_ns = condition, rows[-1]["duration_ns"]
        return Visit([{**row, "process": os.getpid()} for row in rows], discarded_steps=discarded)

    def _is_warm(self, batch: int, protocol: Protocol) -> bool:
        """Whether a visit needs one discarded step less: this process ran the batch size last, and
        its steps are long. Then the work of others between weighs little.
        """
        is_cpu = self._steps.device == "cpu"
        return is_cpu and batch == self._last_batch and protocol.is_filled_by(self._last_ns)

    def available_bytes(self) -> int | None:
        return available_bytes(self._steps.device)


def _seed() -> None:
    random.seed(SEED)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)


def _random_state(device: str) -> tuple[Any, ...]:
    if (torch := sys.modules.get("torch")) is None:
        return (random.getstate(),)
    states = [
        torch.get_rng_state(),
        *([] if device == "cpu" else [torch.cuda.get_rng_state(device)]),
    ]
    return tuple(state.numpy().tobytes() for state in states)


def _numbers(result: object, module: Any) -> Iterator[Number]:
    """Numbers that describe a step's result, and the gradients that it left in the parameters of
    its module.
    """
    values = list(_sums(result))
    if values:
        yield sum(value for value, _ in values), sum(scale for _, scale in values)
    gradients = [
        p.grad for p in (() if module is None else module.parameters()) if p.grad is not None
    ]
    if gradients:
        stacked = sys.modules["torch"].stack(
            [gradient.detach().double().norm() for gradient in gradients]
        )
        norm = float(stacked.norm())
        yield norm, norm


def _sums(result: object) -> Iterator[Number]:
    """The sum of each tensor, array and number in a step's result, and the sum of their absolute
    values.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(result, torch.Tensor):
        tensor = (result.abs() if result.is_complex() else result).detach().double()
        yield float(tensor.sum()), float(tensor.abs().sum())
    elif isinstance(result, (bool, int, float)):
        yield float(result), abs(float(result))
    elif isinstance(result, dict):
        for value in result.values():
            yield from _sums(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from _sums(value)
    elif hasattr(result, "__array__"):  # NumPy's, JAX's and TensorFlow's
        with suppress(TypeError, ValueError):  # of keys of random numbers, or of objects
            array = np.asarray(result)
            array = (abs(array) if array.dtype.kind == "c" else array).astype(np.float64)
            yield float(array.sum()), float(abs(array).sum())
