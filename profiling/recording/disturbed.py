"""Visits that something disturbed, by counters of their steps, never by their time.

Threads that spin at a barrier wait for one that has no core, so a step may take 10 to 1,000 times
as long. The visit of such a step is set aside: it stays in the recording and is counted, but no
estimate uses it. It is disturbed where

- its threads waited for a core for more than 5 % of the time, all their waits together;
- the GPU lowered its clock, by a reason that it gives or by more than 5 % below its usual one for
  the condition;
- it waited for pages from a disk, e.g. swapped ones, for more than 5 % of the time.

Where every step was profiled, each is a visit of its own.

If a condition would keep fewer than 3 rounds, all visits are used for its pace: then the machine,
or the step itself, is so. T, the time of all steps, is of the 3 visits that waited least. Where
every profiled visit of a condition was disturbed, their profiled steps split its time all the same:
they say which part is whose, not how long a step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...base.counted import counted

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# On a quiet machine threads wait briefly for each other and for the system: 0.7 % of the time in
# the median visit of examples/recordings/alexnet-cpu, 2.2 % in the worst of 90. Beside other work a
# visit waited not at all or far longer.
MOST_WAITING = 0.05
CLOCK_FALLEN = 0.95
_DISK_NS = 100_000  # least time for a page from a solid-state disk
# With three in ten visits disturbed, one sweep of six rounds in six leaves four of every condition;
# two in three leave three. Intervals hold with either (benchmarks/interval_coverage.py).
LEAST_ROUNDS = 3
# NVML's reasons that lower the clock below its sustainable value. The power limit is not among
# them: a GPU reaches it under normal load.
THROTTLES = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
_WAITED = f"threads waited for a core for more than {MOST_WAITING:.0%} of the time".replace(
    "%", " %"
)
_THROTTLED = "the GPU lowered its clock"
_PAGED = f"pages came from a disk, e.g. swapped ones, for more than {MOST_WAITING:.0%} of the time".replace(  # noqa: E501
    "%", " %"
)
_ADVICE = {
    _WAITED: "stop other work, or use fewer threads",
    _THROTTLED: "let the GPU cool, or lock its clock",
    _PAGED: "free memory",
}

SET_ASIDE = "set_aside"  # column that `with_set_aside` adds
LEAST_DISTURBED = "least_disturbed"  # another: whether T is of the visit
EXPERIMENT_COUNTERS = ("run_queue_wait_ns", "major_faults")  # the table `experiments` has no clock
_COUNTERS = (*EXPERIMENT_COUNTERS, "sm_clock_hz", "throttle_reasons")
_CONDITION = ("factor", "batch")  # factor: only of experiments
_MOST_SERIES = 4  # of rounds without a gap, in a sentence


@dataclass(frozen=True)
class Disturbance:
    """What disturbed some visits."""

    reason: str  # what happened, as a clause
    visits: int  # number of the visits
    rounds: tuple[int, ...]  # rounds of the visits, from 1, increasing


@dataclass(frozen=True)
class Disturbances:
    """The disturbed visits of a recording."""

    visits: int  # number of all visits
    disturbed: int  # number of disturbed ones
    # whether estimates leave these out; False where too few rounds would be left, so that all are
    # used
    set_aside: bool
    # whether half of a condition's visits or more are disturbed and used, so that its times are
    # theirs
    prevail: bool
    # what disturbed them, the commonest first; a visit may have several
    reasons: tuple[Disturbance, ...]
    sentence: str = field(init=False)  # the same in a sentence

    def __post_init__(self) -> None:
        clauses = []
        for reason in self.reasons:
            visits = f" ({reason.visits})" if len(self.reasons) > 1 else ""
            clauses.append(f"{reason.reason}, in {_rounds_text(reason.rounds)}{visits}")
        many = f"{self.disturbed} of {counted(self.visits, 'visit')}"
        done = "set aside" if self.set_aside else "disturbed"
        sentence = f"{many} {done}: {'; '.join(clauses)}."
        if not self.set_aside:
            sentence += f" All are used: fewer than {LEAST_ROUNDS} undisturbed rounds are left."
        if self.prevail:
            sentence += (
                " Times and verdicts are those of a disturbed machine, and what is open may be "
                f"open for that reason: {_ADVICE[self.reasons[0].reason]}, and measure again."
            )
        object.__setattr__(self, "sentence", sentence)


def with_set_aside(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps with a column `set_aside`: whether they belong to a visit that estimates leave out.

    Another, `least_disturbed`, says whether T, which one disturbed visit moves, is of the visit.

    A table (whole, or what an estimate compares of `experiments`) that has it stays the same, so
    parts of one keep it.
    """
    if SET_ASIDE in steps:
        return steps
    visits = _Visits.of(steps)
    if visits is None:
        return steps.assign(**{SET_ASIDE: False, LEAST_DISTURBED: True})
    aside: Any = _aside(steps, visits) if visits.enough_left else False
    return steps.assign(
        **{SET_ASIDE: aside, LEAST_DISTURBED: visits.least_disturbed[visits.number]}
    )


