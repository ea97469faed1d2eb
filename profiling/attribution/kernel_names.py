"""Parses kernel names: family (by a table of the libraries' names), library and tile.

A family is an algorithm or a kind of work; another family at another batch size is an algorithm
switch. Names do not tell cuDNN's tiled FFT from its FFT of whole images, nor a GEMM inside a
Winograd or FFT convolution from any other: these stay GEMM, and complex GEMMs count as FFT.
"""

# ruff: noqa: E501 - one rule per line keeps the table readable
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

UNKNOWN = "unknown"

IMPLICIT_GEMM = "implicit GEMM"
PRECOMPUTED_GEMM = "precomputed implicit GEMM"
EXPLICIT_GEMM = "explicit GEMM"
WINOGRAD = "Winograd, fused"
WINOGRAD_NONFUSED = "Winograd, not fused"
FFT = "FFT"
DIRECT = "direct"
DEPTHWISE = "depthwise"
GEMM = "GEMM"
GEMV = "GEMV"
RECURRENT = "recurrent"
ATTENTION = "attention"
NORMALISATION = "normalisation"
POOLING = "pooling"
SOFTMAX = "softmax and loss"
REDUCTION = "reduction"
ELEMENTWISE = "elementwise"
LAYOUT = "copy and layout"
INDEXING = "indexing"
HELPER = "helper"
OPTIMIZER = "optimizer"
QUANTISATION = "quantisation"
ROUTING = "expert routing"
COMMUNICATION = "communication"
SORT = "sort and scan"
CONVOLUTION = "convolution"  # by an algorithm that the name does not tell

# Families that are algorithms of the same work.
ALGORITHMS = frozenset(
    {
        IMPLICIT_GEMM,
        PRECOMPUTED_GEMM,
        EXPLICIT_GEMM,
        WINOGRAD,
        WINOGRAD_NONFUSED,
        FFT,
        DIRECT,
        DEPTHWISE,
        GEMM,
        GEMV,
    }
)


@dataclass(frozen=True)
class Rule:
    """Names that match `pattern` (anywhere) are of `family`; the first rule that
    matches decides.
    """

    pattern: str  # regular expression for names in lower case
    family: str  # family of the names
    # library that writes the names; None if only the prefix of the name shows it
    library: str | None
    example: str  # one such name, shortened
    source: str  # origin of the example


_KINETO = "profile of ResNet-50 on V100 (pytorch/kineto)"
_HTA = "profile of AlexNet on an Ampere GPU (facebookresearch/HolisticTraceAnalysis)"
_NEUSIGHT = "torch 2.1 with cuDNN 8.9.2 on P100 and V100 (sitar-lab/NeuSight)"
_CUTLASS = "CUTLASS, docs of its profiler: procedural names"
_TORCH = "PyTorch, names of its own CUDA kernels"
_INDUCTOR = "torch.compile, names of generated Triton and C++ kernels"
_ALGORITHMS = (
    "cuDNN API reference: cudnnConvolutionFwdAlgo_t and its backward kin, as the cost model names "
    "kernels"
)
_ONEDNN = "oneDNN verbose mode, recorded here: primitive, kind, implementation"
_TRACELENS = "traces of vLLM, SGLang and PyTorch on B200 and MI300X (AMD-AGI/TraceLens)"
_PARTICLES = "profile of a particle transformer on A100 (harryjmoss/particle_transformer)"
_VLLM = "vLLM, names of its own and of its Triton kernels"
_FLASHINFER = "FlashInfer, names of its kernels"
_ROCM = "MIOpen, Tensile, Composable Kernel and AITER, names of their kernels"
_XLA = "JAX 0.8 on MI300X (AMD-AGI/TraceLens), and XLA's names of fusions"
_XLA_CPU = "JAX 0.10 on a CPU, recorded here"
_GGML = "llama.cpp, profiles of decoding and prefill on RDNA (jimw567/rocprof-unified-viewer)"
_MAMBA = "Mamba, names of its Triton kernels"
_TENSORFLOW = (
    "TensorFlow 1 timeline of a CPU, whose kernels have the names of operators (dleebrown/ANNA); "
    "those of oneDNN in TensorFlow 2.21, recorded here"
)
_KEPLER = "nvprof of cuDNN 4 to 6 on Kepler and Maxwell, published logs"

