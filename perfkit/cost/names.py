"""Names: one spelling for each operator, and the family of names that no registry holds (kernels, fused regions)."""

from __future__ import annotations

import re

# Ranges and autograd nodes that the profiler records like operators although others do their work.
_DISPATCH = re.compile(
    r"^(autograd::|torch::autograd::|ProfilerStep|Optimizer\.|nn\.Module|enumerate\(DataLoader|DistributedDataParallel|"
    r"## Call CompiledFxGraph|Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|CompiledFunction$|"
    r"CompiledAutograd|PythonSubclass|\[pytorch\||\[memory\]|\w*Backward\d*$|\w+Fn(Backward)?$)"
)

# First match wins: the most specific work decides about a fused kernel's family.
_KERNELS: tuple[tuple[str, str], ...] = (
    ("collective", r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|gloo"),
    ("copy", r"memcpy|\bcopy_kernel|direct_copy|CatArray|bfloat16_copy|float16_copy|unrolled_elementwise.*copy"),
    ("fill", r"memset|FillFunctor|fill_kernel"),
    ("attention", r"flash|fmha|sdpa|attention|attn_fwd|attn_bwd"),
    ("normalization", r"layer_?norm|rms_?norm|group_?norm|batch_?norm|\bbn_|GammaBeta|LayerNorm|welford"),
    ("loss", r"cross_?entropy|nll_?loss|fused_classifier|mse_loss|bce|binary_cross"),
    ("softmax", r"soft_?max"),
    ("optimizer", r"adam|sgd|multi_tensor_apply|FusedOptimizer|lamb(?!da)"),
    ("convolution", r"conv|wgrad|dgrad|implicit_gemm|winograd|cudnn_.*fprop|im2col|col2im"),
    ("embedding", r"embedding|encoder_(forward|backward)|\bwte|wpe_backward"),
    ("matmul", r"gemm|gemv|cutlass|cublas|splitK|ampere_|volta_|turing_|hopper_|xmma|matmul|nvjet|\bdot_kernel|_mm\b|"
               r"(^|_)(add|b)?mm(_|$)|Cijk_|s?16816|wmma|triton_(mm|tem)"),
    ("sort", r"sort|topk|radix|bitonic|unique"),
    ("random", r"philox|distribution_|bernoulli|dropout|random|curand|normal_kernel|uniform_kernel"),
    ("index", r"index|indices|gather|scatter|nonzero|DeviceSelect"),
    ("reduction", r"reduce|triton_(red|per)|(^|_)(sum|mean|norm|max|argmax)(_|$)|scan|cumsum|global_norm|pool"),
    ("copy", r"permute|transpose|nchwToNhwc|nhwcToNchw|(^|_)(copy|clone|cat|contiguous)(_|$)"),
    ("elementwise", r"elementwise|triton_poi|cpp_fused|pointwise|gelu|silu|relu|sigmoid|tanh|residual|"
                    r"(^|_)(add|mul|div)"),
)  # fmt: skip
# Names are searched in lower case, which is several times faster than ignoring the case. None of the patterns has a
# class such as \\W that another case would turn into its opposite.
_COMPILED = tuple((family, re.compile(pattern.lower())) for family, pattern in _KERNELS)
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
    return next((family for family, pattern in _COMPILED if pattern.search(name)), "other")
