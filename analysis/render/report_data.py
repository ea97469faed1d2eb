"""The content of a report as one JSON document, aggregated so that the page stays small: a million
kernels become rows.

Everything merged or omitted is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd

from ...base.errors import CurvescopeError
from ...base.numbers import quantity
from ...profiling.attribution.kernel_names import short_name
from ...profiling.attribution.source_lines import MOST_TEXT
from ...profiling.hardware.limits import Hardware
from ...profiling.recording.lost import describe_lost
from ...profiling.recording.store import STEP, STEPS_KNOWN_BY, Recording, is_modelled
from .. import roofline
from ..causes.context import Recorded
from ..compare import compare
from ..decompose.averaged_steps import list_used_steps
from ..decompose.curve import UNKNOWN as UNKNOWN_BATCH
from ..decompose.curve import known_batch, native
from ..decompose.functionals import excess, neighbours
from ..decompose.idle import HOST_COLUMNS
from ..decompose.kernel_times import Work, device_work
from ..decompose.terms import IDLE
from ..diagnosis.explain import diagnose, explain_one
from ..diagnosis.explanation import Explanation
from ..diagnosis.read import read, refuse_table
from ..diagnosis.result import Diagnosis
from ..energy import explain_energy
from ..history import LEAST, read_histories
from ..server_log import collect_decode_blocks, is_server_log
from ..side import prepare_sides
from ..verdicts.contrast import REFUTED_BELOW
from ..verdicts.rule import CONFIRMED_ABOVE
from . import answer_words
from .answers import how_to_test
from .causes import verdict_sentence
from .compare import verdicts
from .energy import EnergyDocument, energy_document
from .explained import ExplainDocument
from .facts import clock_line
from .first_screen import first_screen
from .headline import largest_sentence
from .history import history_chart
from .names import distinct_parts
from .notes import list_caveats
from .report_document import (
    ReportComparison,
    ReportDocument,
    ReportHistory,
    ReportRoofline,
    ReportRun,
)
from .report_experiments import TestedTerm, describe_tests, rows_document
from .report_kernels import kernel_table
from .report_timeline import Timeline, timeline
from .roofline import NO_ROOF
from .server_log import log_lead
from .shown import Shown
from .summary import summarize

_FACTS = (
    "device",
    "precision",
    "compiled",
    "graphed",
    "protocol",
    "host",
    "versions",
    "imported_from",
    "created_utc",
)
_AXIS = ("name", "one", "unit", "value", "values", "title")
_WORK = (
    "FLOPs of the direct algorithm and compulsory bytes, unless a point is labelled as measured."
)
_UNITS = (("_bytes", "B"), ("_hz", "Hz"), ("_bytes_per_s", "B/s"))  # by the end of a name
_MOST_COMPARED = 60  # rows
MOST_POINTS = 400


@dataclass(frozen=True)
class ReportInput:
    """The data of one recording."""

    recording: Recording
    work: Work  # from `device_work`
    recorded: Recorded  # what its diagnosis is made from
    name: str = ""  # on the page

    @property
    def meta(self) -> Mapping[str, Any]:
        """Contents of its `recording.json`."""
        return self.recording.meta


def report_input(recording: Recording) -> ReportInput:
    """The data of a recording that a report shows; raises CurvescopeError if it has no step."""
    refuse_table(recording)
    if not recording.count_rows("steps"):
        raise CurvescopeError(
            f"{recording.named} has no step, so there is nothing to report. Record or import one "
            "with steps."
        )
    steps = None
    if is_server_log(recording):  # blocks of its decode steps are the rounds of its curve
        steps = collect_decode_blocks([recording])[0]
    return ReportInput(recording, device_work(recording), read(recording, steps=steps))


def report_document(inputs: Sequence[ReportInput], version: str) -> ReportDocument:
    """Everything that the page shows of recordings, the main one first."""
    names = distinct_parts([item.recording.path.name for item in inputs])
    inputs = [replace(item, name=name) for item, name in zip(inputs, names, strict=True)]
    comparison = _comparison(inputs)
    shared = None if comparison is None else comparison["batch"]
    return {
        "version": version,
        "confirmed_above": CONFIRMED_ABOVE,
        "refuted_below": REFUTED_BELOW,
        "runs": [_run(item, shared) for item in inputs],
        "comparison": comparison,
        "history": _history(inputs),
    }


def _history(inputs: Sequence[ReportInput]) -> ReportHistory | None:
    """The history of a step; None where none was recorded often enough."""
    if len(inputs) < LEAST:
        return None
    oldest_first = sorted(inputs, key=lambda item: str(item.meta.get("created_utc")))
    try:
        history, *_ = read_histories([item.recording for item in oldest_first])
    except CurvescopeError:
        return None
    return history_chart(history)


def _comparison(inputs: Sequence[ReportInput]) -> ReportComparison | None:
    """Every recording compared with the first; None for a single recording, or without a common
    batch size.
    """
    if len(inputs) < 2:
        return None
    names = [item.name for item in inputs]
    steps = [item.recorded.steps for item in inputs]
    sides = prepare_sides(names, [item.recording for item in inputs], steps)
    try:
        comparison = compare(sides)
    except CurvescopeError:
        return None
    names = [side.name for side in sides]
    # Recordings with other fixed values do other work, so neither is faster.
    other_work = any(item.meta.get("fixed") for item in inputs)
    return {
        "names": names,
        "verdicts": [] if other_work else verdicts(comparison, names),
        "differences": comparison.differences,
        "by": comparison.by,
        "batch": comparison.batch,
        "steps": comparison.steps,
        "rows": comparison.rows[:_MOST_COMPARED],
    }


def _run(item: ReportInput, shared: int | None) -> ReportRun:
    """One recording; `shared` is the batch size at which recordings are compared."""
    recorded, recording = item.recorded, item.recording
    diagnosis = diagnose(recorded, recording=recording)
    shown = Shown(diagnosis, diagnosis.explanations or _last_pair(diagnosis))
    kernel_times = recorded.kernel_times
    used = {}
    for batch in sorted(native(batch) for batch in kernel_times["batch"].unique()):
        used[batch] = list_used_steps(kernel_times[kernel_times["batch"] == batch])
    focus = _focus(diagnosis, list(used))
    drawn = dict.fromkeys(focus)
    if shared is not None and shared in used:
        drawn[shared] = None
    how = how_to_test(recording, diagnosis)
    explained, lead = ExplainDocument.of(shown), _lead(diagnosis)
    if is_server_log(recording):
        headline, lead = log_lead(recording)
        explained = replace(explained, headline=headline, answers=())
    has_curve = bool(diagnosis.findings) and not is_server_log(recording)
    return {
        "name": item.name,
        "step": item.meta.get("mode"),
        "device": recorded.hardware.name,
        "facts": _facts(item.meta),
        "lost": describe_lost(item.meta.get("lost") or {}),
        "caveats": _caveats(item, diagnosis),
        "axis": {name: getattr(diagnosis.axis, name) for name in _AXIS},
        "explain": explained,
        "first": first_screen(summarize(diagnosis)) if has_curve else None,
        "lead": lead,
        "source": _source(diagnosis.explanations, recording),
        "tested": _list_tested(diagnosis),
        "how_to_test": " ".join(filter(None, how)) if how else None,
        "energy": _energy(recorded, recording),
        "timelines": _timelines(item, used, drawn),
        "roofline": _roofline(recorded.hardware, focus, kernel_times),
        "kernels": kernel_table(recorded, used),
        "steps": rows_document("steps", recording.frame("steps")),
        "runs_of_experiments": rows_document("experiments", recording.frame("experiments")),
    }


def _focus(diagnosis: Diagnosis, batches: Sequence[int]) -> Sequence[int]:
    """The batch sizes whose steps are drawn: the sizes of the first anomaly, else the two
    largest.
    """
    if not diagnosis.explanations:
        return batches[-2:]
    first = diagnosis.explanations[0].functional
    return [first.at, first.last]


def _list_tested(diagnosis: Diagnosis) -> dict[str, dict[str, TestedTerm]]:
    """What stands beside the experiments behind each answer."""
    tested = {}
    for answer in diagnosis.answers:
        if answer.evidence:
            tested[answer.functional.label] = describe_tests(answer, diagnosis)
    return tested


def _timelines(
    item: ReportInput, used: Mapping[int, Sequence[int]], batches: Iterable[int]
) -> list[Timeline]:
    """A step of each batch size that is drawn."""
    steps, api_calls = item.recorded.steps, item.recorded.api_calls
    read_ranges = cache(lambda: item.recording.frame("ranges", HOST_COLUMNS))
    drawn = []
    for batch in batches:
        size = known_batch(batch)
        drawn.append(timeline(item.work, steps, used[batch], size, api_calls, read_ranges))
    return drawn


def _source(explanations: Sequence[Explanation], recording: Recording) -> dict[str, str]:
    """The recorded text of the named lines of the program, by `file:line`; no file of the reader's
    is looked at.
    """
    lines = {share.line for explanation in explanations for share in explanation.shares}
    named = sorted(line for line in lines if line)
    if not named:
        return {}
    rows = recording.frame("lines", ["file", "line", "text"]).dropna(subset="text")
    texts = {f"{row.file}:{row.line}": str(row.text) for row in rows.itertuples()}
    return {line: texts[line][:MOST_TEXT] for line in named if line in texts}


def _energy(recorded: Recorded, recording: Recording) -> EnergyDocument | None:
    """The energy over known batch sizes; None where none was measured."""
    steps = recorded.steps
    if steps["energy_uj"].isna().all() or (steps["batch"] == UNKNOWN_BATCH).all():
        return None
    with suppress(CurvescopeError):
        return energy_document(recording, explain_energy(recording))
    return None


def _last_pair(diagnosis: Diagnosis) -> tuple[Explanation, ...]:
    """Without an anomaly and a fixed cost: the excess of the last two batch sizes, which shows how
    the cost grows.
    """
    terms, curve = diagnosis.terms, diagnosis.curve
    if diagnosis.fixed_cost or terms is None or curve.unit != STEP:
        return ()
    pairs, _ = neighbours(curve.conditions)
    if not pairs or not set(pairs[-1]) <= set(terms.conditions):
        return ()
    return (explain_one(diagnosis, excess(*pairs[-1])),)


def _lead(diagnosis: Diagnosis) -> str:
    """The first answer; without one the largest cause of the first anomaly, or where a step's time
    goes.
    """
    if diagnosis.answers:
        return answer_words.sentence(diagnosis.answers[0])
    if diagnosis.explanations:
        return verdict_sentence(diagnosis.explanations[0])
    return largest_sentence(diagnosis, diagnosis.recorded.layer_classes)


def _facts(meta: Mapping[str, Any]) -> list[list[str]]:
    """The known facts of the machine and the measurement: names and values."""
    facts = {key: meta.get(key) for key in _FACTS}
    return _flat({**facts, "clocks": clock_line(meta)})


def _caveats(item: ReportInput, diagnosis: Diagnosis) -> list[str]:
    """Warnings to read before the numbers."""
    meta = item.meta
    caveats = []
    if is_modelled(meta):
        caveats.append(
            "Modelled, not measured: times come from the cost model, and intervals show its error."
        )
    if item.recording.unit != STEP:
        caveats.append(f"No step is known, so times are of the whole recording. {STEPS_KNOWN_BY}")
    if diagnosis.curve.profiled:
        caveats.append("Every step was profiled: times include an unknown profiling overhead.")
    if meta.get("status") != "complete":
        caveats.append(f"The recording is not complete (status: {meta.get('status')}).")
    if not item.recorded.hardware.roofs:
        caveats.append(NO_ROOF)
    return [*caveats, *list_caveats(diagnosis), *meta.get("warnings", []), _WORK]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            rows.append([f"{prefix}{key}", _fact_text(key, value)])
    return rows


def _fact_text(key: str, value: Any) -> str:
    """A fact with the unit that the end of its name says."""
    if isinstance(value, (int, float)):
        for ending, unit in _UNITS:
            if key.endswith(ending):
                return quantity(value, unit, 4)
    return str(value)


def _roofline(
    hardware: Hardware, focus: Sequence[int], kernel_times: pd.DataFrame
) -> ReportRoofline | None:
    """The roofline; None if no kernel ran, e.g. in a recording of ranges without a GPU."""
    if not focus or (kernel_times.loc[kernel_times["batch"] == focus[-1], "name"] == IDLE).all():
        return None
    drawn = roofline.roofline(kernel_times, hardware, "kernel", focus[-1])
    points = [replace(point, label=short_name(point.label)) for point in drawn.points[:MOST_POINTS]]
    return {
        "batch": known_batch(drawn.batch),
        "by": drawn.by,
        "points": points,
        "roofs": drawn.roofs,
        "time_without_work_s": drawn.time_without_work_s,
        "n_steps": drawn.n_steps,
        "without_work": drawn.without_work,
        "more": max(0, len(drawn.points) - MOST_POINTS),
    }
