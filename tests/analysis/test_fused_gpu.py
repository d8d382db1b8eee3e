"""Fused kernels on a GPU, worked out by hand: bytes and instructions of their loops, and what they are compared with.

The machine of `faults` with an L2 of 50 MB: L2 200 GB/s, in place 100 GB/s; main memory 100 GB/s, in place 80 GB/s;
1 TFLOP/s are 500 G multiply-adds a second. A short kernel takes 3 µs.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfkit.analysis.fusion_results import Fusion
from perfkit.analysis.report.analyse import analyse
from perfkit.render.sections.fusion import fusion_tables
from perfkit.tree import shares
from tests.support.analysis import faults
from tests.support.analysis.examples import backend, run

MB = faults.MB
CEILINGS = msgspec.structs.replace(
    faults.CEILINGS,
    device="cuda:0",
    bandwidth=[(10 * MB, 200e9), (1000 * MB, 100e9)],
    in_place=[(10 * MB, 100e9), (1000 * MB, 80e9)],
    caches={"L2": 50 * MB},
)
SHORT = faults.gpu("tiny", 3, by="neg", moved=0.0, shapes="fp32[7]", module="other")
CHAIN = [faults.gpu(n, 400, by=n, moved=100 * MB, shapes=faults.BIG, module="h") for n in ("add", "mul")]


def fusion(eager: list[Any], compiled: list[Any], **facts: Any) -> Fusion:
    tables = {"eager": faults.made([*eager, SHORT], 3000), "compile": faults.made(compiled, 2000, **facts)}
    records = [backend("eager", 3), backend("compile", 2)]
    found = analyse(run(*records, tables=tables, ceilings=msgspec.to_builtins(CEILINGS))).backends[0].fusion
    assert found is not None
    return found


def fused(us: float, *operators: str, name: str = "triton_poi_fused_0", **more: Any) -> Any:
    """A generated kernel that serves `operators` of the module `h` in equal parts."""
    served = shares.split([("forward", "h", o) for o in operators], [1.0] * len(operators)) if operators else []
    place = {"module": "h", "operator": operators[-1], "serves": shares.text(served)} if operators else {}
    return {**faults.gpu(name, us, "fused", shapes=faults.BIG), "operator": None, **place, **more}


def moving(read: float, written: float) -> dict[str, float]:
    return {"bytes_read": read, "bytes_written": written}


@pytest.mark.parametrize(
    ("read", "written", "us"),
    [
        (60 * MB, 60 * MB, 120 / 80e-3),  # as much read as written: at the rate of work in place
        (120 * MB, 0.0, 120 / 100e-3),
        (90 * MB, 30 * MB, 60 / 80e-3 + 60 / 100e-3),
        (20 * MB, 0.0, 20 / 200e-3),  # L2 holds it
        (20 * MB, 20 * MB, 40 / 100e-3),
    ],
)
def test_bytes_pass_at_the_rate_of_what_is_read_and_written(read: float, written: float, us: float) -> None:
    [kernel] = fusion(CHAIN, [fused(us + 3, "add", "mul", **moving(read, written))]).kernels
    assert kernel.predicted_ns == pytest.approx((us + 3) * 1e3) and kernel.bound == "memory"


def test_each_loop_takes_its_bytes_or_its_instructions() -> None:
    """1200 µs of bytes, three quarters of them in the first loop: 900 and 300; 200 M instructions are 400 µs."""
    kernel = fused(1303, "add", "mul", **moving(120 * MB, 0.0))
    loops = {"triton_poi_fused_0": [[90.0, 200e6], [30.0, 200e6]]}
    [found] = fusion(CHAIN, [kernel], loops=loops).kernels
    assert found.predicted_ns == pytest.approx(3e3 + 900e3 + 400e3) and found.bound == "memory"
    [found] = fusion(CHAIN, [kernel], loops={"triton_poi_fused_0": [[120.0, 800e6]]}).kernels
    assert found.predicted_ns == pytest.approx(3e3 + 1600e3) and found.bound == "arithmetic"
    [found] = fusion(CHAIN, [{**kernel, "duration_ns": 3e6}], loops={"triton_poi_fused_0": [[120.0, 800e6]]}).kernels
    assert found.why == "it takes more instructions, or issues them slower"


def test_one_by_one_is_divided_by_the_bytes_that_each_kernel_moves() -> None:
    """A kernel that moves a hundredth of gelu's bytes has done a hundredth of its 800 µs."""
    gelu = [faults.gpu("gelu", 800, by="gelu", moved=100 * MB, shapes=faults.BIG, module="h")]
    large = fused(1000, "gelu", **moving(99 * MB, 0.0))
    small = fused(10, "gelu", name="triton_red_fused_1", **moving(MB, 0.0))
    found = fusion([*CHAIN, *gelu], [large, small]).kernels
    assert [k.eager_ns for k in found] == [pytest.approx(792e3), pytest.approx(8e3)]


