"""Kernel launch latency and throughput: one call, a call and its wait, many queued calls, and a CUDA graph of many.

On a CPU only the call itself can be measured.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_arguments(parser)
    parser.set_defaults(cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.launch import KINDS, Launch
    from ...kernels.sweeps import single

    return measuring.measure(args, "launch", [single(Launch(kind)) for kind in KINDS])
