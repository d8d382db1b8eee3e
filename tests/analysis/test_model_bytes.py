"""Bytes of weights and cache by shapes: a real trace of an engine whose attention cuDNN computes, and every form of
attention that PyTorch has."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from perfkit.analysis.model_bytes import cache_bytes, weight_bytes
from perfkit.analysis.report.serving import serving
from perfkit.hardware.ceilings import Ceilings
from perfkit.readers import read
from perfkit.readers.kineto.trace import read_trace
from tests.support.analysis.faults import CEILINGS
from tests.support.readers.traces import Event, event, op, write

ENGINE = Path(__file__).parents[1] / "fixtures" / "kineto" / "engine.json.gz"
C, LAYERS, HEADS, CONTEXT, VOCABULARY = 1024, 4, 16, 512, 16384  # of the engine; bf16
OF_TOKEN = 2 * LAYERS * C * 2  # bytes of keys and values
WEIGHTS = 2 * (LAYERS * 12 * C * C + C * VOCABULARY)


def call(name: str, at: float) -> Event:
    return event("cuda_runtime", name, at, at + 1, correlation=int(1000 + at))


def attention(at: float, batch: int) -> list[Event]:
    """The call as the trace has it in the other iteration: a mask of booleans becomes numbers inside of it."""
    cached, mask = [batch, HEADS, CONTEXT, C // HEADS], [batch, 1, 1, CONTEXT]
    heads = {"types": ["c10::BFloat16"] * 4, "values": [""] * 4}
    shapes = [[batch, HEADS, 1, C // HEADS], cached, cached, mask]
    where = {"types": ["bool", "c10::BFloat16", "c10::BFloat16"]}
    return [
        op("aten::scaled_dot_product_attention", at, at + 40, shapes, **heads),
        *(op("aten::fill_", at + 1 + 3 * i, at + 3 + 3 * i, [[], []], types=["c10::BFloat16"] * 2) for i in range(2)),
        op("aten::where", at + 8, at + 12, [mask, [], []], **where),
        op("aten::_scaled_dot_product_cudnn_attention", at + 20, at + 30, shapes, **heads),
        op("aten::_cudnn_attention_forward", at + 21, at + 29, shapes, **heads),
        *(call("cudaLaunchKernel", at + offset) for offset in (1.5, 4.5, 9, 22)),
    ]


def captured(names: list[str], batch: int) -> list[Event]:
    """A capture that launches kernels of these names, as the engine's model does."""
    weights = iter([*[[C, 3 * C], [C, C], [C, 4 * C], [4 * C, C]] * LAYERS, [C, VOCABULARY]])
    events, at, after = [call("cudaStreamBeginCapture", 3)], 0.0, 0
    for name in names:
        at += 50
        if after:  # launched by the attention before it
            after -= 1
        elif "FillFunctor" in name:
            events, after = [*events, *attention(at, batch)], 3
        elif "splitKreduce" in name:
            events.append(call("cudaLaunchKernel", at - 40))
        elif "nvjet" in name:
            weight = next(weights)
            shapes, types = [[batch, weight[0]], weight], ["c10::BFloat16"] * 2
            events += [op("aten::mm", at, at + 20, shapes, types=types), call("cuLaunchKernelEx", at + 1)]
        else:
            events.append(call("cudaLaunchKernel", at))
    return [*events, call("cudaStreamEndCapture", at + 90)]


def test_an_engines_bytes_are_the_hand_count_where_cudnn_computes_attention(tmp_path: Path) -> None:
    """The kernel that turns the mask into numbers takes a fifth of attention's time: cache and roof were unknown."""
    events = json.loads(gzip.decompress(ENGINE.read_bytes()))["traceEvents"]
    (launch,) = (e["args"]["correlation"] for e in events if e.get("name") == "cudaGraphLaunch")
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    replayed = [e for e in events if e.get("cat") in on_gpu and e["args"]["correlation"] == launch]
    names = [e["name"] for e in sorted(replayed, key=lambda e: float(e["ts"]))]
    table = read_trace(ENGINE, captures={3: write(tmp_path / "graph-3.json", captured(names, 8))})
    mixed, decode = serving(table.facts, table.frame, CEILINGS)
    assert (mixed.name, mixed.new_tokens, mixed.prompt_tokens) == ("mixed", 6, 20)
    assert (decode.name, decode.new_tokens) == ("decode", 8)
    assert mixed.weight_bytes == decode.weight_bytes == WEIGHTS
    assert mixed.cache_bytes == OF_TOKEN * (6 * CONTEXT + 20)
    assert decode.cache_bytes == OF_TOKEN * 8 * CONTEXT
    assert decode.bound == "memory" and decode.roof_ns == pytest.approx(
        memory_ns(CEILINGS, WEIGHTS + 8 * CONTEXT * OF_TOKEN)
    )
    cache = cache_bytes(table.frame)
    assert cache is not None and set(table.frame.loc[cache > 0, "short_name"].str[:30]) == {
        "cudnn_generated_fort_native_sd"
    }


