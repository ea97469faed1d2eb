"""Precisions of products by kernel names."""

from curvescope.profiling.attribution.kernel_precision import kernel_precision

from ...tables import ask_each


@ask_each(
    ("name", "precision"),
    [
        *((name, "fp32") for name in ("maxwell_sgemm_128x64_nn", "ampere_sgemm_128x64_nn")),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "fp32"),
        ("cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", "fp32"),
        ("volta_dgemm_64x64_nn", "fp64"),
        ("volta_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", "fp16"),
        ("volta_h884gemm_64x128_ldg8_nn", "fp16"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_tn", "fp16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", "fp16"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "bf16"),
        ("ampere_h16816gemm_256x128_ldg8_stages_32x3_tn", "fp16"),
        ("cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64>", "tf32"),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", "tf32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nchw_tilesize128x64x16_stage4_wa", "tf32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "bf16"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128", "fp8"),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f32_128x128x64_2x1x1_0_ntn_align8",
            "fp16",
        ),
        ("cutlass_80_tensorop_i16832gemm_s8_128x256_64x3_tn_align16", "int8"),
        ("turing_int8_i8816gemm_int8_128x128_ldg16_relu_stages_64x1_tn", "int8"),
        ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNT", "bf16"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "fp16"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "bf16"),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_s6", "fp4"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1", "bf16"),
        ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV", "fp32"),
        (
            "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, "
            "cutlass::bfloat16_t>>",
            "bf16",
        ),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", "fp16"),
        (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
            "unknown",
        ),  # in fp32 or in TF32: the name does not say
        ("matmul brg:avx512_core_bf16", "bf16"),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x32_wt32x32x8", "bf16"),
        ("forward_IMPLICIT_PRECOMP_GEMM", "unknown"),
        ("triton_tem_fused_addmm_3", "unknown"),
        # no products: these move data, whatever its type
        (
            "at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<c10::BFloat16>>",
            "unknown",
        ),
        ("vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>", "unknown"),
    ],
)
def test_the_precision_of_a_kernel_by_its_name(name, precision):
    assert kernel_precision(name) == precision
