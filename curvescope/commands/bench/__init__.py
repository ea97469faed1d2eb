"""Measure operators and the device alone. `curvescope bench WHAT --help` lists the options of each benchmark.

Every result is checked against float64 before it is timed. `explain` and `breakdown` read the recordings.
"""

from __future__ import annotations

import argparse
import importlib

from ...parsers import CommandParser

# Help line by name. The module of that name in this package defines `add_arguments(parser)` and `run(args) -> int`,
# like a command, and is imported only when it runs.
BENCHES = {
    "gemm": "matrix products, at any shapes or over a batch axis",
    "conv": "convolutions: forward, and backward to data or weights",
    "attention": "scaled dot-product attention by implementation, over batch, heads and length",
    "operators": "normalisation, softmax, elementwise work and embedding",
    "memory": "bandwidth of copy, scale, add, triad, read and write in every memory level",
    "latency": "time of one load in every memory level",
    "launch": "latency and throughput of kernel launches",
    "transfer": "copies between the host and a GPU, from pinned and pageable memory",
    "peak": "fused multiply-adds per second",
    "replay": "operator calls of a recorded step, rebuilt and run alone",
    "all": "each of the above once, without replay",
    "ceilings": "limits of this device, stored for all later utilisations",
    "compile": "resources of our CUDA kernels on each GPU generation, from cubins, without a GPU",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, BENCHES))
    lines = [f"  {name:<{width}}  {line}" for name, line in BENCHES.items()]
    parser.epilog = "\n".join(["benchmarks:", *lines])
    parser.add_argument("bench", choices=BENCHES, metavar="WHAT", help="one of the benchmarks below")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")


def run(args: argparse.Namespace) -> int:
    module = importlib.import_module(f".{args.bench}", __package__)
    parser = CommandParser(f"curvescope bench {args.bench}", module.__doc__)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(args.options)))
