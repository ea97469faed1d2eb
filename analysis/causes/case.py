"""What causes weigh: one term of an anomaly, with everything recorded about it at each batch size;
and the anomaly with their claims on its terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...profiling.collect.compilations import NONE
from ...profiling.hardware.limits import Hardware
from ..decompose.functionals import Functional
from ..decompose.launches import Paced
from ..decompose.statistics import Estimate, Floats
from ..decompose.terms import Key, Share
from .blocks import Block
from .evidence import Claim
from .expert_tokens import NO_EXPERTS, ExpertTokens
from .single_profile import ProfiledStep, Suggestion


@dataclass(frozen=True, kw_only=True)
class Use:
    """Launches of a kernel with one launch configuration in a term at a batch size, per step; None:
    not recorded.
    """

    batch: int
    name: str
    time_ms: float
    share: float  # its contribution to the functional, in the functional's unit
    calls: float
    blocks: int | None = None  # of the grid
    threads: int | None = None  # of a block
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None  # of a block
    flops: float | None = None  # of the direct algorithm
    bytes_compulsory: float | None = None
    dram_bytes: float | None = None  # measured; None unless all launches have them
    sm_cycles: float | None = None  # measured, of the SM clock; None unless all launches have them
    op: str | None = None  # outermost operator that launched it


@dataclass(frozen=True)
class HostCalls:
    """CUDA API calls of one kind in the profiled steps of a batch size, per step."""

    calls: float
    time_ms: float


@dataclass(frozen=True)
class SlowDown:
    """Slow-down of a term's kernels beside communication, or of all in its own term, at a batch
    size, per step.
    """

    time_ms: float  # part of the slow-down in the exclusive time of the term
    error_ms: float  # standard error of that part
    expected_ms: float  # time of the calls beside communication, had they run alone
    excess_ms: float  # their slow-down


@dataclass(frozen=True)
class MeanHostUse:
    """Mean use of host resources by the process in a timed step of one batch size."""

    cpu_ms: float  # of all threads
    system_ms: float  # part of it in the kernel
    page_faults: float
    run_queue_wait_ms: float | None  # for a core, summed over threads; None if unknown

    @property
    def pace(self) -> float | None:
        """Share of the runnable time in which threads had a core; None if unknown."""
        if self.run_queue_wait_ms is None or self.cpu_ms <= 0:
            return None
        return self.cpu_ms / (self.cpu_ms + self.run_queue_wait_ms)


@dataclass(frozen=True)
class TermOperands:
    """The operands of a term at one batch size; shares are means over its calls by their time, None
    if unknown.
    """

    # floating, of each operator's first
    dtypes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    weights: tuple[str, ...] = ()  # parameters that its products multiply by, the longest first
    denormals: float | None = None  # share of denormal numbers in operands and results
    distinct: float | None = None  # share of distinct indices
    experts: ExpertTokens = NO_EXPERTS


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """Facts about one batch size besides its kernels, per profiled step; None or empty if not
    recorded.
    """

    timed_ms: Floats  # durations of the unprofiled steps
    idle_ms: float
    kernel_ms: float  # exclusive time of all kernels
    kernel_calls: float
    # CUDA API calls by kind, see `cupti_names.HOST_KINDS`
    host: Mapping[str, HostCalls] = field(default_factory=dict)
    peak_memory_bytes: float | None = None  # largest peak of its steps
    allocator_retries: float | None = None  # total of all its steps
    sm_clock_hz: float | None = None  # mean clock of its steps, see `context.mean_clock`
    throttle_reasons: frozenset[str] = frozenset()  # what held the clock down in its visits
    kernel_bytes: float = 0.0  # compulsory bytes of all kernels
    host_use: MeanHostUse | None = None  # in the timed steps
    graph_batch: int | None = None  # batch size that the replayed CUDA graph was captured for
    graph_marked: bool = False  # whether marks of the steps tell it
    # what its steps run of torch.compile's code, see `profiling.collect.compilations`
    compiled_code: str | None = None
    term_faults: Mapping[Key, float] | None = None  # page faults in one step by term with kernels
    operands: Mapping[Key, TermOperands] = field(default_factory=dict)
    # kernels that wait for their launches, of terms that mostly have such ones
    paced: Mapping[Key, Paced] = field(default_factory=dict)


@dataclass(frozen=True)
class Intervention:
    """The experiment of a cause, as data: kernels and profiling run it."""

    expected: str  # result of the experiment if the cause is right; one sentence
    # factors that remove the cause from a term in isolation, the most telling first
    term: tuple[str, ...] = ()
    step: tuple[str, ...] = ()  # the same for complete steps
    # factors of other causes that test this cause instead, in terms where it has evidence
    shared: tuple[str, ...] = ()
    # whether it slows what it is in, so that shared factors test it where they make that faster
    slows: bool = False
    # reason that no factor tests it, as a clause without a full stop; None if one does
    untested: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause: its claim on a term or suggestion on a profile, and the experiment that tests
    it.
    """

    name: str
    weigh: Callable[[Case], Claim | None] | None = None  # None: of single profiles only
    # whether it can make an amount at all in a term; where not, no experiment confirms it for that
    possible: Callable[[Case, float], bool] | None = None
    suggest: Callable[[ProfiledStep], Suggestion | None] | None = None
    intervention: Intervention | None = None  # None: of single profiles, or no experiment tells


