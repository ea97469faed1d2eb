"""Kernel names by family, on names of real profiles."""

from pathlib import Path

import pytest

from curvescope.profiling.attribution.kernel_names import (
    RULES,
    UNKNOWN,
    family,
    read_name,
    short_name,
)
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each

PROFILES = Path(__file__).parents[2] / "data" / "profiles"


@ask_each("rule", RULES)
def test_every_rule_reads_its_own_example_and_names_its_source(rule):
    assert family(rule.example) == rule.family
    assert rule.source
    if rule.library:
        assert read_name(rule.example).library == rule.library


@ask_each(
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
        # Inference and large models, on NVIDIA and AMD.
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1", "GEMM"),
        ("fused_moe_kernel", "GEMM"),
        ("_w8a8_block_fp8_matmul", "GEMM"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "GEMM"),
        ("void deep_gemm::fp8_gemm_kernel<4096, 7168>", "GEMM"),
        ("void moe::dev::finalize::finalizeKernelVecLoad<float>", "expert routing"),
        ("void moe_align_block_size_kernel<int>", "expert routing"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<float>>", "attention"),
        ("kernel_unified_attention_2d", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", "attention"),
        ("void paged_attention_ll4mi_QKV_mfma16_kernel<0>", "attention"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<float>", "attention"),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>", "communication"),
        ("void deep_ep::internode::dispatch<false, 8>", "communication"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", "communication"),
        ("void tensorrt_llm::kernels::quantize_with_block_size<float>", "quantisation"),
        ("_chunk_scan_fwd_kernel", "recurrent"),
        ("sage_fwd", "attention"),
        # Composable Kernel, whose names no C++ library demangles.
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffleINS_", "implicit GEMM"),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47Gridwise", "implicit GEMM"),
        ("Im3d2Col.kd", "explicit GEMM"),
        ("void at::native::(anonymous namespace)::cuComputePartGradGammaBeta<float, float, true>", "normalisation"),
        ("void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>", "normalisation"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x256x32", "implicit GEMM"),
        ("batched_transpose_32x32_half", "copy and layout"),
        ("void at::native::(anonymous namespace)::batch_norm_backward_kernel<float>", "normalisation"),
        ("a kernel nobody has seen", UNKNOWN),
        ("", UNKNOWN),
        ("<img onerror=alert(1)>", UNKNOWN),
    ],
)  # fmt: skip
def test_names_of_other_generations_and_libraries(name, expected):
    assert family(name) == expected


@ask_each(
    ("name", "tile"),
    [
        ("volta_sgemm_128x32_nt", (128, 32)),
        ("vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", None),
        (
            "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nchw_tilesize128x64x16_stage4_warpsize2x2x1",
            (128, 64),
        ),
        ("implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>", None),
    ],
)
def test_tiles_are_read_where_the_name_has_them(name, tile):
    assert read_name(name).tile == tile


@pytest.mark.first_rows(8)
@pytest.mark.parametrize(
    "profile", sorted(PROFILES.glob("*.json.gz")), ids=lambda path: path.name[:30]
)
def test_families_of_real_profiles_are_known_for_95_percent_of_the_device_time(
    profile, imported_profile
):
    kernels = open_recording(imported_profile(profile.name)).frame("kernels")
    kernels = kernels[kernels["device"].notna()]
    times_ns = kernels.groupby("name")["duration_ns"].sum()
    unknown_ns = sum(time_ns for name, time_ns in times_ns.items() if family(name) == UNKNOWN)
    all_are_known = profile.name.startswith(("kineto_resnet50_w0_a", "hta_alexnet"))
    assert unknown_ns <= (0 if all_are_known else 0.05) * times_ns.sum()


@ask_each(
    ("name", "short"),
    [
        (
            "void at::native::elementwise_kernel<4, at::native::(anonymous "
            "namespace)::clamp_impl(at::TensorIterator&)::{lambda()#1}, at::detail::Array<char*, "
            "3> >(int, x)",
            "elementwise_kernel<4, clamp_impl(TensorIterator&), Array<char*, 3> >",
        ),
        ("void gmem_coalesce<(int)32>(int, const float *)", "gmem_coalesce<32>"),
        *(
            (name, name)
            for name in (
                "volta_sgemm_64x64_nt",
                "mkl SGEMM(N,T)",
                "<img src=x onerror=alert(1)>",
                "",
            )
        ),
        *((name, name) for name in ("aten::add_", "convolution.forward_training jit:avx512_core")),
    ],
)
def test_names_for_people(name, short):
    assert short_name(name) == short
