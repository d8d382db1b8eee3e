"""Rules about what a CPU could do otherwise: waiting that is left out, libraries, precisions, threads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfkit.analysis.report.analyse import analyse
from perfkit.analysis.results import Finding
from tests.support.analysis import faults
from tests.support.analysis.examples import backend, run
from tests.support.analysis.faults import named


def with_waiting(*rows: Any, environment: dict[str, Any] | None = None, **machine: Any) -> dict[str, Finding]:
    """Return the findings in three steps of 1000 µs, each of these rows ten times, where the last of the second step
    takes 600 µs more; `machine` are other fields of the ceilings."""
    ceilings = msgspec.structs.replace(faults.CEILINGS, **machine)
    made = [{**row, "step": step} for step in range(3) for row in rows for _ in range(10)]
    late = 20 * len(rows) - 1
    made[late] = {**made[late], "duration_ns": made[late]["duration_ns"] + 600e3}
    table = faults.made(made, 1000, steps=3, step_ns=[1e6] * 3, busy_ns=[1e6] * 3)
    source = run(backend("eager", 1.0), tables={"eager": table}, ceilings=msgspec.to_builtins(ceilings))
    source.manifest.environment = environment or {}
    return named(analyse(source).backends[0])


def test_what_the_machine_could_do_otherwise_is_said_without_the_waiting() -> None:
    """One of three steps waited 600 µs, 200 µs a step, which is a finding of its own."""
    products = with_waiting(faults.product(40))
    assert products["unequal-calls"].saving_ns == pytest.approx(200e3)
    assert products["fp32-matmul"].time_ns == pytest.approx(400e3)
    assert products["fp32-matmul"].saving_ns == pytest.approx(400e3 * 3 / 4)
    assert "counted as if they had not" in products["fp32-matmul"].evidence
    one_core = {"threads": {"count": 1, "OMP_NUM_THREADS": "1"}, "cpu": {"physical": 4, "logical": 4}}
    found = with_waiting(faults.product(60), environment=one_core)
    assert "Operators whose threads wait" in products["unequal-calls"].evidence
    assert "The thread was put aside" in found["unequal-calls"].evidence  # one thread waits for no other
    assert "OMP_NUM_THREADS" not in found["unequal-calls"].remedy
    assert products["unequal-calls"].title.startswith("0.333 of 10 kernels a step take")  # as its times are of a step
    idle = found["idle-threads"]
    assert idle.saving_ns == pytest.approx(600e3 * 3 / 4) and "counted as if they had not" in idle.evidence


def test_calls_without_shapes_are_called_by_their_name_alone() -> None:
    sentence = with_waiting({**faults.product(40), "shapes": ""})["unequal-calls"].evidence
    assert "calls of mm (usually 40.00 µs" in sentence


def test_lookups_and_slow_precisions_are_held_against_their_roof_without_the_waiting() -> None:
    """2 MB are 20 µs at the bandwidth; 20 MFLOP are 40 µs in bf16 and 5 in fp32."""
    lookup = faults.cpu(
        "index_select", 40, "index", moved=2 * faults.MB, shapes="fp32[4000×250], int64[1000]",
        operator="aten::embedding",
    )  # fmt: skip
    found = with_waiting(lookup)["gather-bound"]
    assert found.saving_ns == pytest.approx(10 * 20e3) and "at 50 % of the bandwidth" in found.title
    assert "counted as if they had not" in found.evidence
    product = faults.cpu("mm", 40, "matmul", shapes="bf16[100×100], bf16[100×100]", flop_matrix_bf16=20e6, moved=1e3)
    found = with_waiting(product, compute={"matrix_fp32": 4e12, "matrix_bf16": 0.5e12})["slow-low-precision"]
    assert found.time_ns == pytest.approx(400e3) and found.saving_ns == pytest.approx(10 * 35e3)
    assert "counted as if they had not" in found.evidence


def test_dense_gradients_are_counted_without_the_waiting() -> None:
    """640 of 64,000 rows are looked up: 99 % of ten times 40 µs."""
    shape = "fp32[64000×16]"
    lookup = faults.cpu("index_select", 1, "index", shapes=f"{shape}, int64[64]", operator="aten::embedding")
    zeroing = faults.cpu("zero_", 40, "fill", shapes=shape, **{"pass": "backward"})
    found = with_waiting(lookup, zeroing)["dense-embedding-gradient"]
    assert found.time_ns == pytest.approx(400e3) and "backward 400.0 µs" in found.evidence
    assert "counted as if they had not" in found.evidence


def with_fresh_pages(fresh_bytes: float | None) -> dict[str, Finding]:
    """One call in thirty takes 300 µs more than 10 µs, 2.5 µs for each page of 4 KiB of its result of 0.5 MB."""
    made = faults._steps([[10] * 10, [10] * 9 + [310], [10] * 10], fresh_bytes=fresh_bytes)
    return named(made)


def test_fresh_pages_of_the_profile_are_no_waiting_where_the_timed_steps_tell_theirs() -> None:
    """The profiler's own memory makes the C library give pages back; timed steps took next to none."""
    assert "about what fresh pages in their results take" in with_fresh_pages(None)["unequal-calls"].evidence
    assert "unequal-calls" not in with_fresh_pages(30e3)


