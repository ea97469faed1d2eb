"""One step as spans on lanes: layers, host calls, streams, copies, communication, and idle time
with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from ...profiling.attribution.collectives import is_communication
from ...profiling.attribution.kernel_names import short_name
from ..decompose.idle import HOST_COLUMNS, StepHostSpans, find_gaps, reasons
from ..decompose.kernel_times import COPIES, Work, kernels_of
from ..decompose.statistics import Floats

# A screen is about 2000 pixels wide: a span shorter than half a pixel is merged with its neighbour.
_FINEST = 1 / 4000
MOST_LANES = 8  # of streams with kernels
_MOST_OTHERS = 2  # lanes of host threads, of streams with copies, and of streams with communication
_MOST_OF_KIND = {"kernels": MOST_LANES, "copies": _MOST_OTHERS, "communication": _MOST_OTHERS}
_COLUMNS = (
    "step",
    "start_ns",
    "duration_ns",
    "name",
    "layer",
    "phase",
    "process",
    "device",
    "stream",
)

_IDLE = "idle: "  # before the reason of a gap


class Lane(TypedDict):
    """One line of a timeline."""

    label: str
    kind: str
    busy_us: float
    count: int


class Timeline(TypedDict):
    """Spans of one profiled step."""

    batch: int | None
    step: int
    step_us: float
    lanes: list[Lane]
    spans: list[list[float]]  # lane, start and duration in µs, index in names, number of events
    names: list[list[str | None]]  # name, layer, phase
    kernels: int
    hidden: int  # number of kernels on lanes that are not drawn


@dataclass
class _Lanes:
    """Lanes as they are added, with their spans and the names that these refer to."""

    step_us: float
    lanes: list[Lane] = field(default_factory=list)
    spans: list[list[float]] = field(default_factory=list)
    names: dict[tuple[str | None, ...], int] = field(default_factory=dict)

    def add(
        self,
        label: str,
        kind: str,
        begin: Floats,
        end: Floats,
        names: Sequence[tuple[str | None, ...]],
    ) -> None:
        """Add a lane of spans in any order: begin and end in µs since the step's start; name, layer
        and phase.
        """
        if not len(begin):
            return
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
        lane = len(self.lanes)
        finest = self.step_us * _FINEST
        for first, last, longest, count in _merge(begin, end - begin, finest):
            name = names[order[longest]]
            index = self.names.setdefault(name, len(self.names))
            length = round(last - first, 3)
            self.spans.append([lane, round(first, 3), length, index, count])
        inside = np.clip([begin, end], 0, self.step_us)
        busy_us = _cover(*inside)
        self.lanes.append({"label": label, "kind": kind, "busy_us": busy_us, "count": len(begin)})

    def name_spans(self) -> list[list[str | None]]:
        """The names of spans as they are shown."""
        shown: list[list[str | None]] = []
        for name, layer, phase in self.names:
            if name is None or not name.startswith(_IDLE):
                name = short_name(name or "")
            shown.append([name, layer, phase])
        return shown


def timeline(
    work: Work,
    steps: pd.DataFrame,
    used: Sequence[int],
    batch: int | None,
    api_calls: pd.DataFrame | None = None,
    read_ranges: Callable[[], pd.DataFrame] | None = None,
) -> Timeline:
    """Spans of the profiled step, among those used, whose time is nearest to the median."""
    rows = steps[steps["step"].isin(used) & steps["profiled"].astype(bool)]
    durations = rows["duration_ns"].to_numpy(np.float64)
    off = np.abs(durations - np.median(durations))
    chosen = rows.iloc[int(off.argmin())]
    step = int(chosen["step"])
    start_ns = int(chosen["start_ns"])
    length_ns = int(chosen["duration_ns"])
    kernels = kernels_of(work, np.array([step]), _COLUMNS)
    mine = _place_in_step(kernels, start_ns)
    mine = mine.sort_values("begin", kind="stable", ignore_index=True)
    step_us = length_ns / 1e3
    lanes = _Lanes(step_us)
    lanes.add("layers", "layer", *_layers(mine))
    calls = _inside(api_calls, start_ns, step_us, mine)
    _add_groups(lanes, "host", calls, calls.get("thread"), _MOST_OTHERS)
    kind_of = {name: _kind(str(name)) for name in mine["name"].unique()}
    kinds = mine["name"].map(kind_of)
    hidden = 0
    for kind, most in _MOST_OF_KIND.items():
        of_kind = mine[kinds == kind]
        hidden += _add_groups(lanes, kind, of_kind, _streams(of_kind), most)
    lanes.add("idle", "idle", *_idle(mine, start_ns, length_ns, api_calls, read_ranges))
    return {
        "batch": batch,
        "step": step,
        "step_us": step_us,
        "lanes": lanes.lanes,
        "spans": lanes.spans,
        "names": lanes.name_spans(),
        "kernels": len(mine),
        "hidden": hidden,
    }


def _place_in_step(rows: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """The rows with columns begin and end, µs since the step's start."""
    begin = (rows["start_ns"].to_numpy(np.int64) - start_ns) / 1e3
    length = rows["duration_ns"].to_numpy(np.int64) / 1e3
    return rows.assign(begin=begin, end=begin + length)


