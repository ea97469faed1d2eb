"""Copies between the host and a GPU: bandwidth in both directions, with pinned and with pageable memory.

Axes: kind (to_device, to_host), host (pinned, pageable), size (bytes). Without an axis every kind is measured with both
kinds of memory. `--axis kind=to_device --axis host=pinned --axis size=4096..134217728` is a curve.
"""

from __future__ import annotations

import argparse

from . import measuring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measuring.add_axes(parser)
    measuring.add_arguments(parser)
    parser.set_defaults(cache="hot", time_limit=1.0)


def run(args: argparse.Namespace) -> int:
    from ...kernels.sweeps import span
    from ...kernels.transfer import HOSTS, KINDS, Transfer

    axes = measuring.with_all(measuring.with_all(args.axis, "kind", KINDS), "host", HOSTS)
    return measuring.measure(args, "transfer", span(Transfer(), axes, args.precision, "size"))
