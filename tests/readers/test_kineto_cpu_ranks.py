"""Ranks on CPUs: waiting for collectives that a library's threads carry out, what asks for them, what only pretends."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.readers.traces import Event, mark, node, op, write

GLOO = 9  # a thread of the library
GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": 2, "ranks": [0, 1]}


def table(folder: Path, *events: Event, **told: object) -> KernelTable:
    """The table of a step of 1000 µs on rank 0 of 2."""
    info = {"rank": 0, "world_size": 2, "backend": "undefined", "pg_config": [GROUP], **told}
    return read(write(folder / "rank0.pt.trace.json", [mark("perfkit:step:0", 0, 1000), *events], distributedInfo=info))


def gaps(found: KernelTable) -> dict[str, float]:
    """Time between operators by cause, µs."""
    sums: dict[str, float] = {}
    for gap in found.facts["gaps"]:
        sums[gap["cause"]] = sums.get(gap["cause"], 0.0) + gap["ns"] / 1e3
    assert sum(found.facts["busy_ns"]) / 1e3 + sum(sums.values()) == pytest.approx(1000)
    return sums


def asks(at: float) -> Event:
    return op("c10d::allreduce_", at, at + 10, [[1024]])


def test_backward_that_ends_with_a_collective_waits_for_it(tmp_path: Path) -> None:
    """DDP's reducer waits in the engine: no event shows it, and it is not autograd's time."""
    found = table(
        tmp_path, mark("perfkit:pass:backward", 100, 900), *node("MulBackward0", 110, 140), asks(150),
        mark("gloo:all_reduce", 170, 800, tid=GLOO), op("aten::copy_", 820, 840, [[4], [4]]),
    )  # fmt: skip
    assert gaps(found)["another rank"] == 800 - 170
    assert gaps(found)["autograd"] < 150


def test_a_thread_of_the_library_may_close_its_range_late(tmp_path: Path) -> None:
    """It signals the program that it is done, loses its core, and closes the range after the program has gone on."""
    found = table(
        tmp_path, mark("perfkit:pass:backward", 100, 900), *node("MulBackward0", 110, 140), asks(150),
        mark("gloo:all_reduce", 170, 890, tid=GLOO), op("aten::copy_", 600, 640, [[4], [4]]),
        op("aten::copy_", 650, 700, [[4], [4]]),
    )  # fmt: skip
    assert gaps(found)["another rank"] == 600 - 170


def test_work_wait_in_python_waits_and_python_beside_a_collective_does_not(tmp_path: Path) -> None:
    waits = [asks(0), mark("gloo:all_reduce", 20, 500, tid=GLOO), op("aten::mul", 510, 560, [[4], [4]])]
    assert gaps(table(tmp_path, *waits))["another rank"] == 480
    sleeps = [asks(0), mark("gloo:all_reduce", 20, 250, tid=GLOO), op("aten::mul", 900, 960, [[4], [4]])]
    assert "another rank" not in gaps(table(tmp_path, *sleeps))
    works = [asks(0), mark("gloo:all_reduce", 20, 500, tid=GLOO), op("aten::mul", 20, 960, [[4], [4]])]
    assert "another rank" not in gaps(table(tmp_path, *works))


def test_operators_that_only_wait_wait_for_another_rank_and_read_no_value(tmp_path: Path) -> None:
    found = table(
        tmp_path, asks(0), mark("gloo:all_reduce", 20, 500, tid=GLOO),
        op("_c10d_functional::wait_tensor", 30, 510, [[4]]), op("aten::linear", 600, 700, [[4]]),
        op("_c10d_functional::wait_tensor", 610, 690, [[4]]),
    )  # fmt: skip
    assert gaps(found)["another rank"] == (510 - 30) + (690 - 610)
    assert found.facts["host_waits"] == []


def test_what_asks_for_a_collective_counts_once_and_moves_nothing(tmp_path: Path) -> None:
    found = table(
        tmp_path, op("_c10d_functional::all_reduce", 0, 100, [[64, 256]]), op("aten::copy_", 10, 30, [[64, 256]] * 2),
        op("c10d::allreduce_", 40, 60, [[64, 256]]), mark("gloo:all_reduce", 60, 90, tid=GLOO),
    )  # fmt: skip
    rows = found.frame[found.frame["family"] == "collective"]
    assert rows["name"].tolist() == ["c10d::allreduce_"]
    assert rows[["bytes_read", "bytes_written"]].isna().all(axis=None) and found.flop[rows.index].isna().all()
    assert not [w for w in found.warnings if "unknown" in w]


def test_what_a_collective_copies_does_not_stand_for_it(tmp_path: Path) -> None:
    found = table(
        tmp_path, op("c10d::_reduce_scatter_base_", 0, 100, [[64, 256], [128, 256]]),
        op("aten::copy_", 10, 90, [[64, 256]] * 2),
    )  # fmt: skip
    assert found.frame["family"].tolist() == ["collective", "copy"]


def test_messages_of_the_only_group_and_what_carries_them(tmp_path: Path) -> None:
    def ranges(*names: str) -> list[Event]:
        shapes = {"Input Dims": [[1024]], "Input type": ["float"]}
        return [mark(f"gloo:{name}", 100 * i, 100 * i + 50, tid=GLOO, **shapes) for i, name in enumerate(names)]

    found = table(tmp_path, asks(0), *ranges("all_reduce", "all_gather"))
    assert [(c["collective"], c["message_bytes"]) for c in found.facts["cpu_collectives"]] == [
        ("all_reduce", 4096), ("all_gather", 2 * 4096),
    ]  # fmt: skip
    assert {c["group"] for c in found.facts["cpu_collectives"]} == {"default_pg [0, 1]"}
    assert found.facts["distributed"]["backend"] == "gloo"
    other = {**GROUP, "pg_desc": "mesh", "ranks": [0, 2]}
    found = table(tmp_path, asks(0), *ranges("all_reduce", "all_gather"), pg_config=[GROUP, other])
    assert ["group" in c for c in found.facts["cpu_collectives"]] == [False, False]
    assert "message_bytes" not in found.facts["cpu_collectives"][1]


def test_a_product_of_fake_tensors_is_no_kernel(tmp_path: Path) -> None:
    """DTensor finds the shape of a result with fake tensors of the whole size, in a mode of its own."""
    whole, local = [[64, 512], [512, 256]], [[64, 256], [256, 256]]
    found = table(
        tmp_path, op("aten::mm", 0, 900, whole), op("PythonSubclass", 10, 890, whole),
        op("aten::mm", 20, 500, whole), op("PythonDispatchMode", 30, 490, whole), op("aten::mm", 40, 480, whole),
        op("aten::mm", 600, 800, local),
    )  # fmt: skip
    products = found.frame[found.frame["family"] == "matmul"]
    assert products["shapes"].tolist() == ["fp32[64×256], fp32[256×256]"]
    assert found.flop[products.index].sum() == 2 * 64 * 256 * 256


def test_a_mode_of_the_program_around_a_subclass_hides_nothing(tmp_path: Path) -> None:
    """FlopCounterMode is around all that a DTensor does."""
    shapes = [[64, 256], [256, 256]]
    found = table(
        tmp_path, op("aten::mm", 0, 900, shapes), op("PythonDispatchMode", 10, 890, shapes),
        op("aten::mm", 20, 880, shapes), op("PythonSubclass", 30, 870, shapes), op("aten::mm", 40, 860, shapes),
        op("aten::resolve_conj", 50, 51, [[64, 256]]),
    )  # fmt: skip
    assert (found.frame["family"] == "matmul").sum() == 1
