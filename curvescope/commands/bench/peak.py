"""Arithmetic peak: fused multiply-adds that stay in registers, on every thread."""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precision", default="fp32,fp64", help="fp32 or fp64, or both (default: fp32,fp64)")
    measuring.add_arguments(parser)
    parser.set_defaults(backend="numba", cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.backends import open_backend, peak_problem
    from ...kernels.sweeps import single

    backend = open_backend(args.backend, args.device)
    problems = [peak_problem(backend, precision) for precision in args.precision.split(",")]
    return measuring.measure(args, "peak", [single(problem) for problem in problems])
