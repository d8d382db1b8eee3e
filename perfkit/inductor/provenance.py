"""The parts of the model that each call in the code that Inductor generates serves.

Inductor says for every call that it writes, in their order, which nodes of the graph the kernel computes; a fused
kernel that is called in twelve layers is listed twelve times, each time with other nodes. Nodes carry the modules that
Dynamo went through (`nn_module_stack`) and the function that the model called (`source_fn_stack`); those of the
backward carry both of their forward node (`fwd_…`). So:

- The place of a node is the innermost module of its stack, and the innermost function. With an empty stack it is the
  module whose forward was captured: the model, or after a graph break one inside it, by the stacks of other nodes.
- Nodes without either: a sum of gradients has the place of the summand that is computed last, as autograd makes the sum
  in that node. What a pattern put in the place of others has the place of its first user; a product has that of its
  factors instead, rather of one that the model multiplies, and attention keeps its own name.
- Padding that the compiler adds (for the alignment of a product) is a `pad`, which the model does not call.
- A node that several kernels name belongs to the first: Inductor lists all that a value was computed from.
- The share of an operator in a fused kernel follows from the bytes that its nodes would read from and write to the
  others if they were a kernel of their own (`perfkit.tree.shares.split`). Views and constants move nothing.

The private names that this rests on are all here. Where one is missing, `recording_sites` warns, and the kernels are
placed by alignment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfkit.inductor.names import operator_name
from perfkit.inductor.sources import source_of
from perfkit.inductor.work import work_of_node
from perfkit.profile_names import ROOT
from perfkit.tree import shares

if TYPE_CHECKING:
    import torch

_TELLS = "set_kernel_post_grad_provenance_tracing"
_WHERE = ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_MULTIPLYING = frozenset({"linear", "matmul", "einsum", "tensordot", *_PRODUCTS})  # functions of a model
_VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select",
    "split", "split_with_sizes", "alias", "as_strided", "detach", "getitem", "unbind", "broadcast_in_dim",
})  # fmt: skip

Place = tuple[str, str]  # module path, operator


@dataclass
class CallSites:
    """The calls of every graph that Inductor generated code for, in the order in which they run.

    `paths` are the model's module paths by the identity of the module.
    """

    paths: dict[int, str] = field(default_factory=dict)
    graphs: list[list[shares.CallSite]] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)  # name of a kernel → what a profiler shows for it
    defined: str = ""  # the Triton kernel that was written last
    _open: dict[int, list[tuple[str, Any, bool]]] = field(default_factory=dict)  # by graph, until its code is whole
    _work: dict[tuple[int, str], shares.Work] = field(default_factory=dict)  # by graph, likewise, and kernel

    def begin(self, model: torch.nn.Module) -> None:
        """Take the module paths of the model that is going to be compiled."""
        self.paths = {id(module): path or ROOT for path, module in model.named_modules()}

    def called(self, graph: Any, kernel: str, nodes: Any, extern: bool) -> None:
        """Note a call of `kernel`, for the scheduler's `nodes` or an extern kernel's own."""
        self._open.setdefault(id(_outermost(graph)), []).append((kernel, nodes, extern))

    def written(self, graph: Any, kernel: str, work: shares.Work) -> None:
        """Note the work of a kernel that was written for `graph`: in another graph its name may be another's."""
        self._work.setdefault((id(_outermost(graph)), kernel), work)

    def close(self, graph: Any, code: str, first_line: int) -> None:
        """The code of `graph` is whole; its first line is number `first_line` of all that was generated."""
        whole = id(_outermost(graph))
        calls = self._open.pop(whole, [])
        work = {kernel: self._work.pop((of, kernel)) for of, kernel in list(self._work) if of == whole}
        places = places_of(graph.graph, self.paths)
        order = {node: i for i, node in enumerate(graph.graph.nodes)}
        lines = _lines(code, [kernel for kernel, _, _ in calls])
        taken: set[Any] = set()
        sites = []
        for (kernel, nodes, extern), line in zip(calls, lines, strict=True):
            name = _extern_name(kernel, nodes) if extern else self.shown.get(kernel, kernel)
            origins = sorted(_origins(nodes, extern, order), key=lambda node: order[node])
            own = [node for node in origins if node not in taken] or origins
            taken.update(own)
            at = first_line + line - 1 if line else 0
            done = _extern_work(nodes, origins) if extern else work.get(kernel)
            most = sorted(own, key=lambda node: (is_view(node), -_bytes([node])))
            sites.append(shares.CallSite(name, at, _served(own, places), done, source_of(most)))
        self.graphs.append(sites)


