"""Which profiled steps no estimate uses, where every step was profiled: a profiler's warm-up.

T is the cost of a step, so no step is set aside because it is long. Counters set steps aside, see
`profiling.recording.disturbed`. A profile's first step is set aside where it is far slower than the
others and nothing recorded takes half of the difference: no work of the device, no wait for input,
no optimizer, no allocation, no range of the program. A call that makes a context is no allocation:
no later step has another.

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
from .averaged_steps import durations_ms
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
_CONTEXT_NS = 50_000_000
_MOST_OF_NAME = 0.5  # of the time of all calls of that name


def judge_steps(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of a recording, or some of them, with the column `set_aside` of `with_set_aside`.

    Where every step was profiled, the warm-up of each profile is set aside too.
    """
    steps = with_set_aside(steps)
    if not steps["profiled"].astype(bool).all():
        return steps
    warm_ups = []
    for _, profile in steps.groupby(["batch", "round"], dropna=False):
        if profile["index"].iloc[0] == 0 and _begins_with_warm_up(recording, profile):
            warm_ups.append(profile["step"].iloc[0])
    is_warm_up = steps["step"].isin(warm_ups).to_numpy(bool)
    return steps.assign(**{SET_ASIDE: steps[SET_ASIDE] | is_warm_up})


def _begins_with_warm_up(recording: Recording, steps: pd.DataFrame) -> bool:
    times_ns = steps["duration_ns"].to_numpy(np.float64)
    if not is_far(times_ns):
        return False
    return not is_named(times_ns, _list_named_times(recording, steps.set_index("step")))


def is_far(times: Floats) -> bool:
    """Whether the first step of a profile is far slower than the others, slow ones too."""
    if len(times) < _LEAST_STEPS:
        return False
    middle = float(np.median(times))
    spread = float(np.median(np.abs(times - middle)))
    far = times - middle > max(_FAR * spread, _LEAST_FAR * middle)
    if not far[0]:
        return False
    other_far = times[1:][far[1:]]
    return bool((times[0] >= _ALIKE * other_far).all())


def is_named(times: Floats, named: Iterable[Floats]) -> bool:
    """Whether one of the named times takes half of the first step's time beyond the others; all
    have a value for each step.
    """
    return any(_more(of_name) >= _NAMED * _more(times) for of_name in named)


def _more(times: Floats) -> float:
    """How much more the first step has than the others."""
    return float(times[0] - np.median(times[1:]))


def _list_named_times(recording: Recording, steps: pd.DataFrame) -> Iterator[Floats]:
    """Recorded times in the steps by name, ns; the steps by their numbers."""
    usual_ns = float(steps["duration_ns"].iloc[1:].median())

    def sum_by_step(rows: pd.DataFrame, column: str = "duration_ns") -> Floats:
        sums = rows.groupby("step")[column].sum()
        return np.asarray(sums.reindex(steps.index, fill_value=0), np.float64)

    keys = ("layer", "phase", "name")
    work = kernel_times(device_work(recording), steps.reset_index(), keys, (), by_name=False)
    busy = work[work["kind"] != IDLE]
    yield sum_by_step(busy, "exclusive_ns")
    calls = sum_by_step(busy, "calls")  # more of them are other work, whose time the host has
    usual_calls = float(np.median(calls[1:]))
    yield calls * usual_ns / max(usual_calls, 1.0)
    api_calls = recording.arrow("api_calls", ["name", "step", "duration_ns"]).to_pandas()
    allocating = {name for name in api_calls["name"].unique() if host_kind(name) == "allocation"}
    allocations = api_calls[api_calls["name"].isin(allocating)]
    contexts = make_contexts(allocations["name"], allocations["duration_ns"])
    yield sum_by_step(allocations[~contexts])
    for _, ranges in _inside(recording, steps).groupby("name", observed=True):
        times = sum_by_step(ranges)
        if np.median(times[1:]) < _WHOLE * usual_ns:
            yield times


def make_contexts(names: pd.Series, length_ns: pd.Series) -> pd.Series:
    """Whether each call that allocates or frees takes so long that it makes a context, e.g.
    `cudaFree(0)` at the start of a program: 50 ms or more, and most of the time of all calls of
    that name.
    """
    is_long = length_ns >= _CONTEXT_NS
    of_name = length_ns.groupby(names).transform("sum")
    long_of_name = length_ns.where(is_long, 0).groupby(names).transform("sum")
    return is_long & (long_of_name >= _MOST_OF_NAME * of_name)


def _inside(recording: Recording, steps: pd.DataFrame) -> pd.DataFrame:
    """The ranges in steps that are more than the step itself, its passes and its modules."""
    columns = ["name", "domain", "step", "start_ns", "duration_ns"]
    ranges = recording.arrow("ranges", columns).to_pandas()
    in_step = ranges["step"].isin(steps.index)
    ranges = ranges[in_step & ranges["duration_ns"].notna()]
    times = ["start_ns", "duration_ns"]
    of_step = steps.loc[ranges["step"], times].to_numpy(np.float64)
    own = ranges[times].to_numpy(np.float64)
    begins_before = own[:, 0] <= of_step[:, 0]
    ends_after = own.sum(axis=1) >= of_step.sum(axis=1)
    return ranges[~(begins_before & ends_after) & ~_are_of_step(ranges)]


def _are_of_step(ranges: pd.DataFrame) -> pd.Series:
    """Whether ranges are steps, passes or modules: they say where time goes, not why."""
    names = RangeNames()
    is_of_step: dict[tuple[str, str | None], bool] = {}
    flags = []
    for name, domain in zip(ranges["name"], ranges["domain"], strict=True):
        key = str(name), None if pd.isna(domain) else str(domain)
        if key not in is_of_step:
            meant = names.read(*key)
            is_module = meant.whole_layer and meant.layer is not None
            is_pass = meant.phase in ("forward", "backward")
            is_of_step[key] = bool(meant.step or is_module or is_pass)
        flags.append(is_of_step[key])
    return pd.Series(flags, index=ranges.index, dtype=bool)


def name_set_aside(steps: pd.DataFrame) -> str | None:
    """The profiled steps of one batch size that no estimate uses, of `judge_steps`, with their
    times; None without one, and where unprofiled steps say which are used.
    """
    apart = with_set_aside(steps)[SET_ASIDE].to_numpy(bool)
    if not apart.any() or not steps["profiled"].astype(bool).all():
        return None
    times_ms = durations_ms(steps)
    numbers = np.flatnonzero(apart)
    named = []
    for at in numbers[:_LISTED]:
        named.append(f"{number(times_ms[at])} ms (number {at + 1})")
    if len(numbers) > _LISTED:
        named.append("…")
    others_ms = times_ms[~apart]
    least, most = number(others_ms.min()), number(others_ms.max())
    return (
        f"{len(numbers)} of {len(steps)} profiled steps set aside, as a counter says or as a "
        f"warm-up for which no recorded work is the reason: {', '.join(named)}; the others take "
        f"{least} to {most} ms. With them all steps take {number(times_ms.sum())} ms."
    )


def name_all_set_aside(steps: pd.DataFrame, axis: Axis) -> list[str]:
    """The same of every batch size that has some, each in a sentence."""
    if not steps["profiled"].astype(bool).all():
        return []
    sentences = []
    sizes = steps.loc[steps[SET_ASIDE], "batch"]
    with_some = steps[steps["batch"].isin(sizes)]
    for batch, rows in with_some.groupby("batch"):
        named = name_set_aside(rows)
        if named:
            sentences.append(f"{axis.name.capitalize()} {batch}: {named}")
    return sentences
