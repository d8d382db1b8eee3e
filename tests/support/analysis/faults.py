"""Small workloads with one fault each, and the same without it, as kernel tables made by hand.

A machine that moves 100 GB/s and multiplies 1 TFLOP/s in fp32, 4 in bf16. Times in µs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perfkit import table
from perfkit.analysis.report.analyse import analyse, analyse_table
from perfkit.analysis.results import BackendReport, Finding
from perfkit.hardware.ceilings import Ceiling, Ceilings
from perfkit.run_folder import BackendRun, Power
from tests.support.analysis.examples import backend, run

Row = dict[str, Any]
CEILINGS = Ceilings(
    fingerprint="f", device="cpu", measured_at="2026-01-01T00:00:00Z", threads=4, bandwidth=[(1e9, 100e9)],
    compute={"matrix_fp32": 1e12, "matrix_bf16": 4e12, "vector_fp32": 1e12},
    details=[Ceiling(name="triad", resource="memory", unit="B/s", value=100e9, how="", working_set=1e9)],
)  # fmt: skip


def named(report: BackendReport) -> dict[str, Finding]:
    """The findings of a report, by rule."""
    return {f.name: f for f in report.findings}


def cpu(name: str, us: float, family: str = "elementwise", **more: Any) -> Row:
    """A row of a CPU operator; `moved` are its bytes (half read, half written), `tflop` fp32 matrix work."""
    return _row(
        {"name": f"aten::{name}", "operator": f"aten::{name}", "kind": "cpu_op", "device": "cpu"}, us, family, more
    )


def gpu(name: str, us: float, family: str = "elementwise", **more: Any) -> Row:
    """A row of a GPU kernel; `by` is the operator that launched it."""
    names = {"name": name, "operator": f"aten::{more.pop('by', name)}", "kind": "gpu_kernel", "device": "cuda:0"}
    return _row({**names, "stream": 7}, us, family, more)


def _row(row: Row, us: float, family: str, more: Row) -> Row:
    moved = more.pop("moved", None)
    work = {"flop_matrix_fp32": more.pop("tflop") * 1e12} if "tflop" in more else {}
    sizes = {} if moved is None else {"flop_vector_fp32": 0.0, "bytes_read": moved / 2, "bytes_written": moved / 2}
    short = row["name"].removeprefix("aten::")
    known = {"short_name": short, "family": family, "pass": "forward", "step": 0, "duration_ns": us * 1e3}
    return {**known, **row, **sizes, **work, **more}


def product(us: float = 1000.0) -> Row:
    """A matrix product at its roof, bound by arithmetic: what a healthy step is made of."""
    return cpu("mm", us, "matmul", tflop=us * 1e-6, moved=1e3, shapes="fp32[1000×1000], fp32[1000×1000]")


def slow_product() -> Row:
    """1000 µs of 250 that its arithmetic takes."""
    return {**product(), "flop_matrix_fp32": 250e6}


def on_gpu(us: float = 1000.0) -> Row:
    """The same on a GPU, in bf16, of unknown roof."""
    return gpu("nvjet_bf16", us, "matmul", by="linear", shapes="bf16[1000×1000], bf16[1000×1000]")


def product_on_gpu(us: float = 1000.0) -> Row:
    """The healthy product on a GPU."""
    shapes = "fp32[1000×1000], fp32[1000×1000]"
    return gpu("sgemm", us, "matmul", by="mm", tflop=us * 1e-6, moved=1e3, shapes=shapes)


_NARROW = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"


def _bf16(name: str, us: float, flop: float) -> Row:
    shapes = "bf16[16384×768], bf16[768×50257]" if "align" in name else "bf16[1024×1024], bf16[1024×1024]"
    return gpu(name, us, "matmul", by="linear", shapes=shapes, flop_matrix_bf16=flop, moved=1e3)


def made(rows: list[Row], step_us: float, between_us: float = 0.0, **facts: Any) -> table.KernelTable:
    """One step of `step_us`: the rows one after another, `between_us` apart."""
    at, placed = 0.0, []
    for order, row in enumerate(rows):
        placed.append({"start_ns": at, **row, "order": order})
        at += row["duration_ns"] + between_us * 1e3
    busy = sum(row["duration_ns"] for row in rows)
    known = {"steps": 1, "step_ns": [step_us * 1e3], "busy_ns": [busy], "gaps": [], "events": len(rows)}
    return table.build(placed, facts={**known, **facts})


def report(rows: list[Row], step_us: float, ceilings: Ceilings | None = CEILINGS, **more: Any) -> BackendReport:
    """The report of `made`, as of a trace that somebody captured."""
    return analyse_table(made(rows, step_us, **more), ceilings, "x.parquet").backends[0]


def of_run(
    rows: list[Row], step_us: float, environment: Mapping[str, Any], facts: Any = None, **more: Any
) -> BackendReport:
    """The report of the same as part of a run with that environment; `more` are fields of the backend's record."""
    record: BackendRun = backend("eager", step_us / 1e3, **more)
    source = run(record, tables={"eager": made(rows, step_us, **(facts or {}))}, ceilings=msgspec.to_builtins(CEILINGS))
    source.manifest.environment = dict(environment)
    return analyse(source).backends[0]


