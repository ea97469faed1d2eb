"""What the page adds to the experiments of a diagnosis, and the rows that its numbers rest on:
steps and runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

import pandas as pd

from ...base.numbers import with_minus_signs
from ...profiling.recording.experiments import Stage
from ..decompose.functionals import Condition, Functional
from ..decompose.statistics import Estimate
from ..decompose.terms import KERNELS, Key
from ..diagnosis.explanation import Explanation, TermEvidence
from ..diagnosis.result import Diagnosis
from ..verdicts.outcome import Outcome, subject
from .answers import notes, reproduction_sentence, shape_sentence

MOST_ROWS = 3000
# Titles and columns in the page.
_TABLES = {
    "steps": ("Timed steps", ["step", "batch", "round", "index", "profiled"]),
    "experiments": ("Runs of experiments", ["experiment", "factor", "batch", "round", "index"]),
}


class RowsTable(TypedDict):
    """Rows of a table of a recording."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    more: int  # number of rows that are left out


@dataclass(frozen=True)
class Times:
    """Times over batch sizes."""

    batches: tuple[Condition, ...] = ()
    times_ms: tuple[Estimate, ...] = ()


@dataclass(frozen=True)
class TestedTerm:
    """What stands beside the experiments on one term, or on the complete step."""

    sentence: str  # whether the term shows its share in isolation
    shape: str | None  # of its curve on a finer grid; None without one
    step: Times  # the term in the step, at every batch size
    grid: Times  # the term alone, on the finer grid
    notes: list[str]  # observations of the runners
    gain_indices: list[int]  # of each factor, the index of the batch size at which its gain counts


def describe_tests(answer: Explanation, diagnosis: Diagnosis) -> dict[str, TestedTerm]:
    """What stands beside the experiments behind an answer, by the label of the term."""
    tested, unit = {}, answer.functional.unit
    for evidence in answer.evidence or ():
        tested[evidence.label] = TestedTerm(
            sentence=with_minus_signs(reproduction_sentence(evidence, unit)),
            shape=None if evidence.shape is None else shape_sentence(evidence.shape),
            step=_in_step(evidence, diagnosis),
            grid=_grid(evidence.alone, diagnosis.outcomes),
            notes=notes(evidence),
            gain_indices=[outcome.gain_index for outcome in evidence.factors],
        )
    return tested


def _in_step(evidence: TermEvidence, diagnosis: Diagnosis) -> Times:
    """Time of the term in a step; of the complete step if that was tested."""
    points, terms = diagnosis.curve.points, diagnosis.terms
    if evidence.share is None:
        sizes = tuple(point.condition for point in points)
        return Times(sizes, tuple(point.time_ms for point in points))
    outcomes = [run for run in (evidence.alone, *evidence.factors) if run is not None]
    if not outcomes or terms is None:
        return Times()
    experiment = outcomes[0].experiment
    wanted = Key(experiment.layer, experiment.phase, KERNELS)
    times = []
    for batch in terms.conditions:
        time = Functional("time", batch, None, ((batch, 1.0),))
        times.append(terms.sum(time, lambda key: key == wanted))
    return Times(terms.conditions, tuple(times))


def _grid(alone: Outcome | None, outcomes: Iterable[Outcome]) -> Times:
    """Times of the term alone on the finer grid; empty if there is none beside `alone`."""
    if alone is None:
        return Times()
    for outcome in outcomes:
        experiment = outcome.experiment
        same = subject(experiment) == subject(alone.experiment)
        is_grid = experiment.stage == Stage.GRID and outcome.factor is None
        if same and is_grid and outcome.batches != alone.batches:
            return Times(outcome.batches, outcome.times_ms)
    return Times()


def finite(value: float | None) -> float | None:
    """A number of six digits; None for an unknown or infinite one."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def rows_document(table: str, rows: pd.DataFrame) -> RowsTable | None:
    """Rows of a table with their times in ms, and their energy in J where one is known; None
    without rows.
    """
    if rows.empty:
        return None
    title, columns = _TABLES[table]
    shown = (
        rows[columns]
        .astype(object)
        .where(rows[columns].notna(), None)
        .assign(ms=rows["duration_ns"] / 1e6)
    )
    if "energy_uj" in rows and rows["energy_uj"].notna().any():
        joules = rows["energy_uj"].astype("Float64") / 1e6
        shown["J"] = joules.astype(object).where(joules.notna(), None)
    listed = [
        [_plain(value) for value in row] for row in shown.head(MOST_ROWS).itertuples(index=False)
    ]
    return {
        "title": title,
        "columns": [*shown],
        "rows": listed,
        "more": max(0, len(rows) - MOST_ROWS),
    }


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return finite(round(value, 6)) if isinstance(value, float) else value
