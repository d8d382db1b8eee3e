"""The arithmetic of a fused kernel, from its loop bodies.

The FX nodes that Inductor names as a kernel's origins cannot be counted: a kernel that only takes the reciprocal root
of a stored variance has the whole LayerNorm before it among its origins. The loop body is what the kernel computes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from perfkit.cost import CostModel
from perfkit.cost.model import ITEM_BYTES, Call, TensorSpec
from perfkit.cost.shapes import SCALAR_TYPES
from perfkit.inductor.names import dtype_name, number, operator_name

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
    "sum": ("sum",), "max": ("amax",), "min": ("amin",), "prod": ("prod",), "any": ("any",), "argmax": ("argmax",),
    "argmin": ("argmin",), "welford_reduce": ("var_mean",), "welford_combine": ("var_mean",),
    "online_softmax_reduce": ("amax", "sub", "exp", "sum"),  # the maximum of a row, and the sum of its exponentials
}  # fmt: skip
_COMPARISONS = {
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
}  # fmt: skip


@dataclass(frozen=True)
class LoopOperation:
    """One operation of a loop body: Inductor's name of it, the precisions of its operands and of its value, its other
    arguments, and how often it runs: `times` is the product of the sizes of the indices that it depends on."""

    name: str
    operands: tuple[str, ...]
    settings: tuple[Any, ...]
    dtype: str
    times: float
    index: Any = None  # of a load or a store: its expression in the loop's variables


def calls_of(leaf: Any, graph: Any) -> list[Call]:
    """The arithmetic of one loop nest, each distinct operation once over all iterations."""
    if is_template(leaf):
        return _template_calls(leaf)
    outer, inner = (math.prod(number(size) for size in sizes) for sizes in leaf.get_ranges())
    shape = (int(outer), int(inner)) if leaf.is_reduction() else (int(outer * inner),)
    arithmetic = [one for one in operations_of(leaf, graph) if one.name not in _NOT_ARITHMETIC]
    return [call for one in arithmetic for call in _calls(one, shape)]


def is_template(leaf: Any) -> bool:
    """Return whether a scheduler's node is a template that was filled in, rather than a loop nest."""
    return getattr(leaf, "_body", None) is None


def operations_of(leaf: Any, graph: Any) -> list[LoopOperation]:
    """The distinct operations of one loop nest's body, moves of data among them; none for a template.

    Inductor writes a value's expression out at every use and lets the code generator find the repetitions: so does
    this, by giving equal expressions one key.
    """
    if is_template(leaf):
        return []
    body = leaf._body
    loop = _Loop(body, graph)
    for block in (body.root_block, *body.subblocks.values()):
        loop.number_values(block.graph)
    return loop.operations


def another_output(leaf: Any, seen: set[Hashable]) -> bool:
    """Return whether a loop nest of `seen` computes this one's values already; add it there if not.

    A Welford reduction gives mean, squares and weight: each is a loop nest with the whole reduction as its body.
    """
    if getattr(getattr(leaf.node, "data", None), "output_index", None) is None:
        return False
    key = (frozenset(str(node) for node in leaf.node.get_origins()), str(leaf.get_ranges()))
    if key in seen:
        return True
    seen.add(key)
    return False


def _calls(one: LoopOperation, shape: tuple[int, ...]) -> list[Call]:
    """An operation over all iterations of its loop nest, as the cost model knows it."""
    if one.name == "reduction":
        dtype = one.operands[0] if one.operands else "fp32"
        names = _REDUCTIONS.get(str(one.settings[2]), ("sum",))
        return [Call(f"aten::{name}", _operands(name, shape, dtype)) for name in names]
    size = (math.prod(shape),)
    return [Call(f"aten::{_OPERATORS.get(one.name, one.name)}", tuple(TensorSpec(size, d) for d in one.operands))]


def _operands(name: str, shape: tuple[int, ...], dtype: str) -> tuple[Any, ...]:
    """Operands of one step of a reduction: its loop, or for an elementwise part of it all of the elements."""
    whole = TensorSpec((math.prod(shape),), dtype)
    return {"sub": (whole, whole), "exp": (whole,)}.get(name, (TensorSpec(shape, dtype), (1,)))


@dataclass(frozen=True)
class _LoopValue:
    key: Hashable
    dtype: str  # "" for an index, which is not a value
    over: frozenset[Any]  # the variables of the loop nest that it depends on
    index: Any = None


