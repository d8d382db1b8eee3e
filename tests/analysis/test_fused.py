"""Fused kernels one by one: predictions worked out by hand from eager's operators, and the reasons where they part.

The machine of `faults`: 100 GB/s, 1 TFLOP/s of vector arithmetic, 4 threads.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from perfkit import table
from perfkit.analysis.fusion_results import FusedKernel
from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import Report
from perfkit.render.sections.fusion import fusion_tables
from perfkit.tree import shares
from tests.support.analysis import faults
from tests.support.analysis.examples import backend, run

MB = faults.MB
EMPTY = [faults.cpu("fill_", 2, "fill", moved=4.0, shapes="fp32[]")] * 4  # what an operator of no work takes


def report(eager: list[Any], compiled: list[Any], region_s: float | None = None, **machine: Any) -> Report:
    """A run of both on a machine whose parallel regions take `region_s`; `machine` are other fields of its ceilings."""
    tables: dict[str, table.KernelTable] = {
        "eager": faults.made([*eager, *EMPTY], 2000),
        "compile": faults.made(compiled, 1500),
    }
    records = [backend("eager", 2), backend("compile", 1.5)]
    ceilings = msgspec.structs.replace(faults.CEILINGS, region_s=region_s, **machine)
    return analyse(run(*records, tables=tables, ceilings=msgspec.to_builtins(ceilings)))


def kernels(*given: Any, **machine: Any) -> list[FusedKernel]:
    found = report(*given, **machine).backends[0].fusion
    assert found is not None
    return found.kernels


def eager(name: str, us: float, moved: float = 10 * MB, **more: Any) -> Any:
    return faults.cpu(name, us, moved=moved, **{"shapes": faults.BIG, "module": "h", **more})


def fused(us: float, moved: float | None, *operators: str, **more: Any) -> Any:
    """A generated kernel that serves `operators` of the module `h`."""
    served = shares.split([("forward", "h", o) for o in operators], [1.0] * len(operators)) if operators else []
    name = "graph_0_cpp_fused_0"
    place = {"module": "h", "operator": operators[-1], "serves": shares.text(served)} if operators else {}
    return {
        **faults.cpu("x", us, "fused", moved=moved),
        "operator": None,
        "name": name,
        "short_name": name,
        **place,
        **more,
    }


CHAIN = [eager("add", 100), eager("mul", 100), eager("relu", 100)]


def test_by_memory_what_the_fused_kernel_moves_at_the_measured_bandwidth() -> None:
    """10 MB at 100 GB/s; what the operators took one by one says nothing of their arithmetic."""
    [kernel] = kernels(CHAIN, [fused(110, 10 * MB, "add", "mul", "relu")])
    assert kernel.predicted_ns == pytest.approx(100e3) and kernel.measured_ns == pytest.approx(110e3)
    assert (kernel.bound, kernel.why, kernel.eager_ns) == ("memory", "", pytest.approx(300e3))
    assert kernel.operators == ["add", "mul", "relu"]


def test_simple_arithmetic_runs_at_half_the_ceiling_of_multiply_adds() -> None:
    """3 × 100 MFLOP at half of 1 TFLOP/s are 600 µs."""
    rows = [eager(n, 250, flop_vector_fp32=100e6) for n in ("add", "mul", "relu")]
    [kernel] = kernels(rows, [fused(650, 10 * MB, "add", "mul", "relu")])
    assert kernel.predicted_ns == pytest.approx(600e3) and kernel.bound == "arithmetic"


def test_no_more_bandwidth_than_the_first_operator_reached_in_eager() -> None:
    """It took 302 µs for its 10 MB and its call. It had brought the data of the later ones into the cache."""
    rows = [eager("add", 302), eager("mul", 100), eager("relu", 100)]
    [kernel] = kernels(rows, [fused(310, 10 * MB, "add", "mul", "relu")])
    assert kernel.predicted_ns == pytest.approx(300e3) and (kernel.bound, kernel.why) == ("memory", "")
    [kernel] = kernels(rows, [fused(140, 5 * MB, "add", "mul", "relu")])
    assert kernel.predicted_ns == pytest.approx(150e3)
    [kernel] = kernels(rows, [fused(110, 10 * MB, "mul", "relu")])
    assert kernel.predicted_ns == pytest.approx(100e3)


def test_the_first_operator_is_that_of_each_step() -> None:
    """In the mean of two steps it took 200 µs beyond its call. An operator before it that reads nothing is not a
    reader."""
    fill = faults.cpu("fill_", 90, "fill", shapes=faults.BIG, module="h", bytes_read=0.0, bytes_written=5 * MB)
    rows = [
        {**row, "step": i} for i, us in enumerate((252, 152)) for row in (fill, eager("add", us), eager("mul", 100))
    ]
    calls = [{**fused(210, 10 * MB, "add", "fill_", "mul"), "step": i} for i in range(2)]
    [kernel] = kernels(rows, calls)
    assert kernel.predicted_ns == pytest.approx(2 * 200e3)


def test_an_operator_that_takes_little_longer_than_its_call_says_nothing_of_memory() -> None:
    """300 KB are 3 µs at the bandwidth, the call of an operator takes 2 µs: the 10 µs are those of the call."""
    rows = [eager(n, 10, moved=0.3 * MB) for n in ("add", "mul")]
    [kernel] = kernels(rows, [fused(3, 0.3 * MB, "add", "mul")])
    assert kernel.predicted_ns == pytest.approx(3e3)


def test_what_other_threads_wrote_is_read_from_their_caches() -> None:
    """Half of 0.3 MB is read, at 25 GB/s. If the cores' own caches cannot hold it, none of them does."""
    rows = [eager(n, 10, moved=0.3 * MB) for n in ("add", "mul")]
    [kernel] = kernels(rows, [fused(8, 0.3 * MB, "add", "mul")], 1e-6, handover=25e9, caches={"L2": 1e6})
    assert kernel.predicted_ns == pytest.approx(1e3 + 6e3) and kernel.bound == "memory"
    [kernel] = kernels(rows, [fused(8, 0.3 * MB, "add", "mul")], 1e-6, handover=25e9, caches={"L2": 0.1e6})
    assert kernel.predicted_ns == pytest.approx(1e3 + 3e3)


