"""The operator calls of one term of a step, over batch sizes: read from a recording, and built to
run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ...analysis.decompose.repeated_layers import is_expert_of
from ...profiling.frameworks import memory_ran_out
from ...profiling.hardware import heap
from ...profiling.recording.store import Recording
from ..factors import FACTORS, term_change
from .rebuild import Replayed, memory_bytes, rebuild
from .recorded_call import CallFamily, CannotReplay, RecordedCall, families, read_calls, tensors_of
from .results import results_of
from .runnable import Runnable


@dataclass
class ReplayedTerm:
    """The calls of one term."""

    families: list[CallFamily]  # in the order of the step; those that cannot run are removed
    # of operands of all calls, counted at each use, by recorded batch size
    step_bytes: dict[int, int]
    # sizes of blocks that the process of the steps has freed, see `read_term`
    block_bytes: frozenset[int]
    device: str  # `cpu` or `cuda:N`
    budget_bytes: float  # memory for operands that are kept from visit to visit
    left_out: list[tuple[CallFamily, str]] = field(default_factory=list)  # that cannot run, and why
    _built: dict[tuple[str | None, int], list[Runnable]] = field(default_factory=dict)
    # by family and by which of several equal calls with weights of their own, the operands that do
    # not depend on the batch size, by index of the argument
    _shared: dict[tuple[int, int], dict[int, tuple[Any, Any]]] = field(default_factory=dict)
    _converted: dict[tuple[str, int], Any] = field(default_factory=dict)

    def step_bytes_near(self, batch: int) -> int:
        """Bytes of the operands of a step, at the recorded batch size next to this one."""
        return self.step_bytes[self._nearest(batch)]

    def runnables(self, name: str | None, batch: int, batches: tuple[int, ...]) -> list[Runnable]:
        """The calls of one step at a batch size, in its order, with a factor changed; `batches`:
        the experiment's.
        """
        key = name, batch
        if key not in self._built:
            built = self._build(batch) if name is None else self._change(name, batch, batches)
            self._make_room(built)
            self._built[key] = built
        return self._built[key]

    def release(self) -> None:
        """Free all operands."""
        self._built.clear()
        self._forget_weights()

    def notes(self) -> list[str]:
        """The calls that are left out, with their share of the term's operators, and assumptions;
        one sentence each.
        """
        families = [*self.families, *(family for family, _ in self.left_out)]
        total_ns = sum(family.duration_ns for family in families)
        notes = []
        for family, reason in self.left_out:
            share = ""
            if total_ns:
                share = f" ({family.duration_ns / total_ns:.0%} of the term's operators)"
            notes.append(f"{family.largest.label} is left out{share}: {reason}.")
        if not families:
            notes.append("The recording has no operator calls of this term.")
        for runnable in self._all_built():
            notes += [f"{note[:1].upper()}{note[1:]}." for note in runnable.notes]
        return list(dict.fromkeys(notes))

    def _all_built(self) -> list[Runnable]:
        return [runnable for built in self._built.values() for runnable in built]

    def _nearest(self, batch: int) -> int:
        return min(self.step_bytes, key=lambda recorded: abs(recorded - batch))

    def _build(self, batch: int) -> list[Runnable]:
        """The calls as recorded.

        A call that cannot run at one recorded batch size is left out at all.
        """
        runnables: list[Runnable] = []
        nearest = self._nearest(batch)
        for family in [family for family in self.families if nearest in family.calls]:
            try:
                calls = [
                    self._rebuild(family, call, at)
                    for at, call in enumerate(_with_own_weights(family.at(batch)))
                ]
            except CannotReplay as error:
                cause = error.__cause__
                if isinstance(cause, Exception) and memory_ran_out(cause):
                    raise cause from None
                # On a finer grid its neighbours would look too long without the call.
                if batch not in family.calls:
                    raise
                self._leave_out(family, str(error))
            else:
                runnables += [
                    Runnable.of(family, call, converted=self._converted) for call in calls
                ]
        return sorted(runnables, key=lambda runnable: runnable.call.position)

    def _leave_out(self, family: CallFamily, why: str) -> None:
        self.families.remove(family)
        self.left_out.append((family, why))
        for built in self._built.values():
            built[:] = [runnable for runnable in built if runnable.family is not family]

    def _rebuild(self, family: CallFamily, call: RecordedCall, at: int) -> Replayed:
        """Rebuild a call with the operands of another batch size that do not depend on it, e.g. its
        weights.
        """
        shared = self._shared.setdefault((id(family), at), {})
        operands = {
            index: value
            for index, (recorded, value) in shared.items()
            if recorded == call.arguments[index]
        }
        # With one seed, an input would begin with the numbers of weights from another batch size.
        replayed = rebuild(call, self.device, seed=call.batch or 0, operands=operands)
        for index, recorded in enumerate(call.arguments):
            if index not in family.batch_dimensions():
                shared[index] = recorded, replayed.arguments[index]
        return replayed

    def _change(self, name: str, batch: int, batches: tuple[int, ...]) -> list[Runnable]:
        change = term_change(name)
        if change.piece is not None:
            size = change.piece(self.families, batches)
            if size is None or batch <= size:
                return self.runnables(None, batch, batches)
            # Every piece has operands of its own, but for the weights.
            return [runnable for _ in range(-(-batch // size)) for runnable in self._build(size)]
        unmodified = self.runnables(None, batch, batches)
        if change.call is None or FACTORS[name].refusal(self.device):
            return unmodified.copy()
        changed = []
        for runnable in unmodified:
            if not change.reason_against(runnable.family):
                runnable = change.call(runnable, batches)
            changed.append(runnable)
        return changed

    def _forget_weights(self) -> None:
        self._shared.clear()
        self._converted.clear()

    def _make_room(self, coming: Iterable[Runnable]) -> None:
        while self._built:
            if operand_bytes([*self._all_built(), *coming]) <= self.budget_bytes:
                return
            del self._built[next(iter(self._built))]
            self._forget_weights()


def read_term(
    recording: Recording, layer: str | None, phase: str | None, device: str, budget_bytes: float
) -> ReplayedTerm:
    """Read the calls of a term from the table `operators`. Its layer is without the layers inside
    it; a group of experts is all of them.
    """
    step_bytes: dict[int, int] = defaultdict(int)
    blocks: set[int] = set()
    own = []
    for call in read_calls(recording):
        if call.batch is None:
            continue
        sizes = [_bytes(replace(call, arguments=(t,))) for t in tensors_of(call.arguments)]
        step_bytes[call.batch] += call.calls * sum(sizes)
        blocks.update(sizes)
        of_layer = call.layer == layer or is_expert_of(call.layer or "", layer or "")
        if of_layer and call.phase == phase:
            own.append(call)
    if _has_kept_memory(recording):
        blocks.add(heap.LARGEST_THRESHOLD)
    return ReplayedTerm(families(own), dict(step_bytes), frozenset(blocks), device, budget_bytes)


def _with_own_weights(call: RecordedCall) -> list[RecordedCall]:
    """Equal calls of several experts one by one, as each has weights of its own; others as one."""
    if not any(operand.part_of for operand in call.numbers.operands.values()):
        return [call]
    return [replace(call, calls=1)] * call.calls


def _has_kept_memory(recording: Recording) -> bool:
    """Whether the recorded steps took fewer page faults than a large tensor has pages; False if
    they are not counted.

    Then their process kept the memory that it freed, e.g. because it had freed a larger block
    before.
    """
    faults: dict[int, list[int]] = defaultdict(list)
    for row in recording.rows("steps", ["batch", "page_faults", "profiled"]):
        if not row["profiled"] and row["page_faults"] is not None:
            faults[row["batch"]].append(row["page_faults"])
    medians = [median(of_size) for of_size in faults.values()]
    return bool(medians) and max(medians) < heap.FEW_FAULTS


def _bytes(call: RecordedCall) -> int:
    try:
        return memory_bytes(call)
    except CannotReplay:  # an unknown type
        return 0


def operand_bytes(runnables: Sequence[Runnable]) -> int:
    """Memory of all operands, each once."""
    sizes = {}
    for runnable in runnables:
        for tensor in results_of(list(runnable.arguments)):
            if tensor is not None:
                storage = tensor.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())
