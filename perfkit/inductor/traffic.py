"""Minimal bytes of a fused kernel, from the buffers that the scheduler's nodes read and write."""

from __future__ import annotations

import math
from typing import Any

from perfkit.cost.model import ITEM_BYTES
from perfkit.inductor.loops import operations_of
from perfkit.inductor.names import dtype_name, number


class Traffic:
    """Minimal bytes of a kernel: what comes from outside is read once, what it leaves is written once.

    With `inside`, the names that its other loops write, bytes of one loop: those results do not come from outside.
    """

    def __init__(self, leaves: list[Any], args: Any, graph: Any, inside: frozenset[str] = frozenset()) -> None:
        self.graph, self.args = graph, args
        # An atomic add shows as a read of the whole buffer; its write says how much of it is touched.
        self.reads = [
            dep for leaf in leaves for dep in leaf.read_writes.reads
            if hasattr(dep, "get_numel") and getattr(dep, "mode", None) is None
        ]  # fmt: skip
        self.writes = [dep for leaf in leaves for dep in leaf.read_writes.writes if hasattr(dep, "get_numel")]
        self.leaf_of = {
            dep: leaf for leaf in leaves for dep in (*leaf.read_writes.reads, *leaf.read_writes.writes)
            if hasattr(dep, "is_indirect") and dep.is_indirect()
        }  # fmt: skip
        self.inside = {dep.name for dep in self.writes} | inside
        # A buffer changed in place has a new name after it; the kernel's arguments have the first one.
        self.first_name = getattr(graph.scheduler, "mutation_real_name", {})
        self.outputs = {name for name, inner in args.output_buffers.items() if isinstance(inner, str)}
        # Buffers that share memory: several names, one storage, written once.
        self.shared = {
            name: buffer.inner_name for name, buffer in args.inplace_buffers.items() if hasattr(buffer, "inner_name")
        }

    def read(self) -> float:
        """Bytes that come from outside the kernel; what is added to is read as well."""
        outside = [dep for dep in self.reads if dep.name not in self.inside]
        added_to = [dep for dep in self.writes if dep.mode is not None and self._first(dep.name) not in self.inside]
        return sum(self._bytes_by_name(outside).values()) + sum(self._bytes_by_name(added_to).values())

    def written(self) -> float:
        """Bytes that outlast the kernel: a storage that several names share counts once."""
        stays = {*self.outputs, *self.shared}
        kept = [dep for dep in self.writes if self._first(dep.name) in stays]
        storages: dict[str, float] = {}
        for name, size in self._bytes_by_name(kept).items():
            storage = self.shared.get(self._first(name), self._first(name))
            storages[storage] = max(storages.get(storage, 0.0), size)
        return sum(storages.values())

    def scratch(self) -> float:
        """Bytes that the kernel leaves for the next one in scratch memory, not in buffers: its blocks' partial sums."""
        found = getattr(self.args, "workspace_args", ())
        return sum(number(one.count) * one.dtype.itemsize for one in found)

    def _first(self, name: str) -> str:
        return self.first_name.get(name, name)

    def _bytes_by_name(self, deps: list[Any]) -> dict[str, float]:
        """Bytes touched by buffer: the accesses that differ added up, and never more than the buffer holds."""
        elements: dict[str, float] = {}
        for dep in dict.fromkeys(deps):
            elements[dep.name] = elements.get(dep.name, 0) + self._elements(dep)
        return {name: min(n, number(self.graph.get_numel(name))) * self._item(name) for name, n in elements.items()}

    def _elements(self, dep: Any) -> float:
        leaf = self.leaf_of.get(dep)
        if leaf is None:
            return number(dep.get_numel())
        # A gather or scatter: one element an iteration of the loops that its index depends on, also through a load;
        # Inductor names only those in the index itself.
        accesses = [one for one in operations_of(leaf, self.graph) if one.settings[:1] == (dep.name,)]
        whole = (number(size) for sizes in leaf.get_ranges() for size in sizes)
        return max((access.times for access in accesses), default=math.prod(whole))

    def _item(self, name: str) -> int:
        return ITEM_BYTES[dtype_name(self.graph.get_dtype(name))]
