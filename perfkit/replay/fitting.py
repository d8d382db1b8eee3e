"""perfkit's own kernels that compute what a recorded operator does: which, with which of its arguments.

`FITS` maps an operator to functions that give the operation, its arguments, and which results its outputs are; None
where the call is another one than the kernel's (GELU by erf, a norm over two dimensions, a mask).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perfkit.bench.benchmark import Outputs, Prepared, Way
from perfkit.bench.catalog import implementation_way
from perfkit.errors import PerfkitError, Unavailable
from perfkit.kernels.declare import Operation
from perfkit.kernels.families import find
from perfkit.kernels.languages import language
from perfkit.replay import attention, rebuilt
from perfkit.replay.rebuilt import Recipe, Values


class Fit(NamedTuple):
    """An operation's name, its arguments, and the number of the result that each of its outputs is (−1: none)."""

    operation: str
    arguments: tuple[Any, ...]
    results: tuple[int, ...] = (0,)


Finder = Callable[[Values], "Fit | None"]
_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
_FEW_ROWS = 8


def _layer_norm(v: Values) -> Fit | None:
    if len(v["normalized_shape"]) != 1 or v["weight"] is None or v["bias"] is None:
        return None
    return Fit("layernorm_forward", (v["input"], v["weight"], v["bias"], v["eps"]), (0, 1, 2))


def _layer_norm_backward(v: Values) -> Fit | None:
    if len(v["normalized_shape"]) != 1 or v["weight"] is None or v["bias"] is None or not all(v["output_mask"]):
        return None
    rows = v["input"].shape[:-1]
    mean, rstd = (v[name].reshape(rows) for name in ("mean", "rstd"))
    return Fit("layernorm_backward", (v["grad_out"], v["input"], v["weight"], mean, rstd), (0, 1, 2))


def _rms_norm(v: Values) -> Fit | None:
    if len(v["normalized_shape"]) != 1 or v["weight"] is None or v["eps"] is None:
        return None
    return Fit("rmsnorm_forward", (v["input"], v["weight"], v["eps"]), (0, 1))


def _gelu(v: Values) -> Fit | None:
    return Fit("gelu_forward", (v["self"],)) if v["approximate"] == "tanh" else None


def _gelu_backward(v: Values) -> Fit | None:
    return Fit("gelu_backward", (v["grad_output"], v["self"])) if v["approximate"] == "tanh" else None


def _softmax(v: Values) -> Fit | None:
    last = v["dim"] in (-1, v["self"].dim() - 1)
    return Fit("softmax_forward", (v["self"],)) if last and not v["half_to_float"] else None


def _softmax_backward(v: Values) -> Fit | None:
    last = v["dim"] in (-1, v["output"].dim() - 1)
    return Fit("softmax_backward", (v["grad_output"], v["output"])) if last else None


def _embedding(v: Values) -> Fit | None:
    return Fit("embedding_forward", (v["indices"], v["weight"]))


def _embedding_backward(v: Values) -> Fit | None:
    return Fit("embedding_backward", (v["grad_output"], v["indices"], v["num_weights"]))


def _add(v: Values) -> Fit | None:
    a, b = v["self"], v["other"]
    same = isinstance(b, Tensor) and a.shape == b.shape and v.get("alpha", 1) == 1
    return Fit("residual_forward", (a, b)) if same else None


def _sum(v: Values) -> Fit | None:
    columns = v["self"].dim() == 2 and v.get("dim") == [0] and v.get("dtype") is None
    return Fit("bias_gradient", (v["self"],)) if columns else None


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> Fit | None:
    """A product of matrices as a linear layer: forwards by a weight that is turned, else one of its gradients."""
    if a.dim() != 2 or b.dim() != 2:
        return None
    if b.mT.is_contiguous() and a.is_contiguous():
        few = a.shape[0] <= _FEW_ROWS
        if bias is not None:
            if bias.dim() != 1:
                return None
            return Fit("gemv_bias" if few else "linear_bias_forward", (a, b.mT, bias))
        return Fit("gemv" if few else "linear_forward", (a, b.mT))
    if bias is not None or not b.is_contiguous():
        return None
    if a.is_contiguous():
        return Fit("linear_backward_input", (a, b))
    return Fit("linear_backward_weight", (a.mT, b)) if a.mT.is_contiguous() else None


