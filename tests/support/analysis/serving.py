"""Iterations of serving engines with one fault each, and the same without it, as kernel tables made by hand.

The machine of `faults`: 100 GB/s, 4 TFLOP/s in bf16. A product reads 20 MB of weights in 200 µs, and an attention
5.24 MB of keys and values in 52.4 µs. Times in µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import BackendReport
from perfkit.engines import iteration_of
from perfkit.table import build
from tests.support.analysis.faults import CEILINGS, Row, gpu

KEYS = 8 * 8 * 1280 * 16 * 2  # bytes
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
Served = tuple[str, list[Row], float]  # name of an iteration, its kernels one after another, and the gap after it


def name(prompts: int, prompt_tokens: int, generating: int) -> str:
    """The name of an iteration as vLLM writes it."""
    return f"execute_context_{prompts}({prompt_tokens})_generation_{generating}({generating})"


def product(us: float = 210, rows: int = 8) -> Row:
    read, written, flop = 2 * (rows * 1000 + 1000 * 10_000), 2 * rows * 10_000, 2 * rows * 1000 * 10_000
    return {**gpu("nvjet_bf16", us, "matmul", by="linear", shapes=f"bf16[{rows}×1000], bf16[1000×10000]"),
            "bytes_read": read, "bytes_written": written, "flop_matrix_bf16": flop}  # fmt: skip


def attention(us: float = 55) -> Row:
    heads = "bf16[8×8×1×16], bf16[8×8×1280×16], bf16[8×8×1280×16]"
    row = gpu("fmha_cutlassF", us, "attention", by="_scaled_dot_product_efficient_attention", shapes=heads)
    return {**row, "bytes_read": 2 * KEYS + 2048, "bytes_written": 2048, "flop_matrix_bf16": 4 * 8 * 8 * 1280 * 16}


def gather(us: float, written: float) -> Row:
    row = gpu("index_elementwise_kernel", us, "index", by="index", shapes="bf16[99999×8×16], int64[8×1280]")
    return {**row, "bytes_read": written, "bytes_written": written, "flop_vector_fp32": 0.0}


def decode(*more: Row, us: float = 210, gap: float = 2, generating: int = 8) -> Served:
    return name(0, 0, generating), [product(us), attention(), *more], gap


def prefill(us: float, prompts: int = 1, tokens: int = 4000) -> Served:
    return name(prompts, tokens, 0), [product(us, rows=tokens)], 2


def mixed(us: float) -> Served:
    return name(1, 1000, 8), [product(us, rows=1008), attention()], 2


def engine(served: Iterable[Served], **facts: Any) -> BackendReport:
    """The report of a trace of these iterations."""
    at, rows, begins, busy, names = 0.0, list[Row](), list[float](), list[float](), list[str]()
    for step, (called, kernels, gap) in enumerate(served):
        one = iteration_of(called)
        assert one is not None
        begins.append(at)
        names.append(called)
        for row in kernels:
            rows.append({**row, "step": step, "pass": one.phase, "start_ns": at, "order": len(rows)})
            at += row["duration_ns"]
        busy.append(at - begins[-1])
        at += gap * 1e3
    ends = [*begins[1:], at]
    lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
    known = {"steps": len(names), "step_ns": lengths, "busy_ns": busy, "step_names": names, "gaps": [],
             "events": len(rows)}  # fmt: skip
    return analyse_table(build(rows, facts={**known, **facts}), CEILINGS, "x.parquet").backends[0]


def copied(bytes_: float) -> Mapping[str, Any]:
    """Facts of copies to the host that move so many bytes together."""
    one = {"name": TO_HOST, "direction": "DtoH", "count": 5, "bytes": bytes_, "ns": 5 * 60e3, "overlapped_ns": 0}
    return {"copies": [one]}


def to_host(us: float) -> Row:
    return {**gpu("copy", us, "copy", by="to"), "name": TO_HOST, "kind": "memcpy"}


FIVE = range(5)
# rule → with the fault, without it, and the saving an iteration in µs, worked out by hand
FAULTS: dict[str, tuple[Callable[[], BackendReport], Callable[[], BackendReport], float]] = {
    # The roof: 20 MB and twice KEYS at 100 GB/s.
    "decode-below-roof": (
        lambda: engine(decode(us=800) for _ in FIVE),
        lambda: engine(decode() for _ in FIVE),
        855 - (20e6 + 2 * KEYS) / 100e3,
    ),
    "cache-copies": (
        lambda: engine(decode(gather(40, KEYS), gather(40, KEYS)) for _ in FIVE),
        lambda: engine(decode(gather(21, 1e6)) for _ in FIVE),
        80,
    ),
    # Three of eight rows are padding, in attention and in 50 µs besides.
    "graph-padding": (
        lambda: engine(decode(gather(50, 2e6), generating=5) for _ in FIVE),
        lambda: engine(decode(gather(50, 2e6)) for _ in FIVE),
        (55 + 50) * 3 / 8,
    ),
    # Of five iterations four have a next one.
    "scheduler-gaps": (
        lambda: engine(decode(gap=100) for _ in FIVE),
        lambda: engine([*(decode() for _ in FIVE), decode(gap=5000), decode()]),  # an engine that waits for requests
        80,
    ),
    "host-sampling": (
        lambda: engine((decode(to_host(60), gap=40) for _ in FIVE), **copied(5 * 8 * 100_000)),
        lambda: engine((decode(to_host(2)) for _ in FIVE), **copied(5 * 8 * 8)),
        80,
    ),
    "prefill-stalls": (
        lambda: engine([decode(), decode(), prefill(1000), decode(generating=8), decode()]),
        # All that were served are done: nobody waits.
        lambda: engine([decode(), decode(), prefill(1000, prompts=8), decode(), decode()]),
        (1000 + 2) / 5,
    ),
    # 4000 tokens of prompts take 1002 µs, decode 267: a mixed iteration with 1000 tokens should take 517.5.
    "mixed-batches": (
        lambda: engine([prefill(1000), decode(), decode(), mixed(945)]),
        lambda: engine([prefill(1000), decode(), decode(), mixed(460)]),
        (1002 - 517.5) / 4,
    ),
}
