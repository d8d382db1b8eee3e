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
    """What the names of a family's kernels hold, in lower case: one of `words`, or of `parts` (between underscores and
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
    _family("collective", "nccl rccl allreduce all_reduce allgather all_gather reducescatter reduce_scatter gloo"),
    _family("copy", "memcpy cupy_copy direct_copy catarray bfloat16_copy float16_copy",
            copy_kernel=r"\bcopy_kernel", unrolled_elementwise="unrolled_elementwise.*copy",
            multi_tensor_apply="multi_tensor_apply.*::copy<"),  # _foreach_copy_, by which FSDP gathers its parts
    _family("fill", "memset cupy_fill fillfunctor fill_kernel", multi_tensor_apply="multi_tensor_apply.*zerofunctor"),
    # CuPy writes the types of a ufunc's kernel behind two underscores: cupy_sqrt__float_float. A reduction has none.
    _family("elementwise", "", cupy=r"^cupyx?_\w+__[a-z]"),
    _family("attention", "fmha sdpa attention attn_fwd attn_bwd dot_do_o convert_dq withkvcache withpagedkvcache",
            flash="flash(?!infer)"),  # FlashInfer's namespace holds products and norms too
    _family("fft", "regular_fft vector_fft 2d_fft 2way_fft bluestein_fft fft2d fft1d cufft vkfft"),
    _family("linalg", "potrf potrs potri getrf getrs geqrf orgqr ormqr larft laswp trsm trtri syevd syevj gesvd "
            "cusolver"),
    _family("normalization", "layernorm layer_norm rmsnorm rms_norm groupnorm group_norm batchnorm batch_norm "
            "gammabeta welford", bn_=r"\bbn_"),
    _family("loss", "crossentropy cross_entropy nllloss nll_loss ctc_loss classifier mse_loss bce binary_cross"),
    _family("softmax", "softmax soft_max"),
    _family("optimizer", "adam sgd multi_tensor_apply fusedoptimizer", lamb="lamb(?!da)"),
    _family("convolution", "wgrad dgrad implicit_gemm winograd im2col col2im", conv="conv(?!ert|ersion)",
            cudnn_="cudnn_.*fprop"),
    _family("embedding", "embedding encoder_forward encoder_backward wpe_backward", wte=r"\bwte"),
    _family("matmul", "gemm gemv cutlass cublas splitk ampere_ volta_ turing_ hopper_ xmma matmul nvjet cijk_ 16816 "
            "wmma triton_mm triton_tem decode_qkv decode_sum decode_swiglu decode_head blockpersist persistrnn",
            "mm addmm bmm", dot_kernel=r"\bdot_kernel", _mm=r"_mm\b"),
    _family("sort", "sort topk radix bitonic unique"),
    _family("random", "philox distribution_ bernoulli dropout random normal_kernel uniform_kernel curand"),
    _family("index", "index indices gather scatter nonzero deviceselect"),
    _family("reduction", "reduce triton_red triton_per scan cumsum global_norm bias_gradient pool decode_token",
            "sum mean norm max argmax"),
    _family("copy", "permute transpose split_heads merge_heads nchwtonhwc nhwctonchw", "copy clone cat contiguous",
            convert=r"(^|[\s:])convert"),
    _family("elementwise", "elementwise triton_poi cpp_fused pointwise gelu silu swiglu relu sigmoid tanh activation "
            "rotary residual _add _mul _div elemwise", add="^add", mul="^mul", div="^div"),
)  # fmt: skip
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
    name = name[:_LONGEST].lower()
    parts = set(name.split("_"))
    return next((family.name for family in _KERNELS if _fits(family, name, parts)), "other")


def _fits(family: _Family, name: str, parts: set[str]) -> bool:
    for word in family.words:
        if word in name:
            return True
    if family.parts and not parts.isdisjoint(family.parts):
        return True
    return any(word in name and pattern.search(name) for word, pattern in family.patterns)