def _inside(
    table: pd.DataFrame | None, start_ns: int, step_us: float, mine: pd.DataFrame
) -> pd.DataFrame:
    """Rows of a host table that overlap the step, of the processes that its kernels belong to."""
    if table is None or table.empty:
        return pd.DataFrame({"begin": [], "end": [], "name": []})
    placed = table[table["start_ns"].notna() & table["duration_ns"].notna()]
    start = placed["start_ns"].to_numpy(np.int64)
    end = start + placed["duration_ns"].to_numpy(np.int64)
    end_ns = start_ns + step_us * 1e3
    chosen = (start < end_ns) & (end > start_ns)
    processes = mine["process"].dropna().unique()
    if len(processes):
        process = placed["process"]
        chosen = chosen & (process.isin(processes) | process.isna())
    return _place_in_step(placed[chosen], start_ns)


def _kind(name: str) -> str:
    if name.startswith(COPIES):
        return "copies"
    return "communication" if is_communication(name) else "kernels"


def _names(rows: pd.DataFrame) -> list[tuple[str | None, ...]]:
    columns: list[list[str | None]] = []
    for column in ("name", "layer", "phase"):
        values = rows[column] if column in rows else [None] * len(rows)
        columns.append([None if pd.isna(value) else str(value) for value in values])
    return list(zip(*columns, strict=True))


def _add_groups(lanes: _Lanes, kind: str, rows: pd.DataFrame, groups: Any, most: int) -> int:
    """A lane for each of the busiest groups; the number of rows of the others."""
    if rows.empty:
        return 0
    busy = (rows["end"] - rows["begin"]).groupby(groups).sum()
    busiest = busy.sort_values(ascending=False, kind="stable").index[:most]
    for index, group in enumerate(sorted(busiest, key=str)):
        if kind == "kernels":
            label = str(group)
        elif kind == "host":
            label = "host calls"
            if len(busiest) > 1:
                label += f", thread {index + 1}"
        else:
            stream = group if isinstance(group, str) else "thread"
            label = f"{kind}, {stream}"
        of_group = rows[groups == group]
        begin = of_group["begin"].to_numpy()
        end = of_group["end"].to_numpy()
        lanes.add(label, kind, begin, end, _names(of_group))
    others = ~groups.isin(busiest)
    return int(others.sum())


def _streams(rows: pd.DataFrame) -> pd.Series[str]:
    """Label of each row's stream, e.g. `stream 7`; with process and device if the step
    has several.
    """
    # Mostly each process has a device of its own, whose name then says enough.
    both = rows[["process", "device"]].drop_duplicates()
    devices = rows["device"].nunique()
    shared = len(both) > devices
    if not devices:  # a CPU: ids of threads say nothing
        threads = enumerate(rows["stream"].unique(), 1)
        named = {thread: f"CPU thread {place}" for place, thread in threads}
        label = rows["stream"].map(named)
    else:
        label = rows["stream"].map(_stream_label)
    if devices > 1:
        label = _number(rows["device"], "GPU") + label
    if shared and rows["process"].nunique() > 1:
        label = _number(rows["process"], "process") + label
    return label