class _Loop:
    """The operations of a loop nest's body; equal values have one key."""

    def __init__(self, body: Any, graph: Any) -> None:
        self.graph = graph
        self.sizes = {variable: number(size) for variable, size in body.var_ranges.items()}
        self.indices = body.indexing_exprs
        self.loaded: dict[str, frozenset[Any]] = {}  # of an index that was loaded, by its symbol: what it depends on
        self.seen: dict[Hashable, _LoopValue] = {}
        self.operations: list[LoopOperation] = []

    def number_values(self, block: Any) -> None:
        """Walk a block of operations in order, give equal values one key, and note each operation once."""
        values: dict[Any, _LoopValue] = {}
        for node in block.nodes:
            if node.op not in ("call_method", "call_module", "call_function"):
                continue
            used = [values[a] for a in node.args if a in values]
            operands = used if node.op == "call_method" else []
            settings = tuple(a for a in node.args[1:] if a not in values)
            name = str(node.target)
            fixed = (str(self.indices[str(node.args[0])]),) if name == "get_index" else tuple(map(str, settings))
            key = (name, fixed, tuple(operand.key for operand in operands))
            if name.startswith("set_indirect") and used:
                self.loaded[name.removeprefix("set_")] = used[0].over
            if key not in self.seen:
                self.seen[key] = self._value(key, name, settings, operands, node)
                if node.op == "call_method":
                    self._note(name, settings, operands, self.seen[key])
            values[node] = self.seen[key]

    def _value(
        self, key: Hashable, name: str, settings: tuple[Any, ...], operands: list[_LoopValue], node: Any
    ) -> _LoopValue:
        if name == "get_index":
            index = self.indices[str(node.args[0])]
            return _LoopValue(key, "", self._variables(index), index)
        called = node.op == "call_method"  # else it is a block under a mask
        over = frozenset[Any]().union(*(o.over for o in operands)) if called else frozenset(self.sizes)
        if name == "store_reduction":
            over = operands[0].over  # of the index: the value is reduced
        dtypes = [o.dtype for o in operands if o.dtype]
        return _LoopValue(key, _result_dtype(name, settings, dtypes, self.graph), over)

    def _variables(self, index: Any) -> frozenset[Any]:
        """The loop's variables that an index depends on, those of the values in it that were loaded among them."""
        found = frozenset[Any]()
        for symbol in getattr(index, "free_symbols", ()):
            own = frozenset([symbol]) if symbol in self.sizes else self.loaded.get(str(symbol), frozenset(self.sizes))
            found |= own
        return found

    def _note(self, name: str, settings: tuple[Any, ...], operands: list[_LoopValue], value: _LoopValue) -> None:
        times = math.prod(self.sizes[variable] for variable in value.over)
        index = next((o.index for o in operands if o.index is not None), None)
        dtypes = tuple(o.dtype for o in operands if o.dtype)
        self.operations.append(LoopOperation(name, dtypes, settings, value.dtype, times, index))


def _result_dtype(target: str, settings: tuple[Any, ...], dtypes: list[str], graph: Any) -> str:
    """The dtype of an operation's value; "" for an index, which is not a value."""
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
    """The matrix products of a template (max-autotune) and flex attention without a block mask, from the FX nodes that
    it computes; nothing where its work is not known."""
    nodes = leaf.node.get_origins() if leaf.node is not None else ()
    products = [node for node in nodes if operator_name(node).split("::")[-1] in ("mm", "addmm", "bmm", "baddbmm")]
    flex = [call for node in nodes if (call := call_of_flex(node)) is not None]
    known = [call for call in flex if (cost := CostModel().cost(call)) is not None and cost.flop]
    return [call_of(node) for node in products] + known


def call_of_flex(node: Any) -> Call | None:
    """The call of flex attention, or of its backward pass, at an FX node; None for any other node."""
    name = str(getattr(node.target, "_name", ""))  # a higher-order operator has no schema
    flex = name in ("flex_attention", "flex_attention_backward")
    return Call(f"aten::{name}", tuple(map(_argument, node.args))) if flex else None


def call_of(node: Any) -> Call:
    """The call of an FX node, with the shapes that tracing found, and arguments in the schema's order.

    A size that changes from call to call is None: reading it would make it a constant of the program.
    """
    schema = getattr(node.target, "_schema", None)
    named = schema.arguments[len(node.args) :] if schema is not None else ()
    rest = [node.kwargs.get(one.name, one.default_value) for one in named]
    return Call(operator_name(node), tuple(map(_argument, (*node.args, *rest))))


def _argument(value: Any) -> Any:
    import torch

    found = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    if isinstance(found, list | tuple):
        return tuple(map(_argument, found))
    if isinstance(found, torch.dtype):  # as a profiler records it
        return next((code for code, name in SCALAR_TYPES.items() if name == dtype_name(found)), None)
    if isinstance(found, torch.SymInt):
        return None
    if not isinstance(found, torch.Tensor):
        return found
    if any(isinstance(size, torch.SymInt) for size in (*found.shape, *found.stride())):
        return None
    return TensorSpec(tuple(found.shape), dtype_name(found.dtype), found.stride())


def operators_of(leaves: list[Any]) -> tuple[str, ...]:
    """The operators that Inductor names as origins, sorted."""
    origins = [node for leaf in leaves if leaf.node is not None for node in leaf.node.get_origins()]
    return tuple(sorted({operator_name(node) for node in origins} - {""}))
