"""Collectives: what NCCL's and RCCL's kernels send, from the kernel's own arguments or the range that launched it.

New traces write collective, elements, dtype and group at the operator `record_param_comms` around the launch, or at the
kernel itself. Older ones have a range `nccl:all_reduce` there, with the shape of the first tensor. Where the launch is
not in the trace the kernel's name gives the collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.columns import Booleans, Coded, Integers
from perfkit.cost.model import ITEM_BYTES
from perfkit.readers.collective_names import collective_of, is_collective, spelled, way_of
from perfkit.readers.kineto.attribution.columns import Placed
from perfkit.readers.kineto.decode.events import ANNOTATION, DeviceEvents, HostEvents, Message, values_at
from perfkit.readers.kineto.decode.read import TraceContent
from perfkit.readers.kineto.measure.calls import call_of

_PREFIX = "nccl:"
_DTYPES = {
    "float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
_UNKNOWN = Message("", -1, -1, "", "", -1)


def messages_of(host: HostEvents, device: DeviceEvents, launch: Integers) -> list[tuple[Message, Integers]]:
    """Each distinct message with the activities that send it, in the order of the first."""
    talks = np.flatnonzero(collectives(device))
    if not len(talks):
        return []
    ranges = (host.category == ANNOTATION) & host.named([n.startswith(_PREFIX) for n in host.names])
    by_operator = _around(host, launch[talks], host.message >= 0)
    by_range = _around(host, launch[talks], ranges)
    # The sources of an activity's message, best first: codes of messages, a range's name and call, a kernel's name.
    ways = (values_at(host.message, by_operator), values_at(host.name, by_range), values_at(host.call, by_range))
    told = np.stack([device.message[talks], *ways, device.name[talks]])
    distinct, which, count = np.unique(told, axis=1, return_inverse=True, return_counts=True)
    found: dict[Message, list[Integers]] = {}
    parts = np.split(talks[np.argsort(which.reshape(-1), kind="stable")], np.cumsum(count)[:-1])
    for codes, rows in sorted(zip(distinct.T.tolist(), parts, strict=True), key=lambda pair: pair[1][0]):
        found.setdefault(_in_our_words(_told(host, device, *codes)), []).append(rows)
    return [(message, np.sort(np.concatenate(rows))) for message, rows in found.items()]


def _told(
    host: HostEvents, device: DeviceEvents, own: int, operators: int, range_: int, call: int, name: int
) -> Message:
    """Return the message by the best source; −1 where none has it."""
    if own >= 0:
        return device.messages[own]
    if operators >= 0:
        return host.messages[operators]
    return message_of_range(host, range_, call) if range_ >= 0 else _of_name(device.names[name])


def described(messages: Sequence[tuple[Message, Integers]], shapes: Coded) -> Coded:
    """The column of shapes, with the message as text where an activity sends one of `messages`."""
    words, code = list(shapes.words), np.array(shapes.code)
    for message, rows in messages:
        if text := describe(message):
            words.append(text)
            code[rows] = len(words) - 1
    return Coded(words, code)


def columns_of(device: DeviceEvents, messages: Sequence[tuple[Message, Integers]]) -> dict[str, Any]:
    """The columns of collectives: operation, group, bytes of the message, and what NCCL's kernel names say of how."""
    collective, group = (Coded([], np.full(len(device), -1, np.int32)) for _ in range(2))
    size = np.full(len(device), np.nan)
    for message, rows in messages:
        _put(collective, message.collective, rows)
        _put(group, " ".join(filter(None, (message.group, message.ranks))), rows)
        size[rows] = np.nan if (amount := message_bytes(message)) is None else amount
    name = Coded(device.names, np.where(collectives(device), device.name, -1))
    ways = {n: way_of(n) for n in device.names}
    return {
        "collective": collective,
        "group": group,
        "message_bytes": size,
        "algorithm": name.mapped(lambda n: ways[n].algorithm or None),
        "protocol": name.mapped(lambda n: ways[n].protocol or None),
    }


def _put(column: Coded, word: str, rows: Integers) -> None:
    """Set `rows` of a column to `word`; "" stays absent."""
    if word and word not in column.words:
        column.words.append(word)
    if word:
        column.code[rows] = column.words.index(word)


def describe(message: Message) -> str:
    """Such as `all_reduce fp32[1048576], 8 ranks of dp`."""
    size = max(message.elements_in, message.elements_out)
    what = f"{message.dtype}[{size}]" if size >= 0 and message.dtype else message.dtype
    ranks = f"{message.group_size} ranks" if message.group_size > 0 else ""
    group = f"of {message.group}" if message.group and ranks else message.group
    return ", ".join(filter(None, (f"{message.collective} {what}".strip(), f"{ranks} {group}".strip())))


