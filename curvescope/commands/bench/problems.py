"""What each benchmark measures; the docstrings are the descriptions of
`curvescope bench WHAT --help`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import CurvescopeError
from ...options import HOW, WHAT
from ...parsers import group
from ...profiling.measure.protocol import parse_batches
from ...profiling.workload.networks import get_network
from .measuring import BOTH, caches_of

OF_AROUND = ("--extent", "--share")  # options of the problems of a recording

if TYPE_CHECKING:
    from ...kernels.backends import Backend
    from ...kernels.conv import Conv
    from ...kernels.gemm import Gemm
    from ...kernels.sweeps import Sweep


def gemm(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """Matrix products in isolation: C (m x n) = op(A) (m x k) · op(B) (k x n), column-major as in
    BLAS.

    Axes: m, n, k, transpose (NN, NT, TN, TT), batch (products of operands of their own), epilogue
    (bias; relu or gelu in the same call; then_relu or then_gelu in a call of its own; on a GPU the
    kernels of a call say what is fused). `--axis n=1,2,4..256` is a cost curve over n, the batch
    size of a fully connected layer. `curvescope explain` reads it.
    `--from vgg_a --batch 1..64` measures the fully connected layers of a network, and
    `--shapes m=512,n=64,k=1024` or `--shapes FILE.csv` products that you list. `--candidates` says
    whether the library could do better. `--around RUN` measures the products of a recorded step
    among their neighbouring sizes, and says which to pad.

    Without any of these n goes from 1 to 4096 in the precisions of the device, in some 20 s, with
    cold and hot caches side by side.
    """
    from ...kernels.gemm import Gemm

    if not args.given & _CHOOSING:
        return _usual_products(args, backend)
    args.precision = args.precision or "fp32"
    return _problems_of(args, Gemm(2048, 2048, 2048))


def conv(args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Convolutions in isolation: forward, backward to the data, backward to the weights.

    Axes: n (the batch), c, h, w, k (filters), r, s (filter height and width), stride, padding,
    dilation (one number, or height and width as 2x1), groups, direction (fwd, bwd_data,
    bwd_weights), layout (nchw, nhwc). The default is VGG's conv3_1 at batch 8.
    `--from vgg_a --batch 1..64` measures the layers of a network, `--around RUN` those of a
    recorded step among their neighbouring sizes.
    """
    from ...kernels.conv import Conv

    return _problems_of(args, Conv(8, 128, 56, 56, 256, 3, 3, padding=(1, 1)))


