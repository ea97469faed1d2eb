"""Collectives of a recording: messages, rates, overlap with other kernels, and how much they slow
these down.

Rates are as in nccl-tests (doc/PERFORMANCE.md there) over the time of the kernel, which waits
for the last rank too: they are lower bounds. The slow-down of a kernel is its time beside
communication (at least half of the call), with which it shares SMs and DRAM, minus the mean time of
the same kernel (name, grid, block, FLOPs) at the same batch size where no communication runs.
Kernels that never run alone are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...profiling.attribution.collectives import algorithm, collective_of_kernel, is_communication
from ...profiling.attribution.kernel_names import short_name
from ...profiling.recording.schema import KERNELS as KERNELS_TABLE
from .breakdown import giga_per_s
from .kernel_times import Work, of_steps, select_profiled_steps
from .statistics import Ints, normal_estimate

_WHOLE = ("Broadcast", "Reduce", "SendRecv")
# times (ranks - 1) / ranks
_PARTS = {
    "AllReduce": 2,
    "AllGather": 1,
    "ReduceScatter": 1,
    "AlltoAll": 1,
}
_SAME = ["name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "flops"]
_DESCRIBED = ["collective", "group_size", "message_bytes"]
_PLACE = ["process", "device"]
_COLUMNS = ("step", "start_ns", "duration_ns", *_PLACE, "layer", "phase", *_SAME, *_DESCRIBED)
_SCHEMA = pa.schema([KERNELS_TABLE.arrow.field(name) for name in _COLUMNS])
_BESIDE = 0.5  # least share of a call beside communication
_LEAST_CALLS = 3  # of a kernel alone and beside communication: two have hardly a spread


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """Calls of one collective with one size of message."""

    name: str  # the collective in NCCL's spelling; the kernel's name for unknown ones
    ranks: int | None  # number of ranks in its group; None if unknown
    message_bytes: int | None  # bytes of the message of a call; None if unknown
    algorithm: str | None  # e.g. tree, from the kernel's name; None if unknown.
    calls: float  # calls per step
    time_ms: float  # sum of their durations per step, with waiting for other ranks
    overlapped: float  # share of that time in which another kernel runs, 0 to 1
    algorithm_gb_per_s: float | None  # S/t of the mean call; None without a message
    # rate on the bus of the mean call; None without a message or a number of ranks
    bus_gb_per_s: float | None
    fastest_bus_gb_per_s: float | None  # the same of the fastest call


@dataclass(frozen=True)
class Slowed:
    """One kernel beside communication; times are means of one call."""

    name: str  # name of the kernel
    calls: float  # calls per step beside communication
    alone_ms: float  # time where no communication runs
    beside_ms: float  # time beside communication
    excess_ms: float  # slow-down per step


@dataclass(frozen=True, kw_only=True)
class Communication:
    """The communication of one batch size, per step."""

    collectives: tuple[Collectives, ...]  # the longest first
    time_ms: float  # time in which communication runs
    exposed_ms: float  # part of it in which no other kernel runs; both are sums over devices
    most_exposed_ms: float  # the same on the device with most of it
    by_device_ms: Mapping[str, float]  # time in communication of each device; one entry for one
    beside_ms: float  # time of the other kernels beside it
    compared_ms: float  # part of that of kernels which also run alone
    slowed: tuple[Slowed, ...]  # these kernels, the largest slow-down first
    excess_ms: float | None  # slow-down of all of them; None if none can be compared
    interval_ms: tuple[float, float] | None  # its 95 % interval


def bus_factor(name: str, ranks: int) -> float | None:
    """Bytes that cross the bus per byte of the message, as nccl-tests counts them; None for other
    collectives.
    """
    if name in _WHOLE:
        return 1.0
    if name in _PARTS:
        return _PARTS[name] * (ranks - 1) / ranks
    return None


def communication(work: Work, steps: pd.DataFrame, batch: int | None) -> Communication | None:
    """Describe the communication of one batch size, None for an unknown one; None if
    there is none.
    """
    profiled = select_profiled_steps(steps)
    sizes = profiled["batch"]
    profiled = profiled[sizes.isna() if batch is None else sizes == batch]
    if profiled.empty or not _communicates(work):
        return None
    calls = _calls(work, profiled)
    communicating = calls[calls["communicates"]]
    if communicating.empty:
        return None
    other = calls[~calls["communicates"]]
    count = len(profiled)
    by_device_ms = _union_by_device_ms(communicating)
    other_by_device_ms = _union_by_device_ms(other)
    all_by_device_ms = _union_by_device_ms(calls)
    exposed_by_device_ms = []
    for place, time_ms in all_by_device_ms.items():
        exposed_by_device_ms.append(time_ms - other_by_device_ms.get(place, 0.0))
    exposed_ms = sum(all_by_device_ms.values()) - sum(other_by_device_ms.values())
    beside_ms = other.loc[other["beside"], "ms"].sum()
    compared = _compare(other)
    excess_ms, interval_ms = None, None
    if len(compared):
        mean_ms = float(compared["excess_ms"].sum()) / count
        excess = normal_estimate(mean_ms, _error_ms(compared) / count)
        excess_ms, interval_ms = excess.value, (excess.low, excess.high)
    return Communication(
        collectives=_collectives(communicating, count),
        time_ms=sum(by_device_ms.values()) / count,
        exposed_ms=exposed_ms / count,
        most_exposed_ms=max(exposed_by_device_ms) / count,
        by_device_ms={place: time_ms / count for place, time_ms in by_device_ms.items()},
        beside_ms=float(beside_ms) / count,
        compared_ms=float(compared["ms"].sum()) / count,
        slowed=_sum_slow_downs(compared, count),
        excess_ms=excess_ms,
        interval_ms=interval_ms,
    )


def slow_downs(
    work: Work, steps: pd.DataFrame, names: Mapping[str, str] = MappingProxyType({})
) -> pd.DataFrame:
    """The slow-down of kernels beside communication, by batch size, layer (or group of repeated
    layers) and phase.

    Columns, per step, are expected_ms (time of the compared calls had they run alone), excess_ms
    (their slow-down), error_ms (its standard error), own_ms (part of the slow-down in the exclusive
    time of the kernels) and shared_ms (the rest, in the time of the communication beside them).
    """
    rows = []
    for batch, of_batch in select_profiled_steps(steps).groupby("batch"):
        calls = _calls(work, of_batch)
        compared = _compare(calls[~calls["communicates"]])
        layers = compared["layer"].astype(object)
        compared["layer"] = [names.get(layer, layer) for layer in layers]
        by_term = compared.groupby(["layer", "phase"], dropna=False, observed=True, sort=False)
        for (layer, phase), of_term in by_term:
            excess_ms = of_term["excess_ms"]
            # While two kernels run, each has half of the time.
            shared_ms = excess_ms * of_term["overlap_ms"] / of_term["ms"] / 2
            sums_ms = (
                of_term["alone_ms"].sum(),
                excess_ms.sum(),
                _error_ms(of_term),
                (excess_ms - shared_ms).sum(),
                shared_ms.sum(),
            )
            means_ms = [float(sum_ms) / len(of_batch) for sum_ms in sums_ms]
            rows.append((batch, layer, phase, *means_ms))
    amounts = ("expected_ms", "excess_ms", "error_ms", "own_ms", "shared_ms")
    return pd.DataFrame(rows, columns=["batch", "layer", "phase", *amounts])


def _communicates(work: Work) -> bool:
    names: set[str] = set()
    for piece in work(["name"]):
        different = pc.unique(piece["name"].cast(pa.string()))
        names.update(different.to_pylist())
    return any(map(is_communication, names))


def _calls(work: Work, profiled: pd.DataFrame) -> pd.DataFrame:
    """Every kernel of the steps, with its time beside kernels of the other kind, communication or
    not.

    Adds the columns communicates, ms, overlap_ms and beside (for at least half of the call).
    """
    number = profiled["step"].to_numpy(np.int64)
    pieces = [_SCHEMA.empty_table()]
    for piece in work(_COLUMNS):
        inside, _ = of_steps(piece, number)
        pieces.append(inside.select(_COLUMNS).cast(_SCHEMA))
    calls = pa.concat_tables(pieces).to_pandas(strings_to_categorical=True)
    names = calls["name"].cat
    by_code = np.array([*map(is_communication, names.categories), False], bool)
    communicates = by_code[names.codes.to_numpy()]
    start = calls["start_ns"].to_numpy(np.int64)
    end = start + calls["duration_ns"].to_numpy(np.int64)
    overlap = np.zeros(len(calls), np.int64)
    for rows in calls.groupby(_PLACE, dropna=False).indices.values():
        is_own = communicates[rows]
        communicating, others = rows[is_own], rows[~is_own]
        for own, beside in (communicating, others), (others, communicating):
            overlap[own] = _cover(start[own], end[own], start[beside], end[beside])
    calls["communicates"] = communicates
    calls["ms"] = (end - start) / 1e6
    calls["overlap_ms"] = overlap / 1e6
    calls["beside"] = calls["overlap_ms"] >= _BESIDE * calls["ms"]
    return calls[calls["ms"] > 0]


def _merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of the union of intervals, in order."""
    order = np.argsort(start, kind="stable")
    begins = start[order]
    ends = np.maximum.accumulate(end[order])
    if not len(begins):
        return begins, ends
    apart = begins[1:] > ends[:-1]
    is_first = np.append(True, apart)
    is_last = np.append(apart, True)
    return begins[is_first], ends[is_last]


