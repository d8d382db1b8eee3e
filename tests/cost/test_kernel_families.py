"""Families of the kernels of other engines and libraries, by names as their profiles hold them."""

from __future__ import annotations

import pytest

from perfkit.cost import CostModel, family_of_kernel_name

# A family and names of its kernels.
KERNELS = {
    "attention": (
        "void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128, (vllm::Fp8KVCache"
        "DataType)0, false, 512>(float*)",
        "void vllm::merge_attn_states_kernel<__nv_bfloat16, 128>(int)",
        "kernel_unified_attention_2d",
        "fused_recurrent_gated_delta_rule_fwd_kernel",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "void deep_gemm::sm90_fp8_paged_mqa_logits<1u, 64u>(int)",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u>(int)",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>(int)",
        "void flashinfer::SinglePrefillWithKVCacheKernel<int>(int)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, float, __nv_bfloat16, in"
        "t>(float*)",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
        "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>(int)",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16gmem",
        "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaKernelTmaWarpspecialized<int>>(int)",
        "void ck_tile::kentry<256, 1, ck_tile::FmhaBwdDQDKDVKernel<int>>(int)",
        "_ZN5aiter42pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1E",
        "_ZN5aiter19fwd_fp8_256t_bf16stE",
        "_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE",
        "void flash_attn_ext_f16<128, 128, 8, 8, 4, false, false>(char const*)",
        "void flash_attn_combine_results<128>(float const*)",
        "triton_tem_fused_flex_attention_0",
        "_gemm_mha_v2_0x5a3b",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x128x128_4x1x1_kernel0_0",
        "_fwd_kernel",
        "_fwd_kernel_stage2",
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>(int)",
        "get_mla_metadata_kernel(int*, int*)",
        "micro_sdpa",
    ),
    "collective": (
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "void deep_ep::intranode::cached_notify_combine<8>(void**)",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2>(int4*, float*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int, int)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtll"
        "m_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>(int)",
        "moeA2ADispatchKernel",
        "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(int)",
        "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16>(int)",
        "void nvshmemi_transfer_rma<1>(int)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)",
        "void oneccl_allreduce_ring_kernel",
    ),
    "convolution": (
        "_causal_conv1d_fwd_kernel",
        "miopenSp3AsmConv_v30_3_1_gfx90a_fp32_f2x3_stride1",
        "naive_conv_ab_nonpacked_fwd_nchw_float_double_float",
        "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<int>(int)",
        "void ck::kernel_grouped_conv_bwd_data_xdl_cshuffle_v3<int>(int)",
        "void ssm_conv_f32<true, 128, 4>(float const*)",
        "triton_tem_fused_convolution_3",
        "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32"
        "_tilesize128x128x64_stage3",
        "trt_ampere_int8x4_icudnn_int8x4_128x64_relu_xregs_large_nn_v1",
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "ampere_scudnn_128x64_relu_medium_nn_v1",
        "void cask__5x_cudnn::computeOffsetsKernel<false, false>(int)",
        "gen_conv",
    ),
    "copy": (
        "fbgemm::permute_2D_sparse_data",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(int)",
        "void vllm::cp_gather_cache<unsigned short, 2>(int)",
        "void marlin::gptq_marlin_repack_kernel<256, 4, false, false>(unsigned int const*)",
        "void deep_gemm::transpose_fp32<512u, 64u, 56u>(float const*, float*, unsigned int)",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u, 16u, __nv_bfloat16, int>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<__nv_bfloat16, __nv_fp4_e2m1, (in"
        "t)3>(int)",
        "__amd_rocclr_copyBuffer",
        "transpose_NCHW2NHWC_V1_1D_PACK_gridDims_NCHW",
        "batched_transpose_32x32_half",
        "void cpy_scalar<&cpy_1_scalar<float, __half>>(char const*, char*)",
        "void convert_unary<float, __half>(void const*)",
        "void concat_f32_dim0(float const*)",
        "__myl_Move_myl3_0",
        "void genericReformat::copyPackedKernel<__half, __half, true>(int)",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(int)",
        "write_req_to_token_pool_triton",
        "set_mla_kv_buffer_kernel",
    ),
    "elementwise": (
        "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::B"
        "Float16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)",
        "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>(int, int, __nv_bfloat16 const*)",
        "void at::native::(anonymous namespace)::transform_bias_rescale_qkv_kernel<float, float, true>(int)",
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(int)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<true, 128u, 8u, 16u, __nv_"
        "bfloat16, long>(int)",
        "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, __"
        "nv_bfloat16, 32, true>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16, __nv_bfloat16>(int)",
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>(int)",
        "void aiter::dynamic_per_token_scaled_quant_kernel<__hip_bfloat16, __hip_fp8_e4m3_fnuz>(int)",
        "void aiter::swiglu_act_and_mul_kernel<short>(int)",
        "Op2dTensorGeneric",
        "OpTensorFwdBias",
        "void quantize_q8_1(float const*, void*, long)",
        "void rope_neox<true, false, float, float>(float const*, float*)",
        "void k_bin_bcast<&op_add, float, float, float>(float const*)",
        "void unary_gated_op_kernel<&op_silu, float>(float const*)",
        "void dequantize_block_q4_K<__half>(void const*, __half*)",
        "void scale_f32(float const*, float*, float, float, long)",
        "triton_poi_fused_mean_mul_pow_rsqrt_5",
        "triton_poi_fused_all_gather_into_tensor_wait_tensor_9",
        "triton_poi_fused__scaled_dot_product_flash_attention_add_1",
        "triton_for_fused_1",
        "triton_poi_fused_silu_mul_bmm_8",
        "_swiglu_forward_kernel",
        "_triton_rope",
        "_geglu_tanh_forward_kernel",
        "element_mul_kernel",
        "__myl_MulMulAddConcAdd_myl0_12",
        "void cuEltwise::eltwise<cuEltwise::SimpleAlgo<__half, __half>>(int)",
        "void sglang::act_and_mul_kernel<__nv_bfloat16>(int)",
        "void at::native::(anonymous namespace)::upsample_nearest2d_out_frame<float>(int)",
        "loop_add_multiply_fusion",
        "void transformer_engine::mxfp8::quantize_mxfp8_kernel<int>(int)",
        "void kQuantizeBlockwise<__half, 4096, 4, 0, 1>(int)",
    ),
    "embedding": (
        "triton_poi_fused_embedding_0",
    ),
    "fill": (
        "void deep_gemm::smxx_clean_logits<256u>(int)",
        "__amd_rocclr_fillBufferAligned",
        "void at::native::elementwise_kernel_with_index<int, at::native::arange_cuda_out(int)>(int)",
    ),
    "index": (
        "void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel1<long>(int)",
        "fbgemm::jagged_to_padded_dense",
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int, int, int, unsign"
        "ed long, int*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
        "void tensorrt_llm::kernels::cutlass_kernels::computeStridesTmaWarpSpecializedKernel<__nv_bfloat16, _"
        "_nv_fp4_e2m1>(int)",
        "void k_get_rows_float<float, float>(float const*)",
        "void k_set_rows<float, long, __half>(float const*)",
        "create_flashinfer_kv_indices_triton",
    ),
    "loss": (
        "kernel_cutlass_kernel_quackcross_entropyCrossEntropy_object_at__tensorptrbf16gmem",
        "liger_cross_entropy_kernel",
        "_jsd_kernel",
        "_kldiv_kernel_forward",
    ),
    "matmul": (
        "fbgemm::f8f8bf16_rowwise",
        "onednn::qlinear_pointwise",
        "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>(__half const*)",
        "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l, 128>(int4 const*)",
        "_lora_shrink_kernel",
        "_lora_expand_kernel",
        "_w8a8_triton_block_scaled_mm",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u>(float*)",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x16x256u2_s6_et128x16_m256x16x32_c2x1x1_rM_TN_transO"
        "ut_schedS",
        "kernel_cutlass_kernel_quackgemm_sm90GemmSm90_object_at__TiledMMA",
        "kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK11110000",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cu"
        "tlass::gemm::collective::CollectiveMma<int>, cutlass::epilogue::collective::CollectiveEpilogue<cutla"
        "ss::epilogue::thread::ReLU, cutlass::half_t>, void>>(int)",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(int)",
        "void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner<int>>>(int)",
        "void ck_tile::kentry<2, ck_tile::MoeFlatmmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner<int>>>(int)",
        "_ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf3E",
        "_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI32x32x8x1_SE_1LDSB0",
        "Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1",
        "rocblas_gemvt_warp_reduce_kernel",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>(int)",
        "mul_mat_q<(ggml_type)12, 128, 8, false>",
        "void mul_mat_vec_f<__half, __half, 1, 256, false, false>(int)",
        "triton_tem_fused_addmm_2",
        "triton_tem_fused_mm_native_layer_norm_relu_7",
        "triton_tem_fused_0",
        "triton_mm",
        "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x32_stage6_warpsize2x2x1_tensor16x8x16_execute_ke"
        "rnel_trt",
        "__myl_Fc_myl2_3",
        "nvjet_hsh_96x128_64x7_2x1_v_bz_TNN",
        "void w4a16_moe_sm90_kernel<Trait<32>>(int)",
        "void cusparse::csrmm_v2_kernel<int>(int)",
        "gemm_fusion_dot_7",
        "void kgemm_4bit_inference_naive<__half, 128, 16>(int)",
        "gemm_kernel",
    ),
    "normalization": (
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, c10::BFloat16"
        " const*, float, int, int)",
        "void vllm::rms_norm_static_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(int)",
        "void tensorrt_llm::kernels::fusedQKNormRopeKernel<128, true>(void*)",
        "kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmemalign16o64",
        "kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16gmem",
        "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Rmsnorm2dFwdPipelineOnePass<int>>>(int)",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_",
        "MIOpenBatchNormFwdTrainSpatial",
        "void rms_norm_f32<1024, true, false>(float const*, float*)",
        "triton_per_fused_native_layer_norm_3",
        "_rms_norm_forward_kernel",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(int)",
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<int>(int)",
        "void transformer_engine::normalization::ln_fwd_general_kernel<int>(int)",
    ),
    "other": (
        "void vllm::apply_repetition_penalties_kernel<float>(float*)",
        "_zeropower_via_newtonschulz5_kernel",
    ),
    "random": (
        "void flashinfer::sampling::SamplingFromProbKernel<1024u, float, int>(float*)",
    ),
    "reduction": (
        "fbgemm::asynchronous_complete_cumsum",
        "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, int)",
        "reduce_segments",
        "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16, __nv_bfloat16>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::blockExpertPrefixSumKernel<1024>(int const*)",
        "mloPoolingG",
        "void k_sum_rows_f32(float const*)",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
        "input_reduce_fusion_3",
        "selective_scan_fwd_kernel",
        "_chunk_scan_fwd_kernel",
    ),
    "softmax": (
        "void flashinfer::sampling::OnlineSoftmaxFusedKernel<1024u, 4u, float, true>(float*)",
        "kernel_cutlass_kernel_quacksoftmaxSoftmax_object_at__tensorptrf32gmem",
        "void soft_max_f32<true, 0, 0, __half>(float const*)",
        "triton_per_fused__softmax_add_masked_fill_4",
    ),
    "sort": (
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*, bool const*, float*, int, int*, "
        "int*, int, int, int)",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int const*, int*, int*, unsigned long)",
        "_topk_topp_kernel",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)1, true, f"
        "loat, int>(float*)",
        "void moe::dev::routing::routingRenormalize::routingIndicesClusterKernel<int>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::fusedBuildExpertMapsSortFirstTokenKernel<32, 8, 8>(int)",
        "void tensorrt_llm::kernels::deepseek_v3_topk_kernel<float>(int)",
        "kernel_cutlass_kernel_quacktopkTopK_object_at__tensorptrbf16gmem",
        "void ck_tile::kentry<2, ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblemEx<int, float, 2>>>(int)",
        "void aiter::opus_moe_sorting_entry<int>(int)",
        "void sglang::topk_main_kernel<true, 3>(int)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", KERNELS)
