"""Time of the unprofiled step by layer and phase, from marked steps; profiled steps split what a
layer takes.

A profiler slows a step where its work is: each event costs it about a microsecond. Marks are taken
at the borders of layers and phases alone. So a place, a layer in a phase, takes the time that
marked steps spend there; its kernels take the time that profiled steps measure, at most all of it;
the rest is idle: the host computes, or waits.

The cost of one mark, known from the steps without marks, times the marks at a place is taken from
the place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from ...profiling.attribution.step_pattern import SLOW_SHARE, share_beyond_pace
from ...profiling.recording.disturbed import select_used_steps
from ...profiling.recording.schema import FORWARD
from ...profiling.recording.store import KERNEL, Recording
from .averaged_steps import Samples, averaged, is_marked, list_used_steps, mean_parts
from .curve import cost_curve
from .input_time import with_input
from .kernel_times import AMOUNTS, KERNEL_IDENTITY, device_work, kernel_times
from .pace import pace_of
from .repeated_layers import Groups, find_repeated_layers, group_of, with_groups
from .statistics import FASTER_HALF, STATISTICS, Floats, Ints
from .terms import IDLE, NOT_RECORDED, OF_ALL_STEPS, Key

Place = tuple[str | None, str]
Sampled = tuple[Sequence[Key], Mapping[int, Samples]]
_VISIT = ["batch", "round"]
_STEP = [*_VISIT, "index"]
_MOST_MARK_MS = 0.005
_LEAST_PLACED = 0.005  # of the step: a smaller idle time is no term of its own


@dataclass(frozen=True)
class Marked:
    """The marked steps of a recording."""

    places: tuple[Place, ...]  # layer (None outside layers) and phase
    # times by place, ms, of the steps of each batch size, without the cost of their marks
    steps: Mapping[int, Samples]
    statistic: str  # statistic for T, see `statistics.STATISTICS`
    # rounds with a profiled step, by batch size; of a batch size that is missing, all
    profiled_rounds: Mapping[int, Collection[int]] = field(default_factory=dict)

    def pace(self, batch: int) -> float:
        """How much slower all rounds were than those with a profiled step, by the marked steps of
        both.
        """
        steps = self.steps[batch]
        inside = np.isin(steps.rounds, list(self.profiled_rounds.get(batch, steps.rounds)))
        if inside.all() or not inside.any():
            return 1.0
        profiled = Samples(steps.times_ms[inside], steps.rounds[inside])
        both = (mean_parts(samples, self.statistic).sum() for samples in (steps, profiled))
        every_ms, profiled_ms = map(float, both)
        return every_ms / profiled_ms

    def settle(self, kernel_times: pd.DataFrame) -> tuple[pd.DataFrame, Sampled]:
        """Exclusive times that add up to those of the marked steps at each place, and the terms'
        times in these steps.

        Kernels keep their times, at the pace of all rounds if some were not profiled, or all take a
        part of them if together they took more than their place does. Idle rows are by place; idle
        times of less than 0.5 % of the step at every batch size are together and have no place. A
        place's time in a step is shared out over its terms as it is on average. All batch sizes of
        `with_averaged` have marked steps.
        """
        work = kernel_times[kernel_times["kind"] != IDLE]
        term, different = pd.MultiIndex.from_frame(work[["layer", "phase", "kind"]]).factorize()
        terms = [Key.of(*key) for key in different]
        place, work_ms = self._place_of(work), work["exclusive_ms"].to_numpy()
        factor = np.ones(len(work))
        parts: dict[int, tuple[Floats, Floats]] = {}
        for batch, of_batch in kernel_times.groupby("batch"):
            steps = list_used_steps(of_batch)
            inside = work["step"].isin(steps).to_numpy()
            busy_ms = np.zeros((len(self.places), len(terms)))
            np.add.at(busy_ms, (place[inside], term[inside]), work_ms[inside])
            pace = self.pace(int(batch))
            busy_ms *= pace / len(steps)
            taken_ms = mean_parts(self.steps[int(batch)], self.statistic)
            whole_ms = busy_ms.sum(axis=1)
            kept = np.divide(
                taken_ms, whole_ms, out=np.ones_like(whole_ms), where=whole_ms > taken_ms
            )
            here = (work["batch"] == batch).to_numpy()
            factor[here] = pace * kept[place[here]]
            parts[int(batch)] = busy_ms * kept[:, None], np.maximum(taken_ms - whole_ms, 0.0)
        settled = work.assign(
            **{name: work[name] * factor for name in ("exclusive_ms", "exclusive_ns")}
        )
        share = [idle_ms / (busy_ms.sum() + idle_ms.sum()) for busy_ms, idle_ms in parts.values()]
        apart = np.max(share, axis=0) >= _LEAST_PLACED
        # steps that have no other phase than forward have none
        phased = work["phase"].notna().any()
        idle = [
            Key(layer, phase if phased else None, IDLE) if own else Key(None, None, IDLE)
            for (layer, phase), own in zip(self.places, apart, strict=True)
        ]
        every = [*terms, *dict.fromkeys(idle)]
        samples, idle_rows = {}, []
        for batch, (busy_ms, idle_ms) in parts.items():
            of_terms = np.zeros((len(self.places), len(every)))
            of_terms[:, : len(terms)] = busy_ms
            of_terms[np.arange(len(idle)), [every.index(key) for key in idle]] = idle_ms
            taken_ms = of_terms.sum(axis=1, keepdims=True)
            shares = np.divide(of_terms, taken_ms, out=np.zeros_like(of_terms), where=taken_ms > 0)
            samples[batch] = Samples(self.steps[batch].times_ms @ shares, self.steps[batch].rounds)
            of_idle = zip(every[len(terms) :], of_terms.sum(axis=0)[len(terms) :], strict=True)
            idle_rows += [(batch, key.layer, key.phase, time_ms) for key, time_ms in of_idle]
        # One row for each profiled step and term.
        table = pd.DataFrame(idle_rows, columns=["batch", "layer", "phase", "exclusive_ms"])
        table = (
            kernel_times[["batch", "step", "averaged", OF_ALL_STEPS]]
            .drop_duplicates()
            .merge(table, on="batch")
        )
        table = table.assign(
            name=IDLE, kind=IDLE, calls=1, shared=False, exclusive_ns=table["exclusive_ms"] * 1e6
        )
        return pd.concat([settled, table], ignore_index=True), (every, samples)

    def group_by(self, groups: Mapping[str, str]) -> Marked:
        """The same steps with the layers of a group as one place; `groups` has the name of each
        layer's.
        """
        names = [(groups.get(layer or "", layer), phase) for layer, phase in self.places]
        places = tuple(dict.fromkeys(names))
        member = np.array([[name == place for place in places] for name in names], np.float64)
        steps = {
            batch: Samples(samples.times_ms @ member, samples.rounds)
            for batch, samples in self.steps.items()
        }
        return Marked(places, steps, self.statistic, self.profiled_rounds)

    def layers(self) -> dict[int, pd.DataFrame]:
        """Time of each layer (a column, "" for the rest) in every step (a row), by
        batch size, ms.
        """
        names = [layer or "" for layer, _ in self.places]
        different = list(dict.fromkeys(names))
        member = np.array([[name == other for other in different] for name in names], np.float64)
        return {
            batch: pd.DataFrame(samples.times_ms @ member, columns=different)
            for batch, samples in self.steps.items()
        }

    def _place_of(self, table: pd.DataFrame) -> Ints:
        """The place of each row: that of its layer and phase, or else that of the phase outside
        layers.
        """
        index = {place: number for number, place in enumerate(self.places)}
        outside = index.get((None, FORWARD), 0)

        def find(layer: Any, phase: Any) -> int:
            phase = FORWARD if pd.isna(phase) else phase
            return index.get((layer, phase), index.get((None, phase), outside))

        pairs = pd.MultiIndex.from_frame(table[["layer", "phase"]])
        codes, different = pairs.factorize()
        return np.asarray(np.array([find(*pair) for pair in different], np.int64)[codes])


class StepTimes(NamedTuple):
    """Times in the steps of a recording."""

    table: pd.DataFrame  # exclusive times, settled if steps were marked
    sampled: Sampled | None  # keys and samples of the marked steps; None if none were marked
    groups: Groups  # repeated layers; the table has the name of the group for each of them


def step_times(
    recording: Recording,
    steps: pd.DataFrame,
    keys: Sequence[str] = KERNEL_IDENTITY,
    amounts: Sequence[str] = AMOUNTS,
    *,
    by_instance: bool = False,
) -> StepTimes:
    """Times in the steps of a recording, or of a part of them, by layer; keys include layer and
    phase.
    """
    placed = recording.work == KERNEL and recording.meta.get("recorder") != "model"
    times = kernel_times(device_work(recording), steps, keys, amounts, place_idle=placed)
    if times.empty:
        return StepTimes(times, None, {})
    marked = find_marked_steps(recording.frame("marks"), steps, recording.statistic)
    times = choose_averaged(times, steps, recording.statistic, marked is not None)
    if by_instance:
        groups: Groups = {}
    else:
        operators = recording.arrow(
            "operators", ["batch", "layer", "phase", "op", "arguments", "calls"]
        )
        classes, layers = (
            recording.meta.get("layer_classes") or {},
            None if marked is None else marked.layers(),
        )
        groups = find_repeated_layers(times, operators, classes, layers)
        names = group_of(groups)
        times = times.assign(layer=with_groups(times["layer"], names))
        marked = None if marked is None else marked.group_by(names)
    if marked is None:
        table, sampled = _without_small_places(unprofiled(times, steps, recording)), None
    else:
        table, sampled = marked.settle(times)
    if hides_work(recording, times):
        table, sampled = _not_recorded(table, sampled)
    return StepTimes(table, sampled, groups)


def hides_work(recording: Recording, kernel_times: pd.DataFrame) -> bool:
    """Whether time without a kernel may be work that nobody recorded: such time is not called idle.

    So it is where nothing at all was recorded, and on a CPU where another framework than PyTorch
    worked.
    """
    if not (kernel_times["name"] != IDLE).any():
        return True
    on_cpu = (recording.meta.get("device") or {}).get("kind") == "cpu"
    return (
        on_cpu
        and bool(recording.meta.get("frameworks"))
        and not is_recorded_by_framework(recording)
    )


def is_recorded_by_framework(recording: Recording) -> bool:
    """Whether the kernels come from the own profiler of a framework other than PyTorch."""
    sources = pc.unique(recording.arrow("kernels", ["source"])["source"]).to_pylist()
    return bool({"jax", "tensorflow"}.intersection(sources))


def _not_recorded(
    table: pd.DataFrame, sampled: Sampled | None
) -> tuple[pd.DataFrame, Sampled | None]:
    table = table.assign(kind=table["kind"].mask(table["kind"] == IDLE, NOT_RECORDED))
    if sampled is None:
        return table, None
    keys, samples = sampled
    return table, (
        [replace(key, kind=NOT_RECORDED) if key.kind == IDLE else key for key in keys],
        samples,
    )


def _without_small_places(kernel_times: pd.DataFrame) -> pd.DataFrame:
    """The same table, with no place for idle time that is less than 0.5 % of the step at every
    batch size.
    """
    idle = kernel_times["kind"] == IDLE
    if not kernel_times.loc[idle, ["layer", "phase"]].notna().any(axis=None):
        return kernel_times
    of_batch = kernel_times.groupby("batch", dropna=False)["exclusive_ms"].transform("sum")
    rows = kernel_times.assign(share=kernel_times["exclusive_ms"] / of_batch)[idle]
    keys = ["layer", "phase"]
    of_place = (
        rows.groupby([*keys, "batch"], dropna=False)["share"]
        .sum()
        .groupby(keys, dropna=False)
        .max()
    )
    large = of_place.reindex(pd.MultiIndex.from_frame(rows[keys])).to_numpy() >= _LEAST_PLACED
    small = pd.Series(~large, index=rows.index).reindex(kernel_times.index, fill_value=False)
    return kernel_times.assign(**{name: kernel_times[name].mask(small, None) for name in keys})


def choose_averaged(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, statistic: str, is_marked: bool
) -> pd.DataFrame:
    """The same table with the columns of `with_averaged`, for the statistic of the recording.

    All profiled steps count where every step was profiled, and where slow steps are part of T, and
    some profiled ones are slow too: then these say what slow steps do, as no marks do.
    """
    timed = steps[~steps["profiled"].astype(bool)]
    if timed.empty:
        return with_averaged(kernel_times, None)
    if is_marked or statistic != FASTER_HALF or timed["batch"].isna().any():
        return with_averaged(kernel_times, statistic)
    profiled = steps[steps["profiled"].astype(bool)]
    telling = {
        batch
        for batch, durations_ns in profiled.groupby("batch")["duration_ns"]
        if share_beyond_pace(durations_ns.to_numpy(np.float64)) >= SLOW_SHARE
    }
    points = cost_curve(steps, statistic).points if telling else ()
    has_slow = any(point.has_slow_steps for point in points if point.condition in telling)
    return with_averaged(kernel_times, None if has_slow else statistic)


def with_averaged(kernel_times: pd.DataFrame, statistic: str | None) -> pd.DataFrame:
    """The same table with the column `averaged`: whether an estimate uses the step; and
    `of_all_steps`, whether it uses all, as it does without a statistic.
    """
    walls = kernel_times.groupby(["batch", "step"], dropna=False)["exclusive_ms"].sum()
    used: list[int] = []
    for _, of_batch in walls.groupby("batch", dropna=False):
        numbers = of_batch.index.get_level_values("step")
        used += numbers[averaged(of_batch.to_numpy(np.float64), statistic)].tolist()
    return kernel_times.assign(
        averaged=kernel_times["step"].isin(used), **{OF_ALL_STEPS: statistic is None}
    )


def unprofiled(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, recording: Recording
) -> pd.DataFrame:
    """The same table with the wait for input apart, and idle times less what the profiler costs."""
    return without_profiler(with_input(kernel_times, recording), steps, recording)


def without_profiler(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, recording: Recording
) -> pd.DataFrame:
    """The same table with idle times less what the profiler costs, of a recording whose steps ran
    on a GPU.

    There kernels keep their times, and the profiler slows the host: what it adds to a step is time
    between kernels. What it costs beyond the idle time stays profiling overhead.
    """
    timed = steps[~steps["profiled"].astype(bool)]
    if timed.empty or not str(recording.meta.get("torch_device")).startswith("cuda"):
        return kernel_times
    idle = (kernel_times["kind"] == IDLE).to_numpy()
    factor = np.ones(len(kernel_times))
    for batch, rows in kernel_times[kernel_times["averaged"]].groupby("batch"):
        unprofiled = timed.loc[timed["batch"] == batch, "duration_ns"].to_numpy(np.float64) / 1e6
        idle_ms = rows.loc[rows["kind"] == IDLE, "exclusive_ms"].sum()
        if len(unprofiled) and idle_ms > 0:
            count = rows["step"].nunique()
            cost_ms = rows["exclusive_ms"].sum() - count * float(
                STATISTICS[recording.statistic](unprofiled)
            )
            factor[(kernel_times["batch"] == batch).to_numpy() & idle] = 1 - min(
                max(cost_ms / idle_ms, 0.0), 1.0
            )
    return kernel_times.assign(
        **{name: kernel_times[name] * factor for name in ("exclusive_ms", "exclusive_ns")}
    )


def find_marked_steps(marks: pd.DataFrame, steps: pd.DataFrame, statistic: str) -> Marked | None:
    """The marked steps of a recording, without visits that are set aside; None if a batch size was
    not marked.
    """
    steps = select_used_steps(steps)
    profiled = steps["profiled"].astype(bool)
    if len(marks) and not profiled.all():
        visits = pd.MultiIndex.from_frame(steps.loc[~profiled, _VISIT])
        marks = marks[pd.MultiIndex.from_frame(marks[_VISIT]).isin(visits)]
    if (
        marks.empty
        or profiled.all()
        or not set(steps.loc[profiled, "batch"]) <= set(marks["batch"])
    ):
        return None
    codes, places = pd.MultiIndex.from_frame(marks[["layer", "phase"]]).factorize()
    number = marks.groupby(_STEP, sort=True).ngroup().to_numpy()
    index = marks[_STEP].drop_duplicates().sort_values(_STEP)
    shape = len(index), len(places)
    times_ms, count = np.zeros(shape), np.zeros(shape)
    np.add.at(times_ms, (number, codes), marks["duration_ns"].to_numpy(np.float64) / 1e6)
    np.add.at(count, (number, codes), marks["marks"].to_numpy(np.float64))
    batch = index["batch"].to_numpy(np.int64)
    timed = steps[~profiled]
    rounds = index["round"].to_numpy(np.int64)
    light = np.isin(batch, timed.loc[is_marked(timed), "batch"])  # of these T is of marked steps
    cost_ms = _mark_cost_ms(
        times_ms.sum(axis=1), count.sum(axis=1), batch, timed[~is_marked(timed)], statistic
    )
    count[light] = 0.0
    times_ms = np.maximum(times_ms - cost_ms * count, 0.0)
    if (pace := pace_of(steps)) is not None:
        times_ms *= pace.factors(batch, rounds)[:, None]
    keys = tuple((None if pd.isna(layer) else str(layer), str(phase)) for layer, phase in places)
    samples = {}
    for size in np.unique(batch):
        samples[int(size)] = Samples(times_ms[batch == size], rounds[batch == size])
    profiled_rounds = {}
    for size, numbers in steps[profiled].groupby("batch")["round"]:
        profiled_rounds[int(size)] = frozenset(numbers)
    return Marked(keys, samples, statistic, profiled_rounds)


def _mark_cost_ms(
    marked_ms: Floats, marks: Floats, batch: Ints, timed: pd.DataFrame, statistic: str
) -> float:
    """What one mark costs: the least squares of the relative differences of marked and unmarked
    steps.

    At least nothing, and at most 5 µs, three times what was seen: a difference beyond that is
    noise.
    """
    mean = STATISTICS[statistic]
    slower, number = [], []
    for size in np.unique(batch):
        unmarked = timed.loc[timed["batch"] == size, "duration_ns"].to_numpy(np.float64) / 1e6
        if len(unmarked):
            time_ms = float(mean(unmarked))
            slower.append(float(mean(marked_ms[batch == size])) / time_ms - 1)
            number.append(float(marks[batch == size].mean()) / time_ms)
    cost_ms = float(np.dot(slower, number) / np.dot(number, number)) if number else 0.0
    return min(max(cost_ms, 0.0), _MOST_MARK_MS)
