import os

import pytest

from curvescope.profiling.collect import onednn
from curvescope.profiling.collect.onednn import MklCall, Primitive, VerboseLog

from ...tables import ask_each

# Lines as the libraries print them (oneDNN 3.12, 3.2 and 2.6; MKL 2024.2).
CURRENT = (
    "onednn_verbose,v1,1795236526763.952881,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:abcd::f0 "  # noqa: E501
    "wei:f32:a:blocked:Acdb16a::f0 "
    "dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,mb4_ic3oc16_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1,0.0251465"
)
OLDER = (
    "onednn_verbose,1795236526763.75,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd:f0 "
    "dst_f32::blocked:Acdb16a:f0,attr-scratchpad:user,,16x3x3x3,0.00390625"
)
UNTIMED = "dnnl_verbose,exec,cpu,reorder,jit:uni,undef,src_f32 dst_f32,,,16x3x3x3,0.0039"
BANNER = "onednn_verbose,v1,info,cpu,isa:Intel AVX-512"
TEMPLATE = "onednn_verbose,v1,primitive,info,template:timestamp,operation,engine,primitive,implementation,exec_time"  # noqa: E501
GEMM = (
    "MKL_VERBOSE "
    "SGEMM(T,N,10,4,4096,0x7ffcb00bf680,0x55e946203e00,4096,0x55e947971cc0,4096,0x7ffcb00bf6a0,0x55e9477f2a40,10) "  # noqa: E501
    "157.55us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2"
)


@ask_each(
    ("lines", "expected"),
    [
        (
            [BANNER, TEMPLATE, CURRENT, OLDER],
            VerboseLog(
                [
                    Primitive(
                        "convolution.forward_training jit:avx512_core", 1795236526763_952881, 25146
                    ),
                    Primitive("reorder jit:uni", 1795236526763_750000, 3906),
                ]
            ),
        ),
        ([UNTIMED], VerboseLog(untimed=1)),
        (
            ["MKL_VERBOSE oneMKL 2024.0 Product build 20240605 for Intel(R) 64", GEMM],
            VerboseLog(mkl_calls=[MklCall("mkl SGEMM(T,N)", (10, 4, 4096), 157550)]),
        ),
        (["epoch 3, loss 0.5"], VerboseLog(other=["epoch 3, loss 0.5"])),
    ],
)
def test_lines_give_primitives_with_start_calls_with_sizes_and_the_programs_own(lines, expected):
    assert onednn.parse("\n".join(lines)) == expected


@ask_each(
    ("text", "ns"), [("1.23ms", 1_230_000), ("40.36us", 40_360), ("700ns", 700), ("1s", 10**9)]
)
def test_every_unit_of_mkl(text, ns):
    assert onednn.parse(GEMM.replace("157.55us", text)).mkl_calls[0].duration_ns == ns


def test_capture_reads_this_process_and_gives_standard_output_back(capfd):
    torch = pytest.importorskip("torch")
    a, b = torch.randn(64, 96), torch.randn(96, 32)
    torch.mm(a, b)
    capfd.readouterr()
    with onednn.capture() as log:
        torch.mm(a, b)
        os.write(1, b"from the program\n")
    os.write(1, b"afterwards\n")
    out, err = capfd.readouterr()
    assert out == "afterwards\n"
    assert err == "from the program\n"
    if torch.backends.mkl.is_available():
        assert [sorted(call.sizes[:3]) for call in log.mkl_calls] == [[32, 64, 96]]


def test_capture_gives_standard_output_back_after_an_exception(capfd):
    pytest.importorskip("torch")
    with pytest.raises(ZeroDivisionError), onednn.capture():
        _ = 1 / 0
    os.write(1, b"still here\n")
    assert capfd.readouterr().out == "still here\n"