def message_bytes(message: Message) -> int | None:
    """Bytes of the larger side of the message on this rank; None where elements or dtype are unknown."""
    size = max(message.elements_in, message.elements_out)
    item = ITEM_BYTES.get(message.dtype)
    return size * item if size >= 0 and item else None


def collectives(device: DeviceEvents) -> Booleans:
    """Which activities talk to other GPUs."""
    return _is_collective(device) | (device.message >= 0)


def _is_collective(device: DeviceEvents) -> Any:
    flags = np.array([is_collective(n) for n in device.names], dtype=bool)
    return flags[device.name] if len(flags) else np.zeros(0, bool)


def _around(host: HostEvents, launch: Integers, chosen: Any) -> Integers:
    """The innermost chosen event around each launch, or −1."""
    if not len(host) or not chosen.any():
        return np.full(len(launch), -1, np.int64)
    return np.where(launch >= 0, host.nearest(chosen)[np.maximum(launch, 0)], -1)


def _in_our_words(message: Message) -> Message:
    """The same with perfkit's name of the dtype, and one spelling of the collective."""
    dtype = message.dtype.strip().lower()
    return message._replace(dtype=_DTYPES.get(dtype, dtype)[:40], collective=spelled(message.collective)[:80])


def _of_name(kernel: str) -> Message:
    """Return the collective in a kernel's name, without the rest of its message."""
    return _UNKNOWN._replace(collective=collective_of(kernel))


def message_of_range(host: HostEvents, name: int, call: int) -> Message:
    """Return the message of a range such as `nccl:all_reduce`, given the codes of its name and call: the shape of a
    tensor."""
    collective = host.names[name].partition(":")[2]
    tensors = call_of(host.calls[call], "fp32", "fp32").tensors if call >= 0 else []
    if not tensors:
        return _in_our_words(_UNKNOWN._replace(collective=collective))
    return _in_our_words(Message(collective, tensors[0].numel, -1, tensors[0].dtype, "", -1))


_LONGEST, _MOST = 200, 1000


def about(events: TraceContent, placed: Placed) -> dict[str, Any]:
    """The facts `origin_ns` (the host's clock at the trace's time 0), `step_names`, and `distributed` where the trace
    names its rank."""
    said = events.about.distributed
    facts: dict[str, Any] = {"origin_ns": events.about.origin_ns, "step_names": list(placed.steps.names)}
    rank, world = _count(said.get("rank")), _count(said.get("world_size"))
    if rank is not None and world:
        config = said.get("pg_config")
        groups = [g for g in config[:_MOST] if isinstance(g, dict)] if isinstance(config, list) else []
        facts["distributed"] = {
            "rank": rank,
            "world_size": world,
            "backend": _backend(said, groups, len(events.device) > 0),
            "nccl_version": _text(said.get("nccl_version")),
            "groups": [_group(g) for g in groups],
        }
    return facts


def _backend(said: dict[str, Any], groups: list[dict[str, Any]], on_gpu: bool) -> str:
    """Return the library of the collectives. A group made without a name has one a kind of device:
    `cpu:gloo,cuda:nccl`."""
    if (told := _text(said.get("backend"))) not in ("", "undefined"):
        return told
    pairs = [pair.partition(":") for group in groups for pair in _text(group.get("backend_config")).split(",")]
    return next((name for device, _, name in pairs if name and (device != "cpu") == on_gpu), told)


def only_group(facts: dict[str, Any]) -> dict[str, Any] | None:
    """The one group of several ranks that the rank of these facts is in; None where there are others of other ranks, or
    nothing is known."""
    groups = [g for g in facts.get("distributed", {}).get("groups", []) if len(g["ranks"]) > 1]
    return groups[0] if groups and all(g["ranks"] == groups[0]["ranks"] for g in groups) else None


def rank_of(facts: dict[str, Any]) -> int | None:
    """The rank that a table's facts name; None without one."""
    rank: int | None = facts.get("distributed", {}).get("rank")
    return rank


def _group(said: dict[str, Any]) -> dict[str, Any]:
    ranks = said.get("ranks")
    return {
        "name": _text(said.get("pg_name")),
        "description": _text(said.get("pg_desc")),
        "size": _count(said.get("pg_size")),
        "ranks": [r for r in ranks if _count(r) is not None] if isinstance(ranks, list) else [],
    }


def _text(value: Any) -> str:
    return str(value)[:_LONGEST] if isinstance(value, str | int) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