@dataclass(frozen=True, kw_only=True)
class TermUses:
    """The kernels of one term at the batch sizes of a functional, and the two sizes between which
    it changes.
    """

    functional: Functional
    before: int
    after: int
    # the term's kernels at every batch size of the functional; their shares add up to the term
    uses: tuple[Use, ...]

    @property
    def sides(self) -> tuple[int, int]:
        """The smaller and the larger batch size."""
        return self.before, self.after

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

    def evaluate(self, amount: Callable[[int], float]) -> float:
        """The functional of an amount at each batch size."""
        return math.fsum(weight * amount(batch) for batch, weight in self.functional.coefficients)

    def beyond_fastest(self, slow: Callable[[int, int], bool]) -> float:
        """Amount of the time beyond that at the rate per sample of the fastest batch size: an upper
        bound.

        `slow` says whether the time of a batch size counts, given it and the fastest one.
        """
        fastest = min(self.functional.conditions, key=lambda batch: self.time_ms(batch) / batch)
        rate_ms = self.time_ms(fastest) / fastest

        def beyond_ms(batch: int) -> float:
            return self.time_ms(batch) - batch * rate_ms if slow(batch, fastest) else 0.0

        return self.evaluate(beyond_ms)

    def common_names(self) -> list[str]:
        """Kernels that run at both batch sizes, by decreasing time."""
        common = set.intersection(*({use.name for use in self.at(batch)} for batch in self.sides))
        return sorted(common, key=lambda name: (-self.time_ms(self.after, name), name))

    @property
    def is_switched(self) -> bool:
        """Whether the kernel with the most time at one size does not run at the other; their order
        may change.
        """
        return not set(map(self.main_kernel, self.sides)) <= set(self.common_names())

    def main_kernel(self, batch: int) -> str | None:
        """The kernel with the most time at a batch size."""
        times = {use.name: self.time_ms(batch, use.name) for use in self.at(batch)}
        return max(times, key=lambda name: (times[name], name)) if times else None


@dataclass(frozen=True, kw_only=True)
class Case(TermUses):
    """One term of one functional, with its records."""

    share: Share
    facts: Mapping[int, BatchFacts]  # of each batch size of the functional
    hardware: Hardware
    # by batch size; empty without communication
    slow_downs: Mapping[int, SlowDown] = field(default_factory=dict)
    block: Block | None = None  # see `blocks.find_blocks`

    @property
    def runs_eagerly_at_some(self) -> bool:
        """Whether some of the sizes run compiled code, and others none, by torch's counters."""
        ran = {self.facts[batch].compiled_code for batch in self.functional.conditions}
        return NONE in ran and not ran <= {NONE, None}

    def operands(self, batch: int) -> TermOperands:
        """The operands of the term at one batch size."""
        return self.facts[batch].operands.get(self.share.key, TermOperands())


@dataclass(frozen=True)
class WeighedTerm:
    """One term of an anomaly with the claims of every cause on it."""

    case: Case
    claims: Mapping[str, Claim]  # by cause; experiments do not change them


@dataclass(frozen=True, kw_only=True)
class Anomaly:
    """A functional split into terms, each with what the causes claim of it."""

    functional: Functional
    value: Estimate
    # the largest first, idle and profiling overhead last
    terms: tuple[WeighedTerm, ...] = field(default=(), repr=False, compare=False)
    also: tuple[str, ...] = ()  # labels of other findings from the same term at the same batch size

    @property
    def cases(self) -> tuple[Case, ...]:
        """The records of each term."""
        return tuple(term.case for term in self.terms)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The contribution of each term."""
        return tuple(term.case.share for term in self.terms)

    def key_of(self, label: str | None) -> Key | None:
        """The term of a label; None without one."""
        return next((share.key for share in self.shares if share.label == label), None)


def sum_counted(uses: tuple[Use, ...], column: str) -> float | None:
    """Sum of a measured column over uses; None unless every use has a value."""
    return total(uses, column) if all(getattr(use, column) is not None for use in uses) else None


def total(uses: tuple[Use, ...], column: str) -> float | None:
    """Sum of one column over the uses that have a value; None if none has."""
    values = [getattr(use, column) for use in uses]
    counted = [float(value) for value in values if value is not None]
    return sum(counted) if counted else None


def sum_ms(uses: Iterable[Use], batch: int) -> float:
    """Time of the uses at one batch size."""
    return math.fsum(use.time_ms for use in uses if use.batch == batch)
