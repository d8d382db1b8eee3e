"""Fusion headroom: predictions worked out by hand, and compared with a compiler's result for the same step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfkit import table
from perfkit.analysis.fusion_results import Fusion
from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import Report
from perfkit.render.sections.fusion import fusion as fusion_table
from tests.support.analysis import faults
from tests.support.analysis.examples import backend, run

MB = faults.MB
EAGER = [("add", 100), ("gelu", 100), ("mul", 100)]


def report(eager: list[Any], compiled: list[Any] | None, step_us: float = 1000) -> Report:
    """A run of eager and, where there are rows of it, of compile."""
    rows = {"eager": eager} | ({"compile": compiled} if compiled is not None else {})
    tables: dict[str, table.KernelTable] = {name: faults.made(made, step_us) for name, made in rows.items()}
    records = [backend(name, step_us / 1e3) for name in rows]
    return analyse(run(*records, tables=tables, ceilings=msgspec.to_builtins(faults.CEILINGS)))


def predicted(made: Report) -> Fusion:
    found = made.backends[0].fusion
    assert found is not None
    return found


def cpu_chain() -> list[Any]:
    return [faults.product(500), *(faults.cpu(n, us, moved=10 * MB, shapes=faults.BIG) for n, us in EAGER)]


def fused(us: float, moved: float | None = None, name: str = "graph_0_cpp_fused_add_gelu_mul_0") -> Any:
    """A kernel of Inductor."""
    return {**faults.cpu("x", us, "fused", moved=moved), "name": name, "short_name": name}


def test_on_a_cpu_intermediates_go_and_arithmetic_stays() -> None:
    """2 × 5 of 3 × 10 MB are written and read in vain: 20 MB at 100 GB/s are 200 µs of 300."""
    made = predicted(report(cpu_chain(), None))
    [part] = made.parts
    assert (part.name, part.kernels, part.predicted_kernels) == ("forward", 3, 1)
    assert part.predicted_ns == pytest.approx(100e3) and part.predicted_bytes == pytest.approx(10 * MB)
    assert made.predicted_step_ns == pytest.approx(1000e3 - 200e3) and made.achieved_by == ""


def test_complex_numbers_are_no_part_of_a_chain() -> None:
    """torch.compile leaves them to PyTorch's own kernels: one among three ends both chains."""
    rows = cpu_chain()
    rows[2] = {**rows[2], "shapes": "complex64[1000×1000], complex64[1000×1000]"}
    assert report(rows, None).backends[0].fusion is None


def test_groups_are_chains_of_the_same_operators() -> None:
    [group] = predicted(report(cpu_chain() + cpu_chain(), None)).groups
    assert (group.name, group.count, group.kernels) == ("forward add → gelu → mul", 2, 6)
    assert group.time_ns == pytest.approx(600e3) and group.predicted_ns == pytest.approx(200e3)


def test_on_a_gpu_a_fused_kernel_is_bound_by_memory() -> None:
    """10 MB at 100 GB/s are 100 µs, whatever the three kernels took; and a kernel that moves nothing takes 3 µs."""
    rows = [faults.gpu(n, 400, by=n, moved=10 * MB, shapes=faults.BIG) for n, _ in EAGER]
    short = faults.gpu("tiny", 3, by="neg", moved=0.0, shapes="fp32[7]")
    made = predicted(report([*rows, faults.on_gpu(), short], None, 3000))
    [part] = made.parts
    assert part.predicted_kernels == 2 and part.predicted_ns == pytest.approx(103e3 + 3e3)


def test_what_the_compiler_achieved_stands_beside_it() -> None:
    kernel = fused(110, 10 * MB)
    made = predicted(report(cpu_chain(), [faults.product(500), kernel]))
    [part] = made.parts
    assert made.achieved_by == "compile" and made.achieved_step_ns == pytest.approx(1000e3)
    assert (part.achieved_kernels, part.achieved_ns) == (1, pytest.approx(110e3))
    assert part.why == "as predicted"


def achieved(*, eager: list[float], compile: list[float]) -> Fusion:
    """Return a report with profiled steps of 1000 µs and timed steps of these ms."""
    tables = {
        "eager": faults.made(cpu_chain(), 1000),
        "compile": faults.made([faults.product(500), fused(110, 10 * MB)], 1000),
    }
    records = [backend("eager", 1, samples_ns=[s * 1e6 for s in eager])]
    records += [backend("compile", 1, samples_ns=[s * 1e6 for s in compile])]
    return predicted(analyse(run(*records, tables=tables, ceilings=msgspec.to_builtins(faults.CEILINGS))))


def test_the_achieved_step_is_timed_as_the_predicted_one_is() -> None:
    """Steps of 5 ms say nothing about profiled ones of 1 ms: they are not a reason to compare these with timed ones."""
    made = achieved(eager=[1.0] * 10, compile=[5.0] * 10)
    assert (made.step_ns, made.achieved_step_ns, made.step_why) == (pytest.approx(1e6), pytest.approx(5e6), [])
    made = achieved(eager=[5.0] * 10, compile=[0.9] * 10)
    assert (made.step_ns, made.achieved_step_ns) == (pytest.approx(1e6), pytest.approx(1e6))  # both are profiled
    assert achieved(eager=[1.0] * 10, compile=[]).achieved_step_ns is None


@pytest.mark.parametrize(
    ("us", "moved", "why"),
    [
        (300, 10 * MB, "about the same bytes: its kernels are slower than the operators"),
        (300, 20 * MB, "the compiler moves 2.00 × the bytes: it fuses less, or recomputes"),
        (50, 5 * MB, "the compiler moves 0.50 × the bytes: it fuses more"),
        (300, 5 * MB, "the compiler moves 0.50 × the bytes: it fuses more, yet they run slower than eager's"),
        (300, None, "its kernels are slower; what they move is not known"),
    ],
)
def test_where_they_part_the_figures_say_why(us: float, moved: float | None, why: str) -> None:
    kernel = fused(us, moved, "triton_poi_fused_add_0")
    assert predicted(report(cpu_chain(), [kernel])).parts[0].why == why


def test_a_compiled_backend_gets_no_prediction_and_a_trace_neither() -> None:
    kernel = fused(110)
    assert report(cpu_chain(), [kernel]).backends[1].fusion is None
    assert faults.report(cpu_chain(), 1000).fusion is None


def test_copies_inside_a_product_are_no_part_of_a_chain() -> None:
    bias = faults.cpu("copy_", 10, "copy", moved=MB, shapes=faults.BIG, operator="aten::linear")
    after = faults.cpu("relu", 10, moved=MB, shapes=faults.BIG)
    assert report([faults.product(), bias, after], None).backends[0].fusion is None


def test_the_table_shows_both() -> None:
    kernel = fused(110, 10 * MB)
    shown = fusion_table(report(cpu_chain(), [kernel]).backends[0])
    assert shown is not None and [c.header for c in shown.columns][-2:] == ["took", ""]
    assert "800.0 µs are predicted; compile took 1.00 ms" in shown.notes[0]
    assert fusion_table(report(cpu_chain(), None).backends[0]) is None
