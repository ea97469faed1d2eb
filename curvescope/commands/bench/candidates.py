"""`bench gemm --candidates` and `conv`: whether the library could do better than what it takes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analysis.render import terminal
from ...analysis.render.tables import TextTable, table
from ...base.arguments import parse_share
from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.numbers import duration
from ...options import clocks
from .measuring import folder_of, method_of
from .result_columns import percent

if TYPE_CHECKING:
    from ...analysis.candidates import CandidatesSweep
    from ...kernels.sweeps import Sweep


def run(args: argparse.Namespace, sweeps: Sequence[Sweep]) -> int:
    """Measure and print; returns the exit code, 1 where a result was incorrect."""
    from ...kernels.method import BenchOutcome
    from ...profiling.recording.store import new_recording_path

    if args.backend != "torch":
        raise CurvescopeError("--candidates are settings of torch's libraries: omit --backend.")
    folder = args.output or new_recording_path("candidates")
    compared = []
    for sweep in sweeps:
        at = folder if len(sweeps) == 1 else folder / folder_of(sweep)
        compared.append(_measure_candidates(args, sweep, at))
    if args.json:
        from ...analysis.render.documents import print_document
        from .documents import CandidatesDocument

        print_document(CandidatesDocument(compared))
    else:
        console = terminal.console()
        for of_sweep in compared:
            for line in render(of_sweep):
                console.print(line)
        console.print(f"Warm caches; 95 % intervals over processes. Recorded in {folder}.")
        console.print("Next:")
        named = [each.name for each in compared[0].checked if each.timed]
        paths = " ".join(f"{compared[0].recordings}/{name}" for name in named)
        terminal.print_commands(console, f"curvescope compare {paths}")
    outcomes = {each.outcome for of_sweep in compared for each in of_sweep.checked}
    return int(bool(outcomes & {BenchOutcome.INCORRECT, BenchOutcome.FAILED}))


def _measure_candidates(args: argparse.Namespace, sweep: Sweep, folder: Path) -> CandidatesSweep:
    from ...analysis.candidates import CandidatesSweep, products_of
    from ...analysis.compare import decided
    from ...analysis.render.live import LiveProgress
    from ...base.torch_runtime import pick_device
    from ...experiments.candidates import (
        DEFAULT,
        candidates_for,
        check_candidates,
        measure_candidates,
        protocol_of,
    )
    from ...profiling.measure.versions import ROUNDS_OF_PROCESS

    device, method = pick_device(args.device), method_of(args)
    problem = next(iter(sweep.problems.values()))
    chosen = candidates_for(problem.precision, device, kind=type(problem))
    if not chosen:
        raise CurvescopeError(
            f"{sweep.label}: on {device} no setting is known that changes products of "
            f"{problem.precision}."
        )
    messages = terminal.console(stderr=True)
    messages.print(
        f"Checking {counted(len(chosen), 'candidate')} and the default of {sweep.label}."
    )
    checked = check_candidates(sweep, device, chosen, method.verify)
    if not checked[0].timed:
        raise CurvescopeError(
            f"{sweep.label} cannot be timed by default: {checked[0].outcome}, {checked[0].detail}"
        )
    right = {candidate.name for candidate in checked if candidate.timed}
    timed = [candidate for candidate in chosen if candidate.name in right]
    if not timed:
        details = "; ".join(f"{candidate.name}: {candidate.detail}" for candidate in checked[1:])
        raise CurvescopeError(f"No candidate of {sweep.label} can be timed: {details}")
    names = [DEFAULT, *(candidate.name for candidate in timed)]
    protocol = protocol_of(method, len(sweep.problems) * len(names))
    until = parse_share("--until", args.until, "a share of the time, e.g. 1% or 0.01")
    messages.print(
        f"Timing {counted(len(sweep.problems), 'product')} under {len(names)} settings on "
        f"{device}, each in at least {protocol.rounds[0] // ROUNDS_OF_PROCESS} processes, into "
        f"{folder}."
    )
    with clocks(args, device), LiveProgress() as view:
        paths = measure_candidates(
            sweep,
            device,
            timed,
            protocol,
            folder,
            decided=lambda rows, rounds: decided(rows, names, until, rounds),
            report=view.report,
        )
    hows = {candidate.name: candidate.how for candidate in timed}
    return CandidatesSweep(
        recordings=str(folder),
        label=sweep.label,
        axis=sweep.axis,
        checked=checked,
        products=products_of(names, paths, hows, sweep.axis),
    )


def render(sweep: CandidatesSweep) -> list[str | TextTable]:
    """The answers, what was not timed, and a table of all times."""
    from ...analysis.candidates import ratio

    lines: list[str | TextTable] = [f"{sweep.label}"]
    lines += [of_product.answer for of_product in sweep.products]
    lines += [
        f"Not timed: {candidate.name}, {candidate.outcome}: {candidate.detail}"
        for candidate in sweep.checked
        if not candidate.timed
    ]
    rows = table(
        sweep.axis,
        "candidate",
        "time",
        "±",
        "n",
        "default / it",
        "kernel",
        left=("candidate", "kernel"),
        optional=("kernel",),
    )
    for product in sweep.products:
        for time in product.times:
            half = (time.high_ms - time.low_ms) / 2 / time.time_ms
            rows.add_row(
                str(product.value),
                time.name,
                duration(1e6 * time.time_ms),
                percent(half if math.isfinite(half) else None),
                str(time.n),
                "" if time.change is None else ratio(time.change),
                time.kernel or "?",
            )
    return [*lines, rows]
