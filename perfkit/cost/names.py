"""Names: one spelling for each operator, and the family of names that no registry holds (kernels, fused regions)."""

from __future__ import annotations

import re
from typing import NamedTuple

# Ranges and autograd nodes that the profiler records like operators although others do their work.
_DISPATCH = re.compile(
    r"^(autograd::|torch::autograd::|ProfilerStep|Optimizer\.|nn\.Module|enumerate\(DataLoader|DistributedDataParallel|"
    r"## Call CompiledFxGraph|Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|CompiledFunction$|"
    r"CompiledAutograd|PythonSubclass|\[pytorch\||\[memory\]|\w*Backward\d*$|\w+Fn(Backward)?$)"
)


class _Family(NamedTuple):
    """Parts of the names of a family's kernels, in lower case: one of `words`, or of `parts` (between underscores and
    ends), or a word that counts only where its pattern matches. Words are found many times faster than patterns."""

    name: str
    words: tuple[str, ...]
    parts: frozenset[str]
    patterns: tuple[tuple[str, re.Pattern[str]], ...]


def _family(name: str, words: str, parts: str = "", **patterns: str) -> _Family:
    """A family from words separated by blanks; each of `patterns` is tried on names that hold its keyword."""
    compiled = tuple((word, re.compile(pattern)) for word, pattern in patterns.items())
    return _Family(name, tuple(words.split()), frozenset(parts.split()), compiled)


