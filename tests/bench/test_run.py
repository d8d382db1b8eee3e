"""Benchmarks of the catalog and of plain operations: checks first, times only for what is right, roofs, sweeps."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest
import torch

from perfkit.bench import results, run, setup
from perfkit.bench.results import COLD, WARM
from perfkit.cost.model import Cost
from perfkit.errors import RunFailed, Unavailable, UsageError
from perfkit.hardware.ceilings import Ceiling, Ceilings
from perfkit.kernels import catalog
from perfkit.kernels.checking import to_fp64
from perfkit.kernels.families import find

CEILINGS = Ceilings(
    fingerprint="f",
    device="cpu",
    device_name="a processor",
    measured_at="2026-01-01T00:00:00+00:00",
    threads=2,
    bandwidth=[(1e4, 1e11), (1e7, 1e10)],
    in_place=[(1e4, 2e11), (1e7, 2e10)],
    compute={"vector_fp32": 1e12},
    details=[Ceiling(name="fma", resource="vector_fp32", unit="FLOP/s", value=1e12, how="")],
    caches={"L2": 1e6},
)
OPERATIONS = [o.name for family in catalog() for o in family.operations if "fp32" in o.tolerance]
QUICK = run.BenchOptions("cpu", seconds=1e-6, seed=7)


def only(name, extra=()):
    return next(benchmark for benchmark in setup.benchmarks(name, "cpu", False, extra) if benchmark.name == name)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_pytorch_s_own_operator_and_the_naive_way_are_the_same_operation(name, dtype):
    """At the catalog's own cases; a wrong competitor would be an unfair one."""
    benchmark = only(name)
    operation = next(o for f in catalog() for o in f.operations if o.name == name)
    for case in operation.cases[:3]:
        arguments = benchmark.arguments(dtype, 7, case, "cpu")
        expected = benchmark.reference(*map(to_fp64, arguments))
        for way in (way for way in benchmark.ways if way.name in ("naive", "pytorch")):
            with torch.no_grad():
                ((row, _),) = run.checked(
                    way, arguments, dtype, expected, operation.tolerance[dtype] * way.tolerance_factor
                )
            if row.status == "unavailable":
                assert name == "adamw_step" and "moments" in row.reason
                continue
            assert row.status == "ok", (way.name, case, row.reason)
            assert {e.output for e in row.errors} <= set(operation.signature.results) and row.errors


def test_a_benchmark_of_a_kernel():
    benchmark = only("gelu_forward")
    found = run.bench(benchmark, setup.chosen_ways(benchmark, [], ["c"]), [{"N": 4099}], ["fp32"], QUICK, CEILINGS)
    (point,) = found.points
    assert [row.way for row in point.rows] == ["pytorch", "c:1", "c:2"]
    assert point.bytes == 2 * 4 * 4099 and point.flop == {"vector_fp32": 9.0 * 4099}
    for row in point.rows:
        assert row.status == "ok" and row.errors[0].error < row.errors[0].allowed
        for timing in (row.warm, row.cold):
            assert timing.ns.low <= timing.ns.value <= timing.ns.high
            assert timing.bandwidth == pytest.approx(point.bytes / timing.ns.value * 1e9)
            assert len(timing.samples) == timing.ns.n >= 5
        assert row.warm.efficiency == pytest.approx(point.roofs[WARM].ns / row.warm.ns.value)
        assert row.cold.calls == 1
    own, naive, _ = point.rows
    assert own.speedup is None
    assert naive.speedup.value == pytest.approx(own.warm.ns.value / naive.warm.ns.value)