def gap(cause: str, us: float, pass_: str | None = None) -> dict[str, Any]:
    return {"cause": cause, "pass": pass_, "ns": us * 1e3, "count": 1}


def wait(operator: str, count: int, us: float, idle_us: float | None) -> dict[str, Any]:
    idle = None if idle_us is None else idle_us * 1e3
    return {"operator": operator, "module": "", "count": count, "ns": us * 1e3, "idle_ns": idle}


LIBRARIES = {"matrix_fp32": {"torch.mm": 0.25e12, "oneDNN linear": 1e12}}
FUNCTIONS = {"functions": {"torch.exp": 2e9, "torch.exp2": 10e9}}
MB = 1e6
BIG = "fp32[1000×1000]"


def _steps(calls_us: list[list[float]], fresh_bytes: float | None = None) -> BackendReport:
    """Steps of 1000 µs with these calls of one operator, at their roof where they take 10 µs; of a run, where it is
    known what fresh pages its timed steps took."""
    rows = [
        {**cpu("sum", us, "reduction", moved=1 * MB, shapes="fp32[250000]"), "step": number}
        for number, step in enumerate(calls_us)
        for us in step
    ]
    steps = len(calls_us)
    rows += [{**product(500), "step": number} for number in range(steps)]
    profiled = made(rows, 1000, steps=steps, step_ns=[1e6] * steps)
    record = backend("eager", 1.0, fresh_bytes=fresh_bytes, system_ns=None if fresh_bytes is None else 0.0)
    source = run(record, tables={"eager": profiled}, ceilings=msgspec.to_builtins(CEILINGS))
    return analyse(source).backends[0]


def _chain(shapes: list[str]) -> BackendReport:
    names = ("add", "gelu", "mul")
    rows = [cpu(n, 100, moved=10 * MB, shapes=s) for n, s in zip(names, shapes, strict=True)]
    return report([product(), *rows], 1300)


def _adam(names: tuple[str, ...], count: int, family: str) -> BackendReport:
    step = {"pass": "optimizer", "shapes": "fp32[250×1000], fp32[250×1000]"}
    rows = [cpu(name, 25, family, moved=2 * MB, **step) for _ in range(count) for name in names]
    time = 25.0 * len(rows)
    return report([product(4000), *rows], 4000 + time)


def _copies(count: int, bytes_: int) -> BackendReport:
    copy = {"name": "Memcpy HtoD (Pageable -> Device)", "kind": "memcpy", "operator": "aten::to"}
    rows = [{**gpu("copy", 2.5, "copy"), **copy} for _ in range(count)]
    fact = {"name": copy["name"], "direction": "HtoD", "count": count, "bytes": count * bytes_, "ns": count * 2500,
            "overlapped_ns": count * 2500}  # fmt: skip
    return report([*rows, {**on_gpu(900), "stream": 9, "start_ns": 100e3}], 1000, None, copies=[fact])


def planning(us: float) -> dict[str, Any]:
    """Events of an operator that plans its kernel again in a step."""
    return {"operator": "aten::_cudnn_attention_forward", "launches": 1, "ns": us * 1e3, "count": 1,
            "longest_ns": us * 1e3}  # fmt: skip


