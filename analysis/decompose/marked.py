"""Time of the unprofiled step by layer and phase, from marked steps; profiled steps split the
time of a layer.

A profiler slows a step where its work is: each event costs it about a microsecond. Marks are taken
at the borders of layers and phases alone. So a place, a layer in a phase, takes the time that
marked steps spend there; its kernels take the time that profiled steps measure, at most all of it;
the rest is idle: the host computes, or waits.

The cost of one mark, known from the steps without marks, times the marks at a place is taken from
the place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...profiling.attribution.step_pattern import SLOW_SHARE, share_beyond_pace
from ...profiling.recording.disturbed import select_used_steps
from ...profiling.recording.schema import FORWARD
from ...profiling.recording.store import Recording
from .averaged_steps import (
    Samples,
    durations_ms,
    is_marked,
    list_used_steps,
    mean_parts,
    pick_averaged,
)
from .curve import cost_curve
from .input_time import with_input
from .kernel_times import AMOUNTS, KERNEL_IDENTITY, device_work, kernel_times
from .pace import pace_of
from .repeated_layers import (
    OPERATOR_COLUMNS,
    Groups,
    find_repeated_layers,
    group_of,
    with_groups,
)
from .statistics import FASTER_HALF, STATISTICS, Floats, Ints, group_equal
from .terms import IDLE, NOT_RECORDED, OF_ALL_STEPS, Key

Place = tuple[str | None, str]
Sampled = tuple[Sequence[Key], Mapping[int, Samples]]
_Name = TypeVar("_Name", bound=Hashable)
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
        """How much slower all rounds were than the rounds with a profiled step, by the marked steps
        of both.
        """
        steps = self.steps[batch]
        rounds = self.profiled_rounds.get(batch, steps.rounds)
        inside = np.isin(steps.rounds, list(rounds))
        if inside.all() or not inside.any():
            return 1.0
        profiled = Samples(steps.times_ms[inside], steps.rounds[inside])
        every_ms = float(mean_parts(steps, self.statistic).sum())
        return every_ms / float(mean_parts(profiled, self.statistic).sum())

    def settle(self, kernel_times: pd.DataFrame) -> tuple[pd.DataFrame, Sampled]:
        """Exclusive times that add up to the time of the marked steps at each place, and the terms'
        times in these steps.

        Kernels keep their times, at the pace of all rounds if some were not profiled. All take a
        part of them if together they took more than their place does. Idle rows are by place; idle
        times of less than 0.5 % of the step at every batch size are together and have no place. A
        place's time in a step is shared out over its terms as it is on average. All batch sizes of
        `with_averaged` have marked steps.
        """
        work = kernel_times[kernel_times["kind"] != IDLE]
        term, different = pd.MultiIndex.from_frame(work[["layer", "phase", "kind"]]).factorize()
        terms = [Key.of(*key) for key in different]
        place = self._place_of(work)
        work_ms = work["exclusive_ms"].to_numpy()
        factor = np.ones(len(work))
        # times of kernels by place and term, and of idle by place
        busy: dict[int, Floats] = {}
        idle: dict[int, Floats] = {}
        for batch, of_batch in kernel_times.groupby("batch"):
            size = int(batch)
            steps = list_used_steps(of_batch)
            inside = work["step"].isin(steps).to_numpy()
            busy_ms = np.zeros((len(self.places), len(terms)))
            np.add.at(busy_ms, (place[inside], term[inside]), work_ms[inside])
            pace = self.pace(size)
            busy_ms *= pace / len(steps)
            taken_ms = mean_parts(self.steps[size], self.statistic)
            whole_ms = busy_ms.sum(axis=1)
            kept = np.ones_like(whole_ms)
            np.divide(taken_ms, whole_ms, out=kept, where=whole_ms > taken_ms)
            here = (work["batch"] == batch).to_numpy()
            factor[here] = pace * kept[place[here]]
            busy[size] = busy_ms * kept[:, None]
            idle[size] = np.maximum(taken_ms - whole_ms, 0.0)
        idle_keys = self._idle_keys(busy, idle, has_phases=work["phase"].notna().any())
        every = [*terms, *dict.fromkeys(idle_keys)]
        idle_columns = [every.index(key) for key in idle_keys]
        samples, rows = {}, []
        for size, idle_ms in idle.items():
            of_terms = np.zeros((len(self.places), len(every)))
            of_terms[:, : len(terms)] = busy[size]
            of_terms[np.arange(len(idle_keys)), idle_columns] = idle_ms
            taken_ms = of_terms.sum(axis=1, keepdims=True)
            shares = np.zeros_like(of_terms)
            np.divide(of_terms, taken_ms, out=shares, where=taken_ms > 0)
            marked = self.steps[size]
            samples[size] = Samples(marked.times_ms @ shares, marked.rounds)
            for key, time_ms in zip(every, of_terms.sum(axis=0), strict=True):
                if key.kind == IDLE:
                    rows.append((size, key.layer, key.phase, time_ms))
        idle_rows = _idle_rows_of(kernel_times, rows)
        settled = pd.concat([_scale_times(work, factor), idle_rows], ignore_index=True)
        return settled, (every, samples)

    def _idle_keys(
        self, busy: Mapping[int, Floats], idle: Mapping[int, Floats], *, has_phases: bool
    ) -> list[Key]:
        """The term of each place's idle time; a small one is part of a term without a place."""
        shares = []
        for size, idle_ms in idle.items():
            shares.append(idle_ms / (busy[size].sum() + idle_ms.sum()))
        keys = []
        for (layer, phase), share in zip(self.places, np.max(shares, axis=0), strict=True):
            if share >= _LEAST_PLACED:  # steps that have no other phase than forward have none
                keys.append(Key(layer, phase if has_phases else None, IDLE))
            else:
                keys.append(Key(None, None, IDLE))
        return keys

    def group_by(self, groups: Mapping[str, str]) -> Marked:
        """The same steps with the layers of a group as one place; `groups` has the name of each
        layer's.
        """
        names = []
        for layer, phase in self.places:
            names.append((groups.get(layer or "", layer), phase))
        places, sums = self._add_up(names)
        steps = {}
        for batch, times_ms in sums.items():
            steps[batch] = Samples(times_ms, self.steps[batch].rounds)
        return Marked(tuple(places), steps, self.statistic, self.profiled_rounds)

    def layers(self) -> dict[int, pd.DataFrame]:
        """Time of each layer (a column, "" for the rest) in every step (a row), by
        batch size, ms.
        """
        layers, sums = self._add_up([layer or "" for layer, _ in self.places])
        return {batch: pd.DataFrame(times, columns=layers) for batch, times in sums.items()}

    def _add_up(self, names: list[_Name]) -> tuple[list[_Name], dict[int, Floats]]:
        """Different names, and the times of the places that each names in every step, by batch
        size.
        """
        different, member = group_equal(names)
        sums = {batch: steps.times_ms @ member for batch, steps in self.steps.items()}
        return different, sums

    def _place_of(self, table: pd.DataFrame) -> Ints:
        """The place of each row: its layer and phase, else its phase outside layers."""
        index = {place: number for number, place in enumerate(self.places)}
        outside = index.get((None, FORWARD), 0)

        def find(layer: Any, phase: Any) -> int:
            phase = FORWARD if pd.isna(phase) else phase
            of_phase = index.get((None, phase), outside)
            return index.get((layer, phase), of_phase)

        pairs = pd.MultiIndex.from_frame(table[["layer", "phase"]])
        codes, different = pairs.factorize()
        places = np.array([find(*pair) for pair in different], np.int64)
        positions: Ints = places[codes]
        return positions


