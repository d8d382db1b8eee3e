"""The arithmetic of a fused kernel, from its loop bodies.

The FX nodes that Inductor names as a kernel's origins cannot be counted: a kernel that only takes the reciprocal root
of a stored variance has the whole LayerNorm before it among its origins. The loop body is what the kernel computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from perfkit.backends.inductor.names import dtype_name, number, operator_name
from perfkit.cost.model import ITEM_BYTES, Call, TensorSpec

# Operations of a loop body that move or name data and compute nothing.
_NOT_ARITHMETIC = {
    "load", "store", "store_reduction", "constant", "index_expr", "to_dtype", "to_dtype_bitcast", "identity", "output",
    "get_index", "masked", "indirect_indexing", "check_bounds", "load_seed", "partial_accumulate",
}  # fmt: skip
# Inductor's name of an operation → the operator whose cost per element it has, where the names differ.
_OPERATORS = {
    "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "trunc_to_int": "trunc", "round_to_int": "round",
    "ceil_to_int": "ceil", "floor_to_int": "floor", "libdevice_exp": "exp", "libdevice_sqrt": "sqrt",
}  # fmt: skip
_REDUCTIONS = {
    "sum": "sum", "max": "amax", "min": "amin", "prod": "prod", "any": "any", "argmax": "argmax", "argmin": "argmin",
    "welford_reduce": "var_mean", "welford_combine": "var_mean",
}  # fmt: skip
_COMPARISONS = {
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
}  # fmt: skip


def calls_of(leaf: Any, graph: Any) -> list[Call]:
    """The arithmetic of one loop nest, each distinct operation once over all iterations.

    Inductor writes a value's expression out at every use and lets the code generator find the repetitions: so does
    this, by giving equal expressions one key.
    """
    body = getattr(leaf, "_body", None)
    if body is None:
        return _template_calls(leaf)
    outer, inner = (math.prod(number(size) for size in sizes) for sizes in leaf.get_ranges())
    shape = (int(outer), int(inner)) if leaf.is_reduction() else (int(outer * inner),)
    calls: list[Call] = []
    seen: dict[Hashable, tuple[Hashable, str]] = {}
    for block in (body.root_block, *body.subblocks.values()):
        _number_values(block.graph, _Loop(shape, graph, seen, calls.append))
    return calls


def another_output(leaf: Any, seen: set[Hashable]) -> bool:
    """Whether a loop nest of `seen` computes this one's values already; adds it there if not.

    A Welford reduction gives mean, squares and weight: each is a loop nest with the whole reduction as its body.
    """
    if getattr(getattr(leaf.node, "data", None), "output_index", None) is None:
        return False
    key = (frozenset(str(node) for node in leaf.node.get_origins()), str(leaf.get_ranges()))
    if key in seen:
        return True
    seen.add(key)
    return False


@dataclass
class _Loop:
    """The iteration space of a loop nest, the values met in it (key → key and dtype), and where its calls go."""

    shape: tuple[int, ...]
    graph: Any
    seen: dict[Hashable, tuple[Hashable, str]]
    emit: Callable[[Call], None]

    def call(self, operation: str, dtypes: list[str], settings: tuple[Any, ...]) -> Call:
        if operation == "reduction":
            name = _REDUCTIONS.get(str(settings[2]), "sum")
            return Call(f"aten::{name}", (TensorSpec(self.shape, dtypes[0] if dtypes else "fp32"), (1,)))
        size = (math.prod(self.shape),)
        return Call(f"aten::{_OPERATORS.get(operation, operation)}", tuple(TensorSpec(size, d) for d in dtypes))


def _number_values(block: Any, loop: _Loop) -> None:
    """Walk a block of operations in order, give equal values one key, and emit a call for each arithmetic one."""
    values: dict[Any, tuple[Hashable, str]] = {}
    for node in block.nodes:
        if node.op not in ("call_method", "call_module", "call_function"):
            continue
        operands = [values[a] for a in node.args if a in values] if node.op == "call_method" else []
        settings = tuple(a for a in node.args[1:] if a not in values)
        target = str(node.target)
        key = (target, tuple(str(s) for s in settings), tuple(operand[0] for operand in operands))
        if key not in loop.seen:
            dtypes = [dtype for _, dtype in operands if dtype]
            loop.seen[key] = (key, _result_dtype(target, settings, dtypes, loop.graph))
            if target not in _NOT_ARITHMETIC and node.op == "call_method":
                loop.emit(loop.call(target, dtypes, settings))
        values[node] = loop.seen[key]


def _result_dtype(target: str, settings: tuple[Any, ...], dtypes: list[str], graph: Any) -> str:
    """The dtype of an operation's value; "" for what is no value (an index)."""
    import torch

    if target == "get_index":
        return ""
    if target == "load":
        return dtype_name(graph.get_dtype(settings[0]))
    given = next((s for s in settings if isinstance(s, torch.dtype)), None)
    if given is not None:  # constant, index_expr, to_dtype, reduction
        return dtype_name(given)
    if target in _COMPARISONS:
        return "bool"
    candidates = dtypes[1:] if target == "where" else dtypes
    floating = [d for d in candidates if d.startswith(("fp", "bf"))]
    return max(floating or candidates, key=lambda d: ITEM_BYTES[d], default="fp32")


def _template_calls(leaf: Any) -> list[Call]:
    """The matrix products of a template (max-autotune), from the FX nodes that it stands for."""
    nodes = leaf.node.get_origins() if leaf.node is not None else ()
    return [call_of(node) for node in nodes if operator_name(node).split("::")[-1] in ("mm", "addmm", "bmm", "baddbmm")]


def call_of(node: Any) -> Call:
    """The call that an FX node stands for, with the shapes that tracing found."""
    return Call(operator_name(node), tuple(_argument(value) for value in node.args))


def _argument(value: Any) -> Any:
    import torch

    found = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    if not isinstance(found, torch.Tensor):
        return found
    shape, strides = (tuple(int(n) for n in sizes) for sizes in (found.shape, found.stride()))
    return TensorSpec(shape, dtype_name(found.dtype), strides)


def operators_of(leaves: list[Any]) -> tuple[str, ...]:
    """The operators that Inductor names as origins, sorted."""
    origins = [node for leaf in leaves if leaf.node is not None for node in leaf.node.get_origins()]
    return tuple(sorted({operator_name(node) for node in origins} - {""}))
