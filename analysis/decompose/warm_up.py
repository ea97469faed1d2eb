"""Which profiled steps no estimate uses, where every step was profiled: a profiler's warm-up.

T is what a step costs, so no step is set aside because it is long. Counters set steps aside, see
`profiling.recording.disturbed`; and of a profile its first step, where it is far slower than the
others and nothing that was recorded takes half of what it takes more: no work of the device, no
wait for input, no optimizer, no allocation, no range of the program.

Every view of a recording has its steps from `judge_steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from ...base.numbers import number
from ...profiling.attribution.cupti_names import host_kind
from ...profiling.attribution.range_names import RangeNames
from ...profiling.recording.axis import Axis
from ...profiling.recording.disturbed import SET_ASIDE, with_set_aside
from ...profiling.recording.store import Recording
from .kernel_times import device_work, kernel_times
from .statistics import Floats
from .terms import IDLE

_LEAST_STEPS = 3  # of a profile, of which the first may be a warm-up
# A step is far if it lies farther from the median than 4 standard deviations of normal steps
# (1.4826 times the median absolute deviation), and than 5 %: three quiet steps may agree far more
# closely than a fourth one.
_FAR = 4 * 1.4826
_LEAST_FAR = 0.05
_ALIKE = 1.5  # ratio of times below which a slow first step is as slow as later ones
_NAMED = 0.5  # of what the first step takes more, for a reason
_WHOLE = 0.5  # of the usual step: a range that takes more is around the step, and no reason
_LISTED = 4  # steps in a sentence


def judge_steps(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of a recording, or some of them, with the column `set_aside` of `with_set_aside`.

    Where every step was profiled, the warm-up of each profile is set aside too.
    """
    steps = with_set_aside(steps)
    if not steps["profiled"].astype(bool).all():
        return steps
    by_profile = ["batch", "round"]
    counts = steps.groupby(by_profile, dropna=False)["step"].transform("size")
    warm_ups = [
        int(profile["step"].iloc[0])
        for _, profile in steps[counts >= _LEAST_STEPS].groupby(by_profile, dropna=False)
        if profile["index"].iloc[0] == 0
        and is_far(profile["duration_ns"].to_numpy(np.float64))
        and not is_named(*_times_of(recording, profile))
    ]
    is_warm_up = steps["step"].isin(warm_ups).to_numpy(bool)
    return steps.assign(**{SET_ASIDE: steps[SET_ASIDE] | is_warm_up})


def is_far(times: Floats) -> bool:
    """Whether the first step of a profile is far slower than the others, slow ones too."""
    if len(times) < _LEAST_STEPS:
        return False
    middle = float(np.median(times))
    spread = float(np.median(np.abs(times - middle)))
    far = times - middle > max(_FAR * spread, _LEAST_FAR * middle)
    return bool(far[0] and (times[0] >= _ALIKE * times[1:][far[1:]]).all())


def is_named(times: Floats, named: Iterable[Floats]) -> bool:
    """Whether one of the named times takes half of what the first step takes more than the others;
    all have a value for each step.
    """
    return any(_more(of_name) >= _NAMED * _more(times) for of_name in named)


def _more(times: Floats) -> float:
    """What the first step has more than the others."""
    return float(times[0] - np.median(times[1:]))


def _times_of(recording: Recording, steps: pd.DataFrame) -> tuple[Floats, Iterator[Floats]]:
    """Times of the steps, and of what was recorded in them by name, ns."""
    times = steps["duration_ns"].to_numpy(np.float64)
    return times, _list_named_times(recording, steps.set_index("step"))


