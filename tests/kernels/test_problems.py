"""Labels, work and refusals of every problem, by hand."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.kernels.attention import Attention
from curvescope.kernels.conv import Conv
from curvescope.kernels.experts import ALGORITHMS, Experts
from curvescope.kernels.gemm import EPILOGUES, Gemm
from curvescope.kernels.latency import Latency
from curvescope.kernels.launch import Launch
from curvescope.kernels.memory import Memory
from curvescope.kernels.mix import Mix
from curvescope.kernels.peak import Peak, PeakRounds
from curvescope.kernels.row_operators import RowOperator
from curvescope.kernels.transfer import Transfer
from curvescope.profiling.attribution.operation import Work

from ..tables import ask_each

GROUPED = Conv(8, 4, 9, 7, 4, 3, 2, (2, 1), (1, 1), (1, 2), 2, "bwd_data", "nhwc", "bf16")


@ask_each(
    ("problem", "axis", "label"),
    [
        (Gemm(2, 3, 5, "TN", "bf16"), "n", "gemm 2x3x5 TN bf16 / gemm 2x*x5 TN bf16"),
        (Gemm(2, 3, 5, batch=7), "batch", "gemm b7 2x3x5 NN fp32 / gemm b* 2x3x5 NN fp32"),
        (Gemm(2, 3, 5), "batch", "gemm 2x3x5 NN fp32 / gemm b* 2x3x5 NN fp32"),
        (
            Gemm(2, 3, 5, epilogue="then_gelu"),
            "n",
            "gemm 2x3x5 NN fp32 then_gelu / gemm 2x*x5 NN fp32 then_gelu",
        ),
        (
            Experts(2, 9, 3, 5),
            "tokens",
            "experts grouped 2 of 3x9x5 bf16 / experts grouped 2 of 3x*x5 bf16",
        ),
        (
            Conv(1, 3, 4, 4, 2, 3, 3),
            "k",
            "conv fwd n1 c3 4x4 k2 3x3 fp32 / conv fwd n1 c3 4x4 k* 3x3 fp32",
        ),
        (
            GROUPED,
            "groups",
            "conv bwd_data n8 c4 9x7 k4 3x2 s2x1 p1 d1x2 g2 nhwc bf16 / "
            "conv bwd_data n8 c4 9x7 k4 3x2 s2x1 p1 d1x2 g* nhwc bf16",
        ),
        (
            Attention(1, 2, 4, 8, "math", 1, "fp32", "bwd"),
            "length",
            "attention bwd math 1x2x4x8 causal fp32 / attention bwd math 1x2x*x8 causal fp32",
        ),
        (RowOperator(4, 8), "rows", "layer_norm 4x8 fp32 / layer_norm *x8 fp32"),
        (
            Memory("copy", 2400),
            "stride",
            "memory copy 2400 B fp32 / memory copy 2400 B stride * fp32",
        ),
        (
            Memory("add", 2400, 3),
            "size",
            "memory add 2400 B stride 3 fp32 / memory add * B stride 3 fp32",
        ),
        (Mix(3, 2400), "fmas", "mix 3 FMAs 2400 B fp32 / mix * FMAs 2400 B fp32"),
        (Latency(3200), "size", "latency 3200 B / latency * B"),
        (Peak(16, "fp64"), "chains", "peak 16 chains fp64 / peak * chains fp64"),
        (
            PeakRounds("peak_fp32", 256, 4),
            "rounds",
            "peak_fp32 256 threads / peak_fp32 256 threads",
        ),
        (
            PeakRounds("peak_bf16_tensor", 256, 4, beyond="tcgen05"),
            "threads",
            "peak_bf16_tensor 256 threads, at least / peak_bf16_tensor * threads, at least",
        ),
        (Launch("graph"), "kind", "launch graph / launch *"),
        (
            Transfer("to_host", "pageable", 4002),
            "size",
            "transfer to_host pageable 4002 B / transfer to_host pageable * B",
        ),
    ],
)
def test_labels(problem, axis, label):
    assert f"{problem.label} / {problem.label_along(axis)}" == label


@ask_each(
    ("problem", "flops", "bytes_"),
    [
        # 6 results of 5 products and 5 sums; 10 + 15 + 6 elements of 2 bytes
        (Gemm(2, 3, 5, "TN", "bf16"), 60, 62),
        (Gemm(2, 3, 5, precision="int8"), 60, 10 + 15 + 4 * 6),
        (Gemm(2, 3, 5, batch=7), 7 * 60, 7 * 4 * 31),
        # a sum for each result and a bias of two; a fused activation moves nothing
        *((Gemm(2, 3, 5, epilogue=name), 66, 4 * 33) for name in EPILOGUES if name != "none"),
        # nine tokens of five inputs and three outputs; weights of two experts
        *((Experts(2, 9, 3, 5, name), 9 * 30, 2 * (45 + 30 + 27)) for name in ALGORITHMS),
        (Gemm(2, 3, 5, "TN", "fp8"), 60, 10 + 15 + 2 * 4 + 2 * 6),  # two scales; results of bf16
        (Conv(1, 3, 4, 4, 2, 3, 3), 2 * 8 * 27, 4 * (48 + 54 + 8)),  # 2·2·2 results of 27 products
        (Conv(1, 3, 4, 4, 2, 3, 3, direction="bwd_weights"), 2 * 8 * 27, 4 * (8 + 48 + 54)),
        # 8·4·5·7 gradients of 2·3·2 products each
        (GROUPED, 2 * 8 * 4 * 5 * 7 * 12, 2 * (8 * 4 * 5 * 7 + 4 * 2 * 3 * 2 + 8 * 4 * 9 * 7)),
        (Attention(1, 2, 4, 8, "math"), 2 * 2 * 2 * 4 * 4 * 8, 2 * 4 * 2 * 4 * 8),
        (Attention(1, 2, 4, 8, "math", causal=1), 2 * 2 * 2 * 10 * 8, 2 * 4 * 2 * 4 * 8),
        # five products for the two forward; four operands and the result, and three gradients
        (Attention(1, 2, 4, 8, "flash", 1, direction="bwd"), 5 * 2 * 2 * 10 * 8, 2 * 8 * 2 * 4 * 8),
        (
            RowOperator(100, 64, "embedding", "fp16"),
            0,
            2 * 2 * 100 * 64 + 8 * 100,
        ),  # the rows that it reads
        # As STREAM counts: of 2400 bytes 300 elements of each of two arrays, 200 of three, 600 of
        # one
        (Memory("copy", 2400), 0, 2400),
        (Memory("scale", 2400), 300, 2400),
        (Memory("add", 2400), 200, 2400),
        (Memory("triad", 2400), 400, 2400),
        (Memory("read", 2400), 600, 2400),
        (Memory("write", 2400), 0, 2400),
        (Memory("copy", 2400, 3, "fp64"), 0, 800),
        (Mix(3, 2400), 2 * 3 * 300, 2400),
        (Mix(3, 2400, "fp64"), 2 * 3 * 150, 2400),
        (Latency(64 * 50, loads=57), 0, 8 * 50),
        (Peak(16, "fp64", steps=3), 2 * 16 * 3, 0),
        (PeakRounds("peak_fp32", 256, 4, rounds=3), 3 * 256 * 4, 0),
        (Transfer(size=4002), 0, 4000),
    ],
)
def test_work(problem, flops, bytes_):
    assert problem.work == Work(flops, bytes_)


CONV = {"n": 1, "c": 3, "h": 4, "w": 4, "k": 2, "r": 3, "s": 3}
EXPERTS = {"experts": 1, "tokens": 1, "m": 1, "k": 1}
ATTENTION = {"batch": 1, "heads": 1, "length": 8, "size": 8}


@ask_each(
    ("kind", "fields", "message"),
    [
        (Gemm, {"m": 0, "n": 1, "k": 1}, "at least 1"),
        (
            Gemm,
            {"m": 1, "n": 1, "k": 1, "transpose": "NX"},
            "Unknown transpose 'NX': choose from NN, NT, TN, TT",
        ),
        (Gemm, {"m": 1, "n": 1, "k": 1, "precision": "fp6"}, "precision"),
        (Gemm, {"m": 1, "n": 1, "k": 1, "batch": 0}, "at least 1"),
        (Gemm, {"m": 1, "n": 1, "k": 1, "epilogue": "tanh"}, "choose from none, bias"),
        (Gemm, {"m": 1, "n": 1, "k": 1, "batch": 2, "epilogue": "bias"}, "of one product"),
        (Experts, {"experts": 4, "tokens": 3, "m": 1, "k": 1}, "every expert has a token"),
        (Experts, {**EXPERTS, "algorithm": "fast"}, "choose from grouped"),
        (Experts, {**EXPERTS, "precision": "fp64"}, "measured in fp32"),
        (Conv, {**CONV, "groups": 2}, "groups must divide channels"),
        (Conv, {**CONV, "h": 2}, "larger than the padded image"),
        (Conv, {**CONV, "direction": "up"}, "one of fwd"),
        (Conv, {**CONV, "layout": "chwn"}, "one of nchw"),
        (Conv, {**CONV, "stride": (0, 1)}, "must be 1 or more"),
        (Attention, {**ATTENTION, "algorithm": "fast"}, "choose from flash"),
        (Attention, {**ATTENTION, "precision": "int8"}, "measured in fp64"),
        (Attention, {**ATTENTION, "heads": 0}, "at least 1"),
        (Attention, {**ATTENTION, "direction": "down"}, "choose from fwd"),
        (RowOperator, {"rows": 8, "columns": 8, "kind": "sort"}, "choose from layer_norm"),
        (RowOperator, {"rows": 8, "columns": 8, "precision": "tf32"}, "measured in fp64"),
        (Memory, {"kind": "swap", "size": 100}, "choose from copy"),
        (Memory, {"kind": "copy", "size": 7}, "at least one element"),
        (Memory, {"kind": "copy", "size": 100, "stride": 0}, "stride of 1"),
        (Memory, {"kind": "copy", "size": 100, "precision": "fp16"}, "fp32 or fp64"),
        (Mix, {"fmas": 0, "size": 100}, "one multiply-add"),
        (Mix, {"fmas": 1, "size": 7}, "one element"),
        (Mix, {"fmas": 1, "size": 100, "precision": "bf16"}, "fp32 or fp64"),
        (Latency, {"size": 64}, "128 bytes"),
        (Peak, {"chains": 0}, "one chain"),
        (Launch, {"kind": "async"}, "choose from call"),
        (Transfer, {"kind": "sideways"}, "choose from"),
        (Transfer, {"host": "swapped"}, "choose from"),
        (Transfer, {"size": 3}, "at least one"),
        (Transfer, {"precision": "fp16"}, "at least one"),
    ],
)
def test_what_is_no_problem_is_refused(kind, fields, message):
    with pytest.raises(CurvescopeError, match=message):
        kind(**fields)
