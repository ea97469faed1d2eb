"""Measure operators and the device in isolation.

`curvescope bench WHAT --help` lists the options of each benchmark. WHAT may be a function of yours:
`curvescope bench kernels.py:matmul --axis n=64..4096`.

Every result is checked against float64 before it is timed. `explain` and `breakdown` read the
recordings.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...parsers import Command, CommandParser, Part, Run, add_parts, refuse_given, run_part
from . import around, candidates, measuring, problems, roof

if TYPE_CHECKING:
    from ...kernels.backends import Backend
    from ...kernels.sweeps import Sweep

_SHORT = {"cache": "hot", "time_limit": 1.0}  # of little work each
_OWN = {"backend": "numba", **_SHORT}  # by kernels of our own, which need a compiler


class Bench(NamedTuple):
    """A benchmark that times problems."""

    name: str
    help: str  # line in `curvescope bench --help`
    # its docstring is the description
    make_problems: Callable[[argparse.Namespace, Backend], list[Sweep]]
    # declares the options that choose problems
    add_options: Callable[[argparse.ArgumentParser], None] | None = None
    defaults: Mapping[str, Any] = {}  # of other options, by name
    show: measuring.Show | None = None  # prints the results, where not as a table alone

    def build(self) -> tuple[CommandParser, Run]:
        """Its parser, and what runs it."""
        make = self.make_problems
        documented = make.func if isinstance(make, partial) else make
        parser = CommandParser(f"curvescope bench {self.name}", inspect.getdoc(documented))
        if self.add_options is not None:
            self.add_options(parser)
        measuring.add_arguments(parser)
        parser.set_defaults(**self.defaults)
        return parser, self._run

    def _run(self, args: argparse.Namespace) -> int:
        from ...kernels.backends import open_backend

        backend = open_backend(args.backend, args.device)
        if getattr(args, "around", None) is not None:
            return around.run(args, self.name, backend)
        refuse_given(args, "Without --around no recording is read", *problems.OF_AROUND)
        sweeps = self.make_problems(args, backend)
        if getattr(args, "candidates", False):
            return candidates.run(args, sweeps)
        jobs = [(backend, sweep) for sweep in sweeps]
        what = re.sub(r"[^\w.-]", "_", self.name)
        return measuring.measure_and_show(args, what, jobs, self.show)


_ALL = (
    Bench(
        "gemm",
        "matrix products, single, in batches or with an epilogue, at any shapes",
        problems.gemm,
        problems.add_problems,
        {"precision": None},  # so that a sweep that nobody chose takes those of the device
    ),
    Bench(
        "conv",
        "convolutions: forward, and backward to data or weights",
        problems.conv,
        problems.add_problems,
    ),
    Bench(
        "attention",
        "scaled dot-product attention by implementation, over batch, heads and length",
        problems.attention,
        partial(problems.add_axes, precision="bf16", choices="fp64, fp32, tf32, fp16 or bf16"),
    ),
    Bench(
        "experts",
        "grouped products of a mixture of experts, in one call or a loop",
        problems.experts,
        partial(problems.add_axes, precision="bf16", choices="fp32, fp16 or bf16"),
    ),
    Bench(
        "operators",
        "normalisation, softmax, elementwise work and embedding",
        problems.operators,
        partial(problems.add_axes, choices="fp64, fp32, fp16 or bf16"),
    ),
    Bench(
        "memory",
        "bandwidth of copy, scale, add, triad, read and write in every memory level",
        problems.memory,
        problems.add_axes,
        _OWN,
    ),
    Bench(
        "roof",
        "rates over FLOPs per byte: the measured roof, and its ridge",
        problems.roof,
        problems.add_axes,
        _OWN,
        roof.show,
    ),
    Bench(
        "latency",
        "time of one load in every memory level",
        problems.latency,
        partial(problems.add_axes, precision="fp64"),
        _OWN,
    ),
    Bench("launch", "latency and throughput of kernel launches", problems.launch, None, _SHORT),
    Bench(
        "transfer",
        "copies between the host and a GPU, from pinned and pageable memory",
        problems.transfer,
        problems.add_axes,
        _SHORT,
    ),
    Bench(
        "peak",
        "fused multiply-adds per second",
        problems.peak,
        partial(problems.add_precision, default="fp32,fp64", choices="fp32 or fp64"),
        _OWN,
    ),
    Command("bench replay", "operator calls of a recorded step, rebuilt and run in isolation"),
    Command("bench all", "each of the above once, without replay"),
    Command("bench ceilings", "limits of this device, stored for all later utilisations"),
)


class Benches(dict[str, Part]):
    """The benchmarks by name; a function of the user's, `FILE.py:FUNCTION`, is one too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or _is_function(name)

    def __missing__(self, name: str) -> Part:
        if not _is_function(name):
            raise KeyError(name)
        return Bench(
            name,
            "a function of yours",
            partial(problems.own, spec=name),
            partial(problems.add_axes, choices="of the peak that its FLOPs are compared with"),
        )


def _is_function(name: object) -> bool:
    return isinstance(name, str) and ".py:" in name


BENCHES = Benches({bench.name.removeprefix("bench "): bench for bench in _ALL})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_parts(parser, BENCHES, "benchmarks", "or FILE.py:FUNCTION, a kernel of yours")


def run(args: argparse.Namespace) -> int:
    return run_part(BENCHES, args)
