"""Slow steps: steps of one size that take far longer than the others, with their period and place.

T is the time of all steps over their number. This module says which steps are slow, how often they
come, their time beyond the others, and their common traits. It sets none aside.

Which steps are slow, and their period, is found in `profiling.attribution.step_pattern`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...base.counted import counted
from ...base.numbers import number, percent
from ...profiling.attribution.range_names import INPUT_PHASE, PHASE_RANGE
from ...profiling.attribution.step_pattern import (
    Pattern,
    faster_half,
    find_patterns,
    in_whole_periods,
    is_material,
    slow_share,
)
from ...profiling.recording.disturbed import select_used_steps
from ...profiling.recording.store import Recording
from .averaged_steps import durations_ms
from .statistics import Floats, Ints

Bools = npt.NDArray[np.bool_]

_LEAST_PROFILED = 8  # steps, where every one was profiled
_MOST_OF = 0.8  # of the slow steps that share what they have in common
_USUAL = 0.95  # of the other steps that lie below
_LISTED = 5
_INPUT = "ms of waiting for input"
_TOLD: Mapping[str, tuple[str, float]] = {
    "page_faults": ("page faults", 1.0),
    "major_faults": ("pages from a disk", 1.0),
    "system_time_ns": ("ms of system time", 1e-6),
    "input_ns": (_INPUT, 1e-6),
    "sm_clock_hz": ("MHz", 1e-6),
}
_LOWER = ("sm_clock_hz",)  # what slows a step by being lower


@dataclass(frozen=True)
class InCommon:
    """What the slow steps have in common."""

    what: str  # page faults, waiting for input, or another number of a step, with its unit
    slow: float  # its median over the slow steps
    usual: float  # its median over the others


@dataclass(frozen=True, kw_only=True)
class SlowSteps:
    """The slow steps of one batch size."""

    batch: int | None  # samples in a step; None if unknown
    steps: int  # number of steps that were looked at: the unprofiled ones, else the profiled ones
    slow: tuple[int, ...]  # numbers of the slow ones, as in the table `steps`
    slow_ms: float  # their mean time
    usual_ms: float  # mean time of the others
    share: float  # of T: what they take beyond the mean of the others
    period: int | None  # number of steps after which the times repeat; None if there is no period
    in_common: tuple[InCommon, ...]  # what they have in common
    sentence: str = field(init=False)  # the same in a sentence

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", _sentence(self))

    @property
    def matters(self) -> bool:
        """Whether they are part of the answer: seen more than once, and over 3 % of T."""
        return is_material(len(self.slow), self.share)

    @property
    def waits_for_input(self) -> bool:
        """Whether the slow steps wait for the next batch."""
        return any(common.what == _INPUT for common in self.in_common)

    @property
    def often(self) -> str:
        """How often a step is slow, e.g. `1 step in 16`."""
        share = len(self.slow) / self.steps
        if self.period is not None:
            in_period = max(round(share * self.period), 1)
            return f"{counted(in_period, 'step')} in {self.period}"
        if share > 1 / 3:
            return f"{percent(share)} of the steps"
        return f"about 1 step in {round(1 / share)}"

    @property
    def verb(self) -> str:
        """The verb of a sentence on `often`."""
        if self.often.startswith(("1 step", "about 1 step")):
            return "takes"
        return "take"


def _sentence(steps: SlowSteps) -> str:
    where = "" if steps.batch is None else f" at batch {steps.batch}"
    ratio = number(steps.slow_ms / steps.usual_ms, 2)
    subject = steps.often[0].upper() + steps.often[1:]
    times = f"{number(steps.slow_ms)} instead of {number(steps.usual_ms)} ms"
    share = f"{percent(steps.share)} of a step's time"
    said = f"{subject}{where} {steps.verb} {ratio} times as long: {times}, {share}"
    every = counted(steps.steps, "step")
    if len(steps.slow) == 1:
        return f"{said} (1 of {every}; seen once)."
    count = f"{len(steps.slow)} of {every}"
    if steps.period is None:
        listed = ", ".join(map(str, steps.slow[:_LISTED]))
        more = " and later" if len(steps.slow) > _LISTED else ""
        count += f": {listed}{more}"
    clauses = []
    for common in steps.in_common:
        slow, usual = number(common.slow), number(common.usual)
        clauses.append(f"{slow} {common.what} instead of {usual}")
    if not clauses:
        return f"{said} ({count}). No counter tells them from the others."
    return f"{said} ({count}). In common: {', '.join(clauses)}."


def slow_steps(recording: Recording, steps: pd.DataFrame) -> tuple[SlowSteps, ...]:
    """The slow steps of a recording by batch size; of steps of an inference server none, as no two
    are alike.
    """
    unlike = ("tokens", "averaged_steps")
    if steps.empty or any(name in steps and steps[name].notna().any() for name in unlike):
        return ()
    inputs = input_times(recording)
    steps = select_used_steps(steps)
    steps = steps.assign(input_ns=steps["step"].map(inputs) if len(inputs) else np.nan)
    tables = [rows for _, rows in steps.groupby("batch", dropna=False)]
    timed = [_take_timed(rows) for rows in tables]
    patterns = find_patterns({place: _times_of(rows) for place, rows in enumerate(timed)})
    slow = []
    for place, rows in enumerate(tables):
        of_batch = _of_batch(rows, timed[place], patterns[place])
        if of_batch is not None:
            slow.append(of_batch)
    return tuple(slow)


def _take_timed(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of one batch size that ran unprofiled, else the profiled ones, in their order."""
    profiled = steps["profiled"].astype(bool)
    if not profiled.all():
        steps = steps[~profiled]
    return steps.sort_values("step")


