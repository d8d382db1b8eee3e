"""Recording the C++ and Triton kernels that Inductor fuses, by the names that a profiler shows."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from perfkit.inductor.block_masks import BlockMasks, Masked, of_leaves
from perfkit.inductor.fused import GeneratedKernel
from perfkit.inductor.instructions import instructions_of
from perfkit.inductor.loops import another_output, calls_of, is_template, operators_of
from perfkit.inductor.names import ChangingSize
from perfkit.inductor.provenance import CallSites, recording_sites
from perfkit.inductor.traffic import Traffic
from perfkit.inductor.work import work_of_kernel
from perfkit.tree.shares import CallSite

BETWEEN = "\n\n"  # the codes of two graphs, in the text of all
# Options under which Inductor describes its kernels: without its cache of graphs, and on a CPU with a profiler's record
# in each fused kernel (perfkit.backends.compile says why).
DESCRIBED: dict[str, Any] = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
CPU_OPTIONS: dict[str, Any] = {"cpp.enable_kernel_profile": True, **DESCRIBED}


@dataclass
class Recording:
    """Fused kernels by the name that a profiler shows, the generated code, and why something may be missing."""

    kernels: dict[str, GeneratedKernel] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)
    ambiguous: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)  # kernels for any shape
    warnings: list[str] = field(default_factory=list)
    sites: CallSites = field(default_factory=CallSites)
    masks: BlockMasks = field(default_factory=BlockMasks)
    _open: dict[int, list[MaskedKernel]] = field(default_factory=dict)  # by graph, until its code is whole
    _masked: list[tuple[int, MaskedKernel]] = field(default_factory=list)  # and the number of the graph

    def add(self, name: str, kernel: GeneratedKernel) -> None:
        """Keep `kernel`; a name that forward and backward use for different kernels is ambiguous and is dropped."""
        if self.kernels.setdefault(name, kernel) != kernel:
            self.ambiguous.add(name)

    def wrote(self, name: str, shown: str, kernel: GeneratedKernel, graph: Any, nodes: Any) -> None:
        """Keep a kernel of `graph` that is called `name` in its code and `shown` by a profiler."""
        self.add(shown, kernel)
        self.sites.written(graph, name, work_of_kernel(kernel))
        for masked in of_leaves([leaf for node in nodes for leaf in node.get_nodes()], graph):
            self._open.setdefault(id(graph), []).append(MaskedKernel(shown, kernel, masked))

    def close(self, graph: Any, code: str) -> None:
        """The code of `graph` is whole: the calls in it, and the block masks to note when it runs."""
        first_line = 1 + sum(text.count("\n") + len(BETWEEN) for text in self.code)
        self.code.append(code)
        masked = self._open.pop(id(graph), [])
        self.sites.close(graph, code, first_line)
        number = len(self.sites.graphs) - 1
        self._masked += [(number, kernel) for kernel in masked]
        if masked:
            self.masks.expect(number, code, [kernel.masked for kernel in masked])

    def known(self) -> dict[str, GeneratedKernel]:
        """The kernels that their names identify."""
        found = {name: kernel for name, kernel in self.kernels.items() if name not in self.ambiguous}
        settled: dict[str, list[GeneratedKernel]] = {}
        for number, kernel in self._masked:
            settled.setdefault(kernel.shown, []).append(kernel.settled(self.masks, number))
        same = {name: each[0] for name, each in settled.items() if all(one == each[0] for one in each)}
        return {name: same.get(name, kernel) for name, kernel in found.items()}

    def graphs(self) -> list[list[CallSite]]:
        """The calls in each graph, and their work."""
        graphs = [*self.sites.graphs]
        for number, kernel in self._masked:
            work = work_of_kernel(kernel.settled(self.masks, number))
            graphs[number] = [
                site._replace(work=work) if site.name == kernel.shown else site for site in graphs[number]
            ]
        return graphs

    def warn(self, text: str) -> None:
        """Add a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def said(self) -> list[str]:
        """Every warning, those of ambiguous names in one sentence, and those of changing sizes."""
        said = [*self.warnings]
        said += dict.fromkeys(self.masks.text(number, one.masked, one.shown) for number, one in self._masked)
        if self.ambiguous:
            said.append(
                f"Two different fused kernels are called {min(self.ambiguous)}{_others(self.ambiguous)}: where the "
                "call in its graph was not found in the trace, their FLOP and bytes are left out."
            )
        if self.changing:
            said.append(
                f"The sizes of {min(self.changing)} change from call to call{_others(self.changing)}: its graph was "
                "compiled for any shape, and its FLOP are left out."
            )
        return said