def _mm(v: Values) -> Fit | None:
    return _product(v["self"], v["mat2"], None)


def _addmm(v: Values) -> Fit | None:
    plain = v.get("beta", 1) == 1 and v.get("alpha", 1) == 1
    return _product(v["mat1"], v["mat2"], v["self"]) if plain else None


def _linear(v: Values) -> Fit | None:
    x = v["input"]
    return _product(x.reshape(-1, x.shape[-1]), v["weight"].mT, v["bias"])


def _attention(v: Values) -> Fit | None:
    q, masked = v["query"], v.get("attn_mask") is not None or v.get("attn_bias") is not None
    if masked or not v.get("is_causal") or q.dim() != 4 or q.shape[2] != v["key"].shape[2] or v.get("dropout_p"):
        return None
    scale = v.get("scale") or 1 / math.sqrt(q.shape[-1])
    return Fit("flash_attention_forward", (q, v["key"], v["value"], scale), (0, -1))


FITS: dict[str, Finder] = {
    "aten::native_layer_norm": _layer_norm, "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::_fused_rms_norm": _rms_norm, "aten::gelu": _gelu, "aten::gelu_backward": _gelu_backward,
    "aten::_softmax": _softmax, "aten::_softmax_backward_data": _softmax_backward, "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward, "aten::add": _add, "aten::sum": _sum, "aten::mm": _mm,
    "aten::addmm": _addmm, "aten::linear": _linear,
}  # fmt: skip


def ways(recipe: Recipe, device: str, names: Sequence[str]) -> list[Way]:
    """A way for each implementation of the operation that computes what `recipe` does on `device`; it may not fit."""
    operator = recipe["operator"]
    forward = attention.is_attention(operator) and not recipe.get("gradient") and not operator.endswith("_backward")
    finder = _attention if forward else FITS.get(operator)
    if finder is None or recipe["changed"]:
        return []
    shapes = rebuilt.Maker("meta", 0).arguments(without_forward(recipe))
    fit = _fit(finder, shapes)
    if fit is None:
        return []
    operation = find(fit.operation)
    kind = device.partition(":")[0]
    dtypes = {_DTYPES.get(a.dtype, "") for a in fit.arguments if isinstance(a, Tensor) and a.is_floating_point()}
    suited = [i for i in operation.implementations if kind in language(i).devices and dtypes <= set(i.dtypes)]
    return [_way(operation, implementation_way(operation, i, device, False), finder, names) for i in suited]


def _fit(finder: Finder, values: Values) -> Fit | None:
    try:
        return finder(values)
    except (KeyError, AttributeError, TypeError):  # another overload, with other arguments
        return None


def without_forward(recipe: Recipe) -> Recipe:
    """The recipe with tensors in the place of what its forward operator makes, for shapes alone."""
    arguments = [[name, key, value.get("else", value)] for name, key, value in recipe["arguments"]]
    return {name: value for name, value in recipe.items() if name != "forward"} | {"arguments": arguments}


def _way(operation: Operation, way: Way, finder: Finder, names: Sequence[str]) -> Way:
    """The way of an implementation, given the arguments of the recorded call, with results named like that one's."""

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        """Raise `Unavailable` where the implementation does not compute the call."""
        fit = _fit(finder, arguments[0])
        if fit is None:
            raise Unavailable(f"{operation.name} does not compute this call.")
        named = dict(zip(operation.signature.results, fit.results, strict=False))
        try:
            made = way.prepare(fit.arguments, dtype)
        except PerfkitError as error:
            raise Unavailable(str(error)) from error
        return [replace(one, checked=_renamed(one, named, names)) for one in made]

    text = f"perfkit::{operation.name}: {way.text}"
    return replace(way, name=f"perfkit:{way.name}", text=text, prepare=prepare, tolerance_factor=1.0)


def _renamed(one: Prepared, named: dict[str, int], names: Sequence[str]) -> Callable[[], Outputs]:
    def checked() -> Outputs:
        found = {f"result {named.get(name, -1)}": value for name, value in one.checked().items()}
        return {name: value for name, value in found.items() if name in names}

    return checked