def by_blas(vendor: str, flop: float = 250e6, **row: Any) -> dict[str, Finding]:
    """Return the findings for a product of `flop` in 1000 µs, on a machine where oneDNN is four times as fast as
    torch.mm."""
    record = backend("eager", 1.0)
    tables = {"eager": faults.made([{**faults.product(), "flop_matrix_fp32": flop, **row}], 1000)}
    ceilings = msgspec.structs.replace(faults.CEILINGS, libraries=faults.LIBRARIES)
    source = run(record, tables=tables, ceilings=msgspec.to_builtins(ceilings))
    source.manifest.environment = {"cpu": {"vendor": vendor, "model": "EPYC", "architecture": "x86_64"}}
    return named(analyse(source).backends[0])


def test_mkl_on_a_processor_that_is_not_intels_is_told_of_its_switch() -> None:
    found = by_blas("AuthenticAMD")["slow-blas"]
    assert "EPYC is not Intel's" in found.evidence and "LD_PRELOAD" in found.remedy
    assert "oneDNN linear is 4.0 × as fast" in found.title
    intel = by_blas("GenuineIntel")["slow-blas"]
    assert "Intel's" not in intel.evidence and "LD_PRELOAD" not in intel.remedy


@pytest.mark.parametrize(
    ("rule", "rows", "rates"),
    [
        ("slow-blas", [faults.slow_product()], faults.LIBRARIES),
        ("slow-functions", [faults.product(800), faults.cpu("tanh", 200, moved=4 * faults.MB)], faults.FUNCTIONS),
    ],
)
def test_libraries_are_not_compared_by_what_a_busy_machine_measured(rule: str, rows: Any, rates: Any) -> None:
    def found(load: float) -> dict[str, Finding]:
        return named(faults.report(rows, 1000, msgspec.structs.replace(faults.CEILINGS, libraries=rates, load=load)))

    assert rule in found(0.1) and rule not in found(1.0)


def test_small_products_are_not_slow_by_their_library() -> None:
    """A quarter of what torch.mm reaches: another library would wait for the same."""
    assert "slow-blas" not in by_blas("AuthenticAMD", flop=60e6)


def test_products_faster_than_their_library_was_measured_are_not_by_slow_code() -> None:
    """Started with that switch, they run at twice the rate that the ceilings have of torch.mm."""
    assert "slow-blas" not in by_blas("AuthenticAMD", flop=500e6)


def test_complex_products_are_not_told_to_take_a_lower_precision() -> None:
    """Nor another library: what was measured is of real numbers, and autocast leaves complex ones alone."""
    shapes = "complex64[1000×1000], complex64[1000×1000]"
    assert "fp32-matmul" in named(faults.report([faults.product(1000)], 1000))
    assert "fp32-matmul" not in named(faults.report([{**faults.product(1000), "shapes": shapes}], 1000))
    assert "slow-blas" in by_blas("AuthenticAMD") and "slow-blas" not in by_blas("AuthenticAMD", shapes=shapes)


def test_threads_are_held_against_the_cores_that_a_container_pays_for() -> None:
    """8 threads have 8 logical cores, but a quota of 2 is worth 2; one thread in each of 4 ranks leaves none idle."""
    machine = faults._machine
    assert "crowded-threads" not in named(faults.of_run([faults.slow_product()], 1000, machine(8)))
    paid = named(faults.of_run([faults.slow_product()], 1000, machine(8, quota=2.0)))
    assert paid["crowded-threads"].title == "8 threads share 2 cores"
    assert paid["crowded-threads"].saving_ns == pytest.approx(750e3)
    assert "idle-threads" not in named(faults.of_run([faults.slow_product()], 1000, machine(1, processes=4)))
    idle = named(faults.of_run([faults.slow_product()], 1000, machine(1, processes=2)))["idle-threads"]
    assert idle.title == "PyTorch works on 2 of 4 cores" and "1 thread in each of 2 processes" in idle.evidence
