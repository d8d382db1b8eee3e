"""One name for a logical operator, whichever backend's kernel names it.

The logical operator is the function of PyTorch that the model called: `linear`, `layer_norm`, `gelu`, `add`. The
reference is eager, where a profiler shows it as the outermost operator (`aten::linear`). The rule, in this order:

1. The namespace, an overload and what marks a variant of the same operator are dropped: `aten::add_.Tensor` → `add`,
   `torch.nn.functional.gelu` → `gelu`, `aten::_softmax` → `softmax`.
2. A backward operator has the name of its forward operator: `aten::native_layer_norm_backward` → `layer_norm`.
3. Operators that PyTorch takes a function apart into have the function's name: `addmm`, `mm` → `linear`; `bmm`,
   `baddbmm` → `matmul`; `cross_entropy_loss`, `nll_loss` → `cross_entropy`; a product written as `iadd` → `add`.
4. Kernels of perfkit's own have the name of the operator they replace: `perfkit::layernorm_backward` → `layer_norm`.
   Those that replace several are split (`parts`), in proportion to the tensors that each would read and write.
"""

from __future__ import annotations

import re
from functools import cache

# Spellings of the same operator; the right-hand side is what eager's outermost operator is called.
_SAME = {
    "addmm": "linear", "mm": "linear", "addmv": "linear", "scaled_mm": "linear", "mkldnn_linear": "linear",
    "linear_pointwise": "linear", "gemv": "linear", "gemv_bias": "linear", "decode_qkv": "linear",
    "decode_sum": "linear", "decode_swiglu": "linear", "decode_head": "linear", "decode_token": "argmax",
    "decode_attention": "matmul",
    "fp8_linear": "linear", "fp8_linear_bias": "linear", "gelu_amax": "gelu", "fp8_gradient_cast": "fp8_cast",
    "bias_gradient": "linear", "linear_bias": "linear", "bmm": "matmul", "baddbmm": "matmul",
    "native_layer_norm": "layer_norm",
    "layernorm": "layer_norm", "rmsnorm": "rms_norm", "fused_rms_norm": "rms_norm",
    "native_group_norm": "group_norm", "native_batch_norm": "batch_norm",
    "native_batch_norm_legit": "batch_norm", "native_dropout": "dropout", "safe_softmax": "softmax",
    "cross_entropy_loss": "cross_entropy", "nll_loss": "cross_entropy", "nll_loss_nd": "cross_entropy",
    "classifier": "cross_entropy", "scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
    "flash_attention": "scaled_dot_product_attention", "embedding_dense": "embedding", "residual": "add",
    "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "truediv": "div", "true_divide": "div",
    "divide": "div", "floordiv": "floor_divide", "multiply": "mul", "subtract": "sub", "negative": "neg",
    "invert": "bitwise_not", "to_copy": "to", "float": "to", "half": "to", "bfloat16": "to", "type_as": "to",
    "mod": "remainder", "imod": "remainder", "adamw_step": "adamw", "fused_adamw": "adamw", "fused_adam": "adam",
}  # fmt: skip
# Kernels and functions of perfkit → the operators of eager, with how many large tensors each reads and writes. What
# eager moves to split heads it moves in the product that follows, and to merge them in `contiguous`.
_PARTS: dict[str, tuple[tuple[str, float], ...]] = {
    "causal_softmax": (("mul", 2), ("masked_fill", 2), ("softmax", 2)),
    "residual_layernorm": (("add", 3), ("layer_norm", 2)),
    "residual_rmsnorm": (("add", 3), ("rms_norm", 2)),
    "swiglu": (("silu", 2), ("mul", 3)),
    "swiglu_amax": (("silu", 2), ("mul", 3)),
    "rotary": (("mul", 4), ("sub", 2), ("add", 2), ("cat", 2)),
    "encoder": (("embedding", 2), ("add", 3)),
    "bias_relu": (("linear", 2), ("relu", 2)),
    "gelu_bias": (("gelu", 3), ("linear", 1)),
    "gelu_bias_amax": (("gelu", 3), ("linear", 1)),
    "linear_gelu": (("linear", 2), ("gelu", 1)),  # about the time of each on its own
    "split_heads": (("matmul", 2),),
    "split_heads_bias": (("matmul", 2), ("linear", 1)),
    "merge_heads": (("contiguous", 2),),
}
_ENDING = re.compile(r"(_for_cpu)?(_forward|_backward(_data|_input|_weight)?)?(_for_cpu)?$")
_NODE = re.compile(r"Backward\d*$")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def logical_name(name: str) -> str:
    """The logical operator's name for an operator as a profiler, a graph or a trace names it; "" for ""."""
    word = name.rpartition("::")[2].partition(".")[0] if "::" in name else name.rpartition(".")[2]
    if _NODE.search(word):  # of autograd: `NativeLayerNormBackward0`
        word = _CAPITAL.sub("_", _NODE.sub("", word)).lower()
    word = _ENDING.sub("", word.strip("_"))
    return _SAME.get(word, word)


@cache
def parts(name: str) -> tuple[tuple[str, float], ...]:
    """The logical operators that an operator serves, with shares that sum to 1: one, but for kernels of perfkit's."""
    own = logical_name(name)
    found = _PARTS.get(own, ((own, 1.0),))
    whole = sum(weight for _, weight in found)
    return tuple((operator, weight / whole) for operator, weight in found)