def _aside(steps: pd.DataFrame, visits: _Visits) -> Bools:
    """The rows of disturbed visits, less the profiled ones of a condition that has no others."""
    aside = visits.disturbed[visits.number]
    if "profiled" not in steps:
        return aside
    profiled = steps["profiled"].to_numpy(bool)
    condition = visits.condition[visits.number]
    has_others = np.isin(condition, condition[profiled & ~aside])
    return np.asarray(aside & (has_others | ~profiled), bool)


def select_used_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps that estimates use; for the argument see `with_set_aside`."""
    steps = with_set_aside(steps)
    return steps[~steps[SET_ASIDE]]


def all_used(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps, none of them set aside: of ranks, which wait for each other, so that each must
    keep the same steps.
    """
    return steps.assign(**{SET_ASIDE: False, LEAST_DISTURBED: True})


def disturbances(steps: pd.DataFrame) -> Disturbances | None:
    """The disturbed visits of a whole `steps` table; None without one."""
    visits = _Visits.of(steps)
    if visits is None or not visits.disturbed.any():
        return None
    reasons = []
    for reason, which in visits.reasons.items():
        if which.any():
            rounds = np.unique(visits.round_[which]) + 1
            reasons.append(Disturbance(reason, int(which.sum()), tuple(rounds.tolist())))
    reasons.sort(key=lambda reason: -reason.visits)
    left = visits.enough_left
    total = np.bincount(visits.condition)
    prevail = not left and bool((2 * visits.by_condition >= total).any())
    disturbed = int(visits.disturbed.sum())
    return Disturbances(len(visits.round_), disturbed, left, prevail, tuple(reasons))


def count_visits(steps: pd.DataFrame) -> int | None:
    """Number of the visits of a whole `steps` table; None where no counter tells of them."""
    visits = _Visits.of(steps)
    return None if visits is None else len(visits.round_)


def most_disturbed(rows: Sequence[dict[str, Any]]) -> int:
    """The largest number of disturbed visits of any condition, from rows of the table `steps` or
    `experiments`.
    """
    if not rows:
        return 0
    import pandas as pd

    visits = _Visits.of(pd.DataFrame(rows))
    return 0 if visits is None else int(visits.by_condition.max())


