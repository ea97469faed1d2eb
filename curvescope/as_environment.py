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
    """Print the variables of the best set of changes, a line each. On standard error say the saving
    of each change, and the changes that only the program can make.

    Variables that are set already stay, and are not printed. The user named `path`.

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
    settings, by_hand = _divide(diagnosis)
    for row, variables in settings:
        _print_setting(variables, f"{row.do}: {saving_of(row, diagnosis)}.")
    together = diagnosis.remedies.together
    names = {row.factors[0] for row, _ in settings}
    if together is not None and names == set(together.members):
        _note(f"{saving_sentence(diagnosis.remedies, diagnosis.axis)}")
    for row in by_hand:
        costs = f"; {row.costs}" if row.costs else ""
        lines = [
            "only the program can do this:",
            f"    # {row.do}: {saving_of(row, diagnosis)}{costs}",
        ]
        lines += [f"    {line}" for line in (row.how or "").splitlines()]
        _note("\n".join(lines))
    if not settings:
        raise CurvescopeError("The environment can set none of this: add the lines to the program.")


def _print_setting(variables: Mapping[str, str], saving: str) -> None:
    kept = [name for name in variables if name in os.environ and name != "PYTHONPATH"]
    for name, value in variables.items():
        if name not in kept:
            print(f"{name}={value}")
    _note(saving)
    if kept:
        _note(f"{', '.join(kept)} stays as it is set.")


def _note(text: str) -> None:
    print_prose(f"curvescope: {text}", stderr=True)


def _divide(
    diagnosis: Diagnosis,
) -> tuple[list[tuple[RemedyRow, Mapping[str, str]]], list[RemedyRow]]:
    """The remedies that the environment sets, with its variables, and the others.

    Of the best set all that it can set; if that is nothing, the largest single remedy that it can.
    """
    from .analysis.render.remedies import remedy_table

    changing = {remedy.factor for remedy in diagnosis.remedies.helping if remedy.changed_results}
    best = diagnosis.remedies.best
    settings, of_best, others = [], [], []
    for row in remedy_table(diagnosis.remedies, diagnosis.axis).rows:
        if len(row.factors) != 1:
            continue
        name = row.factors[0]
        variables = _variables_of(name)
        if not variables or name in changing:
            others.append(row)
            continue
        settings.append((row, variables))
        if best is not None and name in best.members:
            of_best.append((row, variables))
    return of_best or settings[:1], others


def _variables_of(name: str) -> Mapping[str, str]:
    """The variables that set a factor; empty if none can."""
    from .experiments.factors import FACTORS

    factor = FACTORS.get(name)
    if factor is None or factor.step is None:
        return {}
    return factor.step.variables() or factor.step.environment


def saving_of(row: RemedyRow, diagnosis: Diagnosis) -> str:
    """The measured saving of a remedy, at the batch size where it saves most."""
    proven = [saving for saving in row.saves if saving.proven]
    most = max(proven, key=lambda saving: saving.share.value)
    return f"it saved {most.text} of the step at {diagnosis.axis.name} {most.batch}"