@pytest.mark.parametrize(
    ("moved", "flop", "cache", "in_place", "ns", "bound"),
    [
        (2e4, 0.0, WARM, False, 2e4 / 1e11 * 1e9, "memory"),  # from the cache
        (2e4, 0.0, COLD, False, 2e4 / 1e10 * 1e9, "memory"),  # from main memory
        (2e4, 1e9, WARM, False, 1e6, "vector fp32"),
        (2e4, 0.0, WARM, True, 2e4 / 2e11 * 1e9, "memory"),  # in place
        (2e4, 0.0, COLD, True, 2e4 / 1e10 * 1e9, "memory"),
    ],
)
def test_roofs(moved, flop, cache, in_place, ns, bound):
    cost = Cost({"vector_fp32": flop, "vector_int": 1e30}, moved / 2, moved / 2)  # no ceiling for integers: no bound
    found = run.roof(cost, cache, CEILINGS, in_place)
    assert found.ns == pytest.approx(ns)
    assert found.bound == bound


BROKEN = '''
"""Doubles, in several wrong ways."""
from perfkit.cost.model import Cost
from perfkit.kernels import Family, Implementation, Operation

WAYS = ("right", "wrong", "forgetful", "reading", "failing")
FAMILY = Family("double", __doc__, {"...": "any", "N": "elements"}, (Operation(
    name="double", category="elementwise", schema="(Tensor x) -> (Tensor y)", formula="y = 2·x",
    shapes={"x": "...", "y": "..."}, reference=lambda x: 2 * x,
    scalars=lambda x: (x.numel(),), inputs=lambda make, N: (make.normal(N),), cases=({"N": 5},),
    cost=lambda call: Cost({}, call.tensor(0).nbytes, call.tensor(0).nbytes),
    implementations=tuple(Implementation(i + 1, "c", "double.c", name, name) for i, name in enumerate(WAYS)),
),))
'''
BROKEN_C = """
#include <perfkit/vector.h>
#define EACH(from, to, value) for (int64_t i = from; i < to; i++) put(y + i, value); return KERNEL_DONE
int right(const scalar *x, scalar *y, int64_t n) { EACH(0, n, 2 * get(x + i)); }
int wrong(const scalar *x, scalar *y, int64_t n) { EACH(0, n, 2.001f * get(x + i)); }
int forgetful(const scalar *x, scalar *y, int64_t n) { EACH(0, n - 1, 2 * get(x + i)); }
int reading(const scalar *x, scalar *y, int64_t n) { EACH(0, n, get(y + i) * 0 + 2 * get(x + i)); }
int failing(const scalar *x, scalar *y, int64_t n) { return 1; }
"""


@pytest.fixture
def broken(tmp_path):
    folder = tmp_path / "mine" / "double"
    folder.mkdir(parents=True)
    (folder / "double.py").write_text(BROKEN, encoding="utf-8")
    (folder / "double.c").write_text(BROKEN_C, encoding="utf-8")
    return folder.parent


def test_what_is_wrong_has_no_speed(broken):
    benchmark = only("double", [str(broken)])
    found = run.bench(benchmark, setup.chosen_ways(benchmark, [], []), [{"N": 100}], ["fp32"], QUICK, CEILINGS)
    rows = {row.way: row for row in found.points[0].rows}
    assert [row.status for row in rows.values()] == ["ok", "ok", "wrong", "wrong", "wrong", "failed"]
    for row in rows.values():
        assert (row.warm is not None) == (row.cold is not None) == (row.status == "ok")
        assert row.speedup is None or row.status == "ok"
    assert 1e-4 < rows["c:2"].errors[0].error < 5e-4
    assert rows["c:3"].errors[0].error is None and rows["c:4"].errors[0].error is None
    assert "no memory" in rows["c:5"].reason
    assert [row.way for _, row in found.wrong] == ["c:2", "c:3", "c:4", "c:5"]