# First match wins: the most specific work decides about a fused kernel's family.
_KERNELS = (
    _family("collective", "nccl rccl gloo msccl nvshmem oneccl allreduce all_reduce allgather all_gather reducescatter "
            "reduce_scatter alltoall all_to_all cross_device_reduce one_shot two_shot multimem userbuffers "
            "moea2a epdispatch epcombine lamport", deep_ep="deep_ep::(?!layout)",
            node=r"\bint(er|ra)node(_ll)?::"),  # DeepEP's, in other namespaces too
    _family("copy", "memcpy dma_request copybuffer cupy_copy direct_copy catarray bfloat16_copy float16_copy "
            "genericreformat copyvectorized copypacked permutationkernel subtensoropwithcast subtensoropwithtransform "
            "reshape_and_cache concat_and_cache kv_buffer kv_cache_kernel gather_cache gather_and_upconvert_cache "
            "expandinputrows marlin_repack appendpagedkv req_to_token concat_",
            copy_kernel=r"\bcopy_kernel", unrolled_elementwise="unrolled_elementwise.*copy", cpy=r"\bcpy_",
            multi_tensor_apply="multi_tensor_apply.*::copy<"),  # _foreach_copy_, by which FSDP gathers its parts
    _family("fill", "memset fillbuffer settensor cupy_fill fillfunctor fill_kernel elementwise_kernel_with_index "
            "clean_logits", multi_tensor_apply="multi_tensor_apply.*zerofunctor"),
    # CuPy writes the types of a ufunc's kernel after two underscores: cupy_sqrt__float_float. Reductions do not.
    _family("elementwise", "", cupy=r"^cupyx?_\w+__[a-z]"),
    _family("attention", "fmha sdpa attention attn_fwd attn_bwd dot_do_o convert_dq withkvcache withpagedkvcache "
            "withraggedkvcache batchprefill batchdecode singleprefill singledecode mergestate merge_state "
            "merge_attn multiheadatt mqa_logits delta_rule linear_attn fwd_grouped_kernel_stage mha_v",
            flash="flash(?!infer)",  # FlashInfer's namespace holds products and norms too
            mla=r"(?<![a-z])(flash)?mla(_|\b|kernel|metadata)", mha=r"(?<![a-z])mha(_|\b|kernel)",
            sage=r"\bsage_?(attn|fwd|bwd)|qk_int\w*_sv", fwd_kernel=r"^_(fwd|bwd)_kernel(_stage\d|_dkdv|_dq)?$",
            aiter=r"aiter\w*?(::|\d)(pa|fwd|bwd)_(bf16|fp16|fp8)"),
    _family("fft", "regular_fft vector_fft 2d_fft 2way_fft bluestein_fft fft2d fft1d cufft vkfft rocfft",
            fft_=r"\bfft_(rtc|fwd|back)"),
    _family("linalg", "potrf potrs potri getrf getrs geqrf orgqr ormqr larft laswp trsm trtri syevd syevj gesvd "
            "cusolver"),
    _family("reduction", "pooling maxpool max_pool avgpool avg_pool finalizekernel finalizemoe moe_sum prefixsum "
            "reduce_segments"),
    _family("sort", "radixsort radix_sort topkgating fused_gate moesorting moe_sorting routing count_and_sort "
            "sortfirsttoken topk_kernel topk_main moe_topk", topk=r"topk(cute|topk)|grouped_topk"),
    _family("normalization", "layernorm layer_norm rmsnorm rms_norm groupnorm group_norm batchnorm batch_norm "
            "instancenorm instance_norm gammabeta welford rowwisemoments computefusedparams l2norm l2_norm qknorm "
            "qk_norm", bn_=r"\bbn_", ln_=r"(?<![a-z])ln_(fwd|bwd)", norm_f32=r"(^|\s)norm_f32"),
    _family("loss", "crossentropy cross_entropy nllloss nll_loss ctc_loss classifier mse_loss binary_cross kldiv "
            "kl_div jsd_kernel ctcloss grpo_loss", bce=r"(?<![a-z])bce"),
    _family("softmax", "softmax soft_max"),
    _family("optimizer", "adam sgd multi_tensor_apply fusedoptimizer", lamb="lamb(?!da)"),
    _family("convolution", "wgrad dgrad implicit_gemm winograd im2col col2im im2d2col col2im2d vol2col igemm_fwd "
            "igemm_bwd igemm_wrw icudnn computeoffsets xmma_fprop", conv="conv(?!ert|ersion)",
            cudnn_=r"cudnn_.*fprop|(884|1688|16816|[sh])cudnn_", xdlops="xdlops_(bwd|fwd)_"),
    _family("elementwise", "rotary mrope biasrope ropekernel apply_rope ropequant transform_bias_rescale",
            rope=r"(?<![a-z])rope(_|\b)"),
    _family("embedding", "embedding encoder_forward encoder_backward wpe_backward compute_grad_weight krn_partial "
            "sum_and_scatter", wte=r"\bwte"),
    _family("matmul", "gemm gemv cublas rocblas splitk ampere_ volta_ turing_ hopper_ xmma matmul nvjet cijk_ 16816 "
            "wmma wgmma _tensorop triton_mm triton_tem decode_qkv decode_sum decode_swiglu decode_head blockpersist "
            "persistrnn fused_moe marlin mul_mat fmoe ck_moe moe_stage moe_flatmm moeflatmm flatmm grouped_mm "
            "scaled_mm fp8_linear lora_shrink lora_expand bgmv sgmv cusparse csrmm spmm sddmm linear_pointwise myl_fc "
            "myl_matmul moe_wna16",
            "mm addmm bmm", dot_kernel=r"\bdot_kernel", _mm=r"_mm\b", bmm=r"(^|\s)bmm_",
            grouped=r"_grouped_\w*(fp4|fp8|w13|w2)", moe=r"moe_\w*sm\d+_kernel",
            bf16=r"(f8f8|f8i4|f4f4|i8i8|bf16i4|bf16)bf16", exl=r"\bexl\d?_"),
    _family("sort", "sort topk radix bitonic unique top_k"),
    _family("random", "philox distribution_ bernoulli dropout random normal_kernel uniform_kernel curand sampling "
            "gumbel multinomial", samplemulti="samplemulti"),
    _family("index", "index indices gather scatter nonzero deviceselect get_rows set_rows moe_align histogram "
            "expert_offset computestrides dispatch_layout mm_ids bucketize jagged pack_segments"),
    _family("reduction", "reduce reduction triton_red triton_per scan cumsum global_norm bias_gradient fp8_amax pool "
            "decode_token sum_rows", "sum mean norm max argmax"),
    _family("copy", "permute transpose split_heads merge_heads nchwtonhwc nhwctonchw myl_move "
            "fp8_cast fp8_gradient_cast reflection_pad replication_pad", "copy clone cat contiguous concat",
            convert=r"(^|[\s:])convert"),
    _family("elementwise", "elementwise eltwise triton_poi triton_for cpp_fused pointwise gelu silu swiglu relu "
            "sigmoid tanh activation act_and_mul rotary residual _add _mul _div elemwise quant bin_bcast "
            "unary_op unary_gated scale_f32 subtensoropwithscalar optensor op2dtensor op1dtensor op3dtensor op4dtensor "
            "scalepackedtensor upsample parallel_for fp16_to_fp4 geglu dyt_ _fusion nvfuser __myl_ lstm_cell gru_cell "
            "causal_mask", add="^add", mul="^mul", div="^div"),
    # Other kernels of CUTLASS.
    _family("matmul", "", cutlass=r"cutlass(_\d|3x|::(device_)?kernel|::gemm)"),
)  # fmt: skip
# Names of libraries, and collectives whose results Inductor's kernels use.
_NOISE = re.compile(r"\b(deep_gemm|fbgemm\w*)::|(?<=_)(all_gather_into_tensor|all_to_all_single|wait_tensor)(?=_)")
# Inductor names a kernel of its own after every operator that it was made from, of which it never does these: they are
# kernels of libraries or templates. A pointwise kernel reduces nothing.
_INDUCTOR = re.compile(r"triton_(poi|red|per|for|mix|split_scan|tem)_fused")
_NOT_FUSED = {"collective", "attention", "fft", "linalg", "convolution", "matmul", "sort", "optimizer"}
_TEMPLATES = {"attention", "convolution"}
_LONGEST = 2000  # characters of a name that are searched


