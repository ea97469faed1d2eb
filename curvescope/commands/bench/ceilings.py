"""Measure the ceilings of this device and store them: recordings, also earlier ones, give
utilisations against them.

Compute is measured by precision, by library matrix products of random numbers. On a CPU, fused
multiply-adds count too where they are faster. Bandwidth is the fastest copy, triad, read or write
of each memory level. On a GPU the peak of the units is measured too, by multiply-adds of constants.
No data reaches it, because random numbers draw more power. It is left out where our kernels stay
below it: on Blackwell's tensor cores, and on Hopper's without NVRTC 12. Ceilings are stored in
$CURVESCOPE_DATA or ~/.local/share/curvescope.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...analysis.render import terminal
from ...analysis.render.tables import table
from ...base.numbers import quantity
from . import measuring
from .result_columns import percent

if TYPE_CHECKING:
    from ...profiling.hardware.ceilings import Ceilings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_arguments(parser)
    parser.set_defaults(backend="torch", cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.backends import open_backend
    from ...kernels.ceilings import ceiling_problems, find_ceilings
    from ...profiling.hardware.ceilings import save

    library = open_backend(args.backend, args.device)
    problems = ceiling_problems(measuring.own_kernels(library, args.device), library)
    jobs = [(backend, sweep) for backend, _, sweep in problems]
    measured = measuring.collect(args, "ceilings", jobs)
    results = []
    for (_, place, _), sweep_result in zip(problems, measured, strict=True):
        results += [(sweep_result.backend, place, result) for result in sweep_result.results]
    ceilings = find_ceilings(library.describe(), results)
    path = save(ceilings)
    if args.json:
        from ...analysis.render.documents import print_document
        from .documents import CeilingsDocument

        print_document(CeilingsDocument(kept=str(path), **ceilings.entry()))
    else:
        _print(ceilings)
        measuring.print_notes(measured)
        print(f"Stored in {path}: new recordings on this device include a copy.")
    return 0


def _print(measured: Ceilings) -> None:
    rows = table("ceiling", "value", "±", "reached by", words=("reached by",))
    for ceilings, prefix, unit in (
        (measured.compute, "", "FLOP/s"),
        (measured.units, "peak of the units, ", "FLOP/s"),
        (measured.bandwidth, "", "B/s"),
    ):
        for name, ceiling in ceilings.items():
            rate = quantity(ceiling.per_s, unit, 4)
            rows.add_row(prefix + name, rate, percent(ceiling.uncertainty), ceiling.how)
    terminal.console().print(rows)
