"""Experiments on one term alone: its operator calls run with one factor changed at a time, in
interleaved rounds.

One timed run is all calls of the term in one step, as often as in the step and in its order. In a
step, other layers ran since a layer used its weights, and the layer before has just written its
input. So before each run the caches are flushed, and then the operands that depend on the batch
size are read. Neither is done if the operands of a whole step of the smallest batch size fit the
last-level cache. Results are kept until the run has ended, as in a step, and freed outside its
time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from ...base.counted import counted
from ...base.torch_runtime import import_torch
from ...kernels.backends import open_backend
from ...profiling.frameworks import memory_ran_out
from ...profiling.hardware import heap
from ...profiling.hardware.memory_usage import available_bytes
from ...profiling.measure.visits import FAILED, OUT_OF_MEMORY, Empty, Visit
from ...profiling.recording.experiments import PADDED_BATCH, Experiment, choose_multiple
from ...profiling.recording.store import Recording, RecordingWriter
from ..factor import Caches, TermChange
from ..factors import term_change
from ..factors.batches import FILLED_WAVE
from ..runner import Condition, Runner, Watch
from .operator_kinds import follows_batch, is_batch_norm, on_cuda
from .recorded_call import CannotReplay, device_of
from .results import difference, try_call
from .runnable import setting
from .site import TermCalls, choose_caches
from .term import ReplayedTerm, operand_bytes, read_term

_SAME_KERNELS = "the same kernels ran"
_SHARE_OF_MEMORY = 0.5  # for operands that are kept; results and copies need the rest


Result = TypeVar("Result")


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
        self._sites: dict[str | None, TermCalls] = {}  # by factor
        if term.device == "cpu" and heap.can_change():
            heap.hold_thresholds(term.block_bytes)
        batches = self.experiment.batches
        for batch in batches:
            build = partial(term.runnables, None, batch, batches)
            result = self._attempt((None, batch), build)
            if isinstance(result, Empty):
                self.drop((None, batch), result)
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
        return rounds >= self.experiment.rounds[0] or all(map(self.is_finished, self.conditions))

    def is_finished(self, condition: Condition) -> bool:
        name, batch = condition
        return name in self.untested or batch in self._unfit or not self._term.families

    def visit(self, condition: Condition) -> Visit | Empty:
        return self._attempt(condition, lambda: self._visit(*condition))

    def end(self) -> None:
        """Note the results besides times, and end the threads."""
        for site in self._sites.values():
            site.end()
        self.notes += self._term.notes()
        multiple = choose_multiple(self.experiment.batches)
        padded = (PADDED_BATCH, self.experiment.batches[-1])
        if padded in self.conditions and multiple is not None:
            self.notes.append(f"padded_batch pads the batch to a multiple of {multiple}.")
        if waited := sum(site.waited for site in self._sites.values()):
            self.notes.append(f"Left out: {counted(waited, 'run')} that waited for the host.")
        self.notes += [f"{message[:1].upper()}{message[1:]}." for message in self._unfit.values()]

    def _attempt(self, condition: Condition, work: Callable[[], Result]) -> Result | Empty:
        """Errors that belong to the batch size or to the factor end only their conditions."""
        try:
            with import_torch().no_grad():
                return work()
        except CannotReplay as error:
            return Empty(FAILED, str(error))
        except (RuntimeError, MemoryError) as error:
            why = OUT_OF_MEMORY if memory_ran_out(error) else FAILED
            if condition[0] is None and why == FAILED:
                raise
            return Empty(why, (str(error).strip() or type(error).__name__).splitlines()[0])

    def drop(self, condition: Condition, empty: Empty) -> None:
        name, batch = condition
        message = empty.detail
        # Not in the handler of the error, because its traceback keeps tensors alive.
        if empty.why == OUT_OF_MEMORY:
            self._term.release()
            message = f"batch size {batch} does not fit the memory: {message.rstrip('.')}"
        if name is None:
            self._unfit[batch] = message
            if batch not in self.experiment.batches:
                self.untested[FILLED_WAVE.name] = message
        else:
            self.untested[name] = message
            self.drop_unwritten(name)  # those of this round

    def _site(self, name: str | None) -> TermCalls:
        """The calls with a factor; made at the first use."""
        if name not in self._sites:
            batches = self.experiment.batches
            self._sites[name] = TermCalls(self._term, name, batches, self._backend)
        return self._sites[name]

    def _visit(self, name: str | None, batch: int) -> Visit:
        if name is not None and name not in self._compared:
            self._compare(name, batch)
        result = self._site(name).visit(batch)
        if on_cuda(self._term.device):
            self._note_kernels(name, batch)
        return result

    def _note_kernels(self, name: str | None, batch: int) -> None:
        """Note the kernels of one run; a factor that is to change their choice, and does not, is
        untested.
        """
        tried = {factor for factor, _ in self.conditions}
        choosing = [
            factor for factor in tried if factor is not None and term_change(factor).only_chooses
        ]
        if (name, batch) in self._kernels or not choosing or name not in (None, *choosing):
            return
        if (rows := self._site(name).record(batch)) is None:
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

    def _compare(self, name: str, batch: int) -> None:
        """Compare the results of the calls with a factor to those without."""
        site = self._site(name)
        plain, changed, change = self._site(None).calls(batch), site.calls(batch), site.change
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
            tried = site.within(partial(try_call, other, device))
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
        usual = choose_caches(term, self.experiment.batches, self._backend, TermChange())
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