def memory_ns(ceilings: Ceilings, moved: float) -> float:
    return ceilings.memory_time(moved, 0.0, moved)[0] * 1e9


def rows(*made: tuple[str, str, str, float, float | None]) -> pd.DataFrame:
    """Rows of a GPU: kernel, operator, shapes, bytes read, and FLOP of products (None: not known)."""
    found = [
        {"name": name, "operator": operator, "family": "attention", "shapes": shapes, "bytes_read": read,
         "duration_ns": 1000.0, "flop_vector_bf16": 0.0 if flop is not None else None, "flop_matrix_bf16": flop}
        for name, operator, shapes, read, flop in made
    ]  # fmt: skip
    frame = pd.DataFrame(found)
    columns = ["bytes_read", "flop_vector_bf16", "flop_matrix_bf16"]
    frame[columns] = frame[columns].astype(float)
    return frame


HEAD_FIRST = "bf16[2×8×1×64], bf16[2×8×96×64], bf16[2×8×96×64]"
TIME_FIRST = "bf16[2×1×8×64], bf16[2×96×8×64], bf16[2×96×8×64]"
PACKED = "bf16[2×8×64], bf16[192×8×64], bf16[192×8×64], int32[3], int32[3]"
GROUPED = "bf16[2×32×1×64], bf16[2×8×96×64], bf16[2×8×96×64]"
WIDER = "bf16[2×8×1×32], bf16[2×8×96×32], bf16[2×8×96×96]"
KEYS_AND_VALUES = 2 * 2 * 8 * 96 * 64 * 2.0


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::scaled_dot_product_attention", HEAD_FIRST),
        ("aten::scaled_dot_product_attention", f"{HEAD_FIRST}, bf16[2×1×1×96]"),
        ("aten::_scaled_dot_product_cudnn_attention", f"{HEAD_FIRST}, bf16[2×1×1×96]"),
        ("aten::_scaled_dot_product_flash_attention", f"{GROUPED}, causal"),
        ("aten::_scaled_dot_product_efficient_attention", WIDER),
        ("aten::_scaled_dot_product_fused_attention_overrideable", HEAD_FIRST),
        ("aten::_cudnn_attention_forward", HEAD_FIRST),
        ("aten::_flash_attention_forward", TIME_FIRST),
        ("aten::_flash_attention_forward", PACKED),  # a nested tensor's values
        ("aten::_efficient_attention_forward", TIME_FIRST),
        ("flex_attention", HEAD_FIRST),
    ],
)
def test_every_form_of_fused_attention_has_its_keys_and_values(operator: str, shapes: str) -> None:
    helper = ("where_kernel_impl", operator, "bool[2×1×1×96], bf16[], bf16[]", 192.0, None)
    frame = rows(("flash_fwd_kernel", operator, shapes, 1e9, 1e6), helper)
    frame.loc[1, "flop_vector_bf16"] = 192.0
    found = cache_bytes(frame)
    assert found is not None and found.tolist() == [KEYS_AND_VALUES, 0.0]
    frame.loc[1, "flop_vector_bf16"] = float("nan")  # what it does is not known: nor is all that attention reads
    assert cache_bytes(frame) is None


def test_a_kernel_that_inductor_wrote_may_hold_a_product_and_leaves_the_bytes_unknown() -> None:
    shapes = "bf16[16×1×96], bf16[16×96×64]"
    frame = rows(("gemvNSP_kernel", "aten::scaled_dot_product_attention", shapes, 1e9, 1e6))
    found = cache_bytes(frame)
    assert found is not None and found.tolist() == [16 * 96 * 64 * 2]
    other = rows(("triton_red_fused_mul_sum_0", "aten::scaled_dot_product_attention", "", 1e9, 0.0))
    assert cache_bytes(pd.concat([frame, other], ignore_index=True)) is None


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_attention_on_a_cpu_written_out_or_fused_reads_its_cache_and_no_weight(
    backend: SDPBackend, grouped: bool, tmp_path: Path
) -> None:
    q, (k, v) = torch.randn(2, 4, 1, 16), (torch.randn(2, 2 if grouped else 4, 32, 16) for _ in range(2))
    x, weight, mask = torch.randn(8, 64), torch.randn(64, 64), torch.ones(2, 1, 1, 32, dtype=torch.bool)
    with torch.inference_mode(), sdpa_kernel(backend), profile(record_shapes=True) as profiler:
        x @ weight
        functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    frame = read(tmp_path / "t.json").frame
    cache, weights = cache_bytes(frame), weight_bytes(frame)
    repeated = 2 if grouped and backend == SDPBackend.FLASH_ATTENTION else 1  # groups are repeated where written out
    assert cache is not None and cache.sum() == 2 * 2 * 4 * 32 * 16 * 4 / repeated
    assert weights is not None and weights.sum() == 64 * 64 * 4
