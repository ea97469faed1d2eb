"""Run a program with what a recording's experiments found to help, as far as the environment can
set it.

That is the allocator, the number of threads and the flushing of denormal numbers. Of the remedies
of `diagnose` and `confirm` the best set is used, without what changes results. Variables that are
set already stay. What only the program itself can do is printed as lines to add to it; without a
command, nothing else happens. The exit code of the command is passed on.

    curvescope apply runs/2026-03-01_143055_alexnet -- python train.py
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import options
from ..analysis.render.terminal import print_prose
from ..base.errors import CurvescopeError

if TYPE_CHECKING:
    from ..analysis.diagnosis.result import Diagnosis
    from ..analysis.render.remedies import RemedyRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "recording", "program")


def run(args: argparse.Namespace) -> int:
    from ..analysis.diagnosis.explain import explain
    from ..analysis.render.remedies import saving_sentence
    from ..analysis.server_log import refuse_log
    from ..profiling.collect.command import require_program, run_command
    from ..profiling.recording.store import open_recording

    recording = open_recording(args.recording)
    refuse_log(recording, args.recording, "measured change")
    command = options.program_of(args)
    if command:
        require_program(command[0])
    diagnosis = explain(recording)
    if not diagnosis.remedies.helping:
        raise CurvescopeError(
            f"No change is measured to help in {args.recording}: "
            f"`curvescope confirm {args.recording}` tries more."
        )
    settings, by_hand = _divided(diagnosis)
    environment = dict(os.environ)
    for row, variables in settings:
        kept = [name for name in variables if name in environment and name != "PYTHONPATH"]
        environment |= {name: value for name, value in variables.items() if name not in kept}
        what = " ".join(f"{name}={value}" for name, value in variables.items() if name not in kept)
        print_prose(
            f"curvescope: {what or 'nothing'} set ({row.do}: {_saves(row, diagnosis)}).",
            stderr=True,
        )
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
    if not command:
        return 0
    if not settings:
        raise CurvescopeError(
            "The environment can set none of this, so the command is not run: add the lines above "
            "to it."
        )
    return run_command(command, environment).code


def _divided(
    diagnosis: Diagnosis,
) -> tuple[list[tuple[RemedyRow, Mapping[str, str]]], list[RemedyRow]]:
    """The remedies that the environment sets, with its variables, and the others.

    Of the best set all that it can set; if that is nothing, the largest single remedy that it can.
    """
    from ..analysis.render.remedies import remedy_table
    from ..experiments.factors import FACTORS

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
