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
        groups = said.get("pg_config")
        facts["distributed"] = {
            "rank": rank,
            "world_size": world,
            "backend": _text(said.get("backend")),
            "nccl_version": _text(said.get("nccl_version")),
            "groups": [_group(g) for g in groups[:_MOST] if isinstance(g, dict)] if isinstance(groups, list) else [],
        }
    return facts


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
