"""Predict the cost curve of a network on a GPU that is not here, by the cost model, and explain it.

Nothing runs, and every view of the result is marked as modelled. `curvescope devices` lists the
GPUs. The model knows eager steps in fp32, fp16 and bf16.
"""

from __future__ import annotations

import argparse

from .. import options
from ..base.errors import CurvescopeError
from ..parsers import group
from ..profiling.measure.axes import DEFAULT_BATCHES
from ..profiling.measure.protocol import parse_batches, parse_bytes

_GPU = "modelled GPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        help="name of a network, e.g. vgg_a, or PACKAGE.MODULE:FUNCTION with --input-shape",
    )
    options.add(parser, "--input-shape", "--mode")
    words = "fp32 (default), or mixed precision in fp16 or bf16"
    options.add(parser, "--precision", choices=("fp32", "fp16", "bf16"), help=words)
    options.add(parser, "--batch")
    modelled = group(parser, _GPU)
    modelled.add_argument(
        "--device", required=True, metavar="GPU", help="name of the GPU, e.g. gtx1080"
    )
    modelled.add_argument("--library", metavar="NAME", help="its cuDNN, e.g. cudnn5.1 or cudnn7")
    modelled.add_argument(
        "--framework",
        default="torch",
        metavar="NAME",
        help="torch (default), tensorflow, tensorflow1.0, mxnet, mxnet0.9, paddle or caffe",
    )
    modelled.add_argument(
        "--what-if",
        metavar="FACT=VALUE[,…]",
        help="changed facts, e.g. memory_bytes=12GiB,sm_count=40 (`curvescope devices GPU` lists "
        "them)",
    )
    options.add(parser, *options.RESULT)


def run(args: argparse.Namespace) -> int:
    from ..analysis.cost_model.networks import load_operations
    from ..analysis.cost_model.recording import record_model
    from ..analysis.render.show import show_diagnosis
    from ..profiling.measure.configuration import Configuration
    from ..profiling.recording.store import new_recording_path, open_recording
    from ..profiling.workload.networks.operations import operations

    sample = options.sample_of(args, args.network)
    network = Configuration(args.network, *sample).find_network()
    stored = sample == (None, None)  # its operations are, so that torch is not needed
    path = args.output or new_recording_path(args.network)
    record_model(
        path,
        network.name,
        load_operations(network.name) if stored else operations(network),
        parse_batches(args.batch or DEFAULT_BATCHES),
        args.device,
        args.library,
        args.mode,
        args.framework,
        _facts(args.what_if),
        args.precision,
    )
    show_diagnosis(open_recording(path), **options.shown(args))
    return 0


def _facts(text: str | None) -> dict[str, float]:
    """Parse `--what-if` to values by name of the fact."""
    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    if not all(name and value for name, _, value in pairs):
        raise CurvescopeError(
            f"--what-if {text}: write facts and values, e.g. memory_bytes=12GiB,sm_count=40."
        )
    return {name.strip(): parse_bytes(value, f"--what-if {name}") for name, _, value in pairs}
