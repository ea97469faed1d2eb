"""Rare slow steps: few of many that take far longer than the steps around them, which T(b) leaves
out.

A step is slow if it takes 1.5 times the median of the steps around it, or more, and lies farther
outside the spread of the others than a normal one ever does. If its threads waited for a core, it
is the machine that was slow. Three or more are said, if they are at most a tenth of the steps. What
they have in common must hold for four in five of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...base.counted import counted
from ...base.numbers import number
from ...profiling.attribution.range_names import INPUT_PHASE, PHASE_RANGE
from ...profiling.recording.disturbed import MOST_WAITING, used_steps
from ...profiling.recording.store import Recording
from .statistics import Floats

_LEAST_STEPS, _LEAST_SLOW, _MOST_SHARE = 30, 3, 0.1
_FACTOR, _DEVIATIONS = 1.5, 8.0
_AROUND = 25  # steps on each side of one that its time is compared with
_QUARTILES = 1.349  # standard deviations between the quartiles of normal values
_MOST_OF = 0.8  # of the slow steps that share what they have in common
_USUAL = 0.95  # of the other steps that lie below
_LEAST_P = 0.01  # of a period by chance
_LISTED = 5
_TOLD: Mapping[str, tuple[str, float]] = {
    "page_faults": ("page faults", 1.0),
    "major_faults": ("pages from a disk", 1.0),
    "system_time_ns": ("ms of system time", 1e-6),
    "input_ns": ("ms of waiting for input", 1e-6),
    "sm_clock_hz": ("MHz", 1e-6),
}
_LOWER = ("sm_clock_hz",)  # what slows a step by being lower
_NAMES = [*_TOLD, "run_queue_wait_ns"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class InCommon:
    """What the slow steps have in common."""

    what: str  # page faults, waiting for input, or another number of a step, with its unit
    slow: float  # its median over the slow steps
    usual: float  # its median over the others


@dataclass(frozen=True, kw_only=True)
class RareSteps:
    """The rare slow steps of one batch size."""

    batch: int | None  # samples in a step; None if unknown
    steps: int  # number of steps that were looked at: the unprofiled ones, else the profiled ones
    slow: tuple[int, ...]  # numbers of the slow ones, as in the table `steps`
    slow_ms: float  # their median time
    usual_ms: float  # median time of the others
    # what they take longer than the steps around them, as a share of the time of all steps
    cost_share: float
    period: int | None  # number of steps from one to the next; None if there is no fixed one
    in_common: tuple[InCommon, ...]  # what they have in common
    sentence: str = field(init=False)  # the same in a sentence

    def __post_init__(self) -> None:
        of = "" if self.batch is None else f" of batch {self.batch}"
        when = (
            f"every {self.period} steps"
            if self.period
            else f"steps {', '.join(map(str, self.slow[:_LISTED]))}"
        )
        more = "" if self.period or len(self.slow) <= _LISTED else " and later"
        clauses = [
            f"{number(common.slow)} {common.what} instead of {number(common.usual)}"
            for common in self.in_common
        ]
        same = (
            f"in common: {', '.join(clauses)}"
            if clauses
            else "no counter tells them from the others"
        )
        sentence = (
            f"{len(self.slow)} of {counted(self.steps, 'step')}{of} take "
            f"{number(self.slow_ms / self.usual_ms, 2)} times as long ({number(self.slow_ms)} "
            f"instead of {number(self.usual_ms)} ms), {self.cost_share:.1%} of all the time, which "
            f"T leaves out: {when}{more}; {same}."
        )
        object.__setattr__(self, "sentence", sentence)


def rare_steps(recording: Recording, steps: pd.DataFrame) -> tuple[RareSteps, ...]:
    """The rare slow steps of a recording by batch size; of steps of an inference server none, as no
    two are alike.
    """
    one_each = ("tokens", "averaged_steps")
    if steps.empty or any(name in steps and steps[name].notna().any() for name in one_each):
        return ()
    ranges = recording.arrow("ranges", ["name", "step", "duration_ns"]).to_pandas()
    inputs = (
        ranges[ranges["name"] == PHASE_RANGE + INPUT_PHASE].groupby("step")["duration_ns"].sum()
    )
    steps = used_steps(steps)
    steps = steps.assign(input_ns=steps["step"].map(inputs) if len(inputs) else np.nan)
    by_batch = (_of_batch(rows) for _, rows in steps.groupby("batch", dropna=False))
    return tuple(rare for rare in by_batch if rare is not None)


def _of_batch(steps: pd.DataFrame) -> RareSteps | None:
    profiled = steps["profiled"].astype(bool)
    steps = (steps if profiled.all() else steps[~profiled]).sort_values("step")
    times_ms = steps["duration_ns"].to_numpy(np.float64) / 1e6
    if len(steps) < _LEAST_STEPS or times_ms.min() <= 0:
        return None
    counters = {name: _numbers(steps, name) for name in _NAMES}
    around_ms = _medians_around(times_ms)
    logs = np.log(times_ms / around_ms)
    low, high = np.percentile(logs, [25, 75])
    slow = logs > max(np.log(_FACTOR), _DEVIATIONS * (high - low) / _QUARTILES)
    slow &= ~(counters["run_queue_wait_ns"] > MOST_WAITING * 1e6 * times_ms)
    if not _LEAST_SLOW <= slow.sum() <= _MOST_SHARE * len(steps):
        return None
    batch = steps["batch"].iloc[0]
    return RareSteps(
        batch=None if pd.isna(batch) else int(batch),
        steps=len(steps),
        slow=tuple(map(int, steps["step"].to_numpy()[slow])),
        slow_ms=float(np.median(times_ms[slow])),
        usual_ms=float(np.median(times_ms[~slow])),
        cost_share=float((times_ms - around_ms)[slow].sum() / times_ms.sum()),
        period=_period(steps[slow]),
        in_common=tuple(_in_common(counters, slow)),
    )


def _numbers(steps: pd.DataFrame, name: str) -> Floats:
    """A column as numbers; NaN where it is unknown."""
    if name not in steps:
        return np.full(len(steps), np.nan)
    return np.asarray(steps[name].astype("Float64").to_numpy(np.float64, na_value=np.nan))


def _medians_around(times_ms: Floats) -> Floats:
    """The median of the times around each, so that a slow drift of the machine is none
    of a step.
    """
    around = (
        pd.Series(times_ms).rolling(2 * _AROUND + 1, center=True, min_periods=_AROUND + 1).median()
    )
    return np.asarray(around.bfill().ffill(), np.float64)


def _in_common(counters: Mapping[str, Floats], slow: Bools) -> Iterator[InCommon]:
    for name, (what, scale) in _TOLD.items():
        values = -counters[name] if name in _LOWER else counters[name]
        mine, others = values[slow], values[~slow]
        if np.isnan(mine).any() or np.isnan(others).all():
            continue
        usual = float(np.nanmedian(others))
        # More than nearly all others, and more by half of the usual amount or of that of the slow
        # ones.
        beyond = (mine > np.nanquantile(others, _USUAL)) & (
            mine - usual > abs(usual) * (0.05 if name in _LOWER else 0.5)
        )
        if beyond.mean() >= _MOST_OF:
            yield InCommon(what, abs(float(np.median(mine))) * scale, abs(usual) * scale)


def _period(slow: pd.DataFrame) -> int | None:
    """Number of steps from one slow step to the next, if nearly all in a round keep it; None if
    chance explains it.
    """
    rounds = slow.groupby("round")["index"]
    _, indices = max(rounds, key=lambda numbered: len(numbered[1]), default=(None, None))
    if indices is None or len(indices) <= _LEAST_SLOW:
        return None
    at = np.sort(indices.to_numpy(np.int64))
    period = int(np.median(np.diff(at)))
    if period < 2:
        return None
    held = int(np.bincount(at % period).max())
    slots = (at[-1] - at[0]) // period + 1
    # Two define the period and its phase; each further one meets it by chance in one of as many
    # cases as it has steps.
    by_chance = len(at) ** 2 * float(period) ** (2 - held)
    return period if held >= _MOST_OF * max(len(at), slots) and by_chance < _LEAST_P else None