def _stream_label(stream: float) -> str:
    return "unknown stream" if pd.isna(stream) else f"stream {int(stream)}"


def _number(column: pd.Series, word: str) -> pd.Series[str]:
    """The numbers of a column behind a word; empty for unknown ones."""
    return column.map(lambda index: "" if pd.isna(index) else f"{word} {int(index)} ")


def _layers(mine: pd.DataFrame) -> tuple[Floats, Floats, list[tuple[str | None, ...]]]:
    """Runs of consecutive kernels of one layer and phase: their starts, ends and names."""
    layered = mine[mine["layer"].notna()]
    layer = layered["layer"].astype(object)
    phase = layered["phase"].astype(object)
    phase = phase.where(phase.notna(), None)
    key = layer.astype(str) + "\n" + phase.astype(str)
    run = (key != key.shift()).cumsum()
    runs = layered.groupby(run)
    begin = runs["begin"].min().to_numpy()
    end = runs["end"].max().to_numpy()
    first = ~run.duplicated()
    names: list[tuple[str | None, ...]] = []
    for path, in_phase in zip(layer[first], phase[first], strict=True):
        names.append((str(path), str(path), in_phase))
    return begin, end, names


def _idle(
    mine: pd.DataFrame,
    start_ns: int,
    length_ns: int,
    api_calls: pd.DataFrame | None,
    read_ranges: Callable[[], pd.DataFrame] | None,
) -> tuple[Floats, Floats, list[tuple[str | None, ...]]]:
    """Gaps in which no device work runs: their starts, ends, and what the host did, with the layer
    that follows.
    """
    begin = mine["start_ns"].to_numpy(np.int64)
    end = begin + mine["duration_ns"].to_numpy(np.int64)
    gaps = find_gaps(begin, end, start_ns, start_ns + length_ns)
    if api_calls is None:
        api_calls = pd.DataFrame(columns=HOST_COLUMNS)
    calls = StepHostSpans(api_calls)
    ranges = None if read_ranges is None else cache(lambda: StepHostSpans(read_ranges()))
    processes = mine["process"].dropna().unique().tolist()
    why = reasons(gaps, processes, calls, ranges)
    labels = [*_names(mine), ("the end", None, None)]
    names: list[tuple[str | None, ...]] = []
    for reason, following in zip(why, gaps.following.tolist(), strict=True):
        _, layer, phase = labels[following]
        name = f"{_IDLE}{reason}" if reason else "idle"
        names.append((name, layer, phase))
    begin_us = (gaps.begin_ns - start_ns) / 1e3
    end_us = (gaps.end_ns - start_ns) / 1e3
    return begin_us, end_us, names


def _cover(begin: Floats, end: Floats) -> float:
    """Time that spans cover, each instant once; begin is increasing."""
    latest = np.maximum.accumulate(end)
    before = np.concatenate([[-np.inf], latest[:-1]])
    alone = end - np.maximum(begin, before)
    return float(np.maximum(0.0, alone).sum())


def _merge(
    begin: np.ndarray[Any, Any], length: np.ndarray[Any, Any], finest: float
) -> list[tuple[float, float, int, int]]:
    """Start, end, index of the longest kernel and number of kernels of every span of a lane, in
    order of start.
    """
    drawn: list[tuple[float, float, int, int]] = []
    for index, (start, duration) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        end = start + duration
        if drawn:
            first, last, longest, count = drawn[-1]
            fine = duration < finest or last - first < finest
            if fine and start - last < finest and end - first < 8 * finest:
                longest = index if duration > length[longest] else longest
                drawn[-1] = (first, max(last, end), longest, count + 1)
                continue
        drawn.append((start, end, index, 1))
    return drawn