def _cover(start: Ints, end: Ints, other_start: Ints, other_end: Ints) -> Ints:
    """Time of each interval in the union of the others."""
    if not len(other_start):
        return np.zeros(len(start), np.int64)
    begins, ends = _merge(other_start, other_end)
    before = np.append(0, np.cumsum(ends - begins))

    def until(moment: Ints) -> Ints:
        index = np.searchsorted(begins, moment, side="right")
        end_of_last = ends[np.maximum(index - 1, 0)]
        rest = np.maximum(end_of_last - moment, 0)
        rest = np.where(index > 0, rest, 0)
        return np.asarray(before[index] - rest, np.int64)

    return until(end) - until(start)


def _union_by_device_ms(calls: pd.DataFrame) -> dict[str, float]:
    """Time in which some of the calls run on each device, whose process is named where others have
    one like it.
    """
    start = calls["start_ns"].to_numpy(np.int64)
    end = start + calls["duration_ns"].to_numpy(np.int64)
    times_ms = {}
    places = calls.groupby(_PLACE, dropna=False).indices
    alone = len({device for _, device in places}) == len(places)
    for (process, device), rows in places.items():
        place = f"GPU {device}"
        if not alone:
            place += f" of process {process}"
        begins, ends = _merge(start[rows], end[rows])
        times_ms[place] = int((ends - begins).sum()) / 1e6
    return times_ms


