"""Attention of a trace as `scaled_dot_product_attention`, which every device has: its backends, and its fp64 reference.

The operators of one backend (`_scaled_dot_product_flash_attention` and its like) run on one kind of device, and none
of them in fp64.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfkit.replay.rebuilt import Recipe

_OF_BACKEND = re.compile(r"^aten::_scaled_dot_product_\w*attention(_for_cpu)?(?P<backward>_backward)?$")
_INNER = re.compile(r"^aten::_(flash|efficient|cudnn)_attention_(forward|backward)$")
GENERAL = "aten::scaled_dot_product_attention"
BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}


def is_attention(operator: str) -> bool:
    """Return whether an operator is attention, as a whole or of one backend, forwards or backwards."""
    return operator == GENERAL or _OF_BACKEND.match(operator) is not None


def is_inner(operator: str) -> bool:
    """Return whether an operator is the inside of one backend's attention, in a layout of its own."""
    return _INNER.match(operator) is not None


def general(recipe: Recipe, own: bool) -> Recipe:
    """`scaled_dot_product_attention` for a recipe of attention: for itself (`own`), or with the arguments of that one.

    The backward operator becomes the gradient by autograd, from the same gradient of the output.
    """
    values = {name: value for name, _, value in recipe["arguments"]}
    backward = recipe["operator"].endswith("_backward")

    def of(name: str) -> dict[str, Any]:
        return values[name] if own else {"argument": name}

    arguments: list[list[Any]] = [[name, False, of(name)] for name in ("query", "key", "value")]
    mask = next((n for n in ("attn_mask", "attn_bias", "attn_bias_") if "tensor" in values.get(n, {})), None)
    arguments.append(["attn_mask", False, of(mask) if mask else {"value": None}])
    arguments.append(["dropout_p", False, {"value": 0.0}])
    arguments.append(["is_causal", False, values.get("is_causal", {"value": False})])
    arguments.append(["scale", True, values.get("scale", {"value": None})])
    if _heads(values, "query") != _heads(values, "key"):
        arguments.append(["enable_gqa", True, {"value": True}])
    made: Recipe = {"operator": GENERAL, "overload": "", "arguments": arguments, "changed": []}
    if backward:
        gradient = next(name for name in ("grad_out", "grad_out_", "grad_output") if name in values)
        made |= {"gradient": True, "upstream": of(gradient)}
    return made


def _heads(values: Mapping[str, Any], name: str) -> int:
    shape = values.get(name, {}).get("tensor", {}).get("shape", [])
    return int(shape[1]) if len(shape) == 4 else 0
