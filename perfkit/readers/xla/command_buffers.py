"""Instructions of kernels that XLA ran in a command buffer: a CUDA graph of many operations.

The profile names the command buffer for each of its kernels and not the operation. Its graph has a node for every
command, numbered in the order in which the program schedules its instructions; what a library launches is a graph of
its own in one of these nodes, and has numbers after all of them. XLA's own kernels are named after their instruction,
and equal ones of several instructions after the first. So the kernels' names say which part of the schedule a graph is,
and the numbers say the rest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfkit.readers.gpu_lists import whole
from perfkit.readers.xla.hlo import HloInstruction, Module
from perfkit.readers.xla.profile import Stats

_NODE_BITS = 32  # the low half is the node's number, the high half its graph's
# Instructions that run nothing, and are no command.
_NO_COMMAND = {
    "parameter", "bitcast", "constant", "get-tuple-element", "tuple", "after-all", "partition-id", "replica-id",
}  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_]")

Launch = dict[int, int]  # rows of one launch of a graph, by the node


@dataclass
class _Graph:
    """A graph's nodes: the kernel of each, its instruction where one is found, and the launches."""

    kernels: dict[int, str] = field(default_factory=dict)
    launches: dict[int | None, Launch] = field(default_factory=lambda: defaultdict(dict))


def instructions_of(
    names: Sequence[str], kinds: Sequence[str], stats: Sequence[Stats], modules: Mapping[int, Module]
) -> dict[int, str]:
    """Return the names of the instructions of rows in command buffers, by row; rows that are not certain are left out.

    `names` and `kinds` are those of the rows in the order of their starts, `stats` what their events say.
    """
    graphs: dict[tuple[int, Any, int], _Graph] = defaultdict(_Graph)
    for row, said in enumerate(stats):
        node, program = whole(said.get("cuda_graph_node_id")), whole(said.get("program_id"))
        if not node or program is None or program not in modules or str(said.get("hlo_op")) in modules[program].by_name:
            continue
        graph = graphs[program, said.get("hlo_op"), node >> _NODE_BITS]
        at = node % (1 << _NODE_BITS)
        graph.launches[whole(said.get("correlation_id"))][at] = row
        graph.kernels[at] = names[row] if kinds[row] == "gpu_kernel" else ""
    found: dict[int, str] = {}
    for (program, _, _), graph in graphs.items():
        nodes = _instructions_of_nodes(graph, modules[program])
        for launch in graph.launches.values():
            found |= {row: nodes[at] for at, row in launch.items() if at in nodes}
    return found


def _instructions_of_nodes(graph: _Graph, module: Module) -> dict[int, str]:
    """The names of instructions by node."""
    by_kernel = {_kernel_name(one.name): one for one in module.by_name.values()}
    own = {at: by_kernel[name] for at, name in graph.kernels.items() if name in by_kernel}
    commands = _commands(own, module) if own else None
    if commands is None:
        return {}
    inner = [at for at in sorted(graph.kernels) if at not in own]
    last = max(own)
    # A command without an activity of its own number holds a library's graph.
    held = [at for at in commands if 0 <= at < max(inner, default=last) and at not in graph.kernels]
    end = max([last, *held]) + 1  # the first number of a node in such a graph
    found = {at: commands[at].name for at in own if at in commands}
    found |= {at: commands[at].name for at in inner if at < end and at in commands}
    found |= _in_libraries([at for at in inner if at >= end], _calls(held, commands), graph)
    return found


def _kernel_name(instruction: str) -> str:
    return _NOT_IN_NAMES.sub("_", instruction)


def _commands(own: Mapping[int, HloInstruction], module: Module) -> dict[int, HloInstruction] | None:
    """The instruction of each node by the only part of a schedule that all of XLA's own kernels fit; None without."""
    found: list[dict[int, HloInstruction]] = []
    for numbers in module.schedules.values():
        order = [module.by_number[n] for n in numbers if n in module.by_number]
        order = [one for one in order if one.opcode not in _NO_COMMAND]
        for first in range(len(order)):
            offset = first - min(own)
            placed = [(one, at + offset) for at, one in own.items()]
            if all(0 <= i < len(order) and _fits(one, order[i], module) for one, i in placed) and any(
                order[i] is one for one, i in placed
            ):
                found.append({i - offset: one for i, one in enumerate(order)})
    return found[0] if len(found) == 1 else None


def _fits(named: HloInstruction, scheduled: HloInstruction, module: Module) -> bool:
    """Return whether the kernel named after one instruction may have run for another, which computes the same."""
    return named is scheduled or (
        named.opcode == scheduled.opcode
        and named.tensors == scheduled.tensors
        and _operands(named, module) == _operands(scheduled, module)
    )


def _operands(one: HloInstruction, module: Module) -> list[Any]:
    return [module.by_number[n].tensors for n in one.operands if n in module.by_number]


def _calls(held: Sequence[int], commands: Mapping[int, HloInstruction]) -> dict[int, str]:
    """The calls of libraries among nodes that hold a graph."""
    return {at: commands[at].name for at in sorted(held) if at in commands and commands[at].opcode == "custom-call"}


def _in_libraries(inner: Sequence[int], calls: Mapping[int, str], graph: _Graph) -> dict[int, str]:
    """The instructions of the nodes of libraries' graphs: each call's are a few fills and one kernel or several."""
    kernels = [at for at in inner if graph.kernels[at]]
    if len(kernels) == len(calls):
        return dict(_up_to_each_kernel(inner, list(calls.values()), graph))
    found: dict[int, str] = {}
    launch = next(iter(graph.launches.values()))
    outside = set(inner)
    started = sorted(launch, key=launch.__getitem__)  # rows stand in the order of their starts
    commands = [at for at in started if at not in outside]
    if commands != sorted(commands):  # branches ran next to each other: a place in time says nothing
        return {}
    before, group = -1, list[int]()
    for at in [*started, None]:
        if at in outside:
            group.append(at)
            continue
        between = [call for node, call in calls.items() if before < node and (at is None or node < at)]
        mine = [node for node in group if graph.kernels[node]]
        if len(between) == 1:
            found |= dict.fromkeys(group, between[0])
        elif len(between) == len(mine):
            found |= dict(_up_to_each_kernel(sorted(group), between, graph))
        before, group = before if at is None else at, []
    return found


def _up_to_each_kernel(nodes: Sequence[int], calls: Sequence[str], graph: _Graph) -> Iterator[tuple[int, str]]:
    at = 0
    for node in nodes:
        if at < len(calls):
            yield node, calls[at]
        at += bool(graph.kernels[node])