def test_what_the_compiler_leaves_as_it_is_has_its_part() -> None:
    """Half of the sum's bytes are added up by a kernel of PyTorch's."""
    total = [faults.gpu("reduce", 100, "reduction", by="sum", moved=100 * MB, shapes=faults.BIG, module="h")]
    rest = faults.gpu("reduce", 50, "reduction", by="sum", moved=60 * MB, shapes=faults.BIG, module="h")
    [kernel] = fusion([*CHAIN, *total], [fused(600, "sum", **moving(60 * MB, 0.0)), rest]).kernels
    assert kernel.eager_ns == pytest.approx(50e3)


def test_what_is_not_the_same_work_is_not_compared() -> None:
    """It is predicted all the same: its bytes are known."""
    padded = fused(1203, "add", "pad", **moving(120 * MB, 0.0))
    hidden = fused(600, name="triton_per_fused_mul_sum_1", **moving(60 * MB, 0.0))
    partner = fused(500, "mul", name="triton_poi_fused_2", **moving(50 * MB, 0.0))
    found = {k.name: k for k in fusion(CHAIN, [padded, hidden, partner]).kernels}
    assert {name: kernel.eager_ns for name, kernel in found.items()} == dict.fromkeys(found)
    assert {name: kernel.apart for name, kernel in found.items()} == {
        "triton_poi_fused_0": "eager has no pad there",
        "triton_per_fused_mul_sum_1": "the backend does not say which operators it replaces",
        "triton_poi_fused_2": "another kernel computes mul, and the backend does not say where",
    }
    assert found["triton_poi_fused_0"].predicted_ns == pytest.approx(1203e3)


def test_the_table_says_what_is_not_compared() -> None:
    tables = {"eager": faults.made([*CHAIN, SHORT], 3000)}
    tables["compile"] = faults.made([fused(1203, "add", "pad", **moving(120 * MB, 0.0))], 2000)
    records = [backend("eager", 3), backend("compile", 2)]
    made = analyse(run(*records, tables=tables, ceilings=msgspec.to_builtins(CEILINGS)))
    notes = fusion_tables(made.backends[0])[1].notes
    assert "the instructions of its loops take at the measured rate" in notes[0]
    assert "above predicts from bytes alone" in notes[1]
    assert notes[2] == (
        "1 kernel is not compared with operators one by one (1.20 ms): eager's time is not of the work that it does. "
        "The longest, triton_poi_fused_0: eager has no pad there."
    )


def chain(*rows: tuple[str, float, float, str]) -> list[Any]:
    families = {"zeros": "fill", "to": "copy"}
    return [
        faults.gpu(
            name, 2000, families.get(name, "softmax"), by=name, module="h", shapes=shapes, **moving(read, written)
        )
        for name, read, written, shapes in rows
    ]


def predicted(rows: list[Any]) -> tuple[str, float]:
    [group] = fusion(rows, [fused(100, "add", **moving(MB, 0.0))]).groups
    return group.name, group.predicted_ns / 1e3


def test_of_a_result_of_which_a_few_elements_are_read_nothing_is_moved() -> None:
    """A loss picks one element a row of what log_softmax wrote: the 100 MB read are left, and not nothing."""
    rows = chain(("log_softmax", 100 * MB, 100 * MB, "fp32[1000×1000]"), ("nll", 0.1 * MB, 0, "fp32[1000×1000]"))
    assert predicted(rows) == ("forward log_softmax → nll", pytest.approx(3 + 1000))


def test_parts_of_one_copy_feed_the_next_together_and_not_each_other() -> None:
    """Behind a view; 100 MB are read first, and 200 MB written last."""
    part = ("to", 50 * MB, 100 * MB, "fp32[10×100×1000], bf16[10×100×1000]")
    rows = chain(part, part, ("softmax", 200 * MB, 200 * MB, "fp32[1000×1000]"))
    assert predicted(rows) == ("forward to → to → softmax", pytest.approx(3 + 200 / 80e-3 + 100 / 100e-3))


def test_a_fill_that_is_written_into_stays() -> None:
    """100 MB of zeros, of which a loss fills in a few: they are the result."""
    rows = chain(("zeros", 0.0, 100 * MB, "fp32[1000×1000]"), ("scatter", 0.1 * MB, 0.1 * MB, "fp32[1000×1000]"))
    assert predicted(rows)[1] == pytest.approx(3 + 100 / 100e-3 + 0.2 / 80e-3, rel=0.01)