def test_the_command_fails_when_something_is_wrong(broken, run_cli, tmp_path):
    common = ["bench", "double", "--kernels", broken, "--no-ceilings", "--seconds", "0.001", "--sizes", "N=64"]
    done = run_cli([*common, "--out", tmp_path / "out"])
    assert done.rc == 1, done.stderr
    assert "c:2 is wrong at N=64 fp32" in done.stdout
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("c:2 ") and "✗ wrong" in text]
    assert "GB/s" not in line and "×" not in line
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "bench-double.html",
        "bench-double.md",
        "bench-double.json",
    }
    done = run_cli([*common, "--implementation", "c:1", "--json"])
    assert done.rc == 0, done.stderr
    data = json.loads(done.stdout)
    assert [row["way"] for row in data["points"][0]["rows"]] == ["pytorch", "c:1"]
    assert data["points"][0]["sizes"] == {"N": 64}


def test_every_block_size_of_a_triton_kernel_under_the_interpreter(run_cli):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    options = ["--sizes", "N=600", "--seconds", "0.000001", "--no-ceilings", "--cache", "cold", "--seed", "3", "--json"]
    asked = ["bench", "gelu_forward", "--implementation", "triton", "--blocks", *options]
    done = run_cli(asked, env={"TRITON_INTERPRET": "1"})
    assert done.rc == 0, done.stderr
    data = json.loads(done.stdout)
    rows = data["points"][0]["rows"]
    blocks = [tuple(row["parameters"].values()) for row in rows if row["way"].startswith("triton")]
    assert len(blocks) == len(set(blocks)) >= 8
    assert {row["status"] for row in rows} == {"ok"} and data["seed"] == 3
    assert any("interpreter" in note for note in data["notes"])


def test_a_sweep_has_a_point_for_each_size_and_an_exponent_for_each_way():
    benchmark = only("residual_forward")
    plan = setup.plan(benchmark, "", "N=1000,10000,100000", ["c:1"], [], "cpu")
    found = run.bench(benchmark, plan.ways, plan.sizes, ["fp32"], run.BenchOptions("cpu", 1e-6, (COLD,), 7), CEILINGS)
    run.fit(found, plan.changed)
    assert [point.sizes for point in found.points] == [{"N": 1000}, {"N": 10000}, {"N": 100000}]
    assert [(fit.way, fit.points, fit.variable) for fit in found.scaling] == [("pytorch", 3, "N"), ("c:1", 3, "N")]
    assert all(fit.low <= fit.exponent <= fit.high and math.isfinite(fit.exponent) for fit in found.scaling)


@pytest.mark.parametrize(
    ("name", "ways", "sizes", "dtypes"),
    [
        ("gelu", ["naive", "pytorch", "c:1", "c:2"], {"N": 1000}, ["fp32", "bf16"]),
        ("softmax", ["naive", "pytorch", "c:1"], {"N": 5, "M": 100}, ["fp32", "bf16"]),
        ("cdist", ["naive", "pytorch"], {"N": 30, "M": 40, "D": 7}, ["fp32"]),  # PyTorch's has no bf16 on the CPU
        ("matmul", ["pytorch"], {"M": 33, "N": 65, "K": 17}, ["fp32", "bf16"]),
    ],
)
def test_plain_operations(name, ways, sizes, dtypes):
    benchmark = only(name)
    asked = setup.chosen_ways(benchmark, ways, [])
    found = run.bench(benchmark, asked, [sizes], dtypes, run.BenchOptions("cpu", 1e-6, (WARM,), 7))
    assert [point.dtype for point in found.points] == dtypes
    for point in found.points:
        assert [row.way for row in point.rows] == ways
        assert all(row.status == "ok" for row in point.rows), found.wrong


@pytest.mark.slow
def test_torch_compile_is_one_of_the_five_ways():
    benchmark = only("gelu")
    assert [way.name for way in setup.chosen_ways(benchmark, [], [])][:3] == ["naive", "pytorch", "compile"]
    asked = setup.chosen_ways(benchmark, ["compile"], [])
    found = run.bench(benchmark, asked, [{"N": 1000}], ["fp32"], run.BenchOptions("cpu", 1e-6, (WARM,), 7))
    assert [(row.way, row.status) for row in found.points[0].rows] == [("pytorch", "ok"), ("compile", "ok")]


