"""Measure what operators and the device cost alone. `curvescope bench WHAT --help` lists the options of each.

Every result is checked against float64 before it is timed. What is recorded, `explain` and `breakdown` read.
"""

from __future__ import annotations

import argparse
import importlib

# name -> its line in the help. The module of that name in this package defines `add_arguments(parser)` and
# `run(args) -> int`, as a command does, and is imported only when it is called.
BENCHES = {
    "gemm": "matrix products, at any shapes or over a batch axis",
    "conv": "convolutions: forward, and backward to data or weights",
    "memory": "bandwidth of copy, scale, add, triad, read and write in every memory level",
    "latency": "time of one load in every memory level",
    "launch": "what it costs to ask for work",
    "peak": "fused multiply-adds per second",
    "all": "each of the above once",
    "ceilings": "what this device can do, kept for every later utilisation",
    "compile": "what our CUDA kernels take on each GPU generation, from cubins, with no GPU",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments; those of a benchmark come after its name."""
    width = max(map(len, BENCHES))
    lines = [f"  {name:<{width}}  {line}" for name, line in BENCHES.items()]
    parser.epilog = "\n".join(["what can be measured:", *lines])
    parser.add_argument("bench", choices=BENCHES, metavar="WHAT", help="one of the below")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="its own options")


def run(args: argparse.Namespace) -> int:
    """Run one benchmark."""
    module = importlib.import_module(f".{args.bench}", __package__)
    parser = argparse.ArgumentParser(
        prog=f"curvescope bench {args.bench}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(args.options)))
