"""A second healthy twin of each planted fault: what looks like it, and is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfkit.analysis.results import BackendReport
from tests.support.analysis import faults
from tests.support.analysis.faults import MB, cpu, gap, gpu, named, of_run, on_gpu, product, report, wait

SCORES = "bool[8×512×512]"


def _mask() -> BackendReport:
    """The mask of packed documents compares all positions with all, and nobody searches it."""
    rows = [
        cpu("eq", 100, shapes="int64[8×512×1], int64[8×1×512]", module="mask"),
        cpu("masked_fill_", 100, "fill", shapes=f"fp32[8×512×512], {SCORES}, fp32[]", module="mask"),
    ]
    return report([product(), *rows], 1200)


def _decoding() -> BackendReport:
    """One token attends to its past: its scores are a vector a head."""
    rows = [
        gpu("qk", 250, "matmul", by="bmm", shapes="bf16[16×1×64], bf16[16×64×512]"),
        gpu("softmax", 250, "softmax", by="_softmax", shapes="bf16[1×16×1×512]"),
        gpu("v", 250, "matmul", by="bmm", shapes="bf16[16×1×512], bf16[16×512×64]"),
    ]
    return report([on_gpu(), *rows], 1750, None)


def _masked_decoding() -> BackendReport:
    heads = "bf16[1×16×1×64], bf16[1×16×512×64], bf16[1×16×512×64], bf16[1×1×1×512]"
    row = gpu("fmha", 500, "attention", by="_scaled_dot_product_efficient_attention", shapes=heads)
    return report([on_gpu(), row], 1500, None)


def _optimizer(name: str, family: str = "elementwise", calls: int = 28) -> BackendReport:
    rows = [cpu(name, 25, family, moved=4 * MB, **{"pass": "optimizer"}) for _ in range(calls)]
    return report([product(4000), *rows], 4000 + 25 * calls)


def _copied(name: str, shapes: str, **more: str) -> BackendReport:
    return report([product(), cpu("copy_", 100, "copy", moved=10 * MB, shapes=shapes, operator=name, **more)], 1100)


def _tied() -> BackendReport:
    """A table that a product uses as well has a gradient in every row."""
    table = "fp32[10000×16]"
    rows = [
        cpu("embedding", 5, "embedding", shapes=f"{table}, int64[64]"),
        {**product(100), "shapes": f"fp32[64×16], {table.replace('10000×16', '16×10000')}"},
        cpu("zero_", 100, "fill", shapes=table, **{"pass": "backward"}),
        cpu("addcdiv_", 100, shapes=f"{table}, {table}, {table}", **{"pass": "optimizer"}),
    ]
    return report([product(), *rows], 1305)


TWINS: dict[str, Callable[[], BackendReport]] = {
    "list-to-tensor": lambda: report([product()], 1200, gaps=[gap("Python", 200)]),
    "compare-with-all": _mask,
    "sync": lambda: report([on_gpu()] * 4, 4600, None, steps=4, host_waits=[wait("aten::item", 1, 500, 500)]),
    "gpu-idle": lambda: report([on_gpu(400)], 1000, None, gaps=[gap("sync", 600)]),
    "overhead": lambda: report([product(600)], 1000, gaps=[gap("another rank", 400)]),
    "data": lambda: report([product(700)], 1000, gaps=[gap("Python", 300)]),
    "cuda-allocation": lambda: report([on_gpu(700)], 1000, None, gaps=[gap("allocation", 300)]),
    "slow-operator": lambda: report([on_gpu(700)], 1000, None, gaps=[gap("dispatch", 300)]),
    "small-copies": lambda: faults._copies(40, 1 << 20),
    "layout-copies": lambda: _copied("aten::contiguous", "fp32[1000], fp32[1000]", **{"pass": "optimizer"}),
    "dtype-conversions": lambda: _copied("aten::to", "fp32[1000], fp32[1000]"),
    "elementwise-chain": lambda: report(
        [gpu(f"triton_poi_fused_{n}", 100, moved=10 * MB, shapes=faults.BIG, by=n) for n in ("add", "mul")], 200
    ),
    "unfused-optimizer": lambda: _optimizer("_foreach_add_"),
    "recompilation": lambda: report([product()], 2000, gaps=[gap("Python", 900)]),
    "graph-breaks": lambda: report([product(800)], 1000, gaps=[gap("Python", 200)],
                                   compiled={**faults.COMPILED, "regions": 3}),
    "fp32-matmul": lambda: report([{**product(), "shapes": "complex64[1000×1000], complex64[1000×1000]"}], 1000),
    "unequal-calls": lambda: faults._steps([[10] * 9 + [310]]),  # one step: nobody knows what is usual
    "slow-blas": lambda: report([{**faults.slow_product(), "flop_matrix_fp32": 50e6}], 1000,
                                faults.msgspec.structs.replace(faults.CEILINGS, libraries=faults.LIBRARIES)),
    "slow-functions": lambda: report([product(800), cpu("gelu", 200, moved=4 * MB)], 1000,
                                     faults.msgspec.structs.replace(faults.CEILINGS, libraries=faults.FUNCTIONS)),
    "slow-low-precision": lambda: report([cpu("mm", 1000, "matmul", flop_matrix_bf16=1e6, moved=100 * MB)], 1000),
    "unaligned-product": lambda: report(  # four numbers of tf32 are 16 bytes
        [gpu(faults._NARROW.replace("bf16", "tf32").replace("align1", "align4"), 1000, "matmul", by="linear",
             flop_matrix_tf32=1e9, moved=1e3, shapes="fp32[1024×768], fp32[768×1000]")], 1000),
    "unfused-attention": _decoding,
    "needless-mask": _masked_decoding,
    "transposed-softmax": lambda: faults._softmax("cunn_SoftMaxForward", 100),
    "empty-multiprocessors": lambda: report(  # NCCL needs few blocks
        [{**gpu("ncclDevKernel_AllReduce", 400, "collective"), "grid_x": 8, "grid_y": 1, "grid_z": 1}], 400, None,
        gpus=[{"name": "a GPU", "smCount": 100}]),
    "gather-bound": lambda: report(
        [product(), cpu("index_select", 100, "index", moved=2 * MB, shapes="fp32[4000×250], int64[1000]",
                        **{"pass": "backward"})], 1100),
    "dense-embedding-gradient": _tied,
    "idle-threads": lambda: of_run([product()], 1000, faults._machine(1), {"loader_workers": 3}),
    "crowded-threads": lambda: of_run([product()], 1000, faults._machine(8)),  # as many as logical cores
    "low-clock": lambda: of_run([faults.product_on_gpu()], 1000, {}, power=faults.Power(
        watts=690, limit_w=700, clock_hz=1.96e9, max_clock_hz=2e9, capped=0.9)),
    "fresh-pages": lambda: of_run([product()], 1000, faults._machine(4), fresh_bytes=1 * MB, system_ns=900e3),
}  # fmt: skip


def test_every_planted_fault_has_a_second_twin() -> None:
    assert set(TWINS) == set(faults.FAULTS)


@pytest.mark.parametrize("rule", TWINS)
def test_what_only_looks_like_a_fault_is_none(rule: str) -> None:
    assert rule not in named(TWINS[rule]())


def test_a_gather_near_the_bandwidth_wastes_nothing() -> None:
    """At 97 % of the bandwidth, in most of a step, it was said to waste part of each cache line."""
    row = cpu("index_select", 1000, "index", moved=97 * MB, shapes="fp32[4000×250], int64[1000]")
    assert "gather-bound" not in named(report([row], 1000))


def test_inference_without_passes_is_not_asked_about_its_optimizer() -> None:
    rows = [{**gpu("k", 30), "pass": None} for _ in range(30)]
    assert not [u for u in report(rows, 1000).unjudged if u.rule == "unfused-optimizer"]
    trains = [{**gpu("batch_norm_backward_kernel", 30), "pass": None}, *rows]
    assert [u for u in report(trains, 1000).unjudged if u.rule == "unfused-optimizer"]


def test_of_a_capture_nothing_is_said_of_a_step() -> None:
    made = faults.made(
        [
            cpu("eq", 100, shapes="int64[64×1×1], int64[1000]", module="m"),
            cpu("argmax", 50, "reduction", shapes="bool[64×1×1000]", module="m"),
        ],
        150,
        marked=False,
    )
    found = {f.name: f for f in faults.analyse_table(made, None, "t.json").backends[0].findings}
    assert found["compare-with-all"].title.endswith("% of the capture")  # fmt: skip


def test_products_of_scores_are_left_with_their_arithmetic() -> None:
    """Bound by memory, for they write scores and read them: 100 MFLOP take 25 µs of 250 at the bf16 roof."""
    shapes = {
        "qk": ("matmul", "bmm", "bf16[16×512×64], bf16[16×64×512]", 100e6),
        "softmax": ("softmax", "_softmax", "bf16[1×16×512×512]", 0.0),
        "v": ("matmul", "bmm", "bf16[16×512×512], bf16[16×512×64]", 100e6),
    }
    rows = [
        gpu(name, 250, family, by=by, shapes=text, moved=5 * MB, **({"flop_matrix_bf16": flop} if flop else {}))
        for name, (family, by, text, flop) in shapes.items()
    ]
    found = named(report(rows, 750))
    assert set(found) == {"unfused-attention"}  # nor are its kernels below their roof
    assert found["unfused-attention"].saving_ns == pytest.approx(750e3 - 2 * 25e3)


def test_one_pass_that_takes_no_less_is_no_saving_of_an_optimizer() -> None:
    """One pass of 1.02 s was predicted for kernels of 748 ms: the saving became less than the gaps."""
    rows = [cpu(name, 25, moved=8 * MB, **{"pass": "optimizer"}) for name in ("lerp_", "addcmul_", "addcdiv_") * 10]
    found = named(report([product(), *rows], 2750, gaps=[gap("dispatch", 1000, "optimizer")]))["unfused-optimizer"]
    assert found.saving_ns == pytest.approx(1000e3) and "One pass" not in found.evidence
