import time

import pytest
from rich.cells import cell_len

from curvescope.analysis.render.names import distinct_parts, fit, fit_all, readable, short_devices

from ...tables import ask_each

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*> >(int)"
)
FPROP = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16_stage4"  # noqa: E501


@ask_each(
    ("name", "width", "expected"),
    [
        ("aten::convolution_backward", 26, "aten::convolution_backward"),
        ("aten::convolution_backward", 20, "convolution_backward"),
        ("torch::autograd::AccumulateGrad", 20, "AccumulateGrad"),
        (ADD, 60, "vectorized_elementwise_kernel<4, CUDAFunctor_add, array >"),
        (ADD, 40, "vectorized_elementwise_kernel<…>"),
        (ADD, 29, "vectorized_elementwise_kernel"),
        (ADD, 24, "vectorized_…kernel"),
        (FPROP, 40, "sm80_xmma_fprop_implicit_gemm_…stage4"),
        ("fc6 (Linear) backward", 14, "fc6 backward"),
        ("encoder.layer.11.attention.self.query (Linear) backward", 30, "encoder.….query backward"),
        ("encoder.layer.11.attention.self.query (Linear) backward", 20, "….query backward"),
        ("convolution.forward_training jit:avx512_core", 25, "convolution.…avx512_core"),
        ("MaxPool2DWithIndicesBackward", 24, "MaxPool2DWith…Backward"),
        ("Context::execute/(Unnamed Layer* 76)", 40, "Context::execute/(Unnamed Layer* 76)"),
        ("x" * 30, 10, "xxxxxx…xxx"),
        ("", 5, ""),
    ],
)  # fmt: skip
def test_what_matters_least_goes_first(name, width, expected):
    assert fit(name, width) == expected
    assert cell_len(expected) <= width


def test_kernels_of_one_template_keep_its_name_and_differ_in_its_arguments():
    """Found by use: rows read `…6, 7, 3, 3, 5, false, 512>`, which names no kernel."""
    names = [
        f"void cudnn::detail::implicit_convolve_sgemm<float, float, {size}, 6, 7, 3, 3, 5, 1, "
        "false, true, true>(int)"
        for size in (1024, 128)
    ]
    assert fit_all(names, 32) == [
        "implicit_…sgemm<…1024, 6,…true>",
        "implicit_…sgemm<…128, 6,…true>",
    ]
    assert fit_all(names[:1], 32) == ["implicit_convolve_sgemm<…>"]


def test_names_that_differ_in_their_middle_begin_there():
    kinds = ("forward_training", "backward_data", "backward_weights")
    names = [f"convolution.{kind} jit:avx512_core" for kind in kinds]
    shown = fit_all(names, 17)
    assert len(set(shown)) == 3
    assert max(map(cell_len, shown)) <= 17
    assert fit_all(["a" * 50, "a" * 50], 10) == ["aaaaaa…aaa"] * 2


def test_names_that_differ_in_two_places_keep_both():
    """Found by use: of two sizes of tiles, each with and without split k, two rows read
    `…kernel__5x_cublas`.
    """
    names = [
        f"sm80_xmma_gemm_f32f32_f32_tn_n_tilesize{size}x8_stage3_ffma_aligna4_execute_{how}kernel__5x_cublas"
        for size in ("128x128", "64x256")
        for how in ("", "split_k_")
    ]
    assert fit_all(names, 35) == [
        "…tilesize128x128x8_…kernel__…cublas",
        "…tilesize128x128x8_…split_k_…cublas",
        "…tilesize64x256x8_…kernel__…cublas",
        "…tilesize64x256x8_…split_k_…cublas",
    ]


def test_devices_have_short_names_where_these_differ():
    assert short_devices(["GeForce GTX Titan X (Maxwell)", "NVIDIA H200", "AMD EPYC"]) == {
        "GeForce GTX Titan X (Maxwell)": "GTX Titan X (Maxwell)",
        "NVIDIA H200": "H200",
        "AMD EPYC": "EPYC",
    }
    assert (
        short_devices(["GeForce GTX 1080 (modelled, cudnn7, torch rules) (modelled)"]).popitem()[1]
        == "GTX 1080"
    )
    both = ["Tesla K40m", "Tesla K40m (published)"]
    assert short_devices(both) == dict(zip(both, both, strict=True))


@ask_each(
    ("names", "parts"),
    [
        (
            ["train.py-make_step_own_batch1", "train.py-make_step_own_batch16"],
            ["batch1", "batch16"],
        ),
        (["old", "new"], ["old", "new"]),
        (["run1", "run2"], ["run1", "run2"]),
        (["runs_", "runs_b"], ["runs_", "runs_b"]),
        (["alone_b"], ["alone_b"]),
    ],
)
def test_names_that_begin_alike_are_told_apart_by_the_rest(names, parts):
    assert distinct_parts(names) == parts


@pytest.mark.slow
@pytest.mark.parametrize("part", ["a", "<", "<a", "a.", "::", "(", "-", "a::b(", "_", " (", "a<b>"])
def test_names_of_any_length_take_little_time(part):
    """A name of 64 kB took 43 s: patterns that begin at each character and read to the end."""
    began = time.process_time()
    for name in (part * (65_536 // len(part)), "<" * 30_000 + ">" * 30_000):
        assert len(fit(name, 40)) <= 40
        assert len(readable(name)) <= 4096
    assert time.process_time() - began < 5