def test_kernels_of_engines_have_their_families(family: str) -> None:
    assert {name: family_of_kernel_name(name) for name in KERNELS[family]} == dict.fromkeys(KERNELS[family], family)


@pytest.mark.parametrize(
    ("name", "operator", "family"),
    [
        ("whatever", "aten::convolution", "convolution"),
        ("whatever", "vllm::unified_attention", "attention"),
        ("whatever", "mine::op", "other"),
        ("whatever", None, "other"),
        ("cutlass_80_tensorop_s1688fprop_gemm", "aten::cudnn_convolution", "convolution"),
        ("ampere_sgemm_128x64_nn", "aten::_scaled_dot_product_efficient_attention", "attention"),
        ("ampere_sgemm_128x64_nn", "aten::addmm", "matmul"),
        ("nchwToNhwcKernel", "aten::cudnn_convolution", "copy"),
        ("Memset (Device)", "aten::embedding_dense_backward", "fill"),
        ("vectorized_elementwise_kernel<4, FillFunctor<float>>", "aten::sort", "fill"),
        ("elementwise_kernel<128, 2, mse>", "aten::mse_loss", "loss"),
        ("aten::mul", "aten::mse_loss", "elementwise"),  # an operator on a CPU, below another
    ],
)
def test_the_operator_decides_where_it_is_known(name: str, operator: str | None, family: str) -> None:
    assert CostModel().family_of_kernel(name, operator) == family
