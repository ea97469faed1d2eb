"""Run every benchmark once: matrix product, convolution, memory, latency, launch, peak.

A few minutes.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_arguments(parser)
    parser.set_defaults(cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.backends import open_backend
    from ...kernels.ceilings import every_problem

    library = open_backend(args.backend, args.device)
    jobs = every_problem(measuring.own_kernels(library, args.device), library)
    return measuring.measure_and_show(args, "all", jobs)