def _compare(other: pd.DataFrame) -> pd.DataFrame:
    """The calls beside communication of kernels that run alone as well.

    Adds key, alone_ms (mean of a call alone), excess_ms, and the variances of that mean (alone_var)
    and of a call beside communication (beside_var), in ms².
    """
    kernels = other.groupby(_SAME, dropna=False, observed=True)
    other = other.assign(key=kernels.ngroup())
    is_alone = other["overlap_ms"] == 0
    alone = other[is_alone].groupby("key")["ms"].agg(["mean", "var", "size"])
    slow = other[other["beside"]].groupby("key")["ms"].agg(["var", "size"])
    often_alone = alone.index[alone["size"] >= _LEAST_CALLS]
    often_slow = slow.index[slow["size"] >= _LEAST_CALLS]
    is_compared = other["key"].isin(often_alone.intersection(often_slow))
    rows = other[other["beside"] & is_compared].copy()
    key = rows["key"]
    mean_var = alone["var"] / alone["size"]
    rows["alone_ms"] = key.map(alone["mean"])
    rows["excess_ms"] = rows["ms"] - rows["alone_ms"]
    rows["alone_var"] = key.map(mean_var)
    rows["beside_var"] = key.map(slow["var"])
    return rows


def _error_ms(compared: pd.DataFrame) -> float:
    """Standard error of the sum of the slow-downs: calls of one kernel share the mean that they are
    compared with.
    """
    kernels = compared.groupby("key")
    n = kernels["ms"].size()
    of_calls = n * kernels["beside_var"].first()
    of_mean = n**2 * kernels["alone_var"].first()
    return math.sqrt(float((of_calls + of_mean).sum()))


def _sum_slow_downs(compared: pd.DataFrame, steps: int) -> tuple[Slowed, ...]:
    slowed = []
    for name, rows in compared.groupby("name", observed=True):
        alone_ms = float(rows["alone_ms"].mean())
        beside_ms = float(rows["ms"].mean())
        excess_ms = float(rows["excess_ms"].sum()) / steps
        calls = len(rows) / steps
        slowed.append(Slowed(str(name), calls, alone_ms, beside_ms, excess_ms))
    return tuple(sorted(slowed, key=lambda kernel: -kernel.excess_ms))


def _collectives(calls: pd.DataFrame, steps: int) -> tuple[Collectives, ...]:
    """Calls by collective, group size, message and algorithm, the longest first."""
    names = calls["name"].astype(object)
    collective_of, algorithm_of = {}, {}
    for name in names.unique():
        collective_of[name] = collective_of_kernel(name) or short_name(name)
        algorithm_of[name] = algorithm(name)
    collective = calls["collective"].astype(object).fillna(names.map(collective_of))
    calls = calls.assign(collective=collective, algorithm=names.map(algorithm_of))
    grouped = calls.groupby([*_DESCRIBED, "algorithm"], dropna=False, sort=False)
    collectives = []
    for (name, ranks, message, how), rows in grouped:
        time_ms = float(rows["ms"].sum())
        overlap_ms = float(rows["overlap_ms"].sum())
        count = len(rows)
        size = None if pd.isna(message) else int(message)
        group = None if pd.isna(ranks) else int(ranks)
        factor = None if group is None else bus_factor(str(name), group)
        mean = giga_per_s(size, time_ms / count)
        fastest = giga_per_s(size, float(rows["ms"].min()))
        of_calls = Collectives(
            name=str(name),
            ranks=group,
            message_bytes=size,
            algorithm=None if pd.isna(how) else str(how),
            calls=count / steps,
            time_ms=time_ms / steps,
            overlapped=overlap_ms / time_ms,
            algorithm_gb_per_s=mean,
            bus_gb_per_s=_scale(mean, factor),
            fastest_bus_gb_per_s=_scale(fastest, factor),
        )
        collectives.append(of_calls)
    return tuple(sorted(collectives, key=lambda collective: -collective.time_ms))


def _scale(rate: float | None, factor: float | None) -> float | None:
    if rate is None or factor is None:
        return None
    return rate * factor
