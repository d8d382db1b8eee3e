"""Contents of rebuilt tensors, where a trace records only their shapes: distributions, by what an argument is for.

Names are those of the schemas. What values decide the time (indices, masks, offsets), so does the distribution: it is
stated with every result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]  # name → value of a recipe

_POSITIVE = re.compile(
    r"var$|variance|invstd|rstd|exp_avg_sqs?$|state_sums?$|square_avgs?$|logsumexp|softmax_lse|scale$"
)
_POSITIVE_OF = re.compile(r"^_?(foreach_)?(r?sqrt|log\d*p?|log1p|pow|lgamma|digamma|reciprocal|div)_?$")
_UNIT_OF = re.compile(r"^(bernoulli|binary_cross_entropy|logit|asin|acos|atanh|erfinv|multinomial|_sample_dirichlet)")
_STEPS = re.compile(r"^state_steps?$")
_INDICES = re.compile(r"^(ind(ex|ices)|idx|source_index|target|labels?)$")
WHOLE = 100  # integers stay below it, unless they are indices
_WORDS = {
    "normal": "normal, mean 0, deviation 1",
    "positive": "equally likely from 0.5 to 1.5",
    "unit": "equally likely from 0 to 1",
    "zero": "zeros",
    "one": "ones",
}


def fill_of(operator: str, name: str, tensor: Mapping[str, Any], values: Values) -> tuple[str, int]:
    """The distribution of an argument, and for whole numbers the bound that they stay below."""
    dtype, base = tensor["dtype"], operator.partition("::")[2]
    if _STEPS.match(name) or name == "total_weight":
        return "one", 0
    if name == "found_inf":
        return "zero", 0
    if dtype.startswith(("int", "uint")):
        if "offsets" in name or name in ("cu_seqlens_q", "cu_seqlens_k", "cum_seq_q", "cum_seq_k"):
            return "rising", _length(values)
        return "whole", _bound(name, values)
    if _UNIT_OF.match(base) and name != "grad_output":
        return "unit", 0
    return ("positive" if _POSITIVE.search(name) or _POSITIVE_OF.match(base) else "normal"), 0


def words_of(tensor: Mapping[str, Any]) -> str:
    """A tensor's distribution in words."""
    fill, bound = tensor["fill"], tensor.get("bound", 0)
    if fill == "rising":
        return f"rising from 0 towards {bound:,} in equal steps"
    if tensor["dtype"] == "bool":
        return "half of them true, at random"
    if fill == "whole":
        return f"whole numbers from 0 to {max(bound, 1) - 1:,}, equally likely"
    return _WORDS[fill]


def _bound(name: str, values: Values) -> int:
    """The bound of whole numbers: what indices may reach, by the other arguments."""
    if not _INDICES.match(name):
        return WHOLE
    number = values.get("num_weights") or values.get("num_embeddings")
    if number and isinstance(number.get("value"), int):
        return int(number["value"])
    shapes = [v["tensor"]["shape"] for n, v in values.items() if "tensor" in v and n in ("weight", "self", "input")]
    if name in ("target", "label", "labels"):
        own: list[int] = next(
            (v["tensor"]["shape"] for n, v in values.items() if n in ("self", "input") and "tensor" in v), []
        )
        return int(own[1] if len(own) > 1 else own[0] if own else 1)
    if not shapes or not shapes[0]:
        return 1
    dim = values.get("dim", {}).get("value", 0)
    first = values["weight"]["tensor"]["shape"] if "tensor" in values.get("weight", {}) else shapes[0]
    return int(first[dim] if isinstance(dim, int) and -len(first) <= dim < len(first) else first[0])


def _length(values: Values) -> int:
    """The number of elements that offsets divide: that of the indices, or of rows of a query."""
    for name in ("indices", "query", "key", "values", "input", "self"):
        tensor = values.get(name, {}).get("tensor")
        if tensor:
            return int(tensor["shape"][0]) if tensor["shape"] else 1
    return 1
