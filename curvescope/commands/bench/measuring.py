"""Shared by the benchmarks: options, measurement with progress, and the table of results."""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...analysis.render import terminal
from ...analysis.render.cells import bar
from ...analysis.render.of_peak import note_of_peaks
from ...analysis.render.tables import TextTable, table
from ...analysis.render.words import shorten
from ...base.arguments import parse_share
from ...base.counted import counted
from ...base.endings import answer_if_interrupted
from ...base.errors import BackendMissingError
from ...base.numbers import duration
from ...options import HOW, WHERE, add, check_time_limit, clocks
from ...parsers import group
from .result_columns import COLUMNS, columns, outcome_in_words

if TYPE_CHECKING:
    from ...kernels.backends import Backend
    from ...kernels.conditions import Note
    from ...kernels.method import Method
    from ...kernels.runner import Result
    from ...kernels.sweeps import Sweep
    from .documents import BenchSweep


_CACHES = ("cold", "hot")
BOTH = "both"
_CURVE = 12  # width of the longest bar of a curve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group(parser, WHERE).add_argument(
        "--backend", default="torch", help="torch, numba, cupy or pycuda (default: %(default)s)"
    )
    group(parser, HOW).add_argument(
        "--no-verify", action="store_true", help="do not check results; the table marks them with *"
    )
    add_method(parser, caches=(*_CACHES, BOTH))


def add_method(
    parser: argparse.ArgumentParser,
    time_limit_s: float = 3.0,
    device: str = "cuda if there is one",
    caches: Sequence[str] = _CACHES,
) -> None:
    """Declare the options of device, method and output; `device` is the default of --device, in
    words.
    """
    and_both = "; or both, side by side" if BOTH in caches else ""
    how = group(parser, HOW)
    add(parser, "--device", help=f"cpu, cuda or cuda:N (default: {device})")
    how.add_argument(
        "--cache",
        choices=caches,
        default="cold",
        help="state of the caches: cold, flushed before every sample; or hot, not flushed, with "
        f"many calls of a short kernel in a sample{and_both} (default: %(default)s)",
    )
    how.add_argument(
        "--until",
        default="1%",
        metavar="SHARE",
        help="precision of the median at which to stop (default: 1%%)",
    )
    how.add_argument(
        "--time-limit",
        type=float,
        default=time_limit_s,
        metavar="S",
        help="seconds for one problem (default: %(default)g)",
    )
    add(parser, "--output", type=Path, help="folder to record in (default: runs/DATE_WHAT)")
    add(parser, "--lock-clocks", "--json")


