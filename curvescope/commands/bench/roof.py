"""`bench roof`: the measured roof as a picture, and its ridge."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...analysis.render import terminal
from ...analysis.render.curve_picture import draw_roof
from ...base.numbers import number
from . import measuring


def show(args: argparse.Namespace, measured: Sequence[measuring.MeasuredSweep]) -> int:
    """Print the results, and of each sweep the picture and the ridge; returns the exit code."""
    code = measuring.show_results(args, measured)
    if not args.json:
        for sweep_result in measured:
            _draw(sweep_result)
    return code


def _draw(measured: measuring.MeasuredSweep) -> None:
    from ...kernels.mix import Mix, find_ridge

    points, rates = [], []
    for result in measured.results:
        mix = measured.sweep.problems[result.value]
        if isinstance(mix, Mix) and result.gflop_per_s and result.gb_per_s:
            points.append((mix.flops_per_byte, result.gflop_per_s))
            rates.append((result.gflop_per_s, result.gb_per_s))
    if len({intensity for intensity, _ in points}) < 2:
        return
    ridge = find_ridge(rates)
    console = terminal.console()
    console.print(draw_roof(points, ridge.gb_per_s, ridge.gflop_per_s))
    console.print(
        f"Ridge at {number(ridge.flops_per_byte, 3)} FLOPs a byte: "
        f"{number(ridge.gflop_per_s, 4)} GFLOP/s over {number(ridge.gb_per_s, 4)} GB/s, the best "
        "median of each. Below the dotted roof both limit."
    )
