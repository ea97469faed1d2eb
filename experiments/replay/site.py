"""The calls of one term in one step, run alone, with one factor changed or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property
from typing import Any, TypeVar

from ...base.torch_runtime import import_torch
from ...kernels.timers import Sample, without_waiting
from ...profiling.hardware.host_usage import HostUse, host_use_between, read_host_use
from ...profiling.measure.sites.site import AS_LEFT, RUN, Facts, Site
from ...profiling.measure.visits import StepRow, Visit, VisitPlan
from ..factor import Caches, TermChange
from ..factors import term_change
from .operator_kinds import on_cuda
from .results import results_of
from .runnable import Runnable
from .term import ReplayedTerm

# A visit times one long run, and more of short ones: rounds have the drift that runs in a row lack.
# With a cache flush of some milliseconds before each, more than eight cost more time than they add
# precision.
_LEAST_RUNS, _MOST_RUNS, _VISIT_NS = 1, 8, 10_000_000
_CACHES = {Caches.AS_IN_STEP: "as in step", Caches.COLD: "cold", Caches.WARM: AS_LEFT}

Result = TypeVar("Result")


class TermCalls(Site):
    """The calls of a term with one factor; its methods run in the thread of the factor."""

    def __init__(
        self, term: ReplayedTerm, name: str | None, batches: tuple[int, ...], backend: Any
    ) -> None:
        """Prepare; nothing runs. The backend has the timer and the cache flush."""
        self.change = term_change(name)
        self.waited = 0  # runs that are dropped because they waited for the host
        self._term, self._name, self._batches, self._backend = term, name, batches, backend
        self._kept: list[Any] = []  # results of the current run

    def facts(self) -> Facts:
        """What happens around timed runs."""
        caches = choose_caches(self._term, self._batches, self._backend, self.change)
        return Facts(RUN, discards=self.change.discarded, caches=_CACHES[caches])

    def calls(self, batch: int) -> list[Runnable]:
        """The calls at a batch size."""
        return self._term.runnables(self._name, batch, self._batches)

    def visit(self, condition: int, how: VisitPlan | None = None) -> Visit:
        """Time runs of all calls; a run has a step's order and number of each call."""
        del how  # runs are chosen by their time alone
        calls = self.calls(condition)
        return self.within(lambda: Visit(self._time(calls), discarded_steps=self.change.discarded))

    def record(self, batch: int) -> Any:
        """The kernels of one run; None where the backend records none."""
        run = self._run_of(self.calls(batch))
        return self.within(lambda: self._backend.record(run, None, None))

    def within(self, work: Callable[[], Result]) -> Result:
        """Call a function with the change made, in the thread of the factor."""
        if self.change.own_thread:
            return self._thread.submit(self._change_elsewhere, work).result()
        return self._change(work)

    def end(self) -> None:
        """End the thread."""
        if "_thread" in vars(self):
            self._thread.shutdown()

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, f"curvescope-{self._name}")

    def _change(self, work: Callable[[], Result]) -> Result:
        with self.change.around():
            try:
                return work()
            finally:
                # before the context ends: what it frees as memory to keep must not stay for others
                self._kept.clear()

    def _change_elsewhere(self, work: Callable[[], Result]) -> Result:
        """The same in another thread, where gradients and the current device are set anew."""
        torch, device = import_torch(), self._term.device
        with torch.no_grad(), torch.cuda.device(device) if on_cuda(device) else nullcontext():
            return self._change(work)

    def _run_of(self, calls: Sequence[Runnable]) -> Callable[[], None]:
        sequence = [runnable.run for runnable in calls for _ in range(runnable.call.calls)]
        kept = self._kept

        def run() -> None:
            for call in sequence:
                kept.append(call())

        return run

    def _time(self, calls: Sequence[Runnable]) -> list[StepRow]:
        caches = choose_caches(self._term, self._batches, self._backend, self.change)
        inputs = self._inputs(calls) if caches is Caches.AS_IN_STEP else []
        timer, kept, run = self._backend.timer, self._kept, self._run_of(calls)
        for _ in range(self.change.discarded):
            kept.clear()
            discarded_ns = timer.take(run, 1, 1, None)[0].duration_ns
        if caches is not Caches.WARM and not self._backend.flush_ns:
            self._backend.flush()  # the first allocates its buffer
        run_ns = discarded_ns + (0 if caches is Caches.WARM else self._backend.flush_ns)
        began: list[HostUse | None] = []

        def prepare() -> None:
            kept.clear()
            if caches is not Caches.WARM:
                self._backend.flush()
            for tensor in inputs:
                tensor.sum()
            began.append(read_host_use())

        samples: list[Sample] = []
        used: list[dict[str, Any]] = []
        for _ in range(min(max(_LEAST_RUNS, int(_VISIT_NS / max(run_ns, 1))), _MOST_RUNS)):
            samples += timer.take(run, 1, 1, prepare)
            used.append(host_use_between(began[-1], read_host_use()))
        counting = without_waiting(samples)
        self.waited += len(samples) - len(counting)
        rows = []
        for sample, use in zip(samples, used, strict=True):
            if sample in counting:
                time_ns = {"start_ns": sample.start_ns, "duration_ns": round(sample.duration_ns)}
                rows.append({**time_ns, **use, "process": os.getpid()})
        return rows

    def _inputs(self, calls: Sequence[Runnable]) -> list[Any]:
        """The operands that depend on the batch size, if all fit the last-level cache: others no
        step finds there.
        """
        operands = [
            tensor
            for runnable in calls
            for index in runnable.family.batch_dimensions()
            for tensor in results_of([runnable.arguments[index]])
            if tensor is not None and tensor.dtype.itemsize > 1
        ]
        fit = sum(operand.nbytes for operand in operands) <= self._backend.cache_bytes
        return operands if fit else []


def choose_caches(
    term: ReplayedTerm, batches: Sequence[int], backend: Any, change: TermChange
) -> Caches:
    """The state of the caches before a run, the same at all sizes: a jump between two would be an
    anomaly.
    """
    if change.caches is not Caches.AS_IN_STEP:
        return change.caches
    fits = term.step_bytes_near(batches[0]) <= backend.cache_bytes
    return Caches.WARM if fits else Caches.AS_IN_STEP