def _gathered(us: float) -> BackendReport:
    row = cpu(
        "index_select", us, "index", moved=2 * MB, shapes="fp32[4000×250], int64[1000]", operator="aten::embedding"
    )
    return report([product(), row], 1000 + us)


def _table(rows: int) -> BackendReport:
    shape = f"fp32[{rows}×16]"
    steps = [
        cpu("index_select", 5, "index", shapes=f"{shape}, int64[64]"),
        cpu("zero_", 100, "fill", shapes=shape, **{"pass": "backward"}),
        cpu("addcdiv_", 100, shapes=f"{shape}, {shape}, {shape}", **{"pass": "optimizer"}),
    ]
    return report([product(), *steps], 1205)


def _lookup(left: str, right: str, result: str) -> BackendReport:
    rows = [
        cpu("eq", 100, shapes=f"{left}, {right}", module="index"),
        cpu("copy_", 50, "copy", shapes=f"{result.replace('bool', 'int64')}, {result}", module="index"),
        cpu("argmax", 50, "reduction", shapes=result.replace("bool", "int64"), module="index"),
    ]
    return report([product(), *rows], 1200)


def _machine(threads: int, processes: int = 1, quota: float | None = None) -> dict[str, Any]:
    return {"threads": {"count": threads, "OMP_NUM_THREADS": str(threads), "processes": processes},
            "cpu": {"physical": 4, "logical": 8, "usable": 4, "quota": quota}}  # fmt: skip


def _power(**more: float) -> Power:
    """690 of 700 W, at 1.5 of 2 GHz."""
    return Power(watts=690, limit_w=700, clock_hz=1.5e9, max_clock_hz=2e9, **more)


def _attention(*names: str) -> BackendReport:
    """An attention of 16 heads over 512 places, of these operators with 250 µs each."""
    scores = "bf16[1×16×512×512]"
    shapes = {
        "qk": ("matmul", "bmm", "bf16[16×512×64], bf16[16×64×512]"),
        "scale": ("elementwise", "mul", f"{scores}, fp32[]"),
        "softmax": ("softmax", "_softmax", scores),
        "v": ("matmul", "bmm", "bf16[16×512×512], bf16[16×512×64]"),
        "classes": ("softmax", "_softmax", "bf16[1×512×1000]"),
    }
    rows = [gpu(name, 250, shapes[name][0], by=shapes[name][1], shapes=shapes[name][2]) for name in names]
    return report([on_gpu(1000), *rows], 1000 + 250 * len(rows), None)


def _masked(*more: str) -> BackendReport:
    """An attention over 512 places with further operands."""
    heads = ["bf16[1×16×512×64]"] * 3
    row = gpu("fmha_cutlassF", 500, "attention", by="_scaled_dot_product_efficient_attention",
              shapes=", ".join([*heads, *more]))  # fmt: skip
    return report([on_gpu(1000), row], 1500, None)


def _softmax(name: str, us: float) -> BackendReport:
    """A softmax of 1 MB, 10 µs at the bandwidth."""
    row = gpu(name, us, "softmax", by="_log_softmax", moved=1 * MB, flop_vector_fp32=1.0, shapes="fp32[1×1000×125]")
    return report([on_gpu(900), row], 900 + us)


def _blocks(count: int) -> BackendReport:
    row = {**gpu("add", 400), "grid_x": count, "grid_y": 1, "grid_z": 1}
    return report([on_gpu(600), row], 1000, None, gpus=[{"name": "a GPU", "smCount": 100}])


LISTS = [{"module": "index", "count": 2, "ns": 200e3}]
COMPILED = {"compilations": 0, "compile_ns": 0, "regions": 1, "resumed": 0}
GRAPHS = {"graphs": 3, "graph_breaks": {"call to print": 2}, "recompilations": []}
AGAIN = [{"function": "forward", "again": True, "reason": "size mismatch at index 0", "ns": 40e6}]

