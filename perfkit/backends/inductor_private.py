"""What Inductor knows of the C++ kernels that it fuses, taken while it generates them.

Everything here rests on Inductor's private names; no other file does. `recording` wraps the one method that gives a fused
kernel its name (`CppScheduling.define_kernel`), where the scheduler's nodes are still at hand: the buffers they read and
write, and the loop body with every arithmetic operation. Where a name is missing (another torch version), nothing is
recorded and the warning says so.

The FX nodes that Inductor names as a kernel's origins cannot be counted: a kernel that only takes the reciprocal root of a
stored variance has the whole LayerNorm before it among its origins. The loop body is what the kernel really computes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

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
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf"}


@dataclass(frozen=True)
class FusedKernel:
    """A generated kernel: its minimal traffic in bytes, the operations of its loops, and the operators they come from.

    Each call stands for one operation over all iterations of its loop; `operators` are aten names, as Inductor says.
    """

    bytes_read: float
    bytes_written: float
    calls: tuple[Call, ...]
    # Apart from where it stems from, one source serves several places of the model: the first one is told.
    operators: tuple[str, ...] = field(compare=False)


@dataclass
class Recording:
    """Fused kernels by the name that a profiler shows, the generated code, and why something may be missing."""

    kernels: dict[str, FusedKernel] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)
    ambiguous: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, kernel: FusedKernel) -> None:
        """Keep `kernel`; a name that forward and backward use for different kernels tells nothing and is dropped."""
        if self.kernels.setdefault(name, kernel) != kernel:
            self.ambiguous.add(name)
            self.warn(f"Two different fused kernels are called {name}: their FLOP and bytes are left out.")

    def known(self) -> dict[str, FusedKernel]:
        """The kernels that their names identify."""
        return {name: kernel for name, kernel in self.kernels.items() if name not in self.ambiguous}

    def warn(self, text: str) -> None:
        """Add a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)


