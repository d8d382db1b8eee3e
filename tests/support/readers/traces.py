"""Hand-made torch.profiler traces: events in µs, written as JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def event(cat: str, name: str, start: float, end: float, *, pid: Any = 1, tid: Any = 1, **args: Any) -> Event:
    """A complete event over [start, end) µs."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1e6 + start, "dur": end - start,
        "args": args,
    }  # fmt: skip


def mark(name: str, start: float, end: float, **more: Any) -> Event:
    """An annotation."""
    return event("user_annotation", name, start, end, **more)


def op(
    name: str, start: float, end: float, shapes: list[list[int]] | None = None, seq: int = -1, tid: Any = 1, **args: Any
) -> Event:
    """An operator; `shapes` are its tensors, fp32 unless `types` (C++ names) says otherwise; `values` its numbers."""
    if shapes is not None:
        args |= {
            "Input Dims": shapes,
            "Input type": args.pop("types", ["float"] * len(shapes)),
            "Input Strides": [_strides(s) for s in shapes],
            "Concrete Inputs": args.pop("values", [""] * len(shapes)),
        }
    if seq >= 0:
        args |= {"Sequence number": seq, "Fwd thread id": 0}
    return event("cpu_op", name, start, end, tid=tid, **args)


def node(name: str, start: float, end: float, seq: int = -1, tid: Any = 1) -> list[Event]:
    """An autograd node: the engine's event, and 1 µs inside it on both sides the node's own."""
    args = {"Sequence number": seq, "Fwd thread id": 1} if seq >= 0 else {}
    engine = f"autograd::engine::evaluate_function: {name}"
    return [
        event("cpu_op", engine, start, end, tid=tid, **args),
        event("cpu_op", name, start + 1, end - 1, tid=tid, **args),
    ]


def _strides(shape: list[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


def write(path: Path, events: list[Event], compressed: bool = False, **top: Any) -> Path:
    """Write a trace file."""
    data = json.dumps({"schemaVersion": 1, "traceEvents": events, **top}).encode()
    path.write_bytes(gzip.compress(data) if compressed else data)
    return path


INDEX = {"types": ["float", "Scalar", "long int"], "values": ["", "0", ""]}
GRADIENT = {
    "types": ["float", "long int", "Scalar", "Scalar", "Scalar"],
    "values": ["", "", "10", "-1", "False"],
}


def training_step() -> list[Event]:
    """One step of a model with an embedding and a block with one linear layer and a residual add; 1000 µs."""
    return [
        mark("perfkit:step:0", 0, 1000),
        mark("perfkit:pass:zero_grad", 10, 20),
        mark("perfkit:pass:forward", 30, 430),
        mark("perfkit:module:transformer.wte", 40, 100),
        op("aten::embedding", 50, 90, [[10, 4], [2, 3]], seq=1),
        op("aten::index_select", 55, 85, [[10, 4], [], [6]], **INDEX),
        op("aten::empty", 60, 62),
        mark("perfkit:module:transformer.h.0", 110, 400),
        mark("perfkit:module:transformer.h.0.fc", 120, 300),
        op("aten::linear", 130, 290, [[6, 4], [8, 4], [8]], seq=2),
        op("aten::t", 135, 140, [[8, 4]], seq=2),
        op("aten::addmm", 150, 280, [[8], [6, 4], [4, 8]], seq=3),
        op("aten::copy_", 155, 165, [[6, 8], [6, 8]]),
        op("aten::add", 310, 390, [[6, 8], [6, 8]], seq=4),
        mark("perfkit:pass:backward", 440, 840),
        *node("AddBackward0", 450, 500, seq=4),
        op("aten::mul", 460, 490, [[6, 8], [6, 8]]),
        *node("AddmmBackward0", 510, 700, seq=3),
        op("aten::mm", 520, 600, [[4, 6], [6, 8]]),
        op("aten::mm", 610, 680, [[6, 8], [8, 4]]),
        *node("torch::autograd::AccumulateGrad", 705, 715),
        op("aten::add_", 707, 713, [[8], [8]]),
        *node("EmbeddingBackward0", 720, 800, seq=1),
        op("aten::embedding_dense_backward", 725, 795, [[6, 4], [6], [], [], []], **GRADIENT),
        mark("perfkit:pass:optimizer", 850, 980),
        mark("Optimizer.step#AdamW.step", 855, 975),
        op("aten::lerp_", 860, 960, [[8, 4], [8, 4]]),
    ]


PASSES = {"encoder": ("transformer.wte",), "classifier": ("lm_head",)}
LAYERS = "transformer.h.*"
