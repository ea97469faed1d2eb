"""Changes in the history of a step: recordings of it, oldest first, and where their times moved.

Times of each size are levels with jumps between them. The search for the jumps is that for the
pieces of a curve (`curve_pieces.cut_cheapest`). A jump stays where a t test of the levels beside it
has a p below `LEVEL` at some size, after Holm's correction over sizes and jumps. The noise is that
between recordings, not inside one, and a single odd recording is no level.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..base.errors import CurvescopeError
from ..profiling.recording.store import Recording
from .compare import compare
from .curve_pieces import cut_cheapest
from .curve_shapes import p_of, quantile
from .decompose.curve import Curve, cost_curve
from .decompose.statistics import Estimate, Floats, holm
from .decompose.warm_up import judge_steps
from .side import prepare_sides

LEAST = 6  # recordings of a history
LEVEL = 0.001
_LEAST_OF_LEVEL = 2  # recordings
_LEAST_NOISE = 0.002  # of a recording, as a share of its time
_PRICE = 4.0  # of a jump, for each size, times the logarithm of the number of recordings
_FAR = 3.0  # noises from the recordings beside, from which a recording is odd
_BESIDE = 2  # recordings on each side that tell whether one is odd
_SAME = ("network", "step", "mode", "precision", "compiled", "graphed", "axis", "fixed", "runs_in")


@dataclass(frozen=True)
class Moment:
    """A recording of a history."""

    recording: Recording
    curve: Curve

    @property
    def commit(self) -> str | None:
        """The commit of the code, if it is known."""
        return self.recording.meta.get("commit")

    @property
    def day(self) -> str:
        """When it was made, as a date."""
        return str(self.recording.meta.get("created_utc") or "unknown")[:10]


@dataclass(frozen=True)
class Shift:
    """A place in a history from which on the times of a step are others."""

    place: int  # of the first recording behind it
    size: int  # the batch size at which it is surest
    growth: Estimate  # of the time there, as a share of the time before
    layer: str | None  # the layer that changed most, if one certainly did
    layer_ms: float | None  # how much


@dataclass(frozen=True)
class History:
    """The recordings of one step, and where its times moved."""

    moments: tuple[Moment, ...]  # oldest first
    sizes: tuple[int, ...]  # batch sizes that all have
    times_ms: Floats  # a row for each recording, a column for each size
    shifts: tuple[Shift, ...]


def read_histories(recordings: Sequence[Recording]) -> list[History]:
    """The history of each step that was recorded on one device often enough.

    CurvescopeError: there is none.
    """
    groups: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        meta = recording.meta
        device = (meta.get("device") or {}).get("name")
        groups[repr([device, *map(meta.get, _SAME)])].append(recording)
    histories = []
    for group in groups.values():
        moments = [moment for moment in map(_read_moment, group) if moment is not None]
        sizes = _list_common(moments)
        if len(moments) >= LEAST and sizes:
            histories.append(_find_shifts(moments, sizes))
    if not histories:
        raise CurvescopeError(
            f"A history takes {LEAST} recordings or more of one step, on one device, with a batch "
            "size in common."
        )
    return histories


def _read_moment(recording: Recording) -> Moment | None:
    """The curve of a recording; None where no step was timed."""
    steps = judge_steps(recording, recording.frame("steps"))
    timed = steps[~steps["profiled"].astype(bool)]
    if timed.empty or timed["batch"].isna().any():
        return None
    return Moment(recording, cost_curve(steps, recording.statistic))


def _list_common(moments: Sequence[Moment]) -> tuple[int, ...]:
    measured = [{*moment.curve.times_ms} for moment in moments]
    return tuple(sorted(set.intersection(*measured))) if measured else ()


def _find_shifts(moments: Sequence[Moment], sizes: tuple[int, ...]) -> History:
    rows = [[moment.curve.times_ms[size] for size in sizes] for moment in moments]
    times_ms = np.array(rows, np.float64)
    places = find_jumps(times_ms)
    ends = [0, *places, len(moments)]
    shifts = []
    for begin, place, end in zip(ends, places, ends[2:], strict=False):
        growths = [jump.growth() for jump in measure_jump(_calm(np.log(times_ms)), ends, place)]
        surest = int(np.argmin([growth.p for growth in growths]))
        # beside the edge, as the place may be off by one recording
        before = max(begin, place - _LEAST_OF_LEVEL)
        after = min(end - 1, place + _LEAST_OF_LEVEL - 1)
        layer, layer_ms = _find_layer(moments[before].recording, moments[after].recording)
        shifts.append(Shift(place, sizes[surest], growths[surest], layer, layer_ms))
    return History(tuple(moments), sizes, times_ms, tuple(shifts))


def find_jumps(times: Floats) -> list[int]:
    """Where the levels of times begin, without the first; a row is a recording, a column a size."""
    logs = _calm(np.log(times))
    count, columns = logs.shape
    price = _PRICE * columns * math.log(count)
    _, ends = cut_cheapest(_costs(logs / _noise(logs)), price)
    while len(ends) > 2:
        tests = [measure_jump(logs, ends, place) for place in ends[1:-1]]
        adjusted = holm([jump.p for jumps in tests for jump in jumps])
        surest = np.reshape(adjusted, (len(tests), columns)).min(axis=1)
        weakest = int(np.argmax(surest))
        if surest[weakest] < LEVEL:
            break
        del ends[1 + weakest]
    return ends[1:-1]


@dataclass(frozen=True)
class Jump:
    """The change of the logarithm of a time between two levels."""

    value: float
    error: float  # its standard error
    degrees: float  # of freedom of the error

    @property
    def p(self) -> float:
        """The p of no change."""
        return p_of(self.value / self.error, self.degrees)

    def growth(self) -> Estimate:
        """The change as a share of the time before, with its 95 % interval."""
        half = self.error * quantile(self.degrees)
        low, middle, high = (math.expm1(self.value + off) for off in (-half, 0.0, half))
        return Estimate(middle, low, high, self.p)


def measure_jump(logs: Floats, ends: Sequence[int], place: int) -> list[Jump]:
    """The jump of each size at a place between levels, by the spread in all levels.

    `ends` are the places of the levels, from 0 to the number of recordings.
    """
    levels = [logs[start:end] for start, end in pairwise(ends)]
    rest = np.concatenate([level - level.mean(axis=0) for level in levels])
    degrees = len(logs) - len(levels)
    variance = (rest**2).sum(axis=0) / degrees
    noise = np.maximum(np.sqrt(variance), _LEAST_NOISE)
    at = list(ends).index(place)
    before, after = logs[ends[at - 1] : place], logs[place : ends[at + 1]]
    change = after.mean(axis=0) - before.mean(axis=0)
    error = noise * math.sqrt(1 / len(before) + 1 / len(after))
    return [Jump(*pair, degrees) for pair in zip(change.tolist(), error.tolist(), strict=True)]


def _noise(logs: Floats) -> Floats:
    """The spread of recordings of each size, by neighbours, of which few lie beside a jump."""
    steps = np.abs(np.diff(logs, axis=0))
    spread = 1.4826 * np.median(steps, axis=0) / math.sqrt(2)
    return np.asarray(np.maximum(spread, _LEAST_NOISE))


def _calm(logs: Floats) -> Floats:
    """The times with each odd recording moved to the recordings beside it."""
    count, noise = len(logs), _noise(logs)
    beside = []
    for at in range(count):
        near = logs[max(at - _BESIDE, 0) : at + _BESIDE + 1]
        beside.append(np.median(near, axis=0))
    middle, far = np.array(beside), _FAR * noise
    return np.asarray(np.clip(logs, middle - far, middle + far))


def _costs(logs: Floats) -> Floats:
    """The squares that a level from a place to another one leaves; a short one is none."""
    count = len(logs)
    sums = np.concatenate([np.zeros((1, logs.shape[1])), logs.cumsum(axis=0)])
    squares = np.concatenate([[0.0], (logs**2).sum(axis=1).cumsum()])
    costs = np.full((count, count), np.inf)
    for begin in range(count):
        for end in range(begin + _LEAST_OF_LEVEL, count + 1):
            total = sums[end] - sums[begin]
            left = squares[end] - squares[begin] - (total**2).sum() / (end - begin)
            costs[begin, end - 1] = left
    return costs


def _find_layer(before: Recording, after: Recording) -> tuple[str | None, float | None]:
    """The layer whose time certainly changed most, and by how many ms."""
    try:
        compared = compare(prepare_sides(["before", "after"], [before, after]))
    except CurvescopeError:  # e.g. a recording without profiled steps
        return None, None
    for line in compared.layers or compared.rows:
        old, new = line.times_ms
        if line.is_real and old is not None and new is not None:
            return line.label, new - old
    return None, None