RULES: tuple[Rule, ...] = (
    Rule(r"deep_ep::|cross_device_reduce|multimem_|nvshmem|quickreduce|lamport|two_shot|one_shot_all", COMMUNICATION, None, "vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", _VLLM),
    Rule(r"nccl|allreduce|all_reduce|allgather|reducescatter", COMMUNICATION, "NCCL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "NCCL"),
    Rule(r"flash_?(fwd|bwd|[fb]prop|attn|attention)|fmha|attention|scaled_dot|efficient_attention", ATTENTION, None, "pytorch_flash::flash_fwd_kernel", _TORCH),
    # Inference and large models, before the general names below: their names contain those of what they replace.
    Rule(r"\bsage_(fwd|attn)|sageattn|\battn_fwd|\battn_bwd|_attn_fwd|_attn_bwd|bwd_kernel_(dk_dv|dq)|flashattn(fwd|bwd)|flash_mla|mla_(decode|prefill|reduce|fwd)", ATTENTION, None, "attn_fwd", _TRACELENS),
    Rule(r"batchdecodewithpaged|batchprefillwith|singleprefillwith|singledecodewith|mergestates|persistentvariablelengthmergestates", ATTENTION, "FlashInfer", "flashinfer::BatchDecodeWithPagedKVCacheKernel<float>", _FLASHINFER),
    Rule(r"\bpa_(fwd|bf16|fp16|kernel)|aiter\S*(fmha|mla|pa)_|_fwd_grouped_kernel_stage|_fwd_kernel_stage[12]", ATTENTION, None, "aiter::mla_dec_stage1_bf16", _ROCM),
    Rule(r"reshape_and_cache|store_?kv_?cache|kv_?cache_(copy|store|update)|concat_and_cache|set_mla_kv_buffer|applybiasropeupdatekvcache", LAYOUT, None, "vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", _TRACELENS),
    Rule(r"rotary|\brope|_rope_", ELEMENTWISE, None, "vllm::rotary_embedding_kernel<c10::BFloat16, true>", _TRACELENS),
    Rule(r"topk_?gating|moe_(align|sort|sum|permute|unpermute)|routing(indices|renormalize|deepseek|llama4)?|count_and_sort_expert|expert(map|prefix|_)|permute_tokens|finalize(kernel|moerouting)|_sum_bitmatrix|_combined_routing|grouped_topk|biased_grouped", ROUTING, None, "moe::dev::routing::routingIndicesHistogramKernel<float>", _TRACELENS),
    Rule(r"rms_?norm|fused_add_\w*norm|\bnorm_quant", NORMALISATION, None, "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", _TRACELENS),
    Rule(r"act_and_mul|silu_and|swiglu_?(kernel|fwd|forward)|gelu_and", ELEMENTWISE, None, "vllm::act_and_mul_kernel<c10::BFloat16>", _VLLM),
    Rule(r"mamba|chunk_scan|chunk_state|state_passing|selective_scan|causal_conv1d|chunk_gated_delta|wkv\d*_", RECURRENT, None, "_chunk_scan_fwd_kernel", _MAMBA),
    Rule(r"\bmul_mat_vec|\bmul_mat_f<", GEMV, "GGML", "mul_mat_vec_q<(ggml_type)12, 1, false, false>", _GGML),
    Rule(r"\bmul_mat_", GEMM, "GGML", "mul_mat_q<(ggml_type)12, 128, false>", _GGML),
    Rule(r"gated_delta_net|\bssm_(conv|scan)|\brwkv_wkv", RECURRENT, "GGML", "gated_delta_net_cuda<128, false, false>", _GGML),
    Rule(r"\bk_get_rows|\bk_set_rows", INDEXING, "GGML", "k_get_rows_float<float, float>", _GGML),
    Rule(r"\bk_bin_bcast|\bunary_(gated_)?op_kernel|\bscale_f32", ELEMENTWISE, "GGML", "k_bin_bcast<&op_add, float, float, float, float const*>", _GGML),
    Rule(r"\bl2_norm_f32|\b(rms_)?norm_f32", NORMALISATION, "GGML", "l2_norm_f32<32>", _GGML),
    Rule(r"\bcpy_scalar|\bconcat_cont", LAYOUT, "GGML", "concat_cont<unsigned int, 1>", _GGML),
    Rule(r"_matmul_ogs|fused_moe_kernel|\bbmm_\w*(e2m1|e4m3|bfloat16|fp16)|w8a8_\w*matmul|block_fp8_(matmul|gemm)|fp8_gemm|gemm_a8w8|gemm_a4w4|_grouped_gemm|grouped_gemm|deep_gemm::|ck_moe_stage|marlin|awq_gemm|gptq|machete|kernel_gemm|kernel_grouped_gemm|kernel_moe_gemm", GEMM, None, "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", _TRACELENS),
    Rule(r"^cijk_", GEMM, "Tensile", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1", _TRACELENS),
    Rule(r"quantize|_quant_|fp8_quant|per_token_group_quant|scaled_fp8|dequant|mxfp[468]|nvfp4|cvt_fp16_to_fp4|amax_", QUANTISATION, None, "vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>", _TRACELENS),
    Rule(r"\bigemm_(fwd|bwd|wrw)_|miopensp3asmconv|gridwise_convolution|ck::\w*conv|naive_conv|kernel_(grouped_)?conv_(fwd|bwd)|gemm_xdlops_bwd_weight", IMPLICIT_GEMM, "MIOpen", "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x32_wt32x32x8", _TRACELENS),
    Rule(r"subtensorop|op[1-5]dtensor", ELEMENTWISE, "MIOpen", "SubTensorOpWithScalar1d", _TRACELENS),
    Rule(r"rowwisemoments|gammabetabackward|gradgammabeta|computeinternalgradients|compute(backward)?fusedparams|layer_norm_grad", NORMALISATION, None, "at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float>", _PARTICLES),
    Rule(r"kv_indices|tril_indices|triu_indices|token_ids|clamp_position|slot_mapping|req_to_token", INDEXING, None, "create_flashinfer_kv_indices_triton", _TRACELENS),
    Rule(r"^cpp_fused_\w*(sum|mean|softmax|norm|amax|argmax|pool)", REDUCTION, "Inductor", "cpp_fused_native_layer_norm_0", _INDUCTOR),
    Rule(r"^cpp_fused_", ELEMENTWISE, "Inductor", "cpp_fused_add_relu_1", _INDUCTOR),
    # XLA, mostly on the CPU: readers put what a custom fusion computes before its name.
    Rule(r"^convolution \w+_fusion|^convolution(\.\d+)?$", CONVOLUTION, "XLA", "convolution ynn_fusion.9", _XLA_CPU),
    Rule(r"^dot \w+_fusion|^dot(_general)?(\.\d+)?$", GEMM, "XLA", "dot ynn_fusion.2", _XLA_CPU),
    Rule(r"^reduce(-window)? \w+_fusion|^(wrapped_)?reduce-window", REDUCTION, "XLA", "wrapped_reduce-window.3", _XLA_CPU),
    # oneDNN and MKL on the CPU. Implementation names come after the primitive and its kind.
    Rule(r"^(convolution|deconvolution)\S* \S*(wino)", WINOGRAD, "oneDNN", "convolution.forward_inference jit_wino_4x3:avx512_core", _ONEDNN),
    Rule(r"^(convolution|deconvolution)\S* \S*(dw|depthwise)", DEPTHWISE, "oneDNN", "convolution.forward_training jit_dw:avx512_core", _ONEDNN),
    Rule(r"^(convolution|deconvolution)\S* \S*gemm:", EXPLICIT_GEMM, "oneDNN", "convolution.forward_training gemm:jit", _ONEDNN),
    Rule(r"^(convolution|deconvolution)\S* \S*brg", IMPLICIT_GEMM, "oneDNN", "convolution.forward_training brgconv:avx512_core", _ONEDNN),
    Rule(r"^(convolution|deconvolution)\S* ", DIRECT, "oneDNN", "convolution.backward_weights jit:avx512_core", _ONEDNN),
    Rule(r"^(inner_product|matmul)\S* ", GEMM, "oneDNN", "matmul brg:avx512_core", _ONEDNN),
    Rule(r"^(reorder|concat)\S* ", LAYOUT, "oneDNN", "reorder jit:blk", _ONEDNN),
    Rule(r"^(pooling)\S* ", POOLING, "oneDNN", "pooling.forward_training jit:avx512_core", _ONEDNN),
    Rule(r"^(batch|layer|group)_normalization\S* |^lrn\S* ", NORMALISATION, "oneDNN", "batch_normalization.forward_training bnorm_jit:avx512_core", _ONEDNN),
    Rule(r"^(eltwise|binary|sum|prelu)\S* ", ELEMENTWISE, "oneDNN", "eltwise.forward_training jit:avx512_core", _ONEDNN),
    Rule(r"^softmax\S* ", SOFTMAX, "oneDNN", "softmax.forward_inference jit:avx512_core", _ONEDNN),
    Rule(r"^rnn\S* ", RECURRENT, "oneDNN", "rnn.forward_training brgemm:avx512_core", _ONEDNN),
    Rule(r"^mkl [a-z_]*gemv", GEMV, "MKL", "mkl SGEMV(T)", "MKL verbose mode, recorded here"),
    Rule(r"^mkl [a-z_]*gemm", GEMM, "MKL", "mkl SGEMM(N,T)", "MKL verbose mode, recorded here"),
    # Convolutions, most specific first.
    Rule(r"implicit_precomp_gemm", PRECOMPUTED_GEMM, "cuDNN", "forward_IMPLICIT_PRECOMP_GEMM", _ALGORITHMS),
    Rule(r"^forward_implicit_gemm|^backward_(data|weights)_algo_[013]", IMPLICIT_GEMM, "cuDNN", "backward_weights_ALGO_1", _ALGORITHMS),
    Rule(r"^forward_gemm", EXPLICIT_GEMM, "cuDNN", "forward_GEMM", _ALGORITHMS),
    Rule(r"^forward_direct", DIRECT, "cuDNN", "forward_DIRECT", _ALGORITHMS),
    Rule(r"^(forward|backward_\w+)_fft", FFT, "cuDNN", "backward_data_FFT_TILING", _ALGORITHMS),
    Rule(r"depthwise|dgrad2d_c1_k1|wgrad2d_c1_k1|conv2d_c1_k1|conv2d_grouped_direct|[dw]grad2d_grouped_direct", DEPTHWISE, None, "at::native::conv_depthwise2d_forward_kernel<3, float, int>", _TORCH),
    Rule(r"winograd_?nonfused|winograd\w*(forward|wgrad|dgrad)(data|filter|output|delta)\w*", WINOGRAD_NONFUSED, "cuDNN", "cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", _KINETO),
    Rule(r"winograd", WINOGRAD, "cuDNN", "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", _NEUSIGHT),
    Rule(r"fft[12]d_|gcgemm|cgemm|fft_?tiling|::fft|fft_(r2c|c2r)|transpose_readwrite_alignment|regular_fft|vector_fft", FFT, "cuDNN", "fft2d_r2c_32x32<float, false, 5u, true>", _HTA),
    Rule(r"precomputed_convolve|convolve_precomputed", PRECOMPUTED_GEMM, "cuDNN", "precomputed_convolve_sgemm", _NEUSIGHT),
    Rule(r"explicit_convolve|im2col|im3d2col|col2im|vol2col|slow_conv|thnn_conv", EXPLICIT_GEMM, None, "explicit_convolve_sgemm<float, int, 512, 6, 8, 3, 3, 5, 0, false>", _NEUSIGHT),
    Rule(r"implicit_convolve", IMPLICIT_GEMM, "cuDNN", "implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>", _KINETO),
    Rule(r"dgrad_engine|dgrad_alg[01]|dgrad2d_alg1|wgrad_alg[013]|convolve_common_engine|wgrad_engine", IMPLICIT_GEMM, "cuDNN", "cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", _KINETO),
    Rule(r"xmma_(fprop|dgrad|wgrad|conv)|(fprop|dgrad|wgrad)_(optimized|analytic|few_channels|fixed_channels)|implicit_?gemm", PRECOMPUTED_GEMM, None, "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", _HTA),
    Rule(r"[shd]\d*cudnn_|_s\d+cudnn|_h\d+cudnn|scudnn|hcudnn|icudnn", PRECOMPUTED_GEMM, "cuDNN", "volta_scudnn_128x64_relu_interior_nn_v1", _KINETO),
    Rule(r"conv2d_kernel|direct_conv|conv_direct|convolution_forward_kernel", DIRECT, None, "conv2d_kernel<float, 3, 3>", "hand-written kernels of that name"),
    Rule(r"computeoffsets|computeboffsets|computewgrad\w*offsets|compute_gemm_pointers|flip_filter|kern_precompute_indices", HELPER, "cuDNN", "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", _KINETO),
    # Recurrent networks.
    Rule(r"rnn_|lstm|gru_cell|elemwise_?lstm|lstm_elementwise|gru_elementwise|persist_rnn|rnn_blockpersist", RECURRENT, None, "LSTM_elementWise_fp<float, float, float>", _KEPLER),
    # GEMM.
    Rule(r"gemv|gemvx|gemvnsp|dot_kernel|reduce_1block_kernel", GEMV, "cuBLAS", "gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", "cuBLAS"),
    Rule(r"splitk_?reduce", REDUCTION, "cuBLAS", "splitKreduce_kernel<float, float, float, float>", _KINETO),
    Rule(r"nvjet_", GEMM, "cuBLAS", "nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNT", "cuBLAS 12.8 and later, published profiles"),
    Rule(r"cutlass\w*::kernel\d?<|cutlass(_\d+|3x)?_|\bkernel2\b", GEMM, "CUTLASS", "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f32_128x128x64_2x1x1_0_ntn_align8", _CUTLASS),
    Rule(r"xmma_gemm|gemmsn|gemmk1|magma_\w*gemm|(^|[_ ])[shdzic]?gemm(_|ex|\d|$)|[shi]\d*gemm|sgemm|hgemm|dgemm|addmm|::gemm|\bbmm\b", GEMM, None, "maxwell_sgemm_32x128_nn", _NEUSIGHT),
    Rule(r"triton_(tem|mm|bmm)|^matmul_kernel", GEMM, "Triton", "triton_tem_fused_addmm_3", _INDUCTOR),
    # XLA names a fusion by the operation at its root.
    Rule(r"^gemm_fusion|^triton_gemm|_gemm_fusion", GEMM, None, "gemm_fusion_dot_12", _XLA),
    Rule(r"^(input_)?\w*(reduce|variadic_reduce)\w*_fusion|^triton_softmax", REDUCTION, None, "input_reduce_fusion_3", _XLA),
    Rule(r"^\w*(transpose|copy|concatenate|slice|pad)\w*_fusion", LAYOUT, None, "wrapped_transpose_fusion", _XLA),
    Rule(r"^\w*(scatter|gather)\w*_fusion", INDEXING, None, "loop_gather_fusion", _XLA),
    Rule(r"^(loop|wrapped|input)_\w+|^fusion(_\d+)?$", ELEMENTWISE, None, "loop_convert_fusion.kd", _XLA),
    Rule(r"^(_mklnative|_)?(padwith)?(fused)?conv[23]d(backprop(filter|input)(v2)?)?(withbias)?$", CONVOLUTION, "TensorFlow", "_MklNativePadWithFusedConv2D", _TENSORFLOW),
    Rule(r"^(_mklnative|_)?(fused)?(batch)?matmul(v[23])?$", GEMM, "TensorFlow", "_MklNativeFusedMatMul", _TENSORFLOW),
    Rule(r"^(add(v2|n)?|sub|mul|realdiv|neg|floor|maximum|minimum|square|sqrt|rsqrt)$", ELEMENTWISE, "TensorFlow", "RealDiv", _TENSORFLOW),
    # Everything else.
    Rule(r"triton_(red|per)_", REDUCTION, "Triton", "triton_red_fused_native_layer_norm_0", _INDUCTOR),
    Rule(r"triton_(poi|for)_", ELEMENTWISE, "Triton", "triton_poi_fused_add_relu_1", _INDUCTOR),
    Rule(r"multi_tensor_apply|fused_?adam|fused_?sgd|adam_|::lamb|applyadam|applymomentum|applygradientdescent", OPTIMIZER, None, "at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<3>>", _TORCH),
    Rule(r"eigenmetakernel|fillphiloxrandom", ELEMENTWISE, None, "Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<half>, long>", _XLA),
    Rule(r"bn_(fw|bw)|batch_?norm|layer_?norm|group_?norm|rms_?norm|instance_?norm|\blrn|lrnforward|normalization", NORMALISATION, None, "cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>", _KINETO),
    Rule(r"pool", POOLING, None, "cudnn::detail::pooling_fw_4d_kernel<float, float, cudnn::detail::maxpooling_func<float>>", _KEPLER),
    Rule(r"softmax|nll_loss|nllcriterion|cross_entropy|mse_loss", SOFTMAX, None, "cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>", _TORCH),
    Rule(r"embedding|index|gather|scatter|take|masked|nonzero|one_hot|where", INDEXING, None, "at::native::indexSelectLargeIndex", _TORCH),
    Rule(r"sort|radix|topk|scan|cumsum|unique", SORT, None, "at::native::radixSortKVInPlace", _TORCH),
    Rule(r"nchwtonhwc|nhwctonchw|nchw2nhwc|transpose|permute|copy|cat|tensortransform|converttensor|im2|scalepackedtensor|reorder|memcpy|memset|^set\b|fill|zero_?|contiguous|clone|pad", LAYOUT, None, "nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>", _KINETO),
    Rule(r"reduce|::sum|::mean|::max|::min|\bsum\b|\bmean\b|argm", REDUCTION, None, "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", _TORCH),
    Rule(r"elementwise|pointwise|epilogue::|activation|relu|threshold|sigmoid|tanh|gelu|dropout|bernoulli|optensor|add_?tensor|::(add|mul|div|sub)|aten::\w+_?$|distribution|bias", ELEMENTWISE, None, "at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", _KINETO),
)  # fmt: skip

_TILE = (
    re.compile(r"tilesize(\d+)x(\d+)"),
    # A tile stands between the kind of kernel and its layout: 128x64, or 128x128x64 with the depth.
    re.compile(r"(?<![\dx])(16|32|48|64|80|96|112|128|160|192|224|256|320|384|512)x(8|16|32|48|64|80|96|128|160|192|256|512)(?!\d)"),
)  # fmt: skip
_LIBRARY = (
    ("cuDNN", re.compile(r"cudnn|cask_cudnn|_5x_cudnn")),
    ("CUTLASS", re.compile(r"cutlass")),
    ("cuBLAS", re.compile(r"cublas|(kepler|maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm|sgemm_sm\d|xmma_gemm|nvjet")),
    ("Triton", re.compile(r"^triton_")),
    ("PyTorch", re.compile(r"^(void )?at::|^aten::|at_cuda_detail|::native::|THC|cunn_")),
    ("TensorFlow", re.compile(r"Eigen|tensorflow::")),
    ("MKL", re.compile(r"^mkl ")),
    ("Tensile", re.compile(r"^Cijk_")),
    ("vLLM", re.compile(r"\bvllm::")),
    ("TensorRT-LLM", re.compile(r"tensorrt_llm::")),
    ("AITER", re.compile(r"aiter")),
)  # fmt: skip


@dataclass(frozen=True)
class KernelName:
    """The facts in a kernel's name."""

    family: str  # one of the families above, or unknown
    library: str | None  # library of the kernel; None if unknown
    # rows and columns of the output that a block computes; None if unknown
    tile: tuple[int, int] | None


@cache
def _compile_rules() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(rule.pattern), rule) for rule in RULES)


