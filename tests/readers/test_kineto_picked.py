"""Indexing by tensors in a real trace: its list of indices is not recorded, and its work is known all the same."""

from __future__ import annotations

import pytest

from perfkit.readers.kineto.trace import read_trace
from tests.support.readers import traces

torch = pytest.importorskip("torch")

ROWS, COLUMNS, LOOKUPS = 500, 64, 400
x = torch.randn(ROWS, COLUMNS)
i, j = torch.randint(ROWS, (LOOKUPS,)), torch.randint(COLUMNS, (LOOKUPS,))
mask = torch.arange(ROWS) < 30
ROW = COLUMNS * 4
# Indexing calls: bytes of the indices, and of the picked elements (more columns than the tensor has).
CASES = {
    "rows": (lambda: x[i], 8 * LOOKUPS, LOOKUPS * ROW),
    "a table of rows": (lambda: x[i.view(20, 20)], 8 * LOOKUPS, LOOKUPS * ROW),
    "columns": (lambda: x[:, j], 8 * LOOKUPS, LOOKUPS * ROWS * 4),
    "elements": (lambda: x[i, j], 16 * LOOKUPS, LOOKUPS * 4),
    "a grid": (lambda: x[i[:, None], j[None, :8]], 8 * (LOOKUPS + 8), LOOKUPS * 8 * 4),
    "a mask": (lambda: x[mask], 8 * 30, 30 * ROW),
    "of a column": (lambda: x[:, 3][i], 8 * LOOKUPS, LOOKUPS * 4),
}


def row(tmp_path, step, name):
    """The only row of the operator in a trace of `step`."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    frame = read_trace(tmp_path / "trace.json").frame
    (found,) = frame[frame["name"] == name].to_dict("records")
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_is_picked_and_the_indices_are_read(case, tmp_path):
    step, indices, picked = CASES[case]
    found = row(tmp_path, step, "aten::index")
    assert (found["bytes_read"], found["bytes_written"]) == (indices + min(picked, ROWS * ROW), picked)
    assert found["flop_vector_fp32"] == 0 and "int64[" in found["shapes"]


def test_a_gradient_is_added_to_the_rows_that_were_picked(tmp_path):
    weights = x.clone().requires_grad_()
    found = row(tmp_path, lambda: weights[i].sum().backward(), "aten::_index_put_impl_")
    picked = LOOKUPS * ROW
    assert found["flop_vector_fp32"] == LOOKUPS * COLUMNS
    assert (found["bytes_read"], found["bytes_written"]) == (4 + 8 * LOOKUPS + picked, picked)  # one gradient, expanded


def test_one_number_is_put_at_every_place(tmp_path):
    y, zero = x.clone(), torch.zeros(())

    def put():
        y[i] = zero

    found = row(tmp_path, put, "aten::_index_put_impl_")
    assert (found["bytes_read"], found["bytes_written"]) == (4 + 8 * LOOKUPS, LOOKUPS * ROW)


def test_without_what_it_calls_its_work_is_unknown(tmp_path):
    picking = traces.op("aten::index", 0, 10, [[ROWS, COLUMNS], []], types=["float", ""])
    frame = read_trace(traces.write(tmp_path / "trace.json", [picking])).frame
    assert len(frame) == 1 and frame["bytes_read"].isna().all()
