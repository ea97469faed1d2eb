"""What the benchmarks of operators share: their options, the measuring with its progress, the table at the end."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...arguments import parse_share
from ...profiling.errors import CurvescopeError
from .against import hold_against, render

if TYPE_CHECKING:
    from ...kernels.backends import Backend
    from ...kernels.conditions import Note
    from ...kernels.conv import Conv
    from ...kernels.gemm import Gemm
    from ...kernels.method import Method
    from ...kernels.runner import Result
    from ...kernels.sweeps import Sweep


# Work that every problem of a set is cut down to by --reduced: milliseconds on any machine.
_REDUCED_FLOPS = 2_000_000


def add_axes(parser: argparse.ArgumentParser, precision: str = "fp32") -> None:
    """Options of the benchmarks whose problems are given by axes alone."""
    parser.add_argument(
        "--axis", action="append", default=[], metavar="NAME=VALUES", help="as in size=4096..65536; once for each axis"
    )
    parser.add_argument("--precision", default=precision, help=f"fp32 or fp64, or both (default: {precision})")


def add_problems(parser: argparse.ArgumentParser) -> None:
    """Options that say which matrix products or convolutions."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--axis", action="append", default=[], metavar="NAME=VALUES", help="as in n=1,2,4..256; once for each axis"
    )
    which.add_argument("--from", dest="network", metavar="NETWORK", help="the layers of a network, as in vgg_a")
    which.add_argument("--set", choices=("deepbench",), help="a published set of problems")
    parser.add_argument("--batch", default="64", help="batch sizes for --from: 64, or 1,2,4 or 1..64 (default: 64)")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="RECORDING",
        help="with --from: hold each layer's cost in a step against it alone",
    )
    parser.add_argument("--reduced", action="store_true", help="cut every problem down: a trial that all of them run")
    parser.add_argument("--precision", default="fp32", help="fp64, fp32, tf32, fp16 or bf16, or several: fp32,bf16")