def test_a_call_takes_what_small_elementwise_operators_do() -> None:
    """A copy of a number is a part of another operator: 0.4 µs; an add of one is a call: 3 µs."""
    copies = [faults.cpu("copy_", 0.4, "copy", moved=12.0, shapes="fp32[]")] * 8
    add = faults.cpu("add", 3, moved=12.0, shapes="fp32[]", module="other")
    [kernel] = kernels([*copies, add, eager("gelu", 403)], [fused(390, 10 * MB, "gelu")])
    assert kernel.predicted_ns == pytest.approx(400e3)


def test_a_function_takes_what_it_took_in_eager_less_the_call() -> None:
    """The call of an operator takes 2 µs; of what memory explains nothing is arithmetic."""
    [kernel] = kernels([eager("add", 100), eager("gelu", 402)], [fused(390, 10 * MB, "add", "gelu")])
    assert kernel.predicted_ns == pytest.approx(400e3)
    [kernel] = kernels([eager("add", 100), eager("log", 110)], [fused(105, 10 * MB, "add", "log")])
    assert kernel.predicted_ns == pytest.approx(100e3) and kernel.bound == "memory"


def test_what_pytorch_runs_on_one_thread_a_compiler_divides() -> None:
    """10,000 elements: too few for PyTorch to divide, of four threads each takes a quarter; a region takes 3 µs."""
    small = {"shapes": "fp32[100×100]", "moved": 80e3}
    [kernel] = kernels([eager("exp", 42, **small), eager("add", 5, **small)], [fused(13, 80e3, "exp", "add")], 3e-6)
    assert kernel.predicted_ns == pytest.approx(13e3)


def test_kernels_that_share_an_operator_share_its_arithmetic() -> None:
    first, second = (fused(200, 10 * MB, "softmax", name=f"graph_0_cpp_fused_{i}", short_name=str(i)) for i in (1, 2))
    found = kernels([eager("_softmax", 402, operator="aten::softmax"), eager("add", 90)], [first, second])
    assert [k.predicted_ns for k in found] == [pytest.approx(200e3)] * 2


