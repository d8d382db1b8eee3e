"""Peak memory: what CUDA graphs keep in pools of their own counts."""

from __future__ import annotations

from typing import Any

from perfkit.run.memory import private_bytes


def segment(pool: tuple[int, int], total: int, allocated: int) -> dict[str, Any]:
    return {"segment_pool_id": pool, "total_size": total, "allocated_size": allocated}


def test_the_shared_pool_is_counted_by_the_allocator() -> None:
    assert private_bytes([segment((0, 0), 100, 60)]) == 0


def test_a_graph_s_pool_counts_whole_less_what_the_allocator_counts() -> None:
    segments = [segment((0, 0), 100, 60), segment((0, 1), 1000, 200), segment((3, 0), 50, 50)]

    assert private_bytes(segments) == 800


def test_a_version_without_pool_ids_has_one_pool() -> None:
    assert private_bytes([{"total_size": 10, "allocated_size": 5}]) == 0
