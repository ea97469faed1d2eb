"""Memory traffic: copy, scale, add, triad, read and write at sizes from the first cache to DRAM.

Axes: kind (copy, scale, add, triad, read, write), size (bytes that all arrays span), stride (elements). Without an
axis every kind is measured once in each memory level. `--axis kind=triad --axis size=16384..268435456` is a curve.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_axes(parser)
    measuring.add_arguments(parser)
    parser.set_defaults(backend="numba", cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.backends import open_backend
    from ...kernels.levels import memory_levels
    from ...kernels.memory import KINDS, Memory
    from ...kernels.sweeps import span

    axes = measuring.with_all(args.axis, "kind", KINDS)
    sizes = [level.size_bytes for level in memory_levels(open_backend(args.backend, args.device).describe())]
    if not any(axis.startswith("size=") for axis in axes):
        axes.append("size=" + ",".join(map(str, sizes)))
    return measuring.measure(args, "memory", span(Memory("triad", sizes[0]), axes, args.precision, "size"))