def _idle_rows_of(
    kernel_times: pd.DataFrame, idle: list[tuple[int, str | None, str | None, float]]
) -> pd.DataFrame:
    """A row of exclusive times for each profiled step and idle term, from the batch size, layer,
    phase and time of the terms.
    """
    of_batch = pd.DataFrame(idle, columns=["batch", "layer", "phase", "exclusive_ms"])
    steps = kernel_times[["batch", "step", "averaged", OF_ALL_STEPS]].drop_duplicates()
    rows = steps.merge(of_batch, on="batch")
    rows["exclusive_ns"] = rows["exclusive_ms"] * 1e6
    return rows.assign(name=IDLE, kind=IDLE, calls=1, shared=False)


def _scale_times(table: pd.DataFrame, factor: Floats) -> pd.DataFrame:
    time_ms = table["exclusive_ms"] * factor
    return table.assign(exclusive_ms=time_ms, exclusive_ns=table["exclusive_ns"] * factor)


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
    placed = not recording.on_host and recording.meta.get("recorder") != "model"
    times = kernel_times(device_work(recording), steps, keys, amounts, place_idle=placed)
    if times.empty:
        return StepTimes(times, None, {})
    marked = find_marked_steps(recording.frame("marks"), steps, recording.statistic)
    times = choose_averaged(times, steps, recording.statistic, marked is not None)
    groups: Groups = {}
    if not by_instance:
        operators = recording.arrow("operators", OPERATOR_COLUMNS)
        classes = recording.meta.get("layer_classes") or {}
        times, marked, groups = group_layers(times, operators, classes, marked)
    if marked is None:
        table, sampled = _without_small_places(unprofile(times, steps, recording)), None
    else:
        table, sampled = marked.settle(times)
    if hides_work(recording, times):
        table, sampled = _call_not_recorded(table, sampled)
    return StepTimes(table, sampled, groups)


