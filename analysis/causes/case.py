"""What causes are weighed on: one term of an anomaly, with everything recorded of it at each batch size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...profiling.hardware.limits import Hardware
from ..decompose.functionals import Functional
from ..decompose.terms import Share

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Use:
    """All launches of one kernel with one geometry in a term at one batch size, per step.

    Attributes:
        batch: samples in the step.
        name: of the kernel.
        time_ms: exclusive time per step.
        share: what that contributes to the functional, in its unit.
        calls: launches per step.
        blocks: of the grid; null where it was not recorded.
        threads: of a block.
        registers_per_thread: likewise.
        shared_memory_bytes: of a block.
        flops: per step, by the direct algorithm.
        bytes_compulsory: per step.
        dram_bytes: per step, measured.
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


@dataclass(frozen=True)
class HostCalls:
    """Runtime calls of one kind inside the profiled steps of a batch size, per step."""

    calls: float
    time_ms: float


@dataclass(frozen=True)
class HostUse:
    """What the process took of the host in a timed step of one batch size, on average.

    Attributes:
        cpu_ms: CPU time of all threads.
        system_ms: of it in the operating system.
        page_faults: pages it had to be given.
        core_wait_ms: time that threads were ready and had no core, summed over them; null where it is not known.
    """

    cpu_ms: float
    system_ms: float
    page_faults: float
    core_wait_ms: float | None

    @property
    def pace(self) -> float | None:
        """Share of the time that its threads were ready in which they had a core; null where that is not known."""
        if self.core_wait_ms is None or self.cpu_ms <= 0:
            return None
        return self.cpu_ms / (self.cpu_ms + self.core_wait_ms)


@dataclass(frozen=True)
class BatchFacts:
    """What the recording says of one batch size beside its kernels; null or empty where nothing was recorded.

    Attributes:
        timed_ms: durations of the steps that no profiler watched.
        idle_ms: per profiled step used.
        kernel_ms: exclusive time of all kernels, likewise.
        kernel_calls: launches of all kernels, likewise.
        host: runtime calls by kind: allocation, synchronisation, synchronous copy, launch.
        peak_memory_bytes: the largest peak of its steps.
        allocator_retries: of all its steps.
        sm_clock_hz: mean of the samples taken during its steps.
        throttle_reasons: seen during its steps.
        kernel_bytes: compulsory bytes of all kernels, per profiled step used.
        host_use: of the timed steps; null where it was not recorded.
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
    host_use: HostUse | None = None


@dataclass(frozen=True)
class Evidence:
    """One thing the recording says.

    Attributes:
        what: in words.
        before: its value at the smaller batch size; null where it has none.
        after: at the larger one.
        unit: of both.
        table: of the recording that it is from, with the column.
    """

    what: str
    before: float | str | None
    after: float | str | None
    unit: str
    table: str


def seen(what: str, sides: Iterable[float | None], unit: str, table: str) -> Evidence:
    """Evidence from a pair of values: at the smaller batch size and at the larger."""
    before, after = sides
    return Evidence(what, before, after, unit, table)


@dataclass(frozen=True)
class Claim:
    """What one cause says of one term.

    Attributes:
        cause: its name.
        amount: how much of the term it accounts for, in the functional's unit; signed as the term.
        score: 0 to 1, how well the evidence tells this cause from the others.
        evidence: what it rests on; never empty.
        refuted_by: what would show that it is wrong.
    """

    cause: str
    amount: float
    score: float
    evidence: tuple[Evidence, ...]
    refuted_by: str


@dataclass(frozen=True)
class Case:
    """One term of one functional.

    Attributes:
        functional: the anomaly.
        share: the term and its value.
        before: batch size that the change starts from.
        after: batch size that it ends at.
        uses: the term's kernels at every batch size of the functional; their shares add up to the term.
        facts: of each of those batch sizes.
        hardware: limits of the device.
    """

    functional: Functional
    share: Share
    before: int
    after: int
    uses: tuple[Use, ...]
    facts: Mapping[int, BatchFacts]
    hardware: Hardware

    @property
    def factor(self) -> float:
        """How many times larger the larger batch is."""
        return self.after / self.before

    def coefficient(self, batch: int) -> float:
        """The functional's coefficient of T at a batch size."""
        return dict(self.functional.coefficients)[batch]

    def at(self, batch: int, name: str | None = None) -> tuple[Use, ...]:
        """The uses at one batch size, of one kernel if it is named."""
        return tuple(u for u in self.uses if u.batch == batch and name in (None, u.name))

    def time_ms(self, batch: int, name: str | None = None) -> float:
        """Exclusive time per step at one batch size."""
        return sum(use.time_ms for use in self.at(batch, name))

    def common_names(self) -> list[str]:
        """Kernels that run at both batch sizes, those with most time first."""
        after = {use.name for use in self.at(self.after)}
        common = {use.name for use in self.at(self.before)} & after
        return sorted(common, key=lambda name: (-self.time_ms(self.after, name), name))

    def main_kernel(self, batch: int) -> str | None:
        """The kernel with the most time at a batch size."""
        times = {use.name: self.time_ms(batch, use.name) for use in self.at(batch)}
        return max(times, key=lambda name: (times[name], name)) if times else None


def total(uses: tuple[Use, ...], column: str) -> float | None:
    """Sum of one column over uses; null where any of the time has no value."""
    values = [getattr(use, column) for use in uses]
    known = [float(value) for value in values if value is not None]
    return sum(known) if known else None
