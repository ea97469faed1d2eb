"""The input of causes: one term of an anomaly, with everything recorded about it at each batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...profiling.hardware.limits import Hardware
from ..decompose.functionals import Functional
from ..decompose.terms import Key, Share

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Use:
    """All launches of one kernel with one launch configuration in a term at one batch size, per step.

    Attributes:
        batch: number of samples in the step.
        name: name of the kernel.
        op: outermost operator that launched it; None if unknown.
        time_ms: exclusive time per step.
        share: its contribution to the functional, in the functional's unit.
        calls: launches per step.
        blocks: blocks of the grid; None if not recorded.
        threads: threads of a block; None if not recorded.
        registers_per_thread: registers; None if not recorded.
        shared_memory_bytes: shared memory of a block; None if not recorded.
        flops: FLOPs per step of the direct algorithm.
        bytes_compulsory: compulsory bytes per step.
        dram_bytes: measured DRAM bytes per step; None unless all launches have them.
        sm_cycles: measured cycles of the SM clock per step; None unless all launches have them.
    """

    batch: int
    name: str
    time_ms: float
    share: float
    calls: float
    blocks: int | None = None
    threads: int | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None
    flops: float | None = None
    bytes_compulsory: float | None = None
    dram_bytes: float | None = None
    sm_cycles: float | None = None
    op: str | None = None


@dataclass(frozen=True)
class HostCalls:
    """CUDA API calls of one kind in the profiled steps of a batch size, per step."""

    calls: float
    time_ms: float


@dataclass(frozen=True)
class SlowDown:
    """Slow-down of a term's kernels beside communication at one batch size, per step.

    For the term of communication: of all kernels beside it.

    Attributes:
        time_ms: part of the slow-down in the exclusive time of the term.
        error_ms: standard error of that part.
        expected_ms: time of the calls beside communication, had they run alone.
        excess_ms: their slow-down.
    """

    time_ms: float
    error_ms: float
    expected_ms: float
    excess_ms: float


@dataclass(frozen=True)
class MeanHostUse:
    """Mean use of host resources by the process in a timed step of one batch size.

    Attributes:
        cpu_ms: CPU time of all threads.
        system_ms: part of it in the kernel.
        page_faults: number of page faults.
        run_queue_wait_ms: time that threads waited in a run queue for a core, summed over threads; None if unknown.
    """

    cpu_ms: float
    system_ms: float
    page_faults: float
    run_queue_wait_ms: float | None

    @property
    def pace(self) -> float | None:
        """Share of the runnable time in which threads had a core; None if unknown."""
        if self.run_queue_wait_ms is None or self.cpu_ms <= 0:
            return None
        return self.cpu_ms / (self.cpu_ms + self.run_queue_wait_ms)


@dataclass(frozen=True)
class TermOperands:
    """The operands of a term at one batch size; shares are means over its calls by their time.

    Attributes:
        dtypes: floating-point types of the first such operand of each operator, by its name; empty if unknown.
        weights: names of the parameters that its products multiply by, the one with the most time first; empty if
            unknown.
        denormals: share of denormal numbers in operands and results; None if unknown.
        distinct: share of distinct indices; None if unknown, or for calls without indices.
    """

    dtypes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    denormals: float | None = None
    distinct: float | None = None


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """Facts about one batch size besides its kernels; None or empty if not recorded.

    Attributes:
        timed_ms: durations of the unprofiled steps.
        idle_ms: idle time per profiled step.
        kernel_ms: exclusive time of all kernels per profiled step.
        kernel_calls: kernel launches per profiled step.
        host: CUDA API calls by kind: allocation, synchronisation, synchronous copy, launch.
        peak_memory_bytes: largest peak of its steps.
        allocator_retries: total of all its steps.
        sm_clock_hz: mean clock of its steps, see `context.mean_clock`.
        throttle_reasons: what held the clock down in its visits.
        kernel_bytes: compulsory bytes of all kernels per profiled step.
        host_use: host resources in the timed steps; None if not recorded.
        graph_batch: batch size that the replayed CUDA graph was captured for; None if the steps replay none.
        graph_marked: whether marks of the steps tell it.
        term_faults: page faults in one step by term with kernels; None if not counted.
        operands: operands by term with kernels; empty if not recorded.
    """

    timed_ms: Floats
    idle_ms: float
    kernel_ms: float
    kernel_calls: float
    host: Mapping[str, HostCalls] = field(default_factory=dict)
    peak_memory_bytes: float | None = None
    allocator_retries: float | None = None
    sm_clock_hz: float | None = None
    throttle_reasons: frozenset[str] = frozenset()
    kernel_bytes: float = 0.0
    host_use: MeanHostUse | None = None
    graph_batch: int | None = None
    graph_marked: bool = False
    term_faults: Mapping[Key, float] | None = None
    operands: Mapping[Key, TermOperands] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """One fact from the recording.

    Attributes:
        what: description.
        before: value at the smaller batch size; None if unknown.
        after: value at the larger batch size; None if unknown.
        unit: unit of both.
        table: table and column that it comes from.
    """

    what: str
    before: float | str | None
    after: float | str | None
    unit: str
    table: str


def seen(what: str, sides: Iterable[float | None], unit: str, table: str) -> Evidence:
    """Evidence from two values: at the smaller and at the larger batch size."""
    before, after = sides
    return Evidence(what, before, after, unit, table)


@dataclass(frozen=True)
class Claim:
    """The claim of one cause on one term.

    Attributes:
        cause: name of the cause.
        amount: explained amount of the term, in the functional's unit, with the sign of the term.
        score: strength of the evidence for this cause against others, 0 to 1.
        evidence: facts that support the claim; never empty.
        refuted_by: observation that would refute the claim.
        detail: what the evidence adds to the cause's name, e.g. "from sgemm to winograd"; None if nothing.
    """

    cause: str
    amount: float
    score: float
    evidence: tuple[Evidence, ...]
    refuted_by: str
    detail: str | None = None


@dataclass(frozen=True)
class Intervention:
    """The experiment of a cause, as data: kernels and profiling run it.

    Attributes:
        expected: result of the experiment if the cause is right; one sentence.
        term: names of factors that remove the cause from a term in isolation, the most telling first.
        step: names of factors that remove it from complete steps, the most telling first.
        shared: names of factors of other causes that test this cause instead, in terms where it has evidence.
        untested: reason that no factor tests it, as a clause without a full stop; None if one does.
    """

    expected: str
    term: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    untested: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One term of one functional.

    Attributes:
        functional: the anomaly.
        share: the term and its value.
        before: batch size at which the change starts.
        after: batch size at which it ends.
        uses: the term's kernels at every batch size of the functional; their shares add up to the term.
        facts: facts about each of those batch sizes.
        hardware: limits of the device.
        slow_downs: slow-down of the term beside communication, by batch size; empty without any.
    """

    functional: Functional
    share: Share
    before: int
    after: int
    uses: tuple[Use, ...]
    facts: Mapping[int, BatchFacts]
    hardware: Hardware
    slow_downs: Mapping[int, SlowDown] = field(default_factory=dict)

    @property
    def factor(self) -> float:
        """Ratio of the larger to the smaller batch size."""
        return self.after / self.before

    def coefficient(self, batch: int) -> float:
        """The functional's coefficient of T at a batch size."""
        return dict(self.functional.coefficients)[batch]

    def at(self, batch: int, name: str | None = None) -> tuple[Use, ...]:
        """The uses at one batch size, optionally of one kernel."""
        return tuple(u for u in self.uses if u.batch == batch and name in (None, u.name))

    def time_ms(self, batch: int, name: str | None = None) -> float:
        """Exclusive time per step at one batch size."""
        return sum(use.time_ms for use in self.at(batch, name))

    def beyond_fastest(self, slow: Callable[[int, int], bool]) -> float:
        """Amount of the time beyond that at the rate per sample of the fastest batch size: an upper bound.

        Args:
            slow: whether the time of a batch size counts, given it and the fastest one.
        """
        fastest = min(self.functional.conditions, key=lambda batch: self.time_ms(batch) / batch)
        return math.fsum(
            weight * (self.time_ms(batch) - batch * self.time_ms(fastest) / fastest)
            for batch, weight in self.functional.coefficients
            if slow(batch, fastest)
        )

    def operands(self, batch: int) -> TermOperands:
        """The operands of the term at one batch size."""
        return self.facts[batch].operands.get(self.share.key, TermOperands())

    def common_names(self) -> list[str]:
        """Kernels that run at both batch sizes, by decreasing time."""
        after = {use.name for use in self.at(self.after)}
        common = {use.name for use in self.at(self.before)} & after
        return sorted(common, key=lambda name: (-self.time_ms(self.after, name), name))

    @property
    def switched(self) -> bool:
        """Whether the kernel with the most time at one size does not run at the other; their order may change."""
        main = {self.main_kernel(batch) for batch in (self.before, self.after)}
        return not main <= set(self.common_names())

    def main_kernel(self, batch: int) -> str | None:
        """The kernel with the most time at a batch size."""
        times = {use.name: self.time_ms(batch, use.name) for use in self.at(batch)}
        return max(times, key=lambda name: (times[name], name)) if times else None


def counted_total(uses: tuple[Use, ...], column: str) -> float | None:
    """Sum of a measured column over uses; None unless every use has a value."""
    return total(uses, column) if all(getattr(use, column) is not None for use in uses) else None


def total(uses: tuple[Use, ...], column: str) -> float | None:
    """Sum of one column over the uses that have a value; None if none has."""
    values = [getattr(use, column) for use in uses]
    counted = [float(value) for value in values if value is not None]
    return sum(counted) if counted else None