def group_layers(
    times: pd.DataFrame,
    operators: pa.Table,
    classes: Mapping[str, str],
    marked: Marked | None,
    kernels: Callable[[], pd.DataFrame] | None = None,
) -> tuple[pd.DataFrame, Marked | None, Groups]:
    """Exclusive times and marked steps with repeated layers as one, see `find_repeated_layers`."""
    layers = None if marked is None else marked.layers()
    groups = find_repeated_layers(times, operators, classes, layers, kernels)
    names = group_of(groups)
    if marked is not None:
        marked = marked.group_by(names)
    return times.assign(layer=with_groups(times["layer"], names)), marked, groups


def hides_work(recording: Recording, kernel_times: pd.DataFrame) -> bool:
    """Whether time without a kernel may be work that nobody recorded: such time is not called idle.

    So it is where nothing at all was recorded, and on a CPU where another framework than PyTorch
    worked.
    """
    if not (kernel_times["name"] != IDLE).any():
        return True
    device = recording.meta.get("device") or {}
    if device.get("kind") != "cpu" or not recording.meta.get("frameworks"):
        return False
    return not is_recorded_by_framework(recording)


def _call_not_recorded(
    table: pd.DataFrame, sampled: Sampled | None
) -> tuple[pd.DataFrame, Sampled | None]:
    kind = table["kind"].mask(table["kind"] == IDLE, NOT_RECORDED)
    table = table.assign(kind=kind)
    if sampled is None:
        return table, None
    keys, samples = sampled
    renamed = [replace(key, kind=NOT_RECORDED) if key.kind == IDLE else key for key in keys]
    return table, (renamed, samples)


def is_recorded_by_framework(recording: Recording) -> bool:
    """Whether the kernels come from the own profiler of a framework other than PyTorch."""
    sources = pc.unique(recording.arrow("kernels", ["source"])["source"]).to_pylist()
    return bool({"jax", "tensorflow"}.intersection(sources))


def _without_small_places(kernel_times: pd.DataFrame) -> pd.DataFrame:
    """The same table, with no place for idle time that is less than 0.5 % of the step at every
    batch size.
    """
    keys = ["layer", "phase"]
    idle = kernel_times["kind"] == IDLE
    if not kernel_times.loc[idle, keys].notna().any(axis=None):
        return kernel_times
    of_batch = kernel_times.groupby("batch", dropna=False)["exclusive_ms"].transform("sum")
    share = kernel_times["exclusive_ms"] / of_batch
    rows = kernel_times.assign(share=share)[idle]
    of_sizes = rows.groupby([*keys, "batch"], dropna=False)["share"].sum()
    largest = of_sizes.groupby(keys, dropna=False).max()
    places = pd.MultiIndex.from_frame(rows[keys])
    is_small = ~(largest.reindex(places).to_numpy() >= _LEAST_PLACED)
    small = idle.copy()
    small[idle] = is_small
    layer = kernel_times["layer"].mask(small, None)
    phase = kernel_times["phase"].mask(small, None)
    return kernel_times.assign(layer=layer, phase=phase)


def choose_averaged(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, statistic: str, is_marked: bool
) -> pd.DataFrame:
    """The same table with the columns of `with_averaged`, for the statistic of the recording.

    All profiled steps count where every step was profiled. So they do where slow steps are part of
    T and some profiled ones are slow too: these say what slow steps do, as no marks do.
    """
    is_profiled = steps["profiled"].astype(bool)
    timed = steps[~is_profiled]
    if timed.empty:
        return with_averaged(kernel_times, None)
    if is_marked or statistic != FASTER_HALF or timed["batch"].isna().any():
        return with_averaged(kernel_times, statistic)
    telling = set()
    for batch, profiled in steps[is_profiled].groupby("batch"):
        durations_ns = profiled["duration_ns"].to_numpy(np.float64)
        if share_beyond_pace(durations_ns) >= SLOW_SHARE:
            telling.add(batch)
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
        averaged = pick_averaged(of_batch.to_numpy(np.float64), statistic)
        used += numbers[averaged].tolist()
    table = kernel_times.assign(averaged=kernel_times["step"].isin(used))
    table[OF_ALL_STEPS] = statistic is None
    return table


def unprofile(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, recording: Recording
) -> pd.DataFrame:
    """The same table with the wait for input apart, and idle times less what the profiler costs."""
    return without_profiler(with_input(kernel_times, recording), steps, recording)