@contextlib.contextmanager
def recording_sites(into: CallSites, warn: Callable[[str], None]) -> Iterator[None]:
    """Note into `into` each call that Inductor writes while the block runs. It never breaks a compilation."""
    with contextlib.ExitStack() as stack:
        found = False
        for name in _WHERE:
            try:
                module = importlib.import_module(name)
                original = getattr(module, _TELLS)
            except (ImportError, AttributeError):
                continue
            found = True
            setattr(module, _TELLS, _noting(into, warn, original))
            stack.callback(setattr, module, _TELLS, original)
        if not found:
            warn(f"Compiled kernels are placed by alignment only: this torch's Inductor has no {_TELLS}.")
        yield


def _noting(into: CallSites, warn: Callable[[str], None], original: Any) -> Any:
    @functools.wraps(original)
    def tells(node_schedule: Any, kernel_name: str, is_extern: bool = False) -> Any:
        from torch._inductor.virtualized import V

        try:
            into.called(V.graph, kernel_name, node_schedule, is_extern)
        except Exception as error:  # a private structure that changed must never break the user's compilation
            warn(f"Some compiled kernels are placed by alignment only: {type(error).__name__}: {error}.")
        return original(node_schedule, kernel_name, is_extern)

    return tells


def _outermost(graph: Any) -> Any:
    """The graph whose code holds that of `graph` (a subgraph's code is part of its parent's)."""
    while getattr(graph, "parent", None) is not None:
        graph = graph.parent
    return graph


# ---- places of nodes ------------------------------------------------------------------------------------------------


def places_of(graph: Any, paths: dict[int, str]) -> dict[Any, Place]:
    """The place of every node of an FX graph that has one, by the rules of this module."""
    found: dict[Any, Place] = {}
    order = {node: i for i, node in enumerate(graph.nodes)}
    root = _root_of(graph, paths)
    for node in graph.nodes:
        of_gradients = "partitioner_tag" in node.meta
        own = _own_place(node, paths, root)
        place = own or (_from_inputs(node, found, order) if of_gradients and not _function(node) else None)
        if place:
            found[node] = place
    for node in reversed(graph.nodes):
        if node not in found and node.op == "call_function" and not _function(node):
            place = _from_users(node, found)
            if place:
                found[node] = place
    for node in graph.nodes:
        if node not in found and not _function(node) and (place := _from_inputs(node, found, order)):
            found[node] = place
    for node in found:
        if _short_name(node) == "constant_pad_nd" and not _function(node):
            found[node] = (found[node][0], "pad")
    return found


def _root_of(graph: Any, paths: dict[int, str]) -> str:
    """The module whose forward the graph was captured from: the model, or after a graph break one inside it.

    What Dynamo calls `L['self'].fc` and is h.0.fc by its identity was captured from h.0. "" where it is unknown.
    """
    found = set()
    for node in graph.nodes:
        for key, (name, _) in _stack(node).items():
            path, below = _known(key, paths), re.sub(r"^L\['\w+'\]", "", name)
            if path and below != name and f".{path}".endswith(below):
                found.add(f".{path}".removesuffix(below).lstrip(".") or ROOT)
    if not found and len(paths) < 2:  # a model without modules inside
        return ROOT
    return found.pop() if len(found) == 1 else ""


def _stack(node: Any) -> dict[str, tuple[str, Any]]:
    return node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}


def _function(node: Any) -> Any:
    return node.meta.get("source_fn_stack") or node.meta.get("fwd_source_fn_stack")


def _known(key: str, paths: dict[int, str]) -> str | None:
    """The path of the module whose identity a key of a stack is."""
    number = key.partition("@")[0]
    return paths.get(int(number)) if number.isdigit() else None


def _own_place(node: Any, paths: dict[int, str], root: str) -> Place | None:
    source = _function(node)
    if not source:
        return None
    module = root
    for key, (name, _) in _stack(node).items():
        module = _path(key, name, paths)
    name, target = source[-1]
    return (module, function_name(name, target)) if module else None


def _path(key: str, name: str, paths: dict[int, str]) -> str:
    """The path of a module in a stack: by its identity, which the key is; else by the source that Dynamo names."""
    return _known(key, paths) or re.sub(r"^L\['self'\]\.?|^L__self___?", "", name).replace("_orig_mod.", "") or ROOT


def function_name(name: str, target: Any) -> str:
    """The function that the model called: `gelu`. A module class counts as the function that Dynamo named it by."""
    if isinstance(target, str):
        return target
    if isinstance(target, type):
        return re.sub(r"_\d+$", "", name)
    return str(getattr(target, "__name__", name))


def _from_inputs(node: Any, found: dict[Any, Place], order: dict[Any, int]) -> Place | None:
    """The place of the input that is computed last; of a product's, its factors, not what is added to it, and of these
    one that the model multiplies: a gradient comes from whatever uses the product."""
    if node.op != "call_function":
        return None
    product = _short_name(node) in _PRODUCTS
    inputs = node.args[-2:] if product else [_placed(before, found) for before in node.all_input_nodes]
    known = [before for before in inputs if before in found and before.op != "placeholder"]
    if product:
        known = [before for before in known if found[before][1] in _MULTIPLYING] or known
    return found[max(known, key=lambda n: order[n])] if known else None