def _times_of(steps: pd.DataFrame) -> tuple[Floats, Ints]:
    """Times of steps, ms, and their rounds."""
    return durations_ms(steps), steps["round"].to_numpy(np.int64)


def input_times(recording: Recording) -> pd.Series:
    """Time in which each profiled step waited for its next batch, ns, by number of the step."""
    ranges = recording.arrow("ranges", ["name", "step", "duration_ns"]).to_pandas()
    waits = ranges[ranges["name"] == PHASE_RANGE + INPUT_PHASE]
    return waits.groupby("step")["duration_ns"].sum()


def _of_batch(steps: pd.DataFrame, timed: pd.DataFrame, pattern: Pattern) -> SlowSteps | None:
    times_ms, visits = _times_of(timed)
    # The machine was slow where waits for a core are half of what the step takes more, or more.
    more_ms = times_ms - float(faster_half(times_ms))
    waited_ms = np.nan_to_num(_numbers(timed, "run_queue_wait_ns")) / 1e6
    waited = (waited_ms > 0) & (waited_ms >= more_ms / 2)
    slow = pattern.slow & ~waited
    alone = bool(timed["profiled"].all())
    if not slow.any() or slow.all() or (alone and not _are_telling(slow)):
        return None
    profiled = steps[steps["profiled"].astype(bool)]
    in_common = _find_common(timed, slow) or _find_common_of_profiled(profiled)
    whole = in_whole_periods(visits, pattern.period)
    batch = timed["batch"].iloc[0]
    numbers = timed["step"].to_numpy()[slow]
    slow_ms, usual_ms = times_ms[slow].mean(), times_ms[~slow].mean()
    return SlowSteps(
        batch=None if pd.isna(batch) else int(batch),
        steps=len(timed),
        slow=tuple(map(int, numbers)),
        slow_ms=float(slow_ms),
        usual_ms=float(usual_ms),
        share=slow_share(times_ms[whole], slow[whole]),
        period=pattern.period,
        in_common=tuple(in_common),
    )


def _are_telling(slow: Bools) -> bool:
    """Whether profiled steps alone tell of slow ones: few of them may be a warm-up."""
    if len(slow) < _LEAST_PROFILED:
        return False
    return bool(slow.mean() <= 1 / 2)


def _find_common_of_profiled(steps: pd.DataFrame) -> list[InCommon]:
    """The wait that the slower half of the profiled steps has in common: only these have ranges."""
    times_ms = durations_ms(steps)
    if len(times_ms) < 2:
        return []
    slow = times_ms > np.median(times_ms)
    beyond_ms = times_ms - faster_half(times_ms)
    waits_ms = np.nan_to_num(_numbers(steps, "input_ns")) / 1e6
    usual_ms = float(waits_ms[~slow].mean())
    waits_more_ms = waits_ms - usual_ms
    if waits_more_ms[slow].sum() > beyond_ms[slow].sum() / 2:
        return [InCommon(_INPUT, float(waits_ms[slow].mean()), usual_ms)]
    return []


def _numbers(steps: pd.DataFrame, name: str) -> Floats:
    """A column as numbers; NaN where it is unknown."""
    if name not in steps:
        return np.full(len(steps), np.nan)
    nullable = steps[name].astype("Float64")
    return np.asarray(nullable.to_numpy(np.float64, na_value=np.nan))


def _find_common(steps: pd.DataFrame, slow: Bools) -> list[InCommon]:
    in_common = []
    for name, (what, scale) in _TOLD.items():
        values, least_more = _numbers(steps, name), 0.5
        if name in _LOWER:
            values, least_more = -values, 0.05
        mine, others = values[slow], values[~slow]
        if np.isnan(mine).any() or np.isnan(others).all():
            continue
        usual = float(np.nanmedian(others))
        # More than nearly all others, and more by half of the usual amount.
        is_high = mine > np.nanquantile(others, _USUAL)
        is_far = mine - usual > abs(usual) * least_more
        if (is_high & is_far).mean() >= _MOST_OF:
            slow_value = abs(float(np.median(mine))) * scale
            in_common.append(InCommon(what, slow_value, abs(usual) * scale))
    return in_common


def leading(slow: Sequence[SlowSteps]) -> SlowSteps | None:
    """The slow steps that are part of the answer, at the largest batch size that has some; None
    without any.
    """
    return next((steps for steps in reversed(slow) if steps.matters), None)
