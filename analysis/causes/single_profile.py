"""The input of causes without a curve: one profiled step, with everything recorded about it; and
their suggestions.

A cause that can tell from one profile has `suggest(step) -> Suggestion | None`. Nothing is tried: a
suggestion has evidence and an upper bound of what its removal saves, and is never confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ...profiling.attribution.cupti_names import MANAGED
from ...profiling.hardware.limits import Hardware
from ..decompose.communication import Communication
from ..decompose.host_functions import HostCode
from ..decompose.idle import FOLLOWS, WAITS, Gaps, IdleTime, cover_gaps
from ..decompose.launches import Paced
from ..decompose.warm_up import make_contexts
from .evidence import Evidence

LEAST_SHARE = 0.02  # of the step; what saves less is not suggested
HOST_TO_DEVICE, DEVICE_TO_HOST = "HtoD", "DtoH"


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """What one cause suggests of a step."""

    cause: str  # name of the cause
    what: str  # what the step waits for or does, as a clause, e.g. "waits for the next batch"
    at_most_ms: float  # what its removal saves at most, per step
    evidence: tuple[Evidence, ...]  # facts of the profile; never empty
    where: str | None = None  # layer, operator, range or call with most of it; None if unknown
    stack: tuple[str, ...] = ()  # functions of the program, the outermost first; empty if unknown
    factors: tuple[str, ...] = ()  # factors of complete steps that test it, the most telling first
    # what to do, as an instruction; None if it is that of the first factor
    remedy: str | None = None
    how: str | None = None  # how to do it, e.g. the call; None as for `remedy`


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """The mean step of one profile; times are in ms per step."""

    time_ms: float
    batch: int | None
    steps: int  # number of steps behind the means
    trains: bool  # whether it has a backward pass or an optimizer
    on_host: bool  # whether operators of the host are the work
    hardware: Hardware
    # groups of kernels: name, op, layer, phase, kind, ms (shared out among what overlaps), own_ms,
    # calls, flops
    groups: pd.DataFrame
    copies: pd.DataFrame  # memcpys: kind, host_memory, calls, bytes, own_ms
    # time in which nothing but these runs: copies from and to the host, by direction, and
    # communication
    exposed_ms: Mapping[str, float] = field(default_factory=dict)
    copying_devices: int = 1  # number of devices that copies reach
    idle: tuple[IdleTime, ...] = ()
    # gaps of at least `LONG_GAP_NS`: step, begin_ns, end_ns, reason, before, kernel (the name of
    # what follows, where that is its first launch)
    gaps: pd.DataFrame = field(default_factory=pd.DataFrame)
    host_gaps: Gaps | None = None  # all gaps of the host, of any length; None if unknown
    # calls of the host: name, kind, thread, start_ns, end_ns, waits (whether for the device)
    calls: pd.DataFrame = field(default_factory=pd.DataFrame)
    # ranges of the host: name, thread, start_ns, end_ns
    ranges: pd.DataFrame = field(default_factory=pd.DataFrame)
    # runs of pointwise kernels, see `pointwise_runs`
    in_a_row: pd.DataFrame = field(default_factory=pd.DataFrame)
    communication: Communication | None = None
    paced: Paced | None = None  # kernels that wait for their launches; None without any
    # time in communication of each process of a trace that merges several, in all of it; else empty
    ranks_ms: Mapping[str, float] = field(default_factory=dict)
    # of the host, between two moments
    code_in: Callable[[int, int], HostCode | None] = lambda _begin, _end: None
    has_stacks: bool = False  # whether call stacks of Python were recorded
    on_amd: bool = False  # whether the device is AMD's, whose tools have other names
    is_torch: bool = True  # whether PyTorch ran it: only then its calls are a way to change it
    is_jax: bool = False  # whether JAX ran it
    is_recorded: bool = False  # whether `curvescope record` recorded it
    knows_steps: bool = True  # else it is the whole recording
    capture_ms: float = 0.0  # time in which the host captures a graph, per step

    @property
    def idle_ms(self) -> float:
        """Time in which nothing runs, and no launched work waits."""
        return sum(time.time_ms for time in self.idle if time.reason not in (WAITS, FOLLOWS))

    @property
    def knows_reasons(self) -> bool:
        """Whether the profile tells what the host did in idle time: else nobody knows what the step
        waits for.
        """
        return any(time.reason is not None for time in self.idle)

    @property
    def is_capture(self) -> bool:
        """Whether most of it is the capture of a graph, in which kernels are launched and do not
        run.
        """
        return self.capture_ms > self.time_ms / 2

    def idle_because(self, matches: Callable[[str], bool]) -> float:
        """Idle time whose reason matches."""
        return sum(
            time.time_ms for time in self.idle if time.reason is not None and matches(time.reason)
        )

    @property
    def migrations(self) -> pd.DataFrame:
        """The rows of `copies` that move managed memory, most of them for a page that was used."""
        if self.copies.empty:
            return self.copies
        return self.copies[self.copies["host_memory"].eq(MANAGED)]

    @property
    def migrates(self) -> bool:
        """Whether most of what runs are such copies: gaps between them are of pages, too."""
        calls = float(self.groups["calls"].sum())
        return bool(len(self.migrations) and self.migrations["calls"].sum() > calls / 2)

    def enough(self, ms: float) -> bool:
        """Whether it is worth a suggestion."""
        return ms >= LEAST_SHARE * self.time_ms > 0

    def select_kernels(self, matches: Callable[[str], bool]) -> pd.DataFrame:
        """The groups of kernels whose names match."""
        matching = self.groups["name"].map(lambda name: matches(str(name)))
        return self.groups[matching.astype(bool)]  # of no groups it is a column of objects

    def ranges_named(self, matches: Callable[[str], bool]) -> pd.DataFrame:
        """The ranges whose names match."""
        if self.ranges.empty:
            return self.ranges
        return self.ranges[
            self.ranges["name"].isin([n for n in self.ranges["name"].unique() if matches(str(n))])
        ]

    def place_of(self, groups: pd.DataFrame) -> str | None:
        """The layer, else the operator, else the kernel with most of the time of some groups."""
        for column in ("layer", "op", "name"):
            sums = groups.groupby(column)["ms"].sum()
            if len(sums) and sums.sum() > groups["ms"].sum() / 2:
                return str(sums.idxmax())
        return None

    def longest_gap(self, gaps: pd.DataFrame) -> tuple[pd.Series | None, HostCode | None]:
        """The longest of some gaps, and the code of the host in it."""
        if gaps.empty:
            return None, None
        longest = gaps.loc[(gaps["end_ns"] - gaps["begin_ns"]).idxmax()]
        return longest, self.code_in(int(longest["begin_ns"]), int(longest["end_ns"]))


def in_gaps(step: ProfiledStep, spans: pd.DataFrame) -> pd.Series:
    """What calls or ranges cover of the gaps of the host: ms per step by name, the most first."""
    if spans.empty or step.host_gaps is None:
        return pd.Series(dtype=float)
    spans = spans.sort_values("start_ns", kind="stable")
    times = (spans[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    covered = cover_gaps(step.host_gaps, *times)
    names = spans["name"].astype(str).to_numpy()[covered.span]
    sums = pd.Series(covered.ns / 1e6 / step.steps).groupby(names).sum()
    return sums.sort_values(ascending=False)


def context_calls(step: ProfiledStep) -> pd.DataFrame:
    """Calls that allocate or free for so long that they make a context, see `make_contexts`."""
    if step.calls.empty or "kind" not in step.calls:
        return pd.DataFrame({"name": [], "start_ns": [], "end_ns": []})
    calls = step.calls[step.calls["kind"].eq("allocation")]
    return calls[make_contexts(calls["name"], calls["end_ns"] - calls["start_ns"])]


LONG_GAP_NS = 20_000
LONGEST_SHORT_NS = 1_000_000  # a longer gap has a reason of its own


def fact(what: str, value: float | str | None, unit: str, table: str) -> Evidence:
    """One fact of a profile."""
    return Evidence(what, None, value, unit, table)


def stack_of(code: HostCode | None, most: int = 4) -> tuple[str, ...]:
    """The innermost functions around a gap, then those that took most of it; empty without call
    stacks.
    """
    if code is None:
        return ()
    own = [f"{name} ({time_ms:.3g} ms)" for name, time_ms in code.own_ms]
    return (*code.path[-2:], *own)[:most] if own else tuple(code.path[-most:])


def gap_ms(gaps: pd.DataFrame, steps: int) -> float:
    """Length of some gaps per step, in ms."""
    return (
        float((gaps["end_ns"] - gaps["begin_ns"]).sum()) / 1e6 / max(steps, 1) if len(gaps) else 0.0
    )


def short_gaps_ms(step: ProfiledStep) -> float:
    """Idle time per step in gaps of at most `LONGEST_SHORT_NS`."""
    return step.idle_ms - gap_ms(longer_gaps(step), step.steps)


def longer_gaps(step: ProfiledStep) -> pd.DataFrame:
    """The gaps of the host that are longer than `LONGEST_SHORT_NS`."""
    gaps = host_gaps(step)
    return gaps[gaps["end_ns"] - gaps["begin_ns"] > LONGEST_SHORT_NS] if len(gaps) else gaps


def host_gaps(step: ProfiledStep, but: Sequence[str] = ()) -> pd.DataFrame:
    """The long gaps in which the host was the reason; without those whose reason contains some
    words.
    """
    gaps = step.gaps
    if gaps.empty:
        return gaps
    reason = gaps["reason"].fillna("")
    rows = ~reason.isin([WAITS, FOLLOWS])
    for word in but:
        rows &= ~reason.str.contains(word, regex=False)
    return gaps[rows]