def _placed(node: Any, found: dict[Any, Place]) -> Any:
    """The node whose memory a view shows; a view on the way to it that is another function's, as the transposed weight
    of a linear layer is, is its own."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        if node in found and found[node][1] not in _VIEWS:
            break
        node = node.all_input_nodes[0]
    return node


def _from_users(node: Any, found: dict[Any, Place]) -> Place | None:
    """The place of the first user, for a node that a pattern made; products and attention keep their own name."""
    name = _short_name(node)
    place = next((found[user] for user in node.users if user in found), None)
    if place is None or name in _PRODUCTS:
        return None
    return (place[0], operator_name(node)) if "attention" in name else place


def _short_name(node: Any) -> str:
    """`mm` for a node that calls aten.mm.default."""
    return operator_name(node).rpartition("::")[2]


# ---- calls ----------------------------------------------------------------------------------------------------------


def _origins(nodes: Any, extern: bool, order: dict[Any, int]) -> list[Any]:
    """The FX nodes that a call computes."""
    if extern:
        exact = getattr(nodes, "origin_node", None)
        return [exact] if exact in order else [n for n in nodes.get_origins() if n in order]
    leaves = [leaf for node in nodes if hasattr(node, "get_nodes") for leaf in node.get_nodes()]
    found = {node for leaf in leaves if leaf.node is not None for node in leaf.node.get_origins()}
    return [node for node in found if node in order]


def _extern_name(kernel: str, node: Any) -> str:
    """The name that a profiler shows for an extern kernel: the operator that it calls."""
    overload = getattr(node, "op_overload", None)
    schema = getattr(overload, "_schema", None)
    return str(schema.name) if schema is not None else f"aten::{kernel.rpartition('.')[2]}"


def _extern_work(call: Any, origins: Sequence[Any]) -> shares.Work | None:
    """The work of an extern kernel: that of the one node among its `origins` that calls its operator, or the only one
    that works."""
    working = [node for node in origins if node.op == "call_function" and not is_view(node)]
    same = [node for node in working if operator_name(node) == _extern_name("", call)]
    chosen = same or working
    return work_of_node(chosen[0]) if len(chosen) == 1 else None


def _lines(code: str, kernels: Sequence[str]) -> list[int]:
    """The line of each call in the generated code, from 1, or 0 where it is not found; calls are in their order."""
    text = code.splitlines()
    start = next((i for i, line in enumerate(text) if re.match(r"\s*def call\(", line)), 0)
    found = []
    for kernel in kernels:
        call = re.compile(rf"(?<![\w.]){re.escape(kernel)}(\.run)?\(")
        at = next((i for i in range(start, len(text)) if call.search(text[i].split("#")[0])), None)
        found.append(0 if at is None else at + 1)
        start = start if at is None else at + 1
    return found


def _served(nodes: Sequence[Any], places: dict[Any, Place]) -> tuple[shares.OperatorShare, ...]:
    """Return the parts of the model that a call that computes `nodes` serves; nodes without a place do not count."""
    working = [node for node in nodes if not is_view(node)] or list(nodes)
    groups: dict[Place, list[Any]] = {}
    for node in working:
        if node in places:
            groups.setdefault(places[node], []).append(node)
    if not groups:
        return ()
    return tuple(shares.split([("", *place) for place in groups], [_bytes(group) for group in groups.values()]))


def is_view(node: Any) -> bool:
    """Return whether a node only gives another shape to, or takes a part of, what another made."""
    return (_short_name(node) or getattr(node.target, "__name__", "")) in _VIEWS


def _bytes(group: Sequence[Any]) -> float:
    """Bytes that the nodes of a group read from other nodes, and write for others, each once."""
    inside = set(group)
    read = {base: _size(base) for node in group for base in map(_base, node.all_input_nodes) if base not in inside}
    written = {node: _size(node) for node in group if _leaves(node, inside)}
    return sum(read.values()) + sum(written.values()) if any(node.all_input_nodes for node in group) else 0.0


def _base(node: Any) -> Any:
    """The node whose memory a view shows."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _leaves(node: Any, inside: set[Any]) -> bool:
    """Return whether a node outside of the group uses a node, itself or as a view."""
    return any(user not in inside and (not is_view(user) or _leaves(user, inside)) for user in node.users)


def _size(node: Any) -> float:
    import torch

    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return sum(_extent(v) * v.element_size() for v in values if isinstance(v, torch.Tensor))


def _extent(value: torch.Tensor) -> float:
    """Elements of a tensor; where a size changes from call to call, with the one that it was traced with: to ask for
    its value would make it a constant of the program."""
    sizes = [getattr(getattr(size, "node", None), "hint", size) for size in value.shape]
    return math.prod(float(size) for size in sizes if size is not None)