def is_disturbed(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether something disturbed one visit, from the rows of its unprofiled steps."""
    return most_disturbed([{**row, "batch": 0, "round": 0} for row in rows]) > 0


@dataclass(frozen=True)
class _Visits:
    number: Ints  # visit of every row of the table, shape (rows,)
    condition: Ints  # number of the condition of every visit, shape (visits,)
    round_: Ints  # round of every visit, shape (visits,)
    reasons: dict[str, Bools]  # visits that something disturbed, by what, each of shape (visits,)
    waiting: Floats  # share of every visit's time that its threads waited for a core

    @property
    def disturbed(self) -> Bools:
        return np.asarray(np.logical_or.reduce(list(self.reasons.values())), bool)

    @property
    def least_disturbed(self) -> Bools:
        """The undisturbed visits, and where fewer than `LEAST_ROUNDS` of a condition are so, as
        many of those that waited least.
        """
        order = np.lexsort((self.waiting, self.disturbed, self.condition))
        in_order = self.condition[order]
        first = np.searchsorted(in_order, in_order)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - first
        return np.asarray(~self.disturbed | (rank < LEAST_ROUNDS), bool)

    @property
    def by_condition(self) -> Ints:
        return np.bincount(self.condition, self.disturbed).astype(np.int64)

    @property
    def enough_left(self) -> bool:
        """Whether every condition has undisturbed visits in `LEAST_ROUNDS` of the rounds that
        visited all of them.
        """
        conditions = int(self.condition.max()) + 1
        complete = np.bincount(self.round_) == conditions
        kept = ~self.disturbed
        if complete.any():
            kept &= complete[self.round_]
        rounds = np.bincount(self.condition[kept], minlength=conditions)
        return bool(rounds.min() >= LEAST_ROUNDS)

    @classmethod
    def of(cls, steps: pd.DataFrame) -> _Visits | None:
        timed = steps["duration_ns"].notna()
        visit = "round"
        if "profiled" in steps and steps["profiled"].astype(bool).all():
            visit = "step"
        elif "profiled" in steps:
            timed = ~steps["profiled"].astype(bool)
        counters = [name for name in _COUNTERS if name in steps]
        if not any(steps.loc[timed, name].notna().any() for name in counters):
            return None
        keys = [name for name in _CONDITION if name in steps]
        number = _number_groups(steps, [*keys, visit])
        _, rows = np.unique(number, return_index=True)
        first = steps.iloc[rows]
        condition = _number_groups(first, keys)

        def total(name: str) -> Any:
            values: Any = 0.0 * number
            if name in steps:
                values = steps[name].where(timed).astype("Float64").fillna(0.0)
            return np.bincount(number, np.asarray(values, np.float64))

        together_ns = total("duration_ns")
        waited_ns = total("run_queue_wait_ns")
        most_ns = MOST_WAITING * together_ns
        throttled = np.isin(np.arange(len(first)), number[_find_throttled(steps)])
        reasons = {
            _WAITED: waited_ns > most_ns,
            _THROTTLED: throttled | _find_fallen(steps, number, condition),
            _PAGED: total("major_faults") * _DISK_NS > most_ns,
        }
        waiting = waited_ns / np.maximum(together_ns, 1.0)
        return cls(number, condition, first["round"].to_numpy(np.int64), reasons, waiting)


def _number_groups(rows: pd.DataFrame, keys: list[str]) -> Ints:
    """The number of each row's group, in the order of their first rows."""
    groups = rows.groupby(keys, dropna=False, sort=False)
    return np.asarray(groups.ngroup().to_numpy(np.int64))


def _find_throttled(steps: pd.DataFrame) -> Bools:
    if "throttle_reasons" not in steps:
        return np.zeros(len(steps), bool)
    texts = steps["throttle_reasons"]
    is_throttle = {}
    for text in texts.dropna().unique():
        is_throttle[text] = not THROTTLES.isdisjoint(str(text).split("|"))
    return np.array([is_throttle.get(text, False) for text in texts], bool)


def _find_fallen(steps: pd.DataFrame, number: Ints, condition: Ints) -> Bools:
    """The visits (of each step: `number`) whose mean clock lay below the usual one of their
    condition.
    """
    if "sm_clock_hz" not in steps:
        return np.zeros(len(condition), bool)
    clock_hz = steps["sm_clock_hz"].astype("Float64").astype("float64").groupby(number).mean()
    usual_hz = clock_hz.groupby(condition).transform("median")
    return np.asarray(clock_hz < CLOCK_FALLEN * usual_hz, bool)


def _rounds_text(rounds: Sequence[int]) -> str:
    """Rounds in words, e.g. `rounds 1 to 3 and 7`."""
    series: list[list[int]] = []
    for number in rounds:
        if series and number <= series[-1][-1] + 1:
            series[-1].append(number)
        else:
            series.append([number])
    if len(series) > _MOST_SERIES:
        return f"{len(rounds)} rounds from {rounds[0]} to {rounds[-1]}"
    texts: list[str] = []
    for together in series:
        if len(together) > 2:
            texts.append(f"{together[0]} to {together[-1]}")
        else:
            texts += map(str, together)
    *others, last = texts
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"round{'s' if len(rounds) > 1 else ''} {listed}"