@contextlib.contextmanager
def recording(into: Recording) -> Iterator[None]:
    """Record into `into` every C++ kernel, and the code of every graph, that Inductor generates while the block runs."""
    try:
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.graph import GraphLowering
    except ImportError as error:
        into.warn(f"The fused kernels have no FLOP and bytes: this torch's Inductor differs ({error}).")
        yield
        return
    with (
        _replaced(CppScheduling, "define_kernel", functools.partial(_recording_kernels, into), into),
        _replaced(GraphLowering, "save_output_code", functools.partial(_recording_code, into), into),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: type, name: str, wrap: Callable[[Any], Any], into: Recording) -> Iterator[None]:
    """Put `wrap(attribute)` in the place of a class's attribute while the block runs; warn where there is none."""
    if name not in vars(owner):
        into.warn(f"The fused kernels are not fully described: this torch's Inductor has no {owner.__name__}.{name}.")
        yield
        return
    original = vars(owner)[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _recording_kernels(into: Recording, original: Any) -> Any:
    def define_kernel(self: Any, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        from torch._inductor.virtualized import V

        name: str = original(self, src_code, nodes, kernel_args)
        try:
            args = self.kernel_group.args if kernel_args is None else kernel_args
            into.add(profiled_name(src_code, name), describe(nodes, args, V.graph))
        except Exception as error:  # a private structure that changed must never break the user's compilation
            into.warn(f"Some fused kernels have no FLOP and bytes: {name}: {type(error).__name__}: {error}.")
        return name

    return define_kernel


def _recording_code(into: Recording, original: Any) -> Any:
    before = original.__func__ if isinstance(original, staticmethod) else original  # Inductor's own hook: mostly None

    def save_output_code(code: str) -> None:
        into.code.append(code)
        if before is not None:
            before(code)

    return staticmethod(save_output_code)


def profiled_name(source: str, name: str) -> str:
    """What a profiler shows for the kernel called `name`: the text that its source records.

    Fused loops record `graph_N_` and their name, a template (a matrix product) a name of its own.
    """
    found = re.search(r'RAIIAtenRecordFunctionHandle [^("]+\("([^"]+)"', source)
    if found is None:
        return name
    return found.group(1).replace("Placeholder.DESCRIPTIVE_NAME", name).replace("Placeholder.KERNEL_NAME", "kernel")


def describe(nodes: Any, args: Any, graph: Any) -> FusedKernel:
    """Describe the kernel made of the scheduler's `nodes`, whose arguments are `args`, in Inductor's `graph`."""
    leaves = [leaf for node in nodes for leaf in node.get_nodes()]
    traffic = _Traffic(leaves, args, graph)
    calls = tuple(call for leaf in leaves for call in _calls(leaf, graph))
    return FusedKernel(traffic.read(), traffic.written(), calls, _operators(leaves))


class _Traffic:
    """Minimal bytes of a kernel: what comes from outside is read once, what stays behind is written once."""

    def __init__(self, leaves: list[Any], args: Any, graph: Any) -> None:
        self.graph = graph
        # An atomic add shows as a read of the whole buffer; its write tells how much of it is touched.
        self.reads = [
            dep for leaf in leaves for dep in leaf.read_writes.reads
            if hasattr(dep, "get_numel") and getattr(dep, "mode", None) is None
        ]  # fmt: skip
        self.writes = [dep for leaf in leaves for dep in leaf.read_writes.writes if hasattr(dep, "get_numel")]
        self.inside = {dep.name for dep in self.writes}
        # A buffer changed in place has a new name after it; the kernel's arguments have the first one.
        self.first_name = getattr(graph.scheduler, "mutation_real_name", {})
        self.outputs = {name for name, inner in args.output_buffers.items() if isinstance(inner, str)}
        # Buffers that share memory: several names, one storage, written once.
        self.shared = {
            name: buffer.inner_name for name, buffer in args.inplace_buffers.items() if hasattr(buffer, "inner_name")
        }

    def read(self) -> float:
        outside = [dep for dep in self.reads if dep.name not in self.inside]
        added_to = [dep for dep in self.writes if dep.mode is not None and self._first(dep.name) not in self.inside]
        return sum(self._bytes_by_name(outside).values()) + sum(self._bytes_by_name(added_to).values())

    def written(self) -> float:
        kept = [dep for dep in self.writes if self._first(dep.name) in self.outputs or self._first(dep.name) in self.shared]
        storages: dict[str, float] = {}
        for name, size in self._bytes_by_name(kept).items():
            storage = self.shared.get(self._first(name), self._first(name))
            storages[storage] = max(storages.get(storage, 0.0), size)
        return sum(storages.values())

    def _first(self, name: str) -> str:
        return self.first_name.get(name, name)

    def _bytes_by_name(self, deps: list[Any]) -> dict[str, float]:
        """Bytes touched by buffer: the accesses that differ added up, and never more than the buffer holds."""
        elements: dict[str, float] = {}
        for dep in dict.fromkeys(deps):
            elements[dep.name] = elements.get(dep.name, 0) + self._elements(dep)
        return {name: min(n, _number(self.graph.get_numel(name))) * self._item(name) for name, n in elements.items()}

    def _elements(self, dep: Any) -> float:
        if hasattr(dep, "is_indirect") and dep.is_indirect():  # a gather or scatter: one element an iteration
            return math.prod(_number(size) for size in dep.size)
        return _number(dep.get_numel())

    def _item(self, name: str) -> int:
        return ITEM_BYTES[dtype_name(self.graph.get_dtype(name))]


def _calls(leaf: Any, graph: Any) -> list[Call]:
    """The arithmetic of one loop nest, each distinct operation once over all iterations.

    Inductor writes a value's expression out at every use and lets the code generator find the repetitions: so does this,
    by giving equal expressions one key.
    """
    body = getattr(leaf, "_body", None)
    if body is None:
        return _template_calls(leaf)
    outer, inner = (math.prod(_number(size) for size in sizes) for sizes in leaf.get_ranges())
    shape = (int(outer), int(inner)) if leaf.is_reduction() else (int(outer * inner),)
    calls: list[Call] = []
    seen: dict[Hashable, tuple[Hashable, str]] = {}
    for block in (body.root_block, *body.subblocks.values()):
        _number_values(block.graph, _Loop(shape, graph, seen, calls.append))
    return calls


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
    import torch

    def argument(value: Any) -> Any:
        found = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
        if isinstance(found, torch.Tensor):
            return TensorSpec(tuple(int(s) for s in found.shape), dtype_name(found.dtype), tuple(map(int, found.stride())))
        return found

    return Call(operator_name(node), tuple(argument(value) for value in node.args))


def _operators(leaves: list[Any]) -> tuple[str, ...]:
    """The operators that Inductor names as origins, views left out."""
    import torch

    found = []
    for leaf in leaves:
        for node in leaf.node.get_origins() if leaf.node is not None else ():
            target = node.target
            name = operator_name(node)
            moves_nothing = isinstance(target, torch._ops.OpOverload) and (target.is_view or name.endswith("reshape"))
            if name and not moves_nothing:
                found.append(name)
    return tuple(sorted(set(found)))


def operator_name(node: Any) -> str:
    """`aten::add` for an FX node that calls `aten.add.Tensor`; "" for what is no operator."""
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else ""


def dtype_name(dtype: Any) -> str:
    """perfkit's name of a torch dtype: `fp32` for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    names = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    return "fp8" if name.startswith("float8") else names.get(name, name)


def _number(size: Any) -> float:
    """A size as a number; sizes are constants, since the backend compiles with static shapes."""
    return float(int(size))
