"""Kernel names by family, on names of real profiles."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from curvescope.profiling.attribution.kernel_names import RULES, UNKNOWN, family, read_name, short_name

PROFILES = Path(__file__).parents[2] / "data" / "profiles"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example[:40])
def test_every_rule_reads_its_own_example_and_names_its_source(rule):
    assert family(rule.example) == rule.family
    assert rule.source
    if rule.library:
        assert read_name(rule.example).library == rule.library


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Kepler to Hopper; the family of a cuDNN scudnn kernel is the same in every generation.
        ("sgemm_sm35_ldg_nn_64x16x64x16x16", "GEMM"),
        ("maxwell_scudnn_128x64_relu_small_nn", "precomputed implicit GEMM"),
        ("volta_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", "precomputed implicit GEMM"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_tn", "GEMM"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "GEMM"),
        ("cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64>", "precomputed implicit GEMM"),
        ("void dgrad2d_c1_k1_nchw_kernel<float, 3, 3>", "depthwise"),
        ("void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>", "Winograd, not fused"),
        ("maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt", "Winograd, fused"),
        ("Memcpy HtoD", "copy and layout"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::_slow_conv2d_forward", "explicit GEMM"),  # unfolds its input, then multiplies
        ("convolution.forward_training jit_1x1:avx512_core", "direct"),
        ("a kernel nobody has seen", UNKNOWN),
        ("", UNKNOWN),
        ("<img onerror=alert(1)>", UNKNOWN),
    ],
)  # fmt: skip
def test_names_of_other_generations_and_libraries(name, expected):
    assert family(name) == expected


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("volta_sgemm_128x32_nt", (128, 32)),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nchw_tilesize128x64x16_stage4_warpsize2x2x1", (128, 64)),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >", None),
        ("implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>", None),
    ],
)
def test_tiles_are_read_where_the_name_has_them(name, tile):
    assert read_name(name).tile == tile


@pytest.mark.parametrize("profile", ["kineto_resnet50_w0_a.pt.trace.json.gz", "hta_alexnet_trace.json.gz"])
def test_no_kernel_of_a_real_profile_is_unknown(profile):
    events = json.loads(gzip.decompress((PROFILES / profile).read_bytes()))["traceEvents"]
    names = {e["name"] for e in events if str(e.get("cat", "")).lower() == "kernel"}
    assert names
    assert [name for name in names if family(name) == UNKNOWN] == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::elementwise_kernel<4, at::native::(anonymous namespace)::clamp_impl(at::TensorIterator&)"
            "::{lambda()#1}, at::detail::Array<char*, 3> >(int, x)",
            "elementwise_kernel<4, clamp_impl(TensorIterator&), Array<char*, 3> >",
        ),
        ("void gmem_coalesce<(int)32>(int, const float *)", "gmem_coalesce<32>"),
        ("volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt"),
        ("mkl SGEMM(N,T)", "mkl SGEMM(N,T)"),
        ("aten::add_", "aten::add_"),
        ("convolution.forward_training jit:avx512_core", "convolution.forward_training jit:avx512_core"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("", ""),
    ],
)
def test_names_for_people(name, short):
    assert short_name(name) == short
