"""The history of a step: its times as a picture, and where they moved, of `runs --history`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from ...base.counted import counted
from ...base.numbers import number, with_sign
from ..decompose.statistics import Estimate, Floats
from ..history import History, Moment, Shift
from .cells import at_right, both_sides
from .facts import facts_of
from .page import limit_width
from .report_document import ReportChange, ReportHistory
from .words import show_ms

_HEIGHTS = "▁▂▃▄▅▆▇█"
_LEAST_RANGE = 0.05  # of the times that fill the heights, as a share
_COMMIT = 9  # characters


@dataclass(frozen=True, kw_only=True)
class HistoricRecording:
    """One recording of a history."""

    path: str  # folder or URL
    created_utc: str | None  # when it was made
    commit: str | None  # commit of the code; null where it is unknown
    times_ms: Sequence[float]  # time of a step of each size


@dataclass(frozen=True, kw_only=True)
class HistoricChange:
    """A place from which on the times are others."""

    recording: str  # folder of the first recording behind it
    commit: str | None  # its commit
    commit_before: str | None  # commit of the recording before it
    batch: int  # batch size at which the change is surest
    growth: Estimate  # of the time there, as a share of the time before
    layer: str | None  # layer that certainly changed most
    layer_ms: float | None  # how much


@dataclass(frozen=True, kw_only=True)
class StepHistory:
    """The recordings of one step on one device."""

    network: str | None  # name of the network or step
    device: str | None  # name of the device
    batches: Sequence[int]  # batch sizes that all recordings have
    recordings: Sequence[HistoricRecording]  # oldest first
    changes: Sequence[HistoricChange]  # oldest first


@dataclass(frozen=True)
class HistoryDocument:
    """The histories of the steps in a folder: `runs --history`."""

    histories: Sequence[StepHistory]  # one for each step and device

    @classmethod
    def of(cls, histories: Sequence[History]) -> HistoryDocument:
        """The document of histories."""
        return cls([_describe(history) for history in histories])


def _describe(history: History) -> StepHistory:
    moments = history.moments
    meta = moments[-1].recording.meta
    recordings = []
    for moment, times_ms in zip(moments, history.times_ms.tolist(), strict=True):
        created_utc, path = moment.recording.meta.get("created_utc"), str(moment.recording.path)
        recordings.append(
            HistoricRecording(
                path=path, created_utc=created_utc, commit=moment.commit, times_ms=times_ms
            )
        )
    changes = []
    for shift in history.shifts:
        changes.append(
            HistoricChange(
                recording=recordings[shift.place].path,
                commit=moments[shift.place].commit,
                commit_before=moments[shift.place - 1].commit,
                batch=shift.size,
                growth=shift.growth,
                layer=shift.layer,
                layer_ms=shift.layer_ms,
            )
        )
    return StepHistory(
        network=meta.get("network"),
        device=(meta.get("device") or {}).get("name"),
        batches=history.sizes,
        recordings=recordings,
        changes=changes,
    )


def render_history(history: History, width: int) -> Iterator[Text]:
    """The step, a row of heights for each size, and the changes."""
    width = limit_width(width)
    moments = history.moments
    days = f"{moments[0].day} to {moments[-1].day}"
    right = Text(f"{counted(len(moments), 'recording')}, {days}")
    left = facts_of(moments[-1].recording, width - len(right.plain) - 1)
    yield both_sides(Text(left, "bold"), right, width)
    labels = [str(size) for size in history.sizes]
    head = _axis_of(history)
    first = max(map(len, [head, *labels]))
    ends = [_ends(column) for column in history.times_ms.T]
    room = width - first - 4 - max(map(len, ends))
    each = -(-len(moments) // room)  # recordings in a cell
    yield Text(f"{at_right(head, first)}  a step, oldest first", "dim")
    for label, column, said in zip(labels, history.times_ms.T, ends, strict=True):
        yield Text(f"{at_right(label, first)}  {_draw(column, each)}  {said}")
    marks = [" "] * (len(moments) // each + 1)
    for place, shift in enumerate(history.shifts, 1):
        marks[shift.place // each] = str(place % 10)
    if history.shifts:
        yield Text(f"{'':{first}}  {''.join(marks).rstrip()}")
        yield Text("CHANGED", "bold")
    for place, shift in enumerate(history.shifts, 1):
        style = "red" if shift.growth.value > 0 else "green"
        yield Text(f"{place}  {_say(history, shift)}", style)
    if not history.shifts:
        yield Text("No lasting change. A single odd recording is none.")


def history_chart(history: History) -> ReportHistory:
    """What the report draws of a history."""
    changes: list[ReportChange] = []
    for shift in history.shifts:
        changes.append({"place": shift.place, "said": _say(history, shift)})
    return {
        "axis": _axis_of(history),
        "sizes": history.sizes,
        "recordings": [_name(moment) for moment in history.moments],
        "shares": (100 * history.times_ms / history.times_ms[0]).tolist(),
        "changes": changes,
    }


def _axis_of(history: History) -> str:
    axis = history.moments[-1].recording.meta.get("axis") or {}
    return str(axis.get("name") or "batch")


def _ends(times_ms: Floats) -> str:
    return f"{number(float(times_ms.min()))} … {show_ms(float(times_ms.max()))}"


def _draw(times_ms: Floats, each: int) -> str:
    """The times as heights, the mean of some recordings in each cell."""
    means = [float(times_ms[at : at + each].mean()) for at in range(0, len(times_ms), each)]
    least = min(means)
    most = max([*means, least * (1 + _LEAST_RANGE)])
    steps = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[round(steps * (mean - least) / (most - least))] for mean in means)


def _say(history: History, shift: Shift) -> str:
    """How much the time changed, from which recording on, and in which layer."""
    growth = shift.growth
    shares = (growth.value, growth.low, growth.high)
    middle, low, high = (with_sign(100 * share, 2) for share in shares)
    since, before = (_name(history.moments[shift.place - back]) for back in (0, 1))
    said = f"{middle} % ({low} … {high}) at {shift.size}, from {since}, after {before}"
    if shift.layer is None or shift.layer_ms is None:
        return said
    return f"{said}: {shift.layer} {with_sign(shift.layer_ms)} ms"


def _name(moment: Moment) -> str:
    commit = moment.commit
    return f"{moment.day} commit {commit[:_COMMIT]}" if commit else str(moment.recording.named)