def attention(args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Scaled dot-product attention: softmax(Q Kᵀ / √size) V of shape (batch, heads, length, size),
    and its gradients.

    Axes: batch, heads, length, size (of a head), algorithm (flash, efficient, cudnn, math), causal
    (0, 1), direction (fwd, bwd: the gradients of all three). Each algorithm is called itself, so
    that none takes the place of another; a device that lacks one says so. `--axis length=128..4096`
    is a cost curve over the length.
    """
    from ...kernels.attention import ALGORITHMS, Attention
    from ...kernels.sweeps import span

    axes = _with_all(args.axis, "algorithm", ALGORITHMS)
    return span(Attention(8, 16, 1024, 64), axes, args.precision, "batch")


def experts(args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Grouped products, as of a mixture of experts: the tokens of each expert times its weights.

    Axes: experts, tokens (of all together, divided evenly), m, k, algorithm (grouped, one call of
    torch._grouped_mm; loop, one of torch.mm for each expert). `--axis tokens=64..8192` is a cost
    curve over the tokens. On a GPU the kernels of a call say whether torch loops inside of the one
    call. On a CPU it does.
    """
    from ...kernels.experts import ALGORITHMS, Experts
    from ...kernels.sweeps import span

    axes = _with_all(args.axis, "algorithm", ALGORITHMS)
    return span(Experts(8, 1024, 1024, 1024), axes, args.precision, "tokens")


def operators(args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Operators over the rows of a matrix: normalisation, softmax, elementwise work and embedding.

    Axes: rows, columns, kind (layer_norm, rms_norm, softmax, add, mul, relu, silu, embedding).
    `--axis kind=softmax --axis rows=256..65536` is a cost curve over the rows. They move memory:
    read GB/s, which counts each operand once.
    """
    from ...kernels.row_operators import KINDS, RowOperator
    from ...kernels.sweeps import span

    axes = _with_all(args.axis, "kind", KINDS)
    return span(RowOperator(8192, 1024), axes, args.precision, "rows")


def memory(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """Memory traffic: copy, scale, add, triad, read and write at sizes from the first cache to
    DRAM.

    Axes: kind (copy, scale, add, triad, read, write), size (bytes that all arrays span), stride
    (elements). Without an axis every kind is measured once in each memory level.
    `--axis kind=triad --axis size=16384..268435456` is a curve.
    """
    from ...kernels.levels import memory_levels
    from ...kernels.memory import KINDS, Memory
    from ...kernels.sweeps import span

    sizes = [level.size_bytes for level in memory_levels(backend.describe())]
    axes = _with_all(_with_all(args.axis, "size", sizes), "kind", KINDS)
    return span(Memory("triad", sizes[0]), axes, args.precision, "size")


def roof(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """The roof of the device, as mixbench measures it: rates over FLOPs per byte, and the ridge
    from which on arithmetic is the limit.

    Each element is read, takes some multiply-adds, and is written. Axes: fmas (of an element; 1 to
    256 are 0.25 to 64 FLOPs a byte in fp32), size (bytes of both arrays).
    """
    from ...kernels.levels import memory_levels
    from ...kernels.mix import FMAS, Mix
    from ...kernels.sweeps import span

    *_, dram = memory_levels(backend.describe())
    axes = _with_all(args.axis, "fmas", FMAS)
    return span(Mix(1, dram.size_bytes), axes, args.precision, "fmas")


def latency(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """Latency of the memory levels: a chain of dependent loads through buffers of each size, in ns
    per load.

    Axes: size (bytes of the buffer), loads (of one chain). Without an axis each memory level is
    measured once.
    """
    from ...kernels.latency import Latency
    from ...kernels.levels import memory_levels
    from ...kernels.sweeps import span

    sizes = [level.size_bytes for level in memory_levels(backend.describe(), processors=1)]
    axes = _with_all(args.axis, "size", sizes)
    return span(Latency(4096), axes, args.precision, "size")


def launch(_args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Kernel launch latency and throughput: one call, a call and its wait, many queued calls, and a
    CUDA graph of many.

    On a CPU only the call itself can be measured.
    """
    from ...kernels.launch import KINDS, Launch
    from ...kernels.sweeps import single

    return [single(Launch(kind)) for kind in KINDS]


def transfer(args: argparse.Namespace, _backend: Backend) -> list[Sweep]:
    """Copies between the host and a GPU: bandwidth in both directions, with pinned and with
    pageable memory.

    Axes: kind (to_device, to_host), host (pinned, pageable), size (bytes). Without an axis every
    kind is measured with both kinds of memory. `--axis kind=to_device --axis host=pinned --axis
    size=4096..134217728` is a curve.
    """
    from ...kernels.sweeps import span
    from ...kernels.transfer import HOSTS, KINDS, Transfer

    axes = _with_all(_with_all(args.axis, "kind", KINDS), "host", HOSTS)
    return span(Transfer(), axes, args.precision, "size")


def peak(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """Arithmetic peak: fused multiply-adds that stay in registers, on every thread."""
    from ...kernels.backends import peak_problem
    from ...kernels.sweeps import single

    return [single(peak_problem(backend, precision)) for precision in args.precision.split(",")]


def own(args: argparse.Namespace, _backend: Backend, spec: str) -> list[Sweep]:
    """A function of yours: it takes the values of the axes by name, makes its operands, and returns
    the call to time, which takes no arguments: of torch, Triton, CuPy or numba.

    It may return a dictionary instead, with `run`, the call; `reference`, a call whose result is
    right; `result`, a call that gives the result, where `run` returns none; `tolerance`, as a share
    of the largest value; `flops` and `bytes` of one run.
    """
    from ...kernels.own import own_sweeps

    return own_sweeps(spec, args.axis, args.precision)


# Options that say which products to measure.
_CHOOSING = {"--axis", "--from", "--shapes", "--candidates"}
_USUAL_LIMIT_S = 20.0  # for all products of a sweep that nobody chose


def _usual_products(args: argparse.Namespace, backend: Backend) -> list[Sweep]:
    """Products over n = 1 to 4096, in the precisions that the device is made for."""
    from ...kernels.ceilings import GEMM_EXTENTS
    from ...kernels.gemm import Gemm
    from ...kernels.sweeps import span

    device = backend.describe()
    extent = GEMM_EXTENTS[device["kind"]]
    precisions = args.precision or ",".join(_usual_precisions(device))
    sweeps = span(Gemm(extent, 1, extent), ["n=1..4096"], precisions)
    if "--cache" not in args.given:
        args.cache = BOTH
    if "--time-limit" not in args.given:
        problems = sum(len(sweep.problems) for sweep in sweeps)
        args.time_limit = _USUAL_LIMIT_S / problems / len(caches_of(args))
    return sweeps


def _usual_precisions(device: Mapping[str, Any]) -> tuple[str, ...]:
    """fp32 and the two that the device is made for; a GPU before Ampere has no bf16 and TF32."""
    from ...profiling.hardware.precisions import PRECISIONS

    if device["kind"] == "cpu":
        return "fp32", "fp64", "bf16"
    capability = tuple(map(int, str(device.get("compute_capability", "0.0")).split(".")))
    since = PRECISIONS["bf16"].cuda_since
    is_new = since is not None and capability >= since
    return ("fp32", "tf32", "bf16") if is_new else ("fp32", "fp64", "fp16")


def add_precision(parser: argparse.ArgumentParser, default: str, choices: str) -> None:
    """Declare --precision with its default; `choices` are its values in words."""
    words = f"precisions: {choices}, or several (default: {default})"
    group(parser, WHAT).add_argument("--precision", default=default, help=words)


def add_axes(
    parser: argparse.ArgumentParser, precision: str = "fp32", choices: str = "fp32 or fp64"
) -> None:
    """Declare --axis, and --precision as `add_precision`."""
    _add_axis(group(parser, WHAT), "size=4096..65536")
    add_precision(parser, precision, choices)


def _add_axis(options: argparse._ActionsContainer, example: str) -> None:
    options.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help=f"values of an axis, e.g. {example}; once for each axis",
    )


def _with_all(axes: Sequence[str], name: str, values: Iterable[object]) -> list[str]:
    """The axes, and before them one of all values of `name` unless the user gave that axis."""
    if any(axis.startswith(f"{name}=") for axis in axes):
        return [*axes]
    every = ",".join(map(str, values))
    return [f"{name}={every}", *axes]


def add_problems(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose matrix products or convolutions."""
    what = group(parser, WHAT)
    which = what.add_mutually_exclusive_group()
    _add_axis(which, "n=1,2,4..256")
    which.add_argument(
        "--shapes",
        action="append",
        default=[],
        metavar="SHAPE",
        help="a problem, e.g. m=512,n=64,k=1024, or a CSV file with a column for each axis; once "
        "for each",
    )
    which.add_argument(
        "--from",
        dest="network",
        metavar="NETWORK",
        help="network whose layers are measured, e.g. vgg_a",
    )
    which.add_argument(
        "--around",
        type=Path,
        metavar="RUN",
        help="recording whose step has the problems: each is measured at its size, one more and "
        "one less, and the next multiples of 2, 8, 16, 64 and 128",
    )
    what.add_argument(
        "--batch",
        help="batch sizes for --from, e.g. 1,2,4 or 1..64 (default: 64), or that of the step for "
        "--around (default: the largest)",
    )
    what.add_argument(
        "--extent",
        action="append",
        default=[],
        metavar="NAME",
        help="extent that --around varies, e.g. n; once for each (default: those that follow the "
        "batch size)",
    )
    what.add_argument(
        "--share",
        metavar="SHARE",
        help="share of the time of the step's problems to measure with --around, the longest first "
        "(default: 95%%)",
    )
    what.add_argument(
        "--precision",
        default="fp32",
        help="precisions, e.g. fp32,bf16: fp64, fp32, tf32, fp16, bf16, and of products fp8 and "
        "int8 (default: fp32)",
    )
    group(parser, HOW).add_argument(
        "--candidates",
        action="store_true",
        help="also time what else the library offers: other orders of the operands, on a CPU "
        "limits of its instructions, and oneDNN or not, on a GPU cuBLASLt, a small workspace, and "
        "cuDNN's choice by timing",
    )


def _problems_of(args: argparse.Namespace, base: Gemm | Conv) -> list[Sweep]:
    """The sweeps that the options of `add_problems` choose.

    `--axis` changes fields of `base`, whose type chooses the problems of a network.
    """
    from ...kernels import problem_sets, sweeps

    if args.shapes:
        return sweeps.list_shapes(base, args.shapes, args.precision)
    if args.network is None:
        return sweeps.span(base, args.axis, args.precision)
    network, batches = get_network(args.network), parse_batches(args.batch or "64")
    chosen: list[Sweep] = []
    for precision in dict.fromkeys(args.precision.split(",")):
        chosen += problem_sets.layer_sweeps(network, batches, type(base), precision)
    if not chosen:
        raise CurvescopeError(
            f"{args.network} has no such layer: try `bench gemm` for `bench conv` or back."
        )
    return chosen
