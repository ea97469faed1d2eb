"""Latency of the memory levels: a chain of dependent loads through buffers of each size, in ns per load.

Axes: size (bytes of the buffer), loads (of one chain). Without an axis each memory level is measured once.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_axes(parser, precision="fp64")
    measuring.add_arguments(parser)
    parser.set_defaults(backend="numba", cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.backends import open_backend
    from ...kernels.latency import Latency
    from ...kernels.levels import memory_levels
    from ...kernels.sweeps import span

    axes = list(args.axis)
    if not any(axis.startswith("size=") for axis in axes):
        device = open_backend(args.backend, args.device).describe()
        axes.append("size=" + ",".join(str(level.size_bytes) for level in memory_levels(device, processors=1)))
    return measuring.measure(args, "latency", span(Latency(4096), axes, args.precision, "size"))