@dataclass(frozen=True)
class MaskedKernel:
    """A kernel of flex attention with a block mask, by the name that a profiler shows."""

    shown: str
    kernel: GeneratedKernel
    masked: Masked

    def settled(self, masks: BlockMasks, number: int) -> GeneratedKernel:
        """The kernel with the pairs that its mask keeps in the graph of this number, where they are known."""
        kept = masks.kept(number, self.masked)
        if kept is None:
            return self.kernel
        return replace(self.kernel, calls=(*self.kernel.calls, self.masked.with_pairs(kept.pairs)), counted=True)


def _others(names: set[str]) -> str:
    more = len(names) - 1
    return f", and so it is with {more} other name{'s' * (more > 1)}" if more else ""


@contextlib.contextmanager
def recording(into: Recording) -> Iterator[None]:
    """Record into `into` each kernel and each graph's code that Inductor generates while the block runs."""
    try:
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.codegen.triton import TritonScheduling
        from torch._inductor.graph import GraphLowering
        from torch._inductor.output_code import CompiledFxGraph
    except ImportError as error:
        into.warn(f"The fused kernels have no FLOP and bytes: this torch's Inductor differs ({error}).")
        yield
        return
    with (
        _replaced(CppScheduling, "define_kernel", functools.partial(_recording_kernels, into), into),
        _replaced(TritonScheduling, "define_kernel", functools.partial(_recording_triton, into), into),
        _replaced(TritonScheduling, "codegen_comment", functools.partial(_recording_comment, into), into),
        _replaced(GraphLowering, "save_output_code", functools.partial(_recording_code, into), into),
        _replaced(CompiledFxGraph, "__call__", functools.partial(_noting_masks, into), into),
        recording_sites(into.sites, into.warn),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: type, name: str, wrap: Callable[[Any], Any], into: Recording) -> Iterator[None]:
    """Put `wrap(attribute)` in the place of a class's attribute while the block runs; warn where it is missing."""
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
            into.sites.shown[name] = profiled_name(src_code, name)
            into.wrote(name, into.sites.shown[name], describe(nodes, args, V.graph), V.graph, nodes)
        except ChangingSize:
            into.changing.add(name)
        except Exception as error:  # a private structure that changed must never break the user's compilation
            into.warn(f"Some fused kernels have no FLOP and bytes: {name}: {type(error).__name__}: {error}.")
        return name

    return define_kernel


def _recording_triton(into: Recording, original: Any) -> Any:
    """A Triton kernel's launch is shown under the kernel's name; its scheduler's nodes stand among markers of loops."""

    def define_kernel(self: Any, *args: Any, **settings: Any) -> str:
        from torch._inductor.virtualized import V

        name: str = original(self, *args, **settings)
        into.sites.defined = name
        try:
            _, node_schedule, kernel = args[:3]
            nodes = [node for node in node_schedule if hasattr(node, "get_nodes")]
            if nodes:
                found = describe(nodes, kernel.args, V.graph)
                into.wrote(name, name, replace(found, loops=_loops(node_schedule, kernel, V.graph)), V.graph, nodes)
        except ChangingSize:
            into.changing.add(name)
        except Exception as error:  # a private structure that changed must never break the user's compilation
            into.warn(f"Some fused kernels have no FLOP: {name}: {type(error).__name__}: {error}.")
        return name

    return define_kernel


