"""The operator calls of one term of a step, over batch sizes: read from a recording, and built to
run.
"""

from __future__ import annotations

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
    # operands that do not depend on the batch size, by family, by which of several equal calls with
    # weights of their own, and by index of the argument
    _shared: dict[tuple[int, int, int], tuple[Any, Any]] = field(default_factory=dict)
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
        """What is left out, with its share of the term's operators, and what is assumed; one
        sentence each.
        """
        total_ns = sum(
            each.duration_ns for each in (*self.families, *(family for family, _ in self.left_out))
        )
        notes = []
        for family, reason in self.left_out:
            share = (
                f" ({family.duration_ns / total_ns:.0%} of the term's operators)"
                if total_ns
                else ""
            )
            notes.append(f"{family.largest.label} is left out{share}: {reason}.")
        if not self.families and not self.left_out:
            notes.append("The recording has no operator calls of this term.")
        assumed = (
            note for built in self._built.values() for runnable in built for note in runnable.notes
        )
        return list(
            dict.fromkeys([*notes, *(f"{note[:1].upper()}{note[1:]}." for note in assumed)])
        )

    def _nearest(self, batch: int) -> int:
        return min(self.step_bytes, key=lambda recorded: abs(recorded - batch))

    def _build(self, batch: int) -> list[Runnable]:
        """The calls as recorded.

        A call that cannot run at one recorded batch size is left out at all.
        """
        runnables: list[Runnable] = []
        for family in [family for family in self.families if self._nearest(batch) in family.calls]:
            try:
                runnables += [
                    Runnable.of(family, self._rebuild(family, call, at), converted=self._converted)
                    for at, call in enumerate(_with_own_weights(family.at(batch)))
                ]
            except CannotReplay as error:
                if isinstance(error.__cause__, Exception) and memory_ran_out(error.__cause__):
                    raise error.__cause__ from None
                if (
                    batch not in family.calls
                ):  # of a finer grid: without the call, its neighbours would look too long
                    raise
                self.families.remove(family)
                self.left_out.append((family, str(error)))
                for built in self._built.values():
                    built[:] = [runnable for runnable in built if runnable.family is not family]
        return sorted(runnables, key=lambda runnable: runnable.call.position)

    def _rebuild(self, family: CallFamily, call: RecordedCall, at: int) -> Replayed:
        """Rebuild a call with the operands of another batch size that do not depend on it, e.g. its
        weights.
        """
        operands = {
            index: value
            for (owner, place, index), (recorded, value) in self._shared.items()
            if (owner, place) == (id(family), at) and recorded == call.arguments[index]
        }
        # With one seed, an input would begin with the numbers of weights from another batch size.
        replayed = rebuild(call, self.device, seed=call.batch or 0, operands=operands)
        for index, recorded in enumerate(call.arguments):
            if index not in family.batch_dimensions():
                self._shared[id(family), at, index] = recorded, replayed.arguments[index]
        return replayed

    def _change(self, name: str, batch: int, batches: tuple[int, ...]) -> list[Runnable]:
        change = term_change(name)
        if change.piece is not None:
            size = change.piece(self.families, batches)
            if size is None or batch <= size:
                return self.runnables(None, batch, batches)
            # Every piece has operands of its own, but for the weights.
            return [runnable for _ in range(-(-batch // size)) for runnable in self._build(size)]
        refused = FACTORS[name].refusal(self.device)
        return [
            runnable
            if change.call is None or refused or change.reason_against(runnable.family)
            else change.call(runnable, batches)
            for runnable in self.runnables(None, batch, batches)
        ]

    def _forget_weights(self) -> None:
        self._shared.clear()
        self._converted.clear()

    def _make_room(self, coming: Iterable[Runnable]) -> None:
        while self._built:
            kept = [runnable for built in self._built.values() for runnable in built]
            if operand_bytes([*kept, *coming]) <= self.budget_bytes:
                return
            del self._built[next(iter(self._built))]
            self._forget_weights()


def read_term(
    recording: Recording, layer: str | None, phase: str | None, device: str, budget_bytes: float
) -> ReplayedTerm:
    """Read the calls of a term from the table `operators`; its layer is without the layers inside
    it, and a group of experts is all of them.
    """
    everything = [call for call in read_calls(recording) if call.batch is not None]
    step_bytes: dict[int, int] = {}
    blocks = set()
    for call in everything:
        assert call.batch is not None
        operands = [
            _bytes(replace(call, arguments=(tensor,))) for tensor in tensors_of(call.arguments)
        ]
        step_bytes[call.batch] = step_bytes.get(call.batch, 0) + call.calls * sum(operands)
        blocks.update(operands)
    own = [
        call
        for call in everything
        if call.phase == phase
        and (call.layer == layer or is_expert_of(call.layer or "", layer or ""))
    ]
    if _has_kept_memory(recording):
        blocks.add(heap.LARGEST_THRESHOLD)
    return ReplayedTerm(families(own), step_bytes, frozenset(blocks), device, budget_bytes)


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
    faults: dict[int, list[int]] = {}
    for row in recording.rows("steps", ["batch", "page_faults", "profiled"]):
        if not row["profiled"] and row["page_faults"] is not None:
            faults.setdefault(row["batch"], []).append(row["page_faults"])
    return bool(faults) and max(median(of_batch) for of_batch in faults.values()) < heap.FEW_FAULTS


def _bytes(call: RecordedCall) -> int:
    try:
        return memory_bytes(call)
    except CannotReplay:  # an unknown type
        return 0


def operand_bytes(runnables: Sequence[Runnable]) -> int:
    """Memory of all operands, each once."""
    tensors = [
        tensor
        for runnable in runnables
        for tensor in results_of(list(runnable.arguments))
        if tensor is not None
    ]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors
    }
    return sum(storages.values())
