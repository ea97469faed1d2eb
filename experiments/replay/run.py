"""Experiments on one term alone: its operator calls run with one factor changed at a time, in
interleaved rounds.

One timed run is all calls of the term in one step, each as often as in the step and in the step's
order. In a step, other layers ran since a layer's weights were last used, and the layer before has
just written its input. So before each run the caches are flushed, and then the operands that depend
on the batch size are read; where the operands of a whole step of the smallest batch size fit the
last-level cache, neither is done at any. Results are kept until the run has ended, as in a step,
and freed outside its time.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from ...base.counted import counted
from ...base.torch_runtime import import_torch
from ...kernels.backends import open_backend
from ...kernels.timers import Sample, without_waiting
from ...profiling.frameworks import memory_ran_out
from ...profiling.hardware import heap
from ...profiling.hardware.host_usage import HostUse, host_use_between, read_host_use
from ...profiling.hardware.memory_usage import available_bytes
from ...profiling.recording.experiments import Experiment
from ...profiling.recording.store import Recording, RecordingWriter
from ..factor import Caches, TermChange
from ..factors import term_change
from ..factors.batches import FILLED_WAVE, multiple_of
from ..runner import Condition, Runner, Watch
from .operator_kinds import follows_batch, is_batch_norm, on_cuda
from .recorded_call import CannotReplay, device_of
from .results import difference, results_of, try_call
from .runnable import Runnable, setting
from .term import ReplayedTerm, operand_bytes, read_term

# A visit times one long run, and more of short ones: rounds have the drift that runs in a row lack.
# With a cache flush of some milliseconds before each, more than eight cost more time than they add
# precision.
_LEAST_RUNS, _MOST_RUNS, _VISIT_NS = 1, 8, 10_000_000
_SAME_KERNELS = "the same kernels ran"
_SHARE_OF_MEMORY = 0.5  # for operands that are kept; results and copies need the rest


def run_term(
    recording: Recording,
    experiment: Experiment,
    writer: RecordingWriter,
    watch: Watch | None = None,
    backend: Any = None,
) -> Experiment:
    """Run an experiment on the operator calls of one term and record its timed runs, see
    `Runner.run`.

    The backend has the timer and the cache flush; None for torch on the recording's device.
    """
    device = device_of(recording)
    backend = backend or open_backend("torch", device)
    runner = TermRunner(experiment, writer, watch or Watch(), device)
    free = available_bytes(device)
    budget = math.inf if free is None else _SHARE_OF_MEMORY * free
    term = read_term(
        recording, experiment.member or experiment.layer, experiment.phase, device, budget
    )
    with _settings_of_steps(recording.meta, device):
        runner.prepare(term, backend)
        return runner.run()


@contextmanager
def _settings_of_steps(meta: Mapping[str, Any], device: str) -> Iterator[None]:
    """TF32 on a GPU as the recorded steps had it; steps of the user's own set it by themselves."""
    backends, precision = import_torch().backends, meta.get("precision")
    with ExitStack() as stack:
        if on_cuda(device) and precision is not None:
            for owner in (backends.cuda.matmul, backends.cudnn):
                stack.enter_context(setting(owner, "allow_tf32", precision == "tf32"))
        yield


