"""The changes that a recording's experiments found to help, as variables of the environment, for
`explain --as-env`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .analysis.render.terminal import print_prose
from .base.errors import CurvescopeError

if TYPE_CHECKING:
    from .analysis.diagnosis.result import Diagnosis
    from .analysis.render.remedies import RemedyRow
    from .profiling.recording.remote_store import AnyPath
    from .profiling.recording.store import Recording


def print_variables(recording: Recording, path: AnyPath) -> None:
    """Print the variables of the best set of changes, a line each, and on standard error what each
    change saved, and what only the program can do.

    Variables that are set already stay, and are not printed. `path` is what the user named.

    Raises:
        CurvescopeError: no change is measured to help, or the environment can set none of them.
    """
    from .analysis.diagnosis.explain import explain
    from .analysis.render.remedies import saving_sentence
    from .analysis.server_log import refuse_log

    refuse_log(recording, path, "measured change")
    diagnosis = explain(recording)
    if not diagnosis.remedies.helping:
        raise CurvescopeError(
            f"No change is measured to help in {path}: `curvescope confirm {path}` tries more."
        )
    settings, by_hand = _divided(diagnosis)
    for row, variables in settings:
        kept = [name for name in variables if name in os.environ and name != "PYTHONPATH"]
        for name, value in variables.items():
            if name not in kept:
                print(f"{name}={value}")
        print_prose(f"curvescope: {row.do}: {_saves(row, diagnosis)}.", stderr=True)
        if kept:
            print_prose(f"curvescope: {', '.join(kept)} stays as it is set.", stderr=True)
    together = diagnosis.remedies.together
    if together is not None and {row.factors[0] for row, _ in settings} == set(together.members):
        print_prose(
            f"curvescope: {saving_sentence(diagnosis.remedies, diagnosis.axis)}", stderr=True
        )
    for row in by_hand:
        costs = f"; {row.costs}" if row.costs else ""
        lines = [f"# {row.do}: {_saves(row, diagnosis)}{costs}", *(row.how or "").splitlines()]
        print_prose(
            "\n".join(
                ["curvescope: only the program can do this:", *(f"    {line}" for line in lines)]
            ),
            stderr=True,
        )
    if not settings:
        raise CurvescopeError("The environment can set none of this: add the lines to the program.")


def _divided(
    diagnosis: Diagnosis,
) -> tuple[list[tuple[RemedyRow, Mapping[str, str]]], list[RemedyRow]]:
    """The remedies that the environment sets, with its variables, and the others.

    Of the best set all that it can set; if that is nothing, the largest single remedy that it can.
    """
    from .analysis.render.remedies import remedy_table
    from .experiments.factors import FACTORS

    rows = [
        row
        for row in remedy_table(diagnosis.remedies, diagnosis.axis).rows
        if len(row.factors) == 1
    ]
    changes = {
        row.factors[0]: FACTORS[row.factors[0]].step for row in rows if row.factors[0] in FACTORS
    }
    variables = {
        name: change.variables() or change.environment for name, change in changes.items() if change
    }
    changing = {remedy.factor for remedy in diagnosis.remedies.helping if remedy.changed_results}
    best = diagnosis.remedies.best
    able = [row for row in rows if variables.get(row.factors[0]) and row.factors[0] not in changing]
    chosen = [row for row in able if best is not None and row.factors[0] in best.members] or able[
        :1
    ]
    others = [row for row in rows if row not in chosen and row not in able]
    return [(row, variables[row.factors[0]]) for row in chosen], others


def _saves(row: RemedyRow, diagnosis: Diagnosis) -> str:
    """What a remedy was measured to save, at the batch size where it saves most."""
    most = max((at for at in row.saves if at.proven), key=lambda at: at.share.value)
    return f"it saved {most.text} of the step at {diagnosis.axis.name} {most.batch}"