def caches_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The states of the caches to measure in."""
    return _CACHES if args.cache == BOTH else (args.cache,)


def method_of(args: argparse.Namespace, cache: str | None = None) -> Method:
    """The settings of the measurement, from the options of `add_method`; in one of `caches_of`."""
    from ...kernels.method import Method

    until = parse_share("--until", args.until, "a share of the median, e.g. 1% or 0.01")
    # The least number of visits takes a third of the limit; the rest is for visits that improve the
    # precision.
    least_visits, _ = Method.visits
    longest_s = check_time_limit(args.time_limit) / 3 / least_visits
    visit_s = min(Method.visit_s, longest_s)
    verify = not args.no_verify
    return Method(cache or args.cache, until, args.time_limit, visit_s=visit_s, verify=verify)


def own_kernels(library: Backend, device: str | None) -> Backend:
    """The backend with Curvescope's own kernels if one is installed; else the library, which has
    fewer benchmarks.
    """
    from ...kernels.backends import open_backend

    on_cpu = library.describe()["kind"] == "cpu"
    for name in ("numba",) if on_cpu else ("cupy", "pycuda"):
        try:
            return open_backend(name, "cpu" if on_cpu else device)
        except BackendMissingError as error:
            print(f"curvescope: {error}", file=sys.stderr)
    print(
        f"curvescope: {library.name} measures memory instead; no latency, no arithmetic peak.",
        file=sys.stderr,
    )
    return library


class MeasuredSweep(NamedTuple):
    """A sweep with its results."""

    path: Path  # of the recording
    backend: str
    sweep: Sweep
    results: list[Result]
    cache: str  # state of the caches


def collect(
    args: argparse.Namespace,
    what: str,
    jobs: Sequence[tuple[Backend, Sweep]],
    ended: Callable[[int, MeasuredSweep], object] = lambda *_: None,
    measured: list[MeasuredSweep] | None = None,
) -> list[MeasuredSweep]:
    """Measure and record; progress goes to standard error.

    Args:
        args: parsed options of `add_method`.
        what: name of the benchmark.
        jobs: backend and sweep of each recording. A single recording is the output folder; several
            are folders in it.
        ended: takes the number of each job from 0 and its results, when it has ended.
        measured: list that gets the results, also where this is interrupted.
    """
    from ...kernels.runner import run_sweep
    from ...profiling.recording.store import new_recording_path
    from .live_results import LiveResults

    method, caches = method_of(args), caches_of(args)
    path = args.output or new_recording_path(what)
    runs = [(backend, sweep, cache) for backend, sweep in jobs for cache in caches]
    count = sum(len(sweep.problems) for _, sweep, _ in runs)
    device = _announce(jobs, count, method, path)
    measured = [] if measured is None else measured
    with clocks(args, _name_device(args, device)), LiveResults(count, method.time_limit_s) as view:
        try:
            for backend, sweep, cache in runs:
                folder = path
                if len(runs) > 1:
                    folder /= folder_of(sweep) + (f"_{cache}" if len(caches) > 1 else "")
                view.begin()
                so_far: dict[str, Result] = {}

                def report(result: Result, so_far: dict[str, Result] = so_far) -> None:
                    so_far[result.problem] = result
                    view.report(result)

                try:
                    how = method_of(args, cache)
                    results = run_sweep(sweep, backend, how, folder, report)
                except KeyboardInterrupt:
                    if so_far:
                        partial = list(so_far.values())
                        measured.append(MeasuredSweep(folder, backend.name, sweep, partial, cache))
                    raise
                measured.append(MeasuredSweep(folder, backend.name, sweep, results, cache))
                ended(len(measured) - 1, measured[-1])
        except KeyboardInterrupt:
            view.console.print(
                "Interrupted. The recordings so far can be read, and this lists them:"
            )
            terminal.print_commands(view.console, f"curvescope runs {path}")
            raise
    return measured


def _announce(
    jobs: Sequence[tuple[Backend, Sweep]], count: int, method: Method, path: Path
) -> dict[str, Any]:
    """Say what follows on standard error; returns the device."""
    backends = {backend.name: backend for backend, _ in jobs}
    timers = dict.fromkeys(_name_timer(backend) for backend in backends.values())
    device = jobs[0][0].describe()
    terminal.console(stderr=True).print(
        f"Measuring {counted(count, 'problem')} with {' and '.join(backends)} on "
        f"{device['name']}, {method.cache} caches, timed by {' and '.join(timers)}, at most about "
        f"{method.time_limit_s:g} s each, into {path}."
    )
    return device


def _name_timer(backend: Backend) -> str:
    """A timer, with what it reads around nothing."""
    timer = backend.timer
    if timer.empty_ns is None:
        return timer.name
    return f"{timer.name} (an empty pair reads {duration(timer.empty_ns)})"


def _name_device(args: argparse.Namespace, device: dict[str, Any]) -> str:
    """`cpu` or `cuda:N`."""
    if device["kind"] == "cpu":
        return "cpu"
    return args.device if args.device and ":" in args.device else "cuda:0"


Show = Callable[[argparse.Namespace, Sequence[MeasuredSweep]], int]


def measure_and_show(
    args: argparse.Namespace,
    what: str,
    jobs: Sequence[tuple[Backend, Sweep]],
    show: Show | None = None,
) -> int:
    """Measure and print the results, also those before an interrupt; returns the exit code of
    `show`, which prints a table by default.
    """
    print_results = show or show_results
    measured: list[MeasuredSweep] = []
    with answer_if_interrupted(lambda: print_results(args, measured) if measured else None):
        collect(args, what, jobs, measured=measured)
    return print_results(args, measured)


def show_results(args: argparse.Namespace, measured: Sequence[MeasuredSweep]) -> int:
    """Print the results; returns `exit_code`."""
    if args.json:
        from ...analysis.render.documents import print_document
        from .documents import BenchDocument

        sweeps = [_describe(sweep_result) for sweep_result in measured]
        print_document(BenchDocument(method_of(args), sweeps))
    else:
        _show(measured, args.cache)
    return exit_code(measured)


def exit_code(measured: Sequence[MeasuredSweep]) -> int:
    """1 where a result was incorrect or a problem failed, else 0."""
    from ...kernels.method import BenchOutcome

    outcomes = {result.outcome for result in results_of(measured)}
    return int(bool(outcomes & {BenchOutcome.INCORRECT, BenchOutcome.FAILED}))


def _describe(measured: MeasuredSweep) -> BenchSweep:
    from .documents import BenchSweep

    sweep = measured.sweep
    return BenchSweep(
        recording=str(measured.path),
        backend=measured.backend,
        label=sweep.label,
        axis=sweep.axis,
        layers=sweep.layers,
        phase=sweep.phase,
        results=measured.results,
        cache=measured.cache,
    )


def results_of(measured: Sequence[MeasuredSweep]) -> list[Result]:
    """The results of all sweeps."""
    results: list[Result] = []
    for sweep_result in measured:
        results += sweep_result.results
    return results


def path_of(measured: Sequence[MeasuredSweep]) -> Path:
    """The folder of all recordings."""
    first = measured[0].path
    return first if len(measured) == 1 else first.parent


def mark_alike(layers: Sequence[str]) -> str:
    """A note behind the first of layers of the same shape."""
    return f" (and {len(layers) - 1} alike)" if len(layers) > 1 else ""


def folder_of(sweep: Sweep) -> str:
    """Name of the folder of a sweep's recording."""
    return re.sub(r"[^\w.-]", "_", sweep.label.replace("*", sweep.axis))