def test_calls_of_one_kernel_are_taken_together() -> None:
    layers = [{"module": f"h.{i}"} for i in range(3)]
    rows = [eager(n, us, **layer) for layer in layers for n, us in (("add", 100), ("gelu", 402))]
    calls = [fused(400, 10 * MB, "gelu", serves=None, **layer) for layer in layers]
    [kernel] = kernels(rows, calls)
    assert kernel.count == 3 and kernel.predicted_ns == pytest.approx(1200e3) == kernel.measured_ns


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (fused(110, 10 * MB), "the backend does not say which operators it replaces"),
        (fused(110, None, "add", "mul"), "what it moves is not known"),
        (fused(110, 10 * MB, "add", "tanh"), "eager has no tanh there"),
    ],
)
def test_without_a_basis_there_is_no_prediction(kernel: Any, why: str) -> None:
    [found] = kernels(CHAIN, [kernel])
    assert found.predicted_ns is None and found.why == why


def test_a_product_that_the_compiler_writes_as_a_loop_is_not_judged() -> None:
    """Where the compiled step has the product too, a fused kernel of that operator holds only its bias."""
    place = {"module": "h", "operator": "aten::bmm"}
    rows, kernel = [*CHAIN, {**faults.product(), **place}], fused(900, 10 * MB, "relu", "matmul")
    [found] = kernels(rows, [kernel])
    assert (found.predicted_ns, found.why) == (None, "the compiler writes a product as a loop there")
    [found] = kernels(rows, [kernel, {**faults.product(), **place}])
    assert found.predicted_ns == pytest.approx(100e3)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (fused(300, 10 * MB, "add", "mul", "relu"), "it does not reach the measured bandwidth"),
        (fused(50, 10 * MB, "add", "mul", "relu"), "its data lies nearer than predicted"),
        (fused(900, 10 * MB, "add", "gelu"), "its code computes worse than eager's operators do"),
        (fused(200, 10 * MB, "add", "gelu"), "its code computes better than eager's operators do"),
        (
            fused(900, 10 * MB, "add", "gelu", flop_vector_fp32=5e6),
            "by the cost model its loops hold 2.5 × the FLOP of eager's operators",
        ),
    ],
)
def test_where_they_part_the_figures_say_why(kernel: Any, why: str) -> None:
    rows = [*CHAIN, eager("gelu", 402, flop_vector_fp32=2e6)]
    assert [k.why for k in kernels(rows, [kernel])] == [why]


def test_the_error_is_weighted_by_time_and_tells_for_how_much_of_it() -> None:
    rows = [*CHAIN, eager("gelu", 402)]
    named = {"name": "graph_0_cpp_fused_9", "short_name": "9"}
    calls = [
        fused(80, 10 * MB, "add", "mul"),
        fused(420, 10 * MB, "gelu", **named),
        fused(100, 10 * MB, name="cpp_fused_8", short_name="8"),
    ]
    made = report(rows, calls).backends[0]
    assert made.fusion is not None
    assert made.fusion.kernels_error == pytest.approx((20 + 20) / 500)
    assert made.fusion.kernels_known == pytest.approx(500 / 600)
    shown = fusion_tables(made)[1]
    assert "the predictions are 8% off, for 83% of the time" in shown.notes[0]


def test_what_separates_the_steps_sums_up() -> None:
    """Eager: 2000 µs, of which products take 500; compiled 1500, its products 400."""
    rows = [faults.product(500), *CHAIN]
    made = report(rows, [faults.product(400), fused(150, 10 * MB, "add", "mul", "relu")]).backends[0].fusion
    assert made is not None and made.achieved_step_ns == pytest.approx(1500e3)
    parts = dict(re.fullmatch(r"(.*) ([+−].*) µs", text).groups() for text in made.step_why)  # type: ignore[union-attr]
    assert parts["other kernels"] == "−100.0"
    total = sum(float(us.replace("−", "-")) for us in parts.values())
    assert total == pytest.approx(
        (made.achieved_step_ns - made.predicted_step_ns) / 1e3, abs=20
    )  # small parts are left out


def test_kernels_longer_than_the_timed_step_leave_no_time_outside_to_compare() -> None:
    """The profiler, or the machine, slowed eager's profiled step: 2500 µs of products in a step of 2000 µs."""
    rows = [faults.product(2500), *CHAIN]
    made = report(rows, [faults.product(400), fused(150, 10 * MB, "add", "mul", "relu")]).backends[0].fusion
    assert made is not None and made.achieved_step_ns and made.step_why == []