@lru_cache(maxsize=65_536)
def read_name(name: str) -> KernelName:
    """Family, library and tile of a kernel's name."""
    lower = name.lower()  # three times as fast as patterns that ignore case
    rule = next((rule for pattern, rule in _compile_rules() if pattern.search(lower)), None)
    family = UNKNOWN
    library = None
    if rule is not None:
        family = rule.family
        library = rule.library
    library = library or next((who for who, pattern in _LIBRARY if pattern.search(name)), None)
    return KernelName(family, library, _tile_of(name) if family in ALGORITHMS else None)


def _tile_of(name: str) -> tuple[int, int] | None:
    for pattern in _TILE:
        match = pattern.search(name)
        if match:
            return int(match[1]), int(match[2])
    return None


_INNER = re.compile(
    r"\(anonymous namespace\)::|\(\w+\)(?=\d)|^void "
    r"|(?:::)?\{lambda.*?\}|::operator\(\)\([^()]*\)(?: const)?(?:&)?"
)
_NAMESPACES = re.compile(r"\b(?!aten::)(?:[A-Za-z_]\w*::)+(?=[A-Za-z_])")


@lru_cache(maxsize=65_536)
def short_name(name: str) -> str:
    """A short name: without return type, parameters, namespaces and casts; templates stay, they
    distinguish kernels.
    """
    text = _NAMESPACES.sub("", _INNER.sub("", name))
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth <= 0 and index:
            text = text[:index] if not text.startswith("mkl ") else text
            break
    return text.strip() or name


_GRADIENTS = (
    ("data", re.compile(r"backward_data|bwd_data|dgrad|igemm_bwd_", re.IGNORECASE)),
    (
        "weights",
        re.compile(r"backward_(weights|filter)|bwd_weights?|wgrad|igemm_wrw_", re.IGNORECASE),
    ),
)


@lru_cache(maxsize=65_536)
def gradient(name: str) -> str | None:
    """The gradient of a convolution in a kernel's name: data or weights; None if the name contains
    neither.
    """
    return next((which for which, pattern in _GRADIENTS if pattern.search(name)), None)


# `sm80_xmma_gemm…`, `cutlass3x_sm100_simt…` and `cutlass_80_simt…` name what they are written for.
_ARCHITECTURE = re.compile(r"(?:(?<![a-z])sm_?|cutlass_)(\d{2,3})(?!\d)")


@lru_cache(maxsize=65_536)
def architecture(name: str) -> str | None:
    """The GPU architecture in a kernel's name, e.g. sm_80; None if the name contains none."""
    architecture = _ARCHITECTURE.search(name.lower())
    return f"sm_{architecture[1]}" if architecture else None


def family(name: str) -> str:
    """The family of a kernel's name."""
    return read_name(name).family
