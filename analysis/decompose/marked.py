"""Time of the unprofiled step by layer and phase, from marked steps; profiled steps split what a layer takes.

A profiler slows a step where the step's work is: each event costs it about a microsecond, so that in a step of many
small operators most of what it adds is time without a kernel. Marks are taken at the borders of layers and phases
alone. So a place, a layer in a phase, takes the time that marked steps spend there; its kernels take the time that
profiled steps measure, at most all of it; the rest is idle: the host computes, or waits, and no kernel runs.

A mark costs about as much everywhere, which is known from the steps without marks: the cost of one, times the marks
at a place, is taken from the place. It is the same at all batch sizes, so it explains none of their differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...profiling.recording.schema import FORWARD
from ...profiling.recording.store import Recording
from .kernel_times import AMOUNTS, KEYS, device_work, kernel_times
from .statistics import MATERIAL, STATISTICS
from .terms import IDLE, Floats, Key, Samples, averaged, mean_parts

Place = tuple[str | None, str]
Sampled = tuple[Sequence[Key], Mapping[int, Samples]]
_STEP = ["batch", "round", "index"]


@dataclass(frozen=True)
class Marked:
    """The marked steps of a recording.

    Attributes:
        places: layer (None outside layers) and phase.
        steps: times by place, ms, of the steps of each batch size, without the cost of their marks.
        statistic: statistic for T, see `statistics.STATISTICS`.
    """

    places: tuple[Place, ...]
    steps: Mapping[int, Samples]
    statistic: str

    def settle(self, kernel_times: pd.DataFrame) -> tuple[pd.DataFrame, Sampled]:
        """Exclusive times that add up to those of the marked steps at each place, and the terms' times in these steps.

        Args:
            kernel_times: result of `kernel_times`, all of whose batch sizes have marked steps.

        Returns:
            The same table. Kernels keep their times, or all take a part of them if together they took more than their
            place does. Idle rows are by place; idle times of less than 2 % of the step at every batch size are together
            and have no place. And the keys of the terms, with their times in the marked steps of each batch size: a
            place's time in a step is shared out over its terms as it is on average.
        """
        work = kernel_times[kernel_times["kind"] != IDLE]
        keys = [Key.of(*key) for key in work[["layer", "phase", "kind"]].itertuples(index=False)]
        terms = list(dict.fromkeys(keys))
        number = {key: index for index, key in enumerate(terms)}
        term, place = np.array([number[key] for key in keys], np.int64), self._place_of(work)
        step, batch = work["step"].to_numpy(), work["batch"].to_numpy()
        factor = np.ones(len(work))
        busy_ms, taken_ms = {}, {}
        for of_batch, rows in kernel_times.groupby("batch"):
            walls = rows.groupby("step")["exclusive_ms"].sum()
            used = walls.index[averaged(walls.to_numpy(np.float64), self.statistic)]
            inside, here = batch == of_batch, int(of_batch)
            averages = inside & np.isin(step, used)
            busy = np.zeros((len(self.places), len(terms)))
            np.add.at(busy, (place[averages], term[averages]), work["exclusive_ms"].to_numpy()[averages] / len(used))
            taken = mean_parts(self.steps[here], self.statistic)
            whole = busy.sum(axis=1)
            of_place = np.divide(taken, whole, out=np.ones_like(whole), where=whole > taken)
            factor[inside] = of_place[place[inside]]
            busy_ms[here], taken_ms[here] = busy * of_place[:, None], taken
        settled = work.assign(**{name: work[name] * factor for name in ("exclusive_ms", "exclusive_ns")})
        idle_ms = {here: np.maximum(taken_ms[here] - busy.sum(axis=1), 0.0) for here, busy in busy_ms.items()}
        apart = np.max([idle / taken_ms[here].sum() for here, idle in idle_ms.items()], axis=0) >= MATERIAL
        idle_terms = [
            Key(*self._shown(place) if own else (None, None), IDLE)
            for place, own in zip(self.places, apart, strict=True)
        ]
        every = [*terms, *dict.fromkeys(idle_terms)]
        samples = {}
        for here, busy in busy_ms.items():
            parts = np.zeros((len(self.places), len(every)))
            parts[:, : len(terms)] = busy
            for index, key in enumerate(idle_terms):
                parts[index, every.index(key)] = idle_ms[here][index]
            shares = np.divide(
                parts, taken_ms[here][:, None], out=np.zeros_like(parts), where=taken_ms[here][:, None] > 0
            )
            marked = self.steps[here]
            samples[here] = Samples(marked.times_ms @ shares, marked.rounds)
        rows = [
            (here, key.layer, key.phase, math.fsum(times[[other == key for other in idle_terms]]))
            for here, times in idle_ms.items()
            for key in dict.fromkeys(idle_terms)
        ]
        idle = pd.DataFrame(rows, columns=["batch", "layer", "phase", "exclusive_ms"])
        idle = kernel_times[["batch", "step"]].drop_duplicates().merge(idle, on="batch")
        idle = idle.assign(name=IDLE, kind=IDLE, calls=1, shared=False, exclusive_ns=idle["exclusive_ms"] * 1e6)
        return pd.concat([settled, idle], ignore_index=True), (every, samples)

    def _place_of(self, table: pd.DataFrame) -> npt.NDArray[np.int64]:
        """The place of each row: that of its layer and phase, or else that of the phase outside layers."""
        index = {place: number for number, place in enumerate(self.places)}
        outside = index.get((None, FORWARD), 0)

        def find(layer: Any, phase: Any) -> int:
            phase = FORWARD if pd.isna(phase) else phase
            return index.get((layer, phase), index.get((None, phase), outside))

        pairs = pd.MultiIndex.from_frame(table[["layer", "phase"]])
        codes, different = pairs.factorize()
        return np.array([find(*pair) for pair in different], np.int64)[codes]

    def _shown(self, place: Place) -> tuple[str | None, str | None]:
        """Layer and phase of a place's terms: steps that have no other phase than forward have none."""
        layer, phase = place
        return layer, None if all(other == FORWARD for _, other in self.places) else phase