def test_what_models_write_stands_beside_pytorch_s_own_operator():
    benchmark = only("rmsnorm_backward")
    assert [way.name for way in setup.chosen_ways(benchmark, [], [])][:2] == ["naive", "pytorch"]
    found = run.bench(benchmark, benchmark.ways[:2], [{"B": 1, "T": 8, "C": 64}], ["bf16"], QUICK)
    written, own = found.points[0].rows
    assert written.status == own.status == "ok" and written.speedup and own.speedup is None


def test_choosing_ways():
    benchmark = only("gelu_forward")
    names = lambda *asked: [way.name for way in setup.chosen_ways(benchmark, *asked)]  # noqa: E731
    assert "compile" not in names([], [])
    assert names(["compile"], []) == ["pytorch", "compile"]
    assert names(["c"], []) == ["pytorch", "c:2"]
    assert names([], ["c"]) == ["pytorch", "c:1", "c:2"]
    with pytest.raises(UsageError, match=r"gelu_forward has no implementation 'c:9' on this device\. It has pytorch"):
        names(["c:9"], [])
    with pytest.raises(UsageError, match="'cuda'"):
        names([], ["cuda"])


def test_wrong_usage():
    with pytest.raises(UsageError, match=r"no operation or family called 'gelus'\. There are: .*gelu_backward"):
        setup.benchmarks("gelus", "cpu", False, [])
    assert [s.name for s in setup.benchmarks("layernorm", "cpu", False, [])] == [
        "layernorm_forward",
        "layernorm_backward",
    ]
    for given, error in (
        (("cpu", 0.5, "lukewarm"), "--cache lukewarm: the cache states are both, warm, cold"),
        (("cpu", 0.0, "both"), "--seconds must lie between"),
        (("tpu", 0.5, "both"), "'tpu' is not a device"),
    ):
        with pytest.raises(UsageError, match=error):
            setup.options(*given, seed=None)
    with pytest.raises(UsageError, match=r"is not computed in fp8\. Precisions: fp32, bf16"):
        run.bench(only("gelu_forward"), [], [{"N": 1}], ["fp8"], QUICK)


def test_sizes_that_do_not_fit():
    classifier = only("classifier")
    with pytest.raises(UsageError, match=r"classifier cannot be computed at N=2, V=9, Vp=8 fp32: .*Give other --sizes"):
        run.bench(classifier, classifier.ways[:1], [{"N": 2, "V": 9, "Vp": 8}], ["fp32"], QUICK)
    residual = only("residual_forward")
    with pytest.raises(RunFailed, match=r"residual_forward at N=1000000000000000 fp32 does not fit into memory"):
        run.bench(residual, residual.ways[:1], [{"N": 10**15}], ["fp32"], QUICK)


def test_a_gpu_that_is_not_there():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Unavailable, match="--device cuda: no usable CUDA GPU was found"):
        setup.options("cuda", 0.5, "both", None)


def test_a_way_may_err_as_much_as_pytorchs_right_operator() -> None:
    def row(way: str, error: float, allowed: float) -> results.BenchRow:
        return results.BenchRow(way=way, text="", errors=[results.Error("y", error, allowed)])

    rows = [row("pytorch", 3.2e-2, 9e-2), row("triton:1", 3.1e-2, 3e-2), row("c:1", 3.3e-2, 3e-2)]
    run._judge(rows)
    assert [one.status for one in rows] == ["ok", "ok", "wrong"]
    rows = [row("pytorch", 2e-1, 9e-2), row("triton:1", 3.1e-2, 3e-2)]
    run._judge(rows)
    assert [one.status for one in rows] == ["wrong", "wrong"], "a wrong operator allows nothing"


def test_the_tolerance_of_attention_follows_its_length() -> None:
    operation = find("flash_attention_forward")
    assert [operation.growth({"T": length}) for length in (17, 1024, 4096)] == [1.0, 1.0, 2.0]