def normalise(name: str) -> str:
    """One spelling: `torch.ops.aten.add.Tensor`, `aten.add.default` and `aten::add.Tensor` become `aten::add`."""
    name = name.strip().removeprefix("torch.ops.")
    if "::" in name:
        space, _, rest = name.partition("::")
        return f"{space}::{rest.split('.')[0]}" if space and " " not in name else name
    dotted = re.fullmatch(r"(aten|prims|mkldnn|mkl|inductor|quantized|_c10d_functional)\.(\w+)(\.\w+)?", name)
    return f"{dotted[1]}::{dotted[2]}" if dotted else name


def is_dispatch_name(name: str) -> bool:
    """True for autograd nodes, profiler ranges and compiler regions: others, seen below them, do the work."""
    return bool(_DISPATCH.match(name))


def family_of_kernel_name(name: str) -> str:
    """Family of a GPU kernel or fused region from its name alone (demangled or not); "other" when nothing fits."""
    name = _NOISE.sub("", name[:_LONGEST].lower())
    parts = set(name.split("_"))
    inductor = _INDUCTOR.match(name)
    if inductor and inductor[1] == "tem":
        return next((f.name for f in _KERNELS if f.name in _TEMPLATES and _fits(f, name, parts)), "matmul")
    left_out = _NOT_FUSED if inductor else set()
    if inductor and inductor[1] in ("poi", "for"):
        left_out = left_out | {"reduction"}
    return next((f.name for f in _KERNELS if f.name not in left_out and _fits(f, name, parts)), "other")


def _fits(family: _Family, name: str, parts: set[str]) -> bool:
    for word in family.words:
        if word in name:
            return True
    if family.parts and not parts.isdisjoint(family.parts):
        return True
    return any(word in name and pattern.search(name) for word, pattern in family.patterns)