def without_profiler(
    kernel_times: pd.DataFrame, steps: pd.DataFrame, recording: Recording
) -> pd.DataFrame:
    """The same table with idle times less the profiler's cost, of a recording whose steps ran on a
    GPU.

    There kernels keep their times, and the profiler slows the host: it adds time between kernels to
    a step. Its cost beyond the idle time stays profiling overhead.
    """
    timed = steps[~steps["profiled"].astype(bool)]
    if timed.empty or not str(recording.meta.get("torch_device")).startswith("cuda"):
        return kernel_times
    statistic = STATISTICS[recording.statistic]
    idle = (kernel_times["kind"] == IDLE).to_numpy()
    factor = np.ones(len(kernel_times))
    for batch, rows in kernel_times[kernel_times["averaged"]].groupby("batch"):
        unprofiled_ms = durations_ms(timed[timed["batch"] == batch])
        idle_ms = rows.loc[rows["kind"] == IDLE, "exclusive_ms"].sum()
        if len(unprofiled_ms) and idle_ms > 0:
            plain_ms = rows["step"].nunique() * float(statistic(unprofiled_ms))
            cost_ms = rows["exclusive_ms"].sum() - plain_ms
            cost_share = min(max(cost_ms / idle_ms, 0.0), 1.0)
            of_batch = (kernel_times["batch"] == batch).to_numpy()
            factor[of_batch & idle] = 1 - cost_share
    return _scale_times(kernel_times, factor)


def find_marked_steps(marks: pd.DataFrame, steps: pd.DataFrame, statistic: str) -> Marked | None:
    """The marked steps of a recording, without visits that are set aside; None if a batch size was
    not marked.
    """
    steps = select_used_steps(steps)
    is_profiled = steps["profiled"].astype(bool)
    profiled, timed = steps[is_profiled], steps[~is_profiled]
    if timed.empty or marks.empty:
        return None
    visits = pd.MultiIndex.from_frame(timed[_VISIT])
    marks = marks[pd.MultiIndex.from_frame(marks[_VISIT]).isin(visits)]
    if marks.empty or not set(profiled["batch"]) <= set(marks["batch"]):
        return None
    codes, places = pd.MultiIndex.from_frame(marks[["layer", "phase"]]).factorize()
    number = marks.groupby(_STEP, sort=True).ngroup().to_numpy()
    index = marks[_STEP].drop_duplicates().sort_values(_STEP)
    batch = index["batch"].to_numpy(np.int64)
    rounds = index["round"].to_numpy(np.int64)
    times_ms = np.zeros((len(index), len(places)))
    np.add.at(times_ms, (number, codes), durations_ms(marks))
    count = np.zeros_like(times_ms)
    np.add.at(count, (number, codes), marks["marks"].to_numpy(np.float64))
    light = is_marked(timed)
    unmarked = timed[~light]
    cost_ms = _mark_cost_ms(times_ms.sum(axis=1), count.sum(axis=1), batch, unmarked, statistic)
    count[np.isin(batch, timed.loc[light, "batch"])] = 0.0  # of these T is of marked steps
    times_ms = np.maximum(times_ms - cost_ms * count, 0.0)
    pace = pace_of(steps)
    if pace is not None:
        times_ms *= pace.factors(batch, rounds)[:, None]
    keys = []
    for layer, phase in places:
        keys.append((None if pd.isna(layer) else str(layer), str(phase)))
    samples = {}
    for size in np.unique(batch):
        is_of_size = batch == size
        samples[int(size)] = Samples(times_ms[is_of_size], rounds[is_of_size])
    profiled_rounds = {}
    for size, numbers in profiled.groupby("batch")["round"]:
        profiled_rounds[int(size)] = frozenset(numbers)
    return Marked(tuple(keys), samples, statistic, profiled_rounds)


def _mark_cost_ms(
    marked_ms: Floats, marks: Floats, batch: Ints, timed: pd.DataFrame, statistic: str
) -> float:
    """The cost of one mark: the least squares of the relative differences of marked and unmarked
    steps.

    At least nothing, and at most 5 µs, three times the largest cost measured: a difference beyond
    that is noise.
    """
    mean = STATISTICS[statistic]
    slower, number = [], []
    for size in np.unique(batch):
        unmarked_ms = durations_ms(timed[timed["batch"] == size])
        if len(unmarked_ms):
            own = batch == size
            time_ms = float(mean(unmarked_ms))
            slower.append(float(mean(marked_ms[own])) / time_ms - 1)
            number.append(float(marks[own].mean()) / time_ms)
    if not number:
        return 0.0
    cost_ms = float(np.dot(slower, number) / np.dot(number, number))
    return min(max(cost_ms, 0.0), _MOST_MARK_MS)