def step_times(
    recording: Recording, steps: pd.DataFrame, keys: Sequence[str] = KEYS, amounts: Sequence[str] = AMOUNTS
) -> tuple[pd.DataFrame, Sampled | None]:
    """Exclusive times in the steps of a recording; if steps were marked, settled, with the terms' times in these.

    Args:
        recording: the recording.
        steps: its `steps` table, or a part of it.
        keys: see `kernel_times.kernel_times`; with layer and phase.
        amounts: see there.
    """
    times = kernel_times(device_work(recording), steps, keys, amounts)
    marked = marked_steps(recording.frame("marks"), steps, recording.statistic)
    return (times, None) if marked is None or times.empty else marked.settle(times)


def marked_steps(marks: pd.DataFrame, steps: pd.DataFrame, statistic: str) -> Marked | None:
    """The marked steps of a recording; None if a batch size was profiled, but not marked.

    Args:
        marks: the `marks` table.
        steps: the `steps` table.
        statistic: statistic for T, see `statistics.STATISTICS`.
    """
    profiled = steps["profiled"].astype(bool)
    if marks.empty or profiled.all() or not set(steps.loc[profiled, "batch"]) <= set(marks["batch"]):
        return None
    codes, places = pd.MultiIndex.from_frame(marks[["layer", "phase"]]).factorize()
    number = marks.groupby(_STEP, sort=True).ngroup().to_numpy()
    index = marks[_STEP].drop_duplicates().sort_values(_STEP)
    shape = len(index), len(places)
    times_ms, count = np.zeros(shape), np.zeros(shape)
    np.add.at(times_ms, (number, codes), marks["duration_ns"].to_numpy(np.float64) / 1e6)
    np.add.at(count, (number, codes), marks["marks"].to_numpy(np.float64))
    batch = index["batch"].to_numpy(np.int64)
    cost_ms = _mark_cost_ms(times_ms.sum(axis=1), count.sum(axis=1), batch, steps[~profiled], statistic)
    times_ms = np.maximum(times_ms - cost_ms * count, 0.0)
    rounds = index["round"].to_numpy(np.int64)
    return Marked(
        tuple((None if pd.isna(layer) else str(layer), str(phase)) for layer, phase in places),
        {int(one): Samples(times_ms[batch == one], rounds[batch == one]) for one in np.unique(batch)},
        statistic,
    )


def _mark_cost_ms(
    marked_ms: Floats, marks: Floats, batch: npt.NDArray[np.int64], timed: pd.DataFrame, statistic: str
) -> float:
    """What one mark costs: the least squares of the relative differences of marked and unmarked steps; at least 0.

    Args:
        marked_ms: time of each marked step.
        marks: number of its marks.
        batch: its batch size.
        timed: the unprofiled steps.
        statistic: statistic for T.
    """
    mean = STATISTICS[statistic]
    slower, number = [], []
    for one in np.unique(batch):
        unmarked = timed.loc[timed["batch"] == one, "duration_ns"].to_numpy(np.float64) / 1e6
        if len(unmarked):
            time_ms = float(mean(unmarked))
            slower.append(float(mean(marked_ms[batch == one])) / time_ms - 1)
            number.append(float(marks[batch == one].mean()) / time_ms)
    return max(float(np.dot(slower, number) / np.dot(number, number)), 0.0) if number else 0.0