def _list_named_times(recording: Recording, steps: pd.DataFrame) -> Iterator[Floats]:
    usual_ns = float(steps["duration_ns"].iloc[1:].median())

    def by_step(values: pd.Series) -> Floats:
        return np.asarray(values.reindex(steps.index, fill_value=0), np.float64)

    keys = ("layer", "phase", "name")
    work = kernel_times(device_work(recording), steps.reset_index(), keys, (), by_name=False)
    busy = work[work["kind"] != IDLE].groupby("step")
    yield by_step(busy["exclusive_ns"].sum())
    calls = by_step(busy["calls"].sum())  # more of them are other work, whose time the host has
    yield calls * usual_ns / max(float(np.median(calls[1:])), 1.0)
    api_calls = recording.arrow("api_calls", ["name", "step", "duration_ns"]).to_pandas()
    allocating = {name for name in api_calls["name"].unique() if host_kind(name) == "allocation"}
    allocations = api_calls[api_calls["name"].isin(allocating)]
    yield by_step(allocations.groupby("step")["duration_ns"].sum())
    for _, ranges in _inside(recording, steps).groupby("name", observed=True):
        times = by_step(ranges.groupby("step")["duration_ns"].sum())
        if np.median(times[1:]) < _WHOLE * usual_ns:
            yield times


def _inside(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """The ranges in steps that are more than the step itself, its passes and its modules."""
    columns = ["name", "domain", "step", "start_ns", "duration_ns"]
    ranges = recording.arrow("ranges", columns).to_pandas()
    ranges = ranges[ranges["step"].isin(steps.index) & ranges["duration_ns"].notna()]
    whole = steps.loc[ranges["step"], ["start_ns", "duration_ns"]].to_numpy(np.float64)
    start, end = ranges["start_ns"].to_numpy(np.float64), whole.sum(axis=1)
    around = (start <= whole[:, 0]) & (start + ranges["duration_ns"].to_numpy(np.float64) >= end)
    return ranges[~around & ~_are_of_step(ranges)]


def _are_of_step(ranges: pd.DataFrame) -> pd.Series:
    """Whether ranges are steps, passes or modules: they say where time goes, not why."""
    names, pairs = RangeNames(), list(zip(ranges["name"], ranges["domain"], strict=True))
    read = {
        (name, domain): names.read(str(name), None if pd.isna(domain) else str(domain))
        for name, domain in set(pairs)
    }
    of_step = [
        meant.step
        or (meant.whole_layer and meant.layer is not None)
        or meant.phase in ("forward", "backward")
        for meant in (read[pair] for pair in pairs)
    ]
    return pd.Series(of_step, index=ranges.index, dtype=bool)


def name_set_aside(steps: pd.DataFrame) -> str | None:
    """The profiled steps of one batch size that no estimate uses, of `judge_steps`, with their
    times; None without one, and where unprofiled steps say what is used.
    """
    apart = with_set_aside(steps)[SET_ASIDE].to_numpy(bool)
    if not apart.any() or not steps["profiled"].astype(bool).all():
        return None
    times_ms = steps["duration_ns"].to_numpy(np.float64) / 1e6
    numbers = np.flatnonzero(apart)
    named = ", ".join(f"{number(times_ms[at])} ms (number {at + 1})" for at in numbers[:_LISTED])
    return (
        f"{len(numbers)} of {len(steps)} profiled steps set aside, as a counter says or as a "
        f"warm-up for which nothing recorded is the reason: {named}"
        f"{', …' if len(numbers) > _LISTED else ''}; the others take "
        f"{number(times_ms[~apart].min())} to {number(times_ms[~apart].max())} ms. With them all "
        f"steps take {number(times_ms.sum())} ms."
    )


def name_all_set_aside(steps: pd.DataFrame, axis: Axis) -> list[str]:
    """The same of every batch size that has some, each in a sentence."""
    if not steps["profiled"].astype(bool).all():
        return []
    with_some = steps[steps["batch"].isin(steps.loc[steps[SET_ASIDE], "batch"])]
    named = {batch: name_set_aside(rows) for batch, rows in with_some.groupby("batch")}
    return [f"{axis.name.capitalize()} {batch}: {said}" for batch, said in named.items() if said]
