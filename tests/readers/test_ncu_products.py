"""Reports of tensor-core work on an H200: as kernels, as one CUDA graph, and as a range of the profiler.

A warp of `mma_bf16` does 4096 products of 4096 FLOP, one of `mma_tf32` 4096 of 2048; 1056 blocks have 8 warps each.
`add` reads two and writes one array of 2²⁴ floats.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.roofline.excluded import UNCOUNTED
from perfkit.readers import read
from perfkit.table import KernelTable
from tests.support.packed import ncu_file

WARPS, TIMES, ARRAY = 1056 * 8, 4096, 4 * 2**24


def opened(folder: Path, name: str) -> KernelTable:
    if name.endswith(".ncu-rep"):
        pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    path = folder / name
    path.write_bytes(ncu_file(name))
    found = read(path)
    assert isinstance(found, KernelTable)
    return found


@pytest.mark.parametrize("page", ["ncu-rep", "raw.csv"])
def test_products_count_by_precision(tmp_path: Path, page: str) -> None:
    frame = opened(tmp_path, f"products-full.{page}").frame.set_index("short_name")
    assert list(frame.index) == ["mma_bf16", "add", "mma_tf32"]
    assert frame.flop_matrix_bf16["mma_bf16"] == pytest.approx(WARPS * TIMES * 4096, rel=1e-3)
    assert frame.flop_matrix_tf32["mma_tf32"] == pytest.approx(WARPS * TIMES * 2048, rel=1e-3)
    assert frame.flop_vector_fp32["add"] == pytest.approx(2**24, rel=1e-3)
    assert frame.tensor_active["add"] == 0 and frame.tensor_active["mma_bf16"] > 0.4
    assert set(frame["pass"]) == {"forward"} and set(frame["step"]) == {0}


@pytest.mark.parametrize(("name", "kind"), [("graph", "graph"), ("range", "gpu_kernel")])
def test_a_graph_or_range_is_one_row_of_all_its_work(tmp_path: Path, name: str, kind: str) -> None:
    table = opened(tmp_path, f"products-{name}.ncu-rep")
    [row] = table.frame.to_dict("records")
    assert (row["kind"], row["short_name"]) == (kind, name)
    assert row["duration_ns"] > 500e3
    # `add` moves three arrays, of which the L2 keeps a part.
    assert 2 * ARRAY < row["dram_bytes"] < 3.2 * ARRAY
    assert any(f"of several kernels ({name})" in warning for warning in table.warnings)
    assert not any("implausible" in warning for warning in table.warnings)


def test_tensor_work_that_nobody_counted_is_not_judged_by_memory(tmp_path: Path) -> None:
    backend = analyse_table(opened(tmp_path, "products-graph.ncu-rep"), None, "x.ncu-rep").backends[0]
    assert [group.withheld for group in backend.kernels] == [UNCOUNTED]
