"""The content of a report as one JSON document, aggregated so that the page stays small: a million
kernels become rows.

Everything merged or omitted is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import CurvescopeError
from ...base.numbers import quantity
from ...profiling.attribution.kernel_names import read_name, short_name
from ...profiling.attribution.kernel_precision import kernel_precision
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
from ..decompose.terms import IDLE, NOT_RECORDED, layer_label, work_label
from ..diagnosis import split
from ..diagnosis.explain import diagnosed, refuse_table, with_times
from ..diagnosis.explain import recorded as recorded_data
from ..diagnosis.explanation import Explanation
from ..diagnosis.result import Diagnosis
from ..energy import explain_energy
from ..server_log import compared_steps, is_server_log
from ..side import recorded_side
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
from .names import distinct_parts
from .page import Page
from .report_experiments import finite, rows_document, tested_terms
from .report_timeline import timeline
from .roofline import NO_ROOF
from .server_log import log_lead

MOST_KERNEL_ROWS = 2000
_SHARES = {"occupancy": "achieved_occupancy", "tensor": "tensor_pipe_use"}  # measured, of kernels
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
_UNITS = (("_bytes", "B"), ("_hz", "Hz"), ("_bytes_per_s", "B/s"))  # by the end of a name
MOST_HEAT_ROWS = 60
MOST_POINTS = 400


@dataclass(frozen=True)
class ReportInput:
    """The data of one recording."""

    recording: Recording
    work: Work  # from `device_work`
    kernel_times: pd.DataFrame  # from `kernel_times`
    recorded: Recorded  # its steps, API calls, clocks and limits
    name: str = ""  # on the page

    @property
    def meta(self) -> Mapping[str, Any]:
        """Contents of its `recording.json`."""
        return self.recording.meta


def report_input(recording: Recording) -> ReportInput:
    """The data of a recording that a report shows; raises CurvescopeError if it has no step."""
    refuse_table(recording)
    evidence = recorded_data(recording)
    if evidence.steps.empty:
        raise CurvescopeError(
            f"{recording.path} has no step, so there is nothing to report. Record or import one "
            "with steps."
        )
    if is_server_log(recording):  # blocks of its decode steps are the rounds of its curve
        evidence = replace(evidence, steps=compared_steps([recording])[0])
    has_batch = evidence.steps["batch"].notna()
    # Where some batch sizes are known, steps without one belong to no curve; where none is, all
    # steps are one.
    steps = (
        evidence.steps[has_batch] if has_batch.any() else evidence.steps.assign(batch=UNKNOWN_BATCH)
    )
    times, evidence = with_times(replace(evidence, steps=steps), recording)
    return ReportInput(recording, device_work(recording), times, evidence)


def report_document(inputs: Sequence[ReportInput], version: str) -> dict[str, Any]:
    """Everything that the page shows of recordings, the main one first, ready for JSON; unknown
    values are None.
    """
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
    }


def _comparison(inputs: Sequence[ReportInput]) -> dict[str, Any] | None:
    """Every recording compared with the first; None for a single recording, or without a common
    batch size.
    """
    if len(inputs) < 2:
        return None
    sides = [recorded_side(item.name, item.recording, item.recorded.steps) for item in inputs]
    try:
        comparison = compare(sides)
    except CurvescopeError:
        return None
    rows = comparison.rows[:MOST_HEAT_ROWS]
    return {
        "names": [side.name for side in sides],
        # Recordings with other fixed values do other work: the map of both axes compares them.
        "verdicts": []
        if any(item.meta.get("fixed") for item in inputs)
        else verdicts(comparison, [side.name for side in sides]),
        "differences": comparison.differences,
        "by": comparison.by,
        "batch": comparison.batch,
        "steps": comparison.steps,
        "rows": rows,
    }


def _run(item: ReportInput, shared: int | None) -> dict[str, Any]:
    recorded, steps = item.recorded, item.recorded.steps
    diagnosis = diagnosed(item.recording, item.kernel_times, recorded)
    batches = sorted(native(batch) for batch in diagnosis.kernel_times["batch"].unique())
    of_batch = diagnosis.kernel_times["batch"]
    used = {batch: list_used_steps(diagnosis.kernel_times[of_batch == batch]) for batch in batches}
    first = diagnosis.explanations[0].functional if diagnosis.explanations else None
    # Steps are drawn of the batch sizes of the first anomaly, else of the two largest.
    focus = [first.at, first.last] if first else batches[-2:]
    read_ranges = cache(lambda: item.recording.frame("ranges", HOST_COLUMNS))
    axis = diagnosis.axis
    explained = ExplainDocument.of(
        item.recording, diagnosis, diagnosis.explanations or _last_pair(diagnosis, recorded)
    )
    lead = _lead(diagnosis, recorded.layer_classes)
    if is_server_log(item.recording):
        headline, lead = log_lead(item.recording)
        explained = replace(explained, headline=headline, answers=())
    has_curve = bool(diagnosis.findings) and not is_server_log(item.recording)
    has_energy = bool(steps["energy_uj"].notna().any()) and batches != [UNKNOWN_BATCH]
    return {
        **_facts(item, diagnosis.curve.profiled),
        "axis": {
            name: getattr(axis, name)
            for name in ("name", "one", "unit", "value", "values", "title")
        },
        "explain": explained,
        # Without a curve the headline says where the time goes.
        "first": first_screen(Page(diagnosis)) if has_curve else None,
        "lead": lead,
        "source": _source(diagnosis.explanations, item.recording),
        "tested": {
            answer.functional.label: tested_terms(answer, diagnosis)
            for answer in diagnosis.answers
            if answer.evidence
        },
        "how_to_test": " ".join(filter(None, how_to_test(item.recording, diagnosis) or ())) or None,
        "energy": _energy(item.recording) if has_energy else None,
        "heat": _heat(diagnosis, recorded.layer_classes),
        "timelines": [
            timeline(
                item.work, steps, used[batch], known_batch(batch), recorded.api_calls, read_ranges
            )
            for batch in dict.fromkeys([*focus, *([shared] if shared in used else [])])
        ],
        "roofline": _roofline(recorded.hardware, focus, diagnosis.kernel_times),
        "kernels": _kernels(diagnosis.kernel_times, used, recorded),
        "steps": rows_document("steps", item.recording.frame("steps")),
        "runs_of_experiments": rows_document("experiments", item.recording.frame("experiments")),
    }


def _source(explanations: Sequence[Explanation], recording: Recording) -> dict[str, str]:
    """The recorded text of the named lines of the program, by `file:line`; no file of the reader's
    is looked at.
    """
    named = {
        share.line for explanation in explanations for share in explanation.shares if share.line
    }
    if not named:
        return {}
    rows = recording.frame("lines", ["file", "line", "text"]).dropna(subset="text")
    texts = {f"{row.file}:{row.line}": str(row.text) for row in rows.itertuples()}
    return {line: texts[line][:MOST_TEXT] for line in sorted(named & texts.keys())}


def _energy(recording: Recording) -> EnergyDocument | None:
    with suppress(CurvescopeError):
        return energy_document(recording, explain_energy(recording))
    return None


def _last_pair(diagnosis: Diagnosis, recorded: Recorded) -> Sequence[Explanation]:
    """Without an anomaly and a fixed cost: the excess of the last two batch sizes, which shows how
    the cost grows.
    """
    pairs, _ = neighbours(diagnosis.curve.conditions)
    terms = None if diagnosis.fixed_cost else diagnosis.terms
    if (
        not pairs
        or terms is None
        or diagnosis.curve.unit != STEP
        or not set(pairs[-1]) <= set(terms.conditions)
    ):
        return []
    return [
        split.explain(excess(*pairs[-1]), diagnosis.curve, terms, diagnosis.kernel_times, recorded)
    ]


def _lead(diagnosis: Diagnosis, classes: Mapping[str, str]) -> str:
    """The first answer; without one the largest cause of the first anomaly, or where a step's time
    goes.
    """
    if diagnosis.answers:
        return answer_words.sentence(diagnosis.answers[0])
    if diagnosis.explanations:
        return verdict_sentence(diagnosis.explanations[0])
    return largest_sentence(diagnosis, classes)


def _facts(item: ReportInput, all_profiled: bool) -> dict[str, Any]:
    meta, hardware = item.meta, item.recorded.hardware
    facts = (
        (
            is_modelled(meta),
            "Modelled, not measured: times come from the cost model, and intervals show its error.",
        ),
        (
            item.recording.unit != STEP,
            f"No step is known, so times are of the whole recording. {STEPS_KNOWN_BY}",
        ),
        (all_profiled, "Every step was profiled: times include an unknown profiling overhead."),
        (
            meta.get("status") != "complete",
            f"The recording is not complete (status: {meta.get('status')}).",
        ),
        (not hardware.roofs, NO_ROOF),
    )
    caveats = [text for holds, text in facts if holds]
    work = (
        "FLOPs of the direct algorithm and compulsory bytes, unless a point is labelled as "
        "measured."
    )
    caveats += [*item.recorded.notes, *meta.get("warnings", []), work]
    return {
        "name": item.name,
        "step": meta.get("mode"),
        "device": hardware.name,
        "facts": _flat({**{key: meta.get(key) for key in _FACTS}, "clocks": clock_line(meta)}),
        "lost": describe_lost(meta.get("lost") or {}),
        "caveats": caveats,
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            unit = next((unit for ending, unit in _UNITS if key.endswith(ending)), None)
            text = (
                quantity(value, unit, 4) if unit and isinstance(value, (int, float)) else str(value)
            )
            rows.append([f"{prefix}{key}", text])
    return rows


def _heat(diagnosis: Diagnosis, classes: Mapping[str, str]) -> dict[str, Any]:
    """Time per sample of every term at every batch size, the largest terms first."""
    terms = diagnosis.terms
    if terms is None:
        return {"batches": [], "rows": [], "more": 0}
    samples = np.array([known_batch(batch) or 1 for batch in terms.conditions], dtype=float)
    per_sample = terms.values_ms / samples[:, None]
    order = np.argsort(-per_sample.max(axis=0), kind="stable")
    rows = []
    for index in order[:MOST_HEAT_ROWS]:
        layer, phase, kind = (key := terms.keys[index]).layer, key.phase, key.kind
        path = None if layer is None else layer_label(layer, classes.get(layer))
        label = kind if kind in (IDLE, NOT_RECORDED) else path or work_label(None, None)
        rows.append(
            {
                "label": label,
                "layer": path,
                "phase": phase,
                "values": [finite(v) for v in per_sample[:, index]],
            }
        )
    more = max(0, len(terms.keys) - MOST_HEAT_ROWS)
    return {"batches": [known_batch(b) for b in terms.conditions], "rows": rows, "more": more}


def _roofline(
    hardware: Hardware, focus: Sequence[int], kernel_times: pd.DataFrame
) -> dict[str, Any] | None:
    """The roofline; None if no kernel ran, e.g. in a recording of ranges without a GPU."""
    if not focus or (kernel_times.loc[kernel_times["batch"] == focus[-1], "name"] == IDLE).all():
        return None
    drawn = roofline.roofline(kernel_times, hardware, "kernel", focus[-1])
    points = [replace(point, label=short_name(point.label)) for point in drawn.points[:MOST_POINTS]]
    return {
        **vars(drawn),
        "batch": known_batch(drawn.batch),
        "points": points,
        "more": max(0, len(drawn.points) - MOST_POINTS),
    }


def _kernels(
    kernel_times: pd.DataFrame, used: Mapping[int, Sequence[int]], recorded: Recorded
) -> dict[str, Any]:
    """Kernels by name, layer, phase and operator: time, calls, rates and exceeded roofs per step at
    every batch size.

    Their times, `more_ms` and `idle_ms` add up to the mean profiled step. `occupancy` and `tensor`
    are there where they were measured: means over the time of the kernels that have them.
    """
    batches = list(used)
    of_used = kernel_times["step"].isin([s for steps in used.values() for s in steps])
    is_idle = kernel_times["name"] == IDLE
    rows = kernel_times[of_used & ~is_idle]
    idle_ms = kernel_times[of_used & is_idle].groupby("batch")["exclusive_ms"].sum()
    keys = ["name", "layer", "phase", "op"]
    grouped_by = [*keys, "batch"]
    grouped = rows.groupby(grouped_by, dropna=False, sort=False)
    measured = {short: column for short, column in _SHARES.items() if rows[column].notna().any()}
    shares = {short: _means(rows, grouped_by, column) for short, column in measured.items()}
    table = grouped[["exclusive_ms", "calls", "flops", "bytes_compulsory"]].sum(min_count=1)
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for at, ((*key, batch), row) in enumerate(
        zip(table.index, table.itertuples(index=False), strict=True)
    ):
        name, layer, phase, op = (None if pd.isna(k) else str(k) for k in key)
        entry = by_key.setdefault(
            (name, layer, phase, op),
            {
                "name": name,
                "short": short_name(name or ""),
                "family": read_name(name or "").family,
                "layer": None
                if layer is None
                else layer_label(layer, recorded.layer_classes.get(layer)),
                "path": layer,
                "op": op,
                "phase": phase,
                **{
                    column: [None] * len(batches)
                    for column in ("ms", "calls", "gflops", "gbs", "exceeded", *shares)
                },
            },
        )
        index, n, time_ms = batches.index(native(batch)), len(used[native(batch)]), float(row[0])
        entry["ms"][index] = finite(time_ms / n)
        entry["calls"][index] = finite(float(row[1]) / n)
        for column, amount in (("gflops", row[2]), ("gbs", row[3])):
            if not pd.isna(amount) and time_ms > 0:
                entry[column][index] = finite(float(amount) / time_ms / 1e6)
        gflops, gbs = entry["gflops"][index], entry["gbs"][index]
        for short, values in shares.items():
            entry[short][index] = finite(values[at])
        flops = {kernel_precision(name or ""): (gflops or 0.0) * 1e9}
        entry["exceeded"][index] = recorded.hardware.exceeded(
            flops, 1.0, None if gbs is None else gbs * 1e9
        )
    ordered = sorted(by_key.values(), key=lambda e: -max(v or 0.0 for v in e["ms"]))
    rest = ordered[MOST_KERNEL_ROWS:]
    left_ms = [math.fsum(e["ms"][index] or 0.0 for e in rest) for index in range(len(batches))]
    return {
        "batches": [known_batch(b) for b in batches],
        "rows": ordered[:MOST_KERNEL_ROWS],
        "more": len(rest),
        "more_ms": left_ms,
        "idle_ms": [float(idle_ms.get(batch, 0.0)) / len(used[batch]) for batch in batches],
        "calls": round(rows["calls"].sum()),
    }


def _means(rows: pd.DataFrame, keys: Sequence[str], column: str) -> list[float]:
    """The mean of a column over the time of the kernels that have it, for each group in order; NaN
    for none.
    """
    time_ms = rows["exclusive_ms"].where(rows[column].notna())
    weighed = rows.assign(weight=time_ms, weighed=rows[column] * time_ms)
    sums = weighed.groupby([*keys], dropna=False, sort=False)[["weighed", "weight"]].sum(
        min_count=1
    )
    return list((sums["weighed"] / sums["weight"].where(sums["weight"] > 0)).astype(float))