def _show(measured: Sequence[MeasuredSweep], cache: str) -> None:
    console = terminal.console()
    console.print(_list_both(measured) if cache == BOTH else _list_results(measured))
    for line in _describe_kernels(measured):
        console.print(line)
    print_notes(measured)
    peaks = note_of_peaks(result.of_peak for result in results_of(measured))
    if peaks is not None:
        console.print(peaks)
    state = "Cold and hot" if cache == BOTH else cache.capitalize()
    console.print(
        f"{state} caches; GB/s of compulsory bytes; * not verified. Recorded in "
        f"{path_of(measured)}."
    )
    curves = [each.path for each in measured if len(each.sweep.problems) > 1]
    if curves:
        console.print("Next:")
        terminal.print_commands(console, f"curvescope explain {curves[0]}")


def _list_results(measured: Sequence[MeasuredSweep]) -> TextTable:
    rows = table("problem", *COLUMNS)
    for sweep_result in measured:
        for result in sweep_result.results:
            rows.add_row(_name(sweep_result.sweep, result), *columns(result))
    return rows


def _list_both(measured: Sequence[MeasuredSweep]) -> TextTable:
    """Cold and hot caches side by side, with the curve of the rates of hot ones."""
    rows = table("problem", "cold", "±", "hot", "±", "GFLOP/s", "of peak", "", left=("",))
    hot: dict[str, Result] = {}
    for sweep_result in measured:
        if sweep_result.cache == "hot":
            hot |= {result.problem: result for result in sweep_result.results}
    highest = max((result.gflop_per_s or 0.0 for result in hot.values()), default=0.0)
    for sweep_result in measured:
        for result in sweep_result.results if sweep_result.cache == "cold" else ():
            cold_median, cold_spread, *_ = columns(result)
            if result.problem not in hot:  # interrupted before
                rows.add_row(result.problem, cold_median, cold_spread, *[""] * 5)
                continue
            beside = hot[result.problem]
            median, spread, _, rate, _, of_peak = columns(beside)
            share = (beside.gflop_per_s or 0.0) / highest if highest else 0.0
            times = cold_median, cold_spread, median, spread
            name = _name(sweep_result.sweep, result)
            rows.add_row(name, *times, rate, of_peak, bar(share, _CURVE))
    return rows


def _name(sweep: Sweep, result: Result) -> str:
    name = f"{sweep.layer} {result.problem}" if sweep.layer else result.problem
    return name + mark_alike(sweep.layers)


def _describe_kernels(measured: Sequence[MeasuredSweep]) -> list[str]:
    """What the library fused: how many kernels one call of several operators is."""
    alike: defaultdict[tuple[tuple[str, int], ...], list[str]] = defaultdict(list)
    for sweep_result in measured:
        for result in sweep_result.results:
            problem = sweep_result.sweep.problems[result.value]
            if getattr(problem, "has_several", False) and result.kernels:
                alike[tuple(result.kernels.items())].append(result.problem)
    lines = []
    for kernels, problems in alike.items():
        names = [f"{count} x {shorten(name)}" for name, count in kernels]
        calls = counted(sum(count for _, count in kernels), "kernel")
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        lines.append(f"{calls} a call of {problems[0]}{more}: {', '.join(names)}.")
    return lines


def print_notes(measured: Sequence[MeasuredSweep]) -> None:
    """Print why results are missing, and the worst note of each kind."""
    console = terminal.console()
    missing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    notes: defaultdict[str, list[Note]] = defaultdict(list)
    for result in results_of(measured):
        if result.median_ns is None:
            outcome = outcome_in_words(result).capitalize()
            missing[outcome, result.detail or "no reason given"].append(result.problem)
        for note in result.notes:
            notes[note.kind].append(note)
    for (outcome, detail), problems in missing.items():
        which = problems[0] if len(problems) == 1 else f"{len(problems)} problems"
        console.print(f"{outcome}: {detail.rstrip('.')} ({which}).", style="yellow")
    for same_kind in notes.values():
        worst = max(same_kind, key=lambda note: note.size).sentence
        several = f" (the worst of {len(same_kind)})" if len(same_kind) > 1 else ""
        console.print(f"{worst}{several}.", style="yellow")