def _recording_comment(into: Recording, original: Any) -> Any:
    """A kernel that reduces rows and columns at once is called without a record: the comment before its call has
    no name. It is the one that was written right before."""

    def codegen_comment(self: Any, node_schedule: Any, kernel_name: str | None = None) -> Any:
        from torch._inductor.virtualized import V

        if kernel_name is None and into.sites.defined:
            into.sites.called(V.graph, into.sites.defined, node_schedule, False)
        return original(self, node_schedule, *((kernel_name,) if kernel_name is not None else ()))

    return codegen_comment


def _loops(node_schedule: Any, kernel: Any, graph: Any) -> tuple[tuple[float, float], ...]:
    """Bytes and instructions of each loop of a Triton kernel: markers in its schedule end them, and where a block holds
    its rows whole there is one."""
    parts: list[list[Any]] = [[]]
    whole_rows = bool(getattr(kernel, "persistent_reduction", False))
    for node in node_schedule:
        if hasattr(node, "get_nodes"):
            parts[-1].extend(node.get_nodes())
        elif not whole_rows:
            parts.append([])
    written = frozenset(dep.name for part in parts for leaf in part for dep in leaf.read_writes.writes)
    found = []
    for part in filter(None, parts):
        moved, seen = Traffic(part, kernel.args, graph, written), set[Hashable]()
        distinct = [leaf for leaf in part if not another_output(leaf, seen)]
        found.append((moved.read() + moved.written(), instructions_of(distinct, graph, whole_rows)))
    return tuple(found)


def _recording_code(into: Recording, original: Any) -> Any:
    before = original.__func__ if isinstance(original, staticmethod) else original  # Inductor's own hook: mostly None

    def save_output_code(code: str) -> None:
        from torch._inductor.virtualized import V

        try:
            into.close(V.graph, code)
        except Exception as error:  # a private structure that changed must never break the user's compilation
            into.warn(f"Some compiled kernels are placed by alignment only: {type(error).__name__}: {error}.")
        if before is not None:
            before(code)

    return staticmethod(save_output_code)


def _noting_masks(into: Recording, original: Any) -> Any:
    def __call__(self: Any, inputs: Any) -> Any:
        try:
            into.masks.called(self.source_code, inputs)
        except Exception as error:  # a private structure that changed must never break the user's step
            into.warn(f"Block masks of flex attention were not seen: {type(error).__name__}: {error}.")
        return original(self, inputs)

    return __call__


def profiled_name(source: str, name: str) -> str:
    """The name that a profiler shows for the kernel called `name`: the text that its source records.

    Fused loops record `graph_N_` and their name, a template (a matrix product) a name of its own.
    """
    found = re.search(r'RAIIAtenRecordFunctionHandle [^("]+\("([^"]+)"', source)
    if found is None:
        return name
    return found.group(1).replace("Placeholder.DESCRIPTIVE_NAME", name).replace("Placeholder.KERNEL_NAME", "kernel")


def describe(nodes: Any, args: Any, graph: Any) -> GeneratedKernel:
    """Describe the kernel made of the scheduler's `nodes`, whose arguments are `args`, in Inductor's `graph`."""
    leaves = [leaf for node in nodes for leaf in node.get_nodes()]
    traffic = Traffic(leaves, args, graph)
    seen: set[Hashable] = set()
    of_leaves = [(leaf, calls_of(leaf, graph)) for leaf in leaves if not another_output(leaf, seen)]
    return GeneratedKernel(
        traffic.read(),
        traffic.written() + traffic.scratch(),
        calls=tuple(call for _, calls in of_leaves for call in calls),
        operators=operators_of(leaves),
        counted=all(calls or not is_template(leaf) for leaf, calls in of_leaves),
    )
