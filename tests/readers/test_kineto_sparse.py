"""Sparse gradients of embeddings in a real trace: the rows that a step touches are counted, never the table."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.readers.kineto.trace import read_trace
from tests.support.readers import traces

ROWS, WIDTH, LOOKUPS, DISTINCT = 5000, 16, 48, 40


def traced(tmp_path, optimizer, bag=False):
    """The kernel table of a step of an embedding with sparse gradients, of whose 48 lookups 8 are repeated."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True) if bag else None
    layer = layer or torch.nn.Embedding(ROWS, WIDTH, sparse=True)
    steps = optimizer(torch.optim)(layer.parameters(), lr=0.1)
    index = torch.cat([torch.arange(DISTINCT), torch.arange(LOOKUPS - DISTINCT)]).view(-1, 2)

    def step():
        steps.zero_grad()
        layer(index).sum().backward()
        steps.step()

    def recorded(number):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
            step()
        profiler.export_chrome_trace(str(tmp_path / f"{number}.json"))
        return read_trace(tmp_path / f"{number}.json")

    step()
    # On a busy machine a call that waits looks like work of unknown cost: take the step that waited least.
    return min(map(recorded, range(3)), key=lambda table: table.facts["step_ns"][0])


@pytest.mark.parametrize("bag", [False, True])
def test_sparse_adam_moves_rows(tmp_path, bag):
    table = traced(tmp_path, lambda optim: optim.SparseAdam, bag)
    frame = table.frame
    moved = frame["bytes_read"] + frame["bytes_written"]
    assert not moved.isna().any() and not [w for w in table.warnings if "unknown" in w]
    assert moved.max() < 8 * LOOKUPS * WIDTH * 4, "nothing is as large as the table"
    whole = frame["shapes"].str.contains(str(ROWS)) & (frame["name"] != "aten::_embedding_bag")
    assert whole.sum() <= (not bag), "only the lookup names the table"
    (joined,) = np.flatnonzero(frame["name"] == "aten::_coalesce")
    row = frame.iloc[joined]
    assert row["flop_vector_fp32"] == (LOOKUPS - DISTINCT) * WIDTH
    assert row["bytes_read"] == LOOKUPS * (WIDTH * 4 + 8) and row["bytes_written"] == DISTINCT * (WIDTH * 4 + 8)
    # Both moments and the table take the update of the distinct rows: indices, values and old rows in, rows out.
    added = frame[(frame["name"] == "aten::add") & frame["shapes"].str.contains("int64")]
    assert len(added) == 3
    assert set(added["bytes_read"]) == {DISTINCT * (2 * WIDTH * 4 + 8)}
    assert set(added["bytes_written"]) == {DISTINCT * WIDTH * 4}
    # And twice the old moments are gathered.
    gathered = frame[frame["name"] == "aten::index"]
    assert list(gathered["bytes_written"]) == [DISTINCT * WIDTH * 4] * 2


def test_plain_descent_adds_every_lookup(tmp_path):
    frame = traced(tmp_path, lambda optim: optim.SGD).frame
    (added,) = np.flatnonzero((frame["name"] == "aten::add") | (frame["name"] == "aten::add_"))
    assert frame["flop_vector_fp32"].iloc[added] == LOOKUPS * WIDTH
    assert frame["bytes_read"].iloc[added] == LOOKUPS * (2 * WIDTH * 4 + 8)


def test_how_many_rows_it_holds_must_be_seen(tmp_path):
    shape = [[ROWS, WIDTH]] * 2
    inside = traces.op("aten::_nnz", 3, 4, [[ROWS, WIDTH]])
    path = traces.write(tmp_path / "t.json", [traces.op("aten::add_", 2, 8, shape), inside])
    table = read_trace(path)
    assert len(table.frame) == 1 and table.frame["bytes_read"].isna().all()
    dense = read_trace(traces.write(tmp_path / "d.json", [traces.op("aten::add_", 2, 8, shape)]))
    assert dense.frame["bytes_read"].iloc[0] == 2 * ROWS * WIDTH * 4


def test_products_with_a_sparse_matrix_have_no_work_of_the_dense_one(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.randn(300, 16, requires_grad=True)
    sparse = (torch.rand(1000, 300) < 0.02).float().to_sparse()
    (sparse @ weight).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        (sparse @ weight).sum().backward()
        (weight @ weight.T).sum()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    frame = read_trace(tmp_path / "trace.json").frame
    products = frame[frame["name"].str.contains("mm")]
    whole = products["shapes"].str.contains("1000")
    assert whole.any() and products[whole]["flop_matrix_fp32"].isna().all()
    assert list(products[~whole]["flop_matrix_fp32"]) == [2 * 300 * 300 * 16]