class TermRunner(Runner):
    """An experiment on the calls of a term."""

    def prepare(self, term: ReplayedTerm, backend: Any) -> None:
        """Build the calls without a change, and find the factors that apply."""
        self._term, self._backend = term, backend
        self._unfit: dict[int, str] = {}  # message by batch size that cannot run
        self._compared: set[str] = set()  # factors
        self._kernels: dict[Condition, Counter[tuple[Any, ...]]] = {}  # of one run, on a GPU
        self._kept: list[Any] = []  # results of the current run
        self._waited = 0  # runs that are dropped because they waited for the host
        self._threads: dict[str, ThreadPoolExecutor] = {}  # of a single thread each, by factor
        if term.device == "cpu" and heap.can_change():
            heap.hold_thresholds(term.block_bytes)
        batches = self.experiment.batches
        for batch in batches:
            self._guard((None, batch), lambda condition: self._term.runnables(*condition, batches))
        possible = self.possible()
        for name in possible:
            if term_change(name).piece and any(
                is_batch_norm(family.largest) for family in term.families
            ):
                self.changed_results[name] = "a batch normalisation has the statistics of its piece"
        # With factors that all cannot be changed there is nothing to compare.
        names = [] if self.experiment.factors and not possible else [None, *possible]
        sizes = self.experiment.unmodified if FILLED_WAVE.name in possible else batches
        self.conditions: list[Condition] = [(None, batch) for batch in sizes if names]
        self.conditions += [
            (name, batch)
            for name in names
            for batch in batches
            if name not in (None, FILLED_WAVE.name)
        ]

    def measure(self) -> bool:
        rounds = self.run_rounds(self.conditions)
        return rounds >= self.experiment.rounds[0] or all(map(self.finished, self.conditions))

    def finished(self, condition: Condition) -> bool:
        name, batch = condition
        return name in self.untested or batch in self._unfit or not self._term.families

    def visit(self, condition: Condition, round_: int) -> None:
        if not self.finished(condition):  # an earlier visit of the round may have ended it
            self._guard(condition, lambda _: self._visit_in_its_thread(condition, round_))

    def end(self) -> None:
        """Note what was found besides times, and end the threads."""
        for thread in self._threads.values():
            thread.shutdown()
        self.notes += self._term.notes()
        multiple = multiple_of(self.experiment.batches)
        if (
            "padded_batch",
            self.experiment.batches[-1],
        ) in self.conditions and multiple is not None:
            self.notes.append(f"padded_batch pads the batch to a multiple of {multiple}.")
        if self._waited:
            self.notes.append(f"Left out: {counted(self._waited, 'run')} that waited for the host.")
        self.notes += [f"{message[:1].upper()}{message[1:]}." for message in self._unfit.values()]

    def _guard(self, condition: Condition, work: Callable[[Condition], object]) -> None:
        """Errors that belong to the batch size or to the factor end only their conditions."""
        name, batch = condition
        try:
            with import_torch().no_grad():
                work(condition)
        except CannotReplay as error:
            message, out_of_memory = str(error), False
        except (RuntimeError, MemoryError) as error:
            out_of_memory = memory_ran_out(error)
            if name is None and not out_of_memory:
                raise
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
        else:
            return
        finally:
            self._kept.clear()
        # After the handler, because the traceback keeps tensors alive.
        if out_of_memory:
            self._term.release()
            message = f"batch size {batch} does not fit the memory: {message.rstrip('.')}"
        if name is None:
            self._unfit[batch] = message
            if batch not in self.experiment.batches:
                self.untested[FILLED_WAVE.name] = message
        else:
            self.untested[name] = message
            self.drop_unwritten(name)  # those of this round

    def _visit_in_its_thread(self, condition: Condition, round_: int) -> None:
        name, _ = condition
        if name is None or not term_change(name).own_thread:
            self._visit(condition, round_)
            return
        if name not in self._threads:
            self._threads[name] = ThreadPoolExecutor(1, f"curvescope-{name}")
        self._threads[name].submit(self._visit_elsewhere, condition, round_).result()

    def _visit_elsewhere(self, condition: Condition, round_: int) -> None:
        """A visit in another thread, where gradients and the current device are set anew."""
        torch, device = import_torch(), self._term.device
        with torch.no_grad(), torch.cuda.device(device) if on_cuda(device) else nullcontext():
            self._visit(condition, round_)

    def _visit(self, condition: Condition, round_: int) -> None:
        name, batch = condition
        plain, calls = (
            self._term.runnables(factor, batch, self.experiment.batches) for factor in (None, name)
        )
        change = term_change(name)
        if name is not None and name not in self._compared:
            self._compare(name, plain, calls, change)
        with change.around():
            timed = self._time(calls, self._caches(change), change.discarded)
            self.add(condition, round_, ({**row, "process": os.getpid()} for row in timed))
            if on_cuda(self._term.device):
                self._note_kernels(name, batch, calls)
            # before the context ends: what it frees as memory to keep must not stay for others
            self._kept.clear()

    def _note_kernels(self, name: str | None, batch: int, calls: Sequence[Runnable]) -> None:
        """Note the kernels of one run; a factor that is to change their choice, and does not, is
        untested.
        """
        tried = {factor for factor, _ in self.conditions}
        choosing = [
            factor for factor in tried if factor is not None and term_change(factor).only_chooses
        ]
        if (name, batch) in self._kernels or not choosing or name not in (None, *choosing):
            return
        if (rows := self._backend.record(self._run_of(calls), None, None)) is None:
            return
        ran = Counter(
            (row["name"], *map(row.get, ("grid_x", "grid_y", "grid_z"))) for row in rows.kernels
        )
        self._kernels[name, batch] = ran
        fitting = [batch for batch in self.experiment.batches if batch not in self._unfit]
        pairs = [
            (self._kernels.get((None, batch)), self._kernels.get((name, batch)))
            for batch in fitting
        ]
        if name is not None and all(
            unmodified and unmodified == changed for unmodified, changed in pairs
        ):
            self.untested[name] = _SAME_KERNELS

    def _run_of(self, calls: Sequence[Runnable]) -> Callable[[], None]:
        sequence, kept = (
            [runnable.run for runnable in calls for _ in range(runnable.call.calls)],
            self._kept,
        )

        def run() -> None:
            for call in sequence:
                kept.append(call())

        return run

    def _time(
        self, calls: Sequence[Runnable], caches: Caches, discarded: int
    ) -> Iterator[dict[str, Any]]:
        inputs = [] if caches is not Caches.AS_IN_STEP else self._inputs(calls)
        timer, kept, run = self._backend.timer, self._kept, self._run_of(calls)
        for _ in range(discarded):
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
        self._waited += len(samples) - len(counting)
        for sample, of_host in zip(samples, used, strict=True):
            if sample in counting:
                yield {
                    "start_ns": sample.start_ns,
                    "duration_ns": round(sample.duration_ns),
                    **of_host,
                }

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
        return (
            operands
            if sum(operand.nbytes for operand in operands) <= self._backend.cache_bytes
            else []
        )

    def _caches(self, change: TermChange) -> Caches:
        """The state of the caches before a run, the same at all batch sizes: a jump between two
        would be an anomaly.
        """
        if change.caches is not Caches.AS_IN_STEP:
            return change.caches
        step_bytes = self._term.step_bytes_near(self.experiment.batches[0])
        return Caches.WARM if step_bytes <= self._backend.cache_bytes else Caches.AS_IN_STEP

    def _compare(
        self, name: str, plain: Sequence[Runnable], changed: Sequence[Runnable], change: TermChange
    ) -> None:
        if change.call is not None and all(
            before is other for before, other in zip(plain, changed, strict=True)
        ):
            return
        self._compared.add(name)
        if change.same_work:
            return
        device = self._term.device
        for before, other in zip(plain, changed, strict=True):
            if before is other and change.call is not None:
                continue
            # Each time anew: timed runs change what a call writes, e.g. running statistics.
            expected = try_call(before, device)
            with change.around():
                tried = try_call(other, device)
            clause = difference(expected, tried, tf32=on_cuda(device))
            if clause is not None:
                self.changed_results[name] = f"{before.call.label}: {clause}"
                return

    def reason_against(self, name: str) -> str | None:
        term, change = self._term, term_change(name)
        if not term.families:
            return "none of the term's operators can run in isolation"
        if name == FILLED_WAVE.name and not self.experiment.waves:
            return (
                "no recorded grid of a kernel, nor its times, say at which batch sizes its last "
                "wave or block is full"
            )
        if (
            change.piece is not None
            and change.piece(term.families, self.experiment.batches) is None
        ):
            return "no operator runs at all sizes alike, but for the kernel with the most time"
        by_time = sorted(term.families, key=lambda family: family.duration_ns, reverse=True)
        reasons = [change.reason_against(family) for family in by_time]
        if None not in reasons:
            return reasons[0]
        usual = self._caches(TermChange())
        if usual is Caches.WARM is change.caches:
            return "the operands of a whole step fit the cache, so they are there without a change"
        if change.caches is Caches.WARM:
            fitting = [batch for batch in self.experiment.batches if batch not in self._unfit]
            calls = term.runnables(None, fitting[0], self.experiment.batches) if fitting else []
            if operand_bytes(calls) > self._backend.cache_bytes:
                return "the operands of the term do not fit the last-level cache"
        if (
            usual is Caches.AS_IN_STEP
            and change.caches is Caches.COLD
            and not any(map(follows_batch, by_time))
        ):
            return "no operand depends on the batch size, so the step leaves none in the caches"
        return None
