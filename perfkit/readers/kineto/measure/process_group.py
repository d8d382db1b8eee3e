"""What a trace says of the process that it is of: its rank and process groups, its steps, and when it began."""

from __future__ import annotations

from typing import Any

from perfkit.readers.kineto.decode.read import Events
from perfkit.readers.kineto.place.columns import Placed

_LONGEST, _MOST = 200, 1000


def about(events: Events, placed: Placed) -> dict[str, Any]:
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
    """What carries the collectives. A group made without a name has one a kind of device: `cpu:gloo,cuda:nccl`."""
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
