"""The share of a sweep that a time limit allows: which sizes get rounds, and which parts of a visit
are made.

What an answer needs first is measured first: the largest size, then the smallest, the middle one,
and those in between. A further size is taken in if a few rounds of all fit the time, in the second
round also if they fit without marks and profiles. Probes of sizes that nobody asked for take what
is left after these. A visit always times a step; it marks and profiles steps in the time that the
least rounds leave. What visits take beside their steps, e.g. to convert a profile of many
operators, is learned from those made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from ...base.counted import counted
from .probing import Probing
from .protocol import Protocol
from .sites.site import ONE_VISIT, SweptSite
from .stopping import StoppingRule
from .visits import Empty, Look, StepRow, Visit, VisitPlan

ROUNDS = 4  # that fit the time, for a size beyond the first three to be measured
_LEAST_ROUNDS = 3  # that marks and profiles leave time for
_NEEDED = 3  # sizes that are measured first: largest, smallest, middle
# of the time to measure, that a step of the largest size takes: rounds of sizes that double take
# about 50 such steps, with marks and profiles
_LARGEST_SHARE = 1 / 80
# of the time, for marks and profiles of the first visit, when no time is known
_FIRST_SHARE = 1 / 8
_LEAST_LIMIT_S = 3.0  # torch's profiler alone takes a second to start
_CHEAP = 0.1  # of the time: rounds that take less together are made though the time is up
_TELLING_ROUNDS = 12  # from so many on, nobody needs to know how many rounds fit
_PROFILE_STEPS = 6.0  # time of the first profile of a size, in steps: warm-up, operators, memory
_MOST_CONVERTING = 1 / 2  # of the time, that conversions of profiles take
_MOST_FOR_SECOND = 1 / 4  # the same for a second profile: sizes that are found later have none yet


def by_need(sizes: Sequence[int]) -> list[int]:
    """Increasing sizes in the order in which an answer needs them."""
    ordered = sorted(sizes)
    if len(ordered) < 3:
        return ordered[::-1]
    first = [ordered[-1], ordered[0], ordered[len(ordered) // 2]]
    return [*first, *(size for size in reversed(ordered) if size not in first)]


def sizes_by_speed(
    sizes: Sequence[int], step_s: Callable[[int], float], limit_s: float
) -> tuple[int, ...]:
    """Increasing sizes up to the largest of which a sweep makes enough rounds in its time.

    `step_s` times a step of a size, in seconds. No step is taken to grow faster than its size, so
    that sizes of fast steps need no trial. The three smallest sizes stay, however slow.
    """
    most_s = _LARGEST_SHARE * limit_s
    for index, size in enumerate(sizes):
        time_s = step_s(size)
        if time_s > most_s:
            return tuple(sizes[: max(index, _NEEDED)])
        if time_s * sizes[-1] / size <= most_s:
            break
    return tuple(sizes)


class Affordable(StoppingRule[int]):
    """The rounds of another rule, as far as they fit its time limit; all of them without one."""

    def __init__(
        self,
        probing: Probing,
        protocol: Protocol,
        site: SweptSite,
        clock_s: Callable[[], float],
        began_s: float,
    ) -> None:
        """Take the limit and the sizes of the other rule, once the site has run a first step.

        `began_s` is when the run began, on the clock.
        """
        facts = site.facts()
        # A process that starts for each visit spends most of its first step on the start.
        smallest_s = math.inf if facts.kept == ONE_VISIT else clock_s() - began_s
        self._site = site
        self._warm_up_s = facts.warm_up_s
        self._beside_s: list[float] = []  # what visits without a profile took beside their steps
        self._conversions_s: list[float] = []  # what the others took: as long at every size
        self._profiled: set[int] = set()
        super().__init__(least=probing.least, time_limit_s=probing.time_limit_s)
        self.probing = probing
        self._protocol = protocol
        self._sizes = probing.sizes
        self._clock_s = clock_s
        self._began_s = began_s
        self._smallest_s = smallest_s
        self._rows: Callable[[], Sequence[StepRow]] = lambda: ()
        self._times_s: dict[int, float] = {}
        self._seen = self.round_ = 0
        self._least_light = math.inf  # the least size with marked steps that are samples of T
        self._waiting: list[int] = []  # of this round
        self.left_out: set[int] = set()

    @property
    def longest_s(self) -> float | None:
        """Seconds that the run takes at most; None without a limit."""
        return None if math.isinf(self._limit_s) else self._limit_s

    @property
    def allows(self) -> str | None:
        """How many rounds of which sizes fit, once the first round has timed a visit."""
        sizes = sorted(self._list_timed_sizes().intersection(self._sizes) - self.left_out)
        round_s = sum(map(self._visit_s, sizes))
        if math.isinf(self.left_s) or self._waiting or round_s * _TELLING_ROUNDS < self._limit_s:
            return None
        rounds = 1 + self.round_ + int(max(self.left_s, 0.0) / round_s)
        return f"about {counted(rounds, 'round')} of {', '.join(map(str, sizes))}"

    @property
    def left_s(self) -> float:
        """Seconds of the time limit that are left."""
        return self._limit_s - (self._clock_s() - self._began_s)

    @property
    def _limit_s(self) -> float:
        limit_s = self.probing.time_limit_s
        return math.inf if limit_s is None else max(limit_s, _LEAST_LIMIT_S)

    def note(self, size: int, result: Visit | Empty, took_s: float) -> None:
        """Learn the time of a visit of a size beside its steps, from all its seconds."""
        if isinstance(result, Empty) or not result.unprofiled:
            return
        steps_s = [row["duration_ns"] / 1e9 for row in result.unprofiled]
        samples = sum(bool(row.get("marked")) for row in result.unprofiled)
        others = result.discarded_steps + len(result.marked) - samples
        beside_s = took_s - sum(steps_s) - others * max(steps_s)
        if result.profiled:
            self._profiled.add(size)
            # Making a step, e.g. compiling it, is no conversion.
            setup_s = max((result.setup_ns or 0) / 1e9 - max(steps_s), 0.0)
            profile_s = _PROFILE_STEPS * max(steps_s)
            self._conversions_s.append(max(beside_s - setup_s - profile_s, 0.0))
        else:
            self._beside_s.append(max(beside_s, 0.0))

    def profile_fits(self, size: int) -> bool:
        """Whether a profile of a size fits the time, by what the conversions of those before took.

        They leave half of the time to timed steps, and time to the sizes that are needed before;
        a second profile waits for the first one of every size, and leaves time to those that are
        found between them.
        """
        if math.isinf(self.left_s) or not self._conversions_s:
            return True
        ordered = by_need(self._sizes)
        is_second = size in self._profiled or size not in ordered
        before = ordered if is_second else ordered[: ordered.index(size)]
        waiting = {size} | set(before) - self._profiled - self.left_out
        conversions_s = len(waiting) * fmean(self._conversions_s)
        profiles_s = conversions_s + _PROFILE_STEPS * sum(map(self._step_s, waiting))
        profiles_s += len(waiting) * self._warm_up_s
        together_s = sum(self._conversions_s) + conversions_s
        fits = profiles_s <= self._spare_s(size)
        most = _MOST_FOR_SECOND if is_second else _MOST_CONVERTING
        return fits and together_s <= most * self._limit_s

    def plan(self, size: int, *, operators: bool) -> VisitPlan:
        """How to visit a size now; for `operators` see `VisitPlan`."""
        return VisitPlan(
            self._protocol,
            self.round_,
            profile=self.profile_fits(size),
            spare_s=self.spare_s(size),
            operators=operators,
        )

    def next_round(self, look: Look[int]) -> Sequence[int] | None:
        """The sizes that the other rule names and that fit the time, in the first round by need."""
        self._rows = look.rows
        self.round_ = look.round_
        if look.round_ == 1:
            self._take_in()
        kept = [size for size in look.conditions if size not in self.left_out]
        chosen = self.probing.next_round(look.of(kept)) if kept else None
        self.time_limit_s = self.probing.time_limit_s
        if not chosen or math.isinf(self.left_s):
            return chosen
        if look.round_ == 0:
            chosen = [size for size in by_need(self._sizes) if size in chosen]
        elif self._round_s(chosen) > self.left_s and not self._is_cheap():
            chosen = self._first_that_fit(chosen) if look.round_ < _LEAST_ROUNDS else []
        self._waiting = list(chosen)
        return chosen

    def fits(self, condition: int) -> bool:
        """Whether a visit of a size fits the time; asked right before it."""
        self._waiting = [waiting for waiting in self._waiting if waiting != condition]
        needed = by_need(self._sizes)[:_NEEDED]
        first = self.round_ == 0 and condition == needed[0]
        if (
            math.isinf(self.left_s)
            or first
            or self._is_cheap()
            or self._site.start_s(condition) is None
        ):
            return True
        step_s = self._step_s(condition)
        fits = self._estimate_discarded_s(condition, step_s) + step_s <= self.left_s
        if self.round_ == 0 and condition in self._sizes:
            rounds_s = sum(
                ROUNDS * self._visit_s(taken) for taken in self._list_timed_sizes() | {condition}
            )
            fits = fits and (condition in needed or rounds_s <= self.left_s)
            self.left_out |= set() if fits else {condition}
        return fits

    def leaves_probes(self) -> bool:
        """Whether time is left for further sizes, after the least rounds of those that were asked
        for.
        """
        rounds = max(_LEAST_ROUNDS - self.round_, 0)
        return not self.left_out and rounds * self._round_s(self._sizes) <= self.left_s

    def _take_in(self) -> None:
        """Take in sizes that the first round left out, as far as the least rounds of all fit, and
        the profiles of those that an answer needs first.
        """
        pending = set(by_need(self._sizes)[:_NEEDED]) - self._profiled
        profiles_s = sum(_PROFILE_STEPS * self._step_s(size) + self._warm_up_s for size in pending)
        profiles_s += len(pending) * (fmean(self._conversions_s) if self._conversions_s else 0.0)
        left_s = self.left_s - (profiles_s if self._protocol.profiled_steps else 0.0)
        for size in [size for size in by_need(self._sizes) if size in self.left_out]:
            round_s = self._round_s([*self._list_timed_sizes(), size])
            if (1 + _LEAST_ROUNDS) * round_s <= left_s:
                self.left_out.remove(size)
                left_s -= (1 + _LEAST_ROUNDS) * self._least_visit_s(size)

    def spare_s(self, size: int) -> float:
        """Seconds that this visit may take to mark and profile steps."""
        if math.isinf(self.left_s):
            return math.inf
        if not self._list_timed_sizes():
            return _FIRST_SHARE * self._limit_s
        waiting_s = sum(map(self._step_s, self._waiting))
        return self._spare_s(size) * self._step_s(size) / (self._step_s(size) + waiting_s)

    def _spare_s(self, size: int) -> float:
        """Seconds that this visit and those after it may take to mark and profile steps."""
        rounds = max(_LEAST_ROUNDS - self.round_ - 1, 0)
        sizes = (
            self._list_timed_sizes() | {size} | set(by_need(self._sizes)[:_NEEDED]) - self.left_out
        )
        needed_s = rounds * sum(map(self._least_visit_s, sizes))
        needed_s += sum(map(self._least_visit_s, self._waiting)) + self._least_visit_s(size)
        return max(self.left_s - needed_s, 0.0)

    def _is_cheap(self) -> bool:
        """Whether the least rounds of all sizes, with one step each, are next to nothing of the
        time.
        """
        rounds = self.least - self.round_
        steps_s = sum(map(self._step_s, self._sizes))
        discarded_s = sum(
            self._estimate_discarded_s(size, self._step_s(size)) for size in self._sizes
        )
        one_each_s = steps_s + discarded_s
        return (
            rounds > 0
            and bool(self._list_timed_sizes())
            and rounds * one_each_s <= _CHEAP * self._limit_s
        )

    def _list_timed_sizes(self) -> set[int]:
        """The sizes that have a timed step."""
        return set(self._slowest_s())

    def _slowest_s(self) -> Mapping[int, float]:
        """The slowest timed step of each size, of the rows so far, which only grow."""
        rows = self._rows()
        for row in rows[self._seen :]:
            if not row["profiled"]:
                step_s = row["duration_ns"] / 1e9
                self._times_s[row["batch"]] = max(step_s, self._times_s.get(row["batch"], 0.0))
                if row.get("marked"):
                    self._least_light = min(self._least_light, row["batch"])
        self._seen = len(rows)
        return self._times_s

    def _step_s(self, size: int) -> float:
        """Expected time of a step: of a size without one, on the line between its neighbours."""
        times_s = {self._sizes[0]: self._smallest_s} if math.isfinite(self._smallest_s) else {}
        times_s |= self._slowest_s()
        if size in times_s or not times_s:
            return times_s.get(size, 0.0)
        below = max((measured for measured in times_s if measured < size), default=None)
        above = min((measured for measured in times_s if measured > size), default=None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None
            return times_s[nearest] * max(size / nearest, 1.0)
        share = (size - below) / (above - below)
        return times_s[below] + share * (times_s[above] - times_s[below])

    def _start_s(self, size: int) -> float:
        expected_s = self._site.start_s(size) or 0.0
        return max(fmean(self._beside_s), expected_s) if self._beside_s else expected_s

    def _estimate_discarded_s(self, size: int, step_s: float) -> float:
        return self._start_s(size) + max(self._protocol.discarded_steps * step_s, self._warm_up_s)

    def _least_visit_s(self, size: int) -> float:
        """Time of a visit without marks and profile."""
        step_s = self._step_s(size)
        steps = self._protocol.steps_of_visit(size, round(step_s * 1e9))
        return self._estimate_discarded_s(size, step_s) + steps * step_s

    def _visit_s(self, size: int) -> float:
        """Mean time of a visit with marks, and with its share of the profiles."""
        step_s = self._step_s(size)
        least_s = self._least_visit_s(size)
        profiles_s = _PROFILE_STEPS * step_s / ROUNDS if self._protocol.profiled_steps else 0.0
        marks_s = least_s - self._estimate_discarded_s(size, step_s)
        # Where marks cost next to nothing, only the first visit times other steps besides.
        return least_s + (marks_s / ROUNDS if size >= self._least_light else marks_s) + profiles_s

    def _round_s(self, sizes: Sequence[int]) -> float:
        return sum(map(self._least_visit_s, sizes))

    def _first_that_fit(self, chosen: Sequence[int]) -> list[int]:
        """The sizes that an answer needs first, as far as a round of them fits the time."""
        fitting: list[int] = []
        for size in by_need(chosen):
            if self._round_s([*fitting, size]) > self.left_s:
                break
            fitting.append(size)
        return fitting