# rule → with the fault, without it, and the saving in µs (worked out by hand; None: in a test of its own)
FAULTS: dict[str, tuple[Callable[[], BackendReport], Callable[[], BackendReport], float | None]] = {
    "list-to-tensor": (
        lambda: report([product()], 1200, list_tensors=LISTS, gaps=[gap("Python", 200)]),
        lambda: report([product()], 1010, list_tensors=[{**LISTS[0], "ns": 5e3}], gaps=[gap("Python", 10)]),
        200,
    ),
    "compare-with-all": (
        lambda: _lookup("int64[64×1×1]", "int64[1000]", "bool[64×1×1000]"),
        lambda: _lookup("int64[64×1000]", "int64[1000]", "bool[64×1000]"),  # each row with one of its own length
        200,
    ),
    "sync": (
        lambda: report([on_gpu()], 1200, None, host_waits=[wait("aten::item", 2, 900, 150)]),
        lambda: report([on_gpu()], 1005, None, host_waits=[wait("aten::item", 1, 3, 3)]),
        150,
    ),
    "gpu-idle": (
        lambda: report([on_gpu(400)], 1000, None, gaps=[gap("Python", 600)], launch_delay={"median_ns": 7e3}),
        lambda: report([on_gpu(990)], 1000, None, gaps=[gap("Python", 10)], launch_delay={"median_ns": 500e3}),
        600,
    ),
    "overhead": (
        lambda: report([product(600)], 1000, gaps=[gap("Python", 150), gap("dispatch", 250)]),
        lambda: report([product(990)], 1000, gaps=[gap("Python", 10)]),
        400,
    ),
    "data": (
        lambda: report([product(700)], 1000, gaps=[gap("data", 300)]),
        lambda: report([product(995)], 1000, gaps=[gap("data", 5)]),
        300,
    ),
    "cuda-allocation": (
        lambda: report([on_gpu(700)], 1000, None, gaps=[gap("CUDA allocation", 300)]),
        lambda: report([on_gpu(1000)], 1000, None),
        300,
    ),
    "slow-operator": (
        lambda: report([on_gpu(700)], 1000, None, gaps=[gap("dispatch", 255)], held_by=[planning(250)]),
        lambda: report([on_gpu(995)], 1000, None, gaps=[gap("dispatch", 5)], held_by=[planning(4)]),
        250,
    ),
    "small-copies": (lambda: _copies(40, 64), lambda: _copies(4, 64), 100),
    "layout-copies": (
        lambda: report([product(), cpu("copy_", 100, "copy", moved=10 * MB, shapes=f"{BIG}, {BIG}",
                                       operator="aten::contiguous")], 1100),
        lambda: report([product(), cpu("copy_", 10, "copy", moved=1 * MB, shapes=f"{BIG}, {BIG}",
                                       operator="aten::contiguous")], 1010),
        100,
    ),
    "dtype-conversions": (
        lambda: report([product(), cpu("copy_", 100, "copy", moved=10 * MB, shapes="bf16[1000], fp32[1000]",
                                       operator="aten::to")], 1100),
        lambda: report([product(), cpu("copy_", 10, "copy", moved=1 * MB, shapes="bf16[1000], fp32[1000]",
                                       operator="aten::to")], 1010),
        100,
    ),
    # Three kernels of 10 MB at 100 GB/s: of each of the two intermediates 5 MB are written and 5 MB read, 4 × 50 µs.
    "elementwise-chain": (
        lambda: _chain([f"{BIG}, {BIG}", BIG, f"{BIG}, {BIG}"]),
        lambda: _chain(["fp32[10×7]", "fp32[300×300]", "fp32[9×4]"]),
        200,
    ),
    "unfused-optimizer": (
        lambda: _adam(("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"), 4, "elementwise"),
        lambda: _adam(("_fused_adam_",), 1, "optimizer"),
        # 28 rows of 25 µs; one pass moves 7 × 4 MB at 100 GB/s.
        28 * 25 - 280,
    ),
    "recompilation": (
        lambda: report([product()], 2000, compiled={**COMPILED, "compilations": 1, "compile_ns": 900e3}),
        lambda: report([product()], 1000, compiled=COMPILED),
        900,
    ),
    "graph-breaks": (
        lambda: report([product(800)], 1000, gaps=[gap("Python", 120), gap("dispatch", 80)],
                       compiled={**COMPILED, "regions": 2, "resumed": 1}),
        lambda: report([product(990)], 1000, gaps=[gap("Python", 10)],
                       compiled=COMPILED),
        200,
    ),
    "fp32-matmul": (
        lambda: report([product(1000)], 1000),
        lambda: report([product(1000)], 1000, msgspec.structs.replace(CEILINGS, compute={"matrix_fp32": 1e12,
                                                                                        "matrix_bf16": 0.9e12})),
        750,
    ),
    # Three steps; in the second and third one of ten calls of 10 µs takes 310: 600 µs in three steps.
    "unequal-calls": (
        lambda: _steps([[10] * 10, [10] * 9 + [310], [310] + [10] * 9]),
        lambda: _steps([[10] * 10] * 3),
        200,
    ),
    # 250 MFLOP in 1000 µs: a quarter of the roof, and what torch.mm was seen to reach.
    "slow-blas": (
        lambda: report([slow_product()], 1000, msgspec.structs.replace(CEILINGS, libraries=LIBRARIES)),
        lambda: report([slow_product()], 1000, msgspec.structs.replace(
            CEILINGS, libraries={"matrix_fp32": {"torch.mm": 0.9e12, "oneDNN linear": 1e12}})),
        750,
    ),
    # 500,000 numbers in 200 µs, 40 of which 4 MB take at 100 GB/s.
    "slow-functions": (
        lambda: report([product(800), cpu("tanh", 200, moved=4 * MB)], 1000,
                       msgspec.structs.replace(CEILINGS, libraries=FUNCTIONS)),
        lambda: report([product(960), cpu("tanh", 40, moved=4 * MB)], 1000,
                       msgspec.structs.replace(CEILINGS, libraries=FUNCTIONS)),
        160,
    ),
    "slow-low-precision": (
        lambda: report([_bf16("mm", 1000, 0.5e9)], 1000,
                       msgspec.structs.replace(CEILINGS, compute={"matrix_fp32": 4e12, "matrix_bf16": 0.5e12})),
        lambda: report([_bf16("mm", 1000, 4e9)], 1000),
        875,
    ),
    # 1 GFLOP each; the other product reaches 4 TFLOP/s.
    "unaligned-product": (
        lambda: report([_bf16("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 1000, 4e9), _bf16(_NARROW, 1000, 1e9)],
                       2000),
        lambda: report([_bf16("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 1000, 4e9),
                        _bf16(_NARROW.replace("align1", "align8"), 1000, 4e9)], 2000),
        750,
    ),
    # 1000 µs, of which the two products stay.
    "unfused-attention": (
        lambda: _attention("qk", "scale", "softmax", "v"),
        lambda: _attention("qk", "scale", "classes", "v"),
        500,
    ),
    "needless-mask": (lambda: _masked("bf16[1×1×512×512]"), lambda: _masked("fp32[1×16×512]"), 250),
    "transposed-softmax": (
        lambda: _softmax("cunn_SpatialSoftMaxForward", 100),
        lambda: _softmax("cunn_SpatialSoftMaxForward", 12),
        90,
    ),
    "empty-multiprocessors": (lambda: _blocks(25), lambda: _blocks(100), 300),
    "gather-bound": (lambda: _gathered(100), lambda: _gathered(20.5), 80),
    "dense-embedding-gradient": (lambda: _table(10_000), lambda: _table(128), 200 * (1 - 0.0064)),
    "idle-threads": (
        lambda: of_run([product(1000)], 1000, _machine(1)),
        lambda: of_run([product(1000)], 1000, _machine(4)),
        750,
    ),
    "crowded-threads": (
        lambda: of_run([slow_product()], 1000, _machine(8, processes=2)),
        lambda: of_run([product()], 1000, _machine(4, processes=2)),
        500,
    ),
    "low-clock": (
        lambda: of_run([product_on_gpu()], 1000, {}, power=_power(capped=0.9)),
        lambda: of_run([product_on_gpu()], 1000, {}, power=_power(capped=0.05)),
        1000 * (1 - 1.5 / 2),
    ),
    "fresh-pages": (
        lambda: of_run([product(1000)], 1000, _machine(4), fresh_bytes=100 * MB, system_ns=400e3),
        lambda: of_run([product(1000)], 1000, _machine(4), fresh_bytes=100 * MB, system_ns=70e3),
        100,
    ),
}  # fmt: skip
