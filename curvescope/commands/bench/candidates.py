"""`bench gemm --candidates` and `conv`: whether the library could do better than its choice."""

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
    from ...analysis.candidates import CandidatesSweep, CandidateTime, Checked
    from ...experiments.candidates import Candidate
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
        _print(compared, folder)
    outcomes = {each.outcome for of_sweep in compared for each in of_sweep.checked}
    return int(bool(outcomes & {BenchOutcome.INCORRECT, BenchOutcome.FAILED}))


def _print(compared: Sequence[CandidatesSweep], folder: Path) -> None:
    console = terminal.console()
    for of_sweep in compared:
        for line in render(of_sweep):
            console.print(line)
    console.print(f"Warm caches; 95 % intervals over processes. Recorded in {folder}.")
    console.print("Next:")
    first = compared[0]
    paths = [f"{first.recordings}/{each.name}" for each in first.checked if each.timed]
    terminal.print_commands(console, " ".join(["curvescope compare", *paths]))


def _measure_candidates(args: argparse.Namespace, sweep: Sweep, folder: Path) -> CandidatesSweep:
    from ...analysis.candidates import CandidatesSweep, products_of
    from ...analysis.compare import is_decided
    from ...analysis.render.live import LiveProgress
    from ...base.torch_runtime import pick_device
    from ...experiments.candidates import DEFAULT, check_candidates, measure_candidates, protocol_of
    from ...profiling.measure.versions import ROUNDS_OF_PROCESS

    device, method = pick_device(args.device), method_of(args)
    offered = _choose(sweep, device)
    messages = terminal.console(stderr=True)
    messages.print(
        f"Checking {counted(len(offered), 'candidate')} and the default of {sweep.label}."
    )
    checked = check_candidates(sweep, device, offered, method.verify)
    timed = _keep_right(sweep, offered, checked)
    names = [DEFAULT, *(candidate.name for candidate in timed)]
    protocol = protocol_of(method, len(sweep.problems) * len(names))
    until = parse_share("--until", args.until, "a share of the time, e.g. 1% or 0.01")
    processes = protocol.rounds[0] // ROUNDS_OF_PROCESS
    messages.print(
        f"Timing {counted(len(sweep.problems), 'product')} under {len(names)} settings on "
        f"{device}, each in at least {processes} processes, into {folder}."
    )
    with clocks(args, device), LiveProgress() as view:
        paths = measure_candidates(
            sweep,
            device,
            timed,
            protocol,
            folder,
            decided=lambda rows, rounds: is_decided(rows, names, until, rounds),
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


def _choose(sweep: Sweep, device: str) -> list[Candidate]:
    """The candidates of a sweep's kind and precision on a device."""
    from ...experiments.candidates import candidates_for
    from ...kernels.gemm import Gemm

    problem = next(iter(sweep.problems.values()))
    if isinstance(problem, Gemm) and (problem.batch > 1 or problem.has_epilogue):
        raise CurvescopeError(
            f"{sweep.label}: candidates are of single products without an epilogue."
        )
    precision = problem.precision
    offered = candidates_for(precision, device, kind=type(problem))
    if not offered:
        raise CurvescopeError(
            f"{sweep.label}: on {device} no setting is known that changes products of {precision}."
        )
    return offered


def _keep_right(
    sweep: Sweep, offered: Sequence[Candidate], checked: Sequence[Checked]
) -> list[Candidate]:
    """The candidates with right results, besides the default, which must be right."""
    default, *others = checked
    if not default.timed:
        raise CurvescopeError(
            f"{sweep.label} cannot be timed by default: {default.outcome}, {default.detail}"
        )
    right = {other.name for other in others if other.timed}
    if not right:
        details = "; ".join(f"{other.name}: {other.detail}" for other in others)
        raise CurvescopeError(f"No candidate of {sweep.label} can be timed: {details}")
    return [candidate for candidate in offered if candidate.name in right]


def render(sweep: CandidatesSweep) -> list[str | TextTable]:
    """The answers, the candidates that were not timed, and a table of all times."""
    lines: list[str | TextTable] = [f"{sweep.label}"]
    lines += [of_product.answer for of_product in sweep.products]
    for candidate in sweep.checked:
        if not candidate.timed:
            line = f"Not timed: {candidate.name}, {candidate.outcome}: {candidate.detail}"
            lines.append(line)
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
            rows.add_row(str(product.value), *_cells(time))
    return [*lines, rows]


def _cells(time: CandidateTime) -> tuple[str, ...]:
    from ...analysis.candidates import ratio

    share = (time.high_ms - time.low_ms) / 2 / time.time_ms
    spread = percent(share if math.isfinite(share) else None)
    change = "" if time.change is None else ratio(time.change)
    shown = duration(1e6 * time.time_ms)
    return (time.name, shown, spread, str(time.n), change, time.kernel or "?")