def problems_of(args: argparse.Namespace, base: Gemm | Conv) -> list[Sweep]:
    """The sweeps that the options of `add_problems` ask for.

    Args:
        args: parsed.
        base: what `--axis` changes; its type says which of a set's or network's problems are meant.

    Raises:
        CurvescopeError: there are none.
    """
    from ...kernels import problem_sets, sweeps
    from ...kernels.gemm import Gemm
    from ...profiling.measure.protocol import parse_batches
    from ...profiling.workload.networks import get_network

    found: list[Sweep] = []
    if args.against is not None and (args.network is None or args.reduced):
        raise CurvescopeError("--against needs --from NETWORK at full size: it is the layers that are held against it.")
    if args.network is not None:
        network, batches = get_network(args.network), parse_batches(args.batch)
        for precision in dict.fromkeys(args.precision.split(",")):
            found += problem_sets.layer_sweeps(network, batches, type(base), precision)
        if not found:
            raise CurvescopeError(f"{args.network} has no such layer: try `bench gemm` for `bench conv` or back.")
    elif args.set is not None:
        of_set = problem_sets.deepbench_gemm if isinstance(base, Gemm) else problem_sets.deepbench_conv
        for precision in dict.fromkeys(args.precision.split(",")):
            found += sweeps.group(of_set(precision), "n")
    else:
        found = sweeps.span(base, args.axis, args.precision)
    if not args.reduced:
        return found
    return [problem_sets.reduce_sweep(sweep, _REDUCED_FLOPS) for sweep in found]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every benchmark that times problems."""
    parser.add_argument(
        "--backend", default="torch", help="what runs it: torch, numba, cupy or pycuda (default: %(default)s)"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda if there is one)")
    parser.add_argument(
        "--cache",
        choices=("cold", "hot"),
        default="cold",
        help="cold: the caches are flushed before every sample; hot: they are not, and short kernels are called many "
        "times in a sample (default: %(default)s)",
    )
    parser.add_argument(
        "--until", default="1%", metavar="SHARE", help="stop when the median is this sure (default: 1%%)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=3.0, metavar="S", help="seconds for one problem (default: %(default)g)"
    )
    parser.add_argument("--no-verify", action="store_true", help="time without checking results; they are marked so")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to record (default: runs/DATE_WHAT)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def method_of(args: argparse.Namespace) -> Method:
    """The method that the options ask for.

    Raises:
        CurvescopeError: a share or a limit that makes no sense.
    """
    from ...kernels.method import Method

    until = parse_share("--until", args.until, "a share of the median, as in 1% or 0.01")
    if not args.time_limit > 0:
        raise CurvescopeError(f"--time-limit {args.time_limit}: seconds, more than 0.")
    # A third of the limit goes to the least visits: the rest is for those that precision asks for.
    visit_s = min(Method.visit_s, args.time_limit / 3 / Method.visits[0])
    return Method(args.cache, until, args.time_limit, visit_s=visit_s, verify=not args.no_verify)


def streams(library: Backend, device: str | None) -> Backend:
    """The backend with kernels of our own, where one is installed; else the library, which then does what it can."""
    from ...kernels.backends import open_backend
    from ...profiling.errors import BackendMissingError

    names = ("numba",) if library.describe()["kind"] == "cpu" else ("cupy", "pycuda")
    for name in names:
        try:
            return open_backend(name, device if name != "numba" else "cpu")
        except BackendMissingError as error:
            print(f"curvescope: {error}", file=sys.stderr)
    print(f"curvescope: {library.name} measures the memory instead; no latency, no arithmetic peak.", file=sys.stderr)
    return library


class Done(NamedTuple):
    """A sweep that was measured."""

    path: Path
    backend: str
    sweep: Sweep
    results: list[Result]


def measure(args: argparse.Namespace, what: str, sweeps: Sequence[Sweep]) -> int:
    """Measure the sweeps with the backend of the options, record each, print the results.

    Returns:
        The exit code: 1 where a result was incorrect or a problem failed.
    """
    from ...kernels.backends import open_backend

    backend = open_backend(args.backend, args.device)
    return show(args, collect(args, what, [(backend, sweep) for sweep in sweeps]))


def collect(args: argparse.Namespace, what: str, jobs: Sequence[tuple[Backend, Sweep]]) -> list[Done]:
    """Measure and record; progress goes to standard error.

    Args:
        args: of `add_arguments`.
        what: name of the benchmark.
        jobs: each becomes a recording: the output folder itself, or where there are several a folder in it.
    """
    from ...analysis.render import terminal
    from ...kernels.runner import run_sweep
    from ...profiling.recording.store import new_recording_path

    method = method_of(args)
    path = args.output or new_recording_path(what)
    count = sum(len(sweep.problems) for _, sweep in jobs)
    backends = {backend.name: backend for backend, _ in jobs}
    timers = " and ".join(dict.fromkeys(backend.timer.name for backend in backends.values()))
    messages = terminal.console(stderr=True)
    messages.print(
        f"Measuring {count} problem{'s' * (count != 1)} with {' and '.join(backends)} on "
        f"{jobs[0][0].describe()['name']}, {method.cache} caches, timed by {timers}, at most about "
        f"{method.time_limit_s:g} s each, into {path}."
    )
    done: list[Done] = []
    with terminal.progress_bars(40, counted=True) as bars:
        task = bars.add_task("preparing", total=count)

        def report(result: Result) -> None:
            bars.update(task, description=f"{result.problem}, visit {result.visits}")

        try:
            for backend, sweep in jobs:
                folder = path if len(jobs) == 1 else path / _folder(sweep)
                results = run_sweep(sweep, backend, method, folder, report)
                done.append(Done(folder, backend.name, sweep, results))
                bars.advance(task, len(sweep.problems))
        except KeyboardInterrupt:
            bars.console.print(
                f"Interrupted. What was measured is whole, in {path}: `curvescope runs {path}` lists it."
            )
            raise
    return done


def show(args: argparse.Namespace, done: Sequence[Done]) -> int:
    """Print the results, as a table or as one JSON document.

    Returns:
        The exit code: 1 where a result was incorrect or a problem failed.
    """
    from ...analysis.render import terminal
    from ...kernels.method import Outcome

    recording = getattr(args, "against", None)
    held = hold_against(recording, [(one.sweep, one.results) for one in done]) if recording else []
    if args.json:
        document = {"method": dataclasses.asdict(method_of(args)), "sweeps": _document(done)}
        print(json.dumps({**document, **({"against": [one._asdict() for one in held]} if held else {})}))
    else:
        _show(done, args.cache)
        if held:
            terminal.console().print(render(held))
    wrong = {Outcome.INCORRECT, Outcome.FAILED}
    return int(any(result.outcome in wrong for one in done for result in one.results))


def _folder(sweep: Sweep) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in sweep.label.replace("*", sweep.axis))


def _document(done: Sequence[Done]) -> list[dict[str, Any]]:
    from ...kernels.runner import document

    return [
        {
            "recording": str(path),
            "backend": backend,
            "label": sweep.label,
            "axis": sweep.axis,
            "layers": sweep.layers,
            "phase": sweep.phase,
            "results": [document(result) for result in results],
        }
        for path, backend, sweep, results in done
    ]


def _show(done: Sequence[Done], cache: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from ...analysis.render import terminal

    console = terminal.console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("problem")
    for name in ("median", "±", "n", "GFLOP/s", "GB/s"):
        table.add_column(name, justify="right")
    for _, _, sweep, results in done:
        for result in results:
            alike = f" (and {len(sweep.layers) - 1} alike)" if len(sweep.layers) > 1 else ""
            table.add_row(" ".join(filter(None, (sweep.layer, result.problem))) + alike, *_cells(result))
    console.print(table)
    print_notes(done)
    path = done[0].path if len(done) == 1 else done[0].path.parent
    console.print(Text(f"{cache.capitalize()} caches; GB/s of compulsory bytes; * not verified. Recorded in {path}."))
    if swept := next((one for one in done if len(one.sweep.problems) > 1), None):
        console.print(Text(f"Next: curvescope explain {swept.path}"), soft_wrap=True)


def print_notes(done: Sequence[Done]) -> None:
    """The worst of each kind, once."""
    from rich.text import Text

    from ...analysis.render import terminal

    notes: dict[str, list[Note]] = {}
    for one in done:
        for result in one.results:
            for note in result.notes:
                notes.setdefault(note.kind, []).append(note)
    for of_kind in notes.values():
        worst = max(of_kind, key=lambda note: note.size).sentence
        several = f" (the worst of {len(of_kind)})" if len(of_kind) > 1 else ""
        terminal.console().print(Text(f"{worst}{several}.", "yellow"))


def share(value: float | None) -> str:
    """An uncertainty as a table shows it."""
    if value is None:
        return "?"
    return f"{value:.1%}" if value < 1 else ">100%"


def _cells(result: Result) -> tuple[str, ...]:
    if result.median_ns is None:
        return (f"{result.outcome}: {result.detail}"[:60], "", "", "", "")
    from ...analysis.render.numbers import duration

    count, what = result.parts or (1, "")
    return (
        duration(result.median_ns / count) + (f" a {what}" if what else ""),
        share(result.uncertainty),
        f"{result.n}" + ("*" if result.outcome != "ok" else ""),
        f"{result.gflop_per_s:.1f}" if result.gflop_per_s else "-",
        f"{result.gb_per_s:.2f}" if result.gb_per_s and not result.parts else "-",
    )
