"""Operators on more tensors than the profiler records: shapes from the backward pass, proven by the launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.cost import TensorSpec
from perfkit.readers.kineto.trace import read_trace
from tests.support.readers.traces import Event, event, mark, op, write

PARAMETERS = [[300, 1000], [1000], [7], [65536], [65537]]
ELEMENTS = 300 * 1000 + 1000 + 7 + 65536 + 65537
CHUNKS = 5 + 1 + 1 + 1 + 2


def training(lists: dict[str, Any], grids: list[int], rounds: int = 1) -> list[Event]:
    """A step that accumulates the gradients `rounds` times and calls the foreach operators in `lists`."""
    events = [mark("ProfilerStep#1", 0, 1000)]
    for i, shape in enumerate(PARAMETERS * rounds):
        events.append(op("torch::autograd::AccumulateGrad", 10 + 5 * i, 14 + 5 * i, [shape], tid=2))
    for number, (name, types) in enumerate(lists.items()):
        start = 300 + 100 * number
        events.append(op(name, start, start + 90, [[] for _ in types], types=types, values=["0.5"] * len(types)))
        for i, grid in enumerate(grids):
            ids = {"correlation": 100 * number + i}
            events.append(event("cuda_runtime", "cudaLaunchKernel", start + 10 * i, start + 10 * i + 5, **ids))
            events.append(
                event("kernel", "multi_tensor_apply_kernel", 20 + start + 10 * i, 20 + start + 10 * i + 5, pid=0,
                      tid=7, device=0, stream=7, grid=[grid, 1, 1], block=[512, 1, 1], **ids)
            )  # fmt: skip
    return events


def read(folder: Path, events: list[Event]) -> pd.DataFrame:
    return read_trace(write(folder / "t.json", events)).frame


MUL = {"aten::_foreach_mul_": ["TensorList", "Scalar"]}


def test_a_list_without_shapes_is_the_parameters_where_the_chunks_agree(tmp_path: Path) -> None:
    found = read(tmp_path, training(MUL, [CHUNKS - 3, 3]))
    assert found["flop_vector_fp32"].sum() == ELEMENTS
    assert found["bytes_read"].sum() == found["bytes_written"].sum() == 4 * ELEMENTS
    first, second = found["bytes_read"]
    assert first / second == pytest.approx((CHUNKS - 3) / 3)  # by thread blocks
    assert found["shapes"].str.contains("fp32[300×1000]", regex=False).all()


def test_what_adds_up_the_parts_of_a_norm_has_a_block_a_tensor(tmp_path: Path) -> None:
    """Norms of all gradients, as clipping takes them, had no work."""
    events = training({"aten::_foreach_norm": ["TensorList", "Scalar"]}, [CHUNKS, len(PARAMETERS)])
    [*_, cleanup] = [e for e in events if e.get("cat") == "kernel"]
    cleanup["name"], cleanup["dur"] = "lpnorm_cleanup", 1
    found = read(tmp_path, events)
    assert found["bytes_read"].tolist() == [4 * ELEMENTS, 0] and found["flop_origin"].tolist() == ["model", "derived"]


def test_any_other_number_of_chunks_leaves_the_work_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, training(MUL, [CHUNKS + 1]))
    assert found["bytes_read"].isna().all()


def test_the_parameters_with_weight_decay_alone(tmp_path: Path) -> None:
    matrices = read(tmp_path, training(MUL, [5]))
    assert matrices["flop_vector_fp32"].sum() == 300 * 1000
    assert read(tmp_path, training(MUL, [1]))["bytes_read"].isna().all()


def test_the_dtype_is_that_of_the_kernel(tmp_path: Path) -> None:
    """FSDP with mixed precision: gradients are accumulated in bf16, and fp32 parameters are stepped."""
    events = training(MUL, [CHUNKS])
    for one in events:
        if one["name"] == "multi_tensor_apply_kernel":
            one["name"] += "<TensorListMetadata<1>, BinaryOpScalarFunctor<double, 1, 1, 0>, std::multiplies<double>>"
    found = read(tmp_path, events)
    assert found["flop_vector_fp64"].sum() == ELEMENTS and found["bytes_read"].sum() == 8 * ELEMENTS


@pytest.mark.parametrize("rank", [0, 1])
def test_the_parts_of_the_parameters_that_a_rank_of_fsdp_holds(rank: int, tmp_path: Path) -> None:
    """(300 · 1000, 1000, 7, 65536, 65537) over two ranks: 3, 1, 1, 1 and 1 chunks."""
    elements = 150_000 + 500 + 32768 + (4 + 32769 if rank == 0 else 3 + 32768)
    path = write(tmp_path / "t.json", training(MUL, [7]), distributedInfo={"rank": rank, "world_size": 2})
    found = read_trace(path).frame
    assert found["flop_vector_fp32"].sum() == elements
    assert found["bytes_written"].sum() == 4 * elements
    assert read(tmp_path, training(MUL, [7]))["bytes_read"].isna().all()  # of one process it proves nothing


def test_a_rank_without_rows_of_a_tensor(tmp_path: Path) -> None:
    """Of 4 ranks the last has 1 of 7 rows (2, 2, 2, 1); of 8 ranks none (1 each for seven)."""
    for ranks, rows in ((4, 1), (8, 0)):
        parts = [300 // ranks * 1000 if ranks == 4 else (300 - 7 * 38) * 1000, 1000 // ranks, rows, 65536 // ranks,
                 65537 - (ranks - 1) * -(-65537 // ranks)]  # fmt: skip
        blocks = sum(-(-one // 65536) for one in parts)
        about = {"rank": ranks - 1, "world_size": ranks}
        found = read_trace(write(tmp_path / "t.json", training(MUL, [blocks]), distributedInfo=about)).frame
        assert found["flop_vector_fp32"].sum() == sum(parts)


def test_gradients_of_several_micro_batches_count_once(tmp_path: Path) -> None:
    found = read(tmp_path, training(MUL, [CHUNKS], rounds=3))
    assert found["flop_vector_fp32"].sum() == ELEMENTS


def test_every_list_of_a_call_has_the_parameters_shapes(tmp_path: Path) -> None:
    found = read(
        tmp_path, training({"aten::_foreach_addcdiv_": ["TensorList", "TensorList", "TensorList", ""]}, [CHUNKS])
    )
    assert found["bytes_read"].sum() == 3 * 4 * ELEMENTS
    assert found["bytes_written"].sum() == 4 * ELEMENTS


def test_a_fused_optimizer_keeps_its_empty_list_and_its_steps(tmp_path: Path) -> None:
    types = ["TensorList"] * 6 + ["Scalar"] * 5 + ["Scalar", "Scalar"]
    events = training({"aten::_fused_adamw_": types}, [CHUNKS])
    call = next(e for e in events if e["name"] == "aten::_fused_adamw_")
    call["args"]["Concrete Inputs"] = [""] * 6 + ["0.001", "0.9", "0.999", "0.01", "1e-08", "False", "False"]
    found = read(tmp_path, events)
    assert found["bytes_read"].sum() == 4 * 4 * ELEMENTS  # parameters, gradients, two moments
    assert found["bytes_written"].sum() == 3 * 4 * ELEMENTS
    assert found["flop_vector_fp32"].sum() == 14 * ELEMENTS


ADAM = ["TensorList"] * 6 + ["Scalar"] * 7 + ["", ""]
VALUES = [""] * 6 + ["0.1", "0.9", "0.99", "0.0", "1e-08", "False", "False", "", ""]
GROUPS = [[TensorSpec(tuple(shape), "fp32") for shape in PARAMETERS], [TensorSpec((5,), "fp32")]]


def fused(folder: Path, calls: int, groups: Any) -> pd.DataFrame:
    """A step on a CPU whose optimizer calls PyTorch's fused AdamW so often, on lists that the profiler left out."""
    events = [mark("ProfilerStep#1", 0, 1000)]
    for number in range(calls):
        start, shapes = 100 + 100 * number, [[] for _ in ADAM]
        events.append(op("aten::_fused_adamw_", start, start + 90, shapes, types=ADAM, values=VALUES))
    return read_trace(write(folder / "t.json", events), stepped=groups).frame


def test_on_a_cpu_the_program_tells_what_its_optimizer_steps(tmp_path: Path) -> None:
    found = fused(tmp_path, 2, GROUPS)
    # Weights, gradients and two moments are read; all but the gradients are written.
    assert found["bytes_read"].tolist() == [4 * 4 * ELEMENTS, 4 * 4 * 5]
    assert found["bytes_written"].tolist() == [3 * 4 * ELEMENTS, 3 * 4 * 5]


@pytest.mark.parametrize("groups", [[], [[]], GROUPS])
def test_without_a_call_for_each_group_of_tensors_nothing_is_known(tmp_path: Path, groups: Any) -> None:
    assert fused(tmp_path, 1, groups)["bytes_read"].isna().all()
