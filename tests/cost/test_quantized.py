"""Products with weights of few bits, by hand, as real programs record them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from perfkit.cost import Argument, Call, CostModel, TensorSpec
from perfkit.readers.kineto.trace import read_trace

M, K, N = 16, 64, 32
PRODUCT = 2.0 * M * K * N


def dynamic() -> Callable[[], Any]:
    layers = nn.Sequential(nn.Linear(K, N))
    net, x = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8), torch.randn(M, K)
    return lambda: net(x)


def static() -> Callable[[], Any]:
    quantize, layer = torch.ao.nn.quantized.Quantize(0.1, 0, torch.quint8), torch.ao.nn.quantized.Linear(K, N)
    x = torch.randn(M, K)
    return lambda: layer(quantize(x)).dequantize()


def weights_of_8_bits() -> Callable[[], Any]:
    weight, scales = torch.randint(-127, 127, (N, K), dtype=torch.int8), torch.rand(N).bfloat16()
    x = torch.randn(M, K).bfloat16()
    return lambda: torch._weight_int8pack_mm(x, weight, scales)


def weights_of_4_bits() -> Callable[[], Any]:
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (N, K), dtype=torch.int32), 1)
    x, scales = torch.randn(M, K).bfloat16(), torch.rand(K // 32, N, 2).bfloat16()
    return lambda: torch._weight_int4pack_mm_for_cpu(x, packed, 32, scales)


def integers() -> Callable[[], Any]:
    a, b = (torch.randint(-9, 9, shape, dtype=torch.int8) for shape in ((M, K), (K, N)))
    return lambda: torch._int_mm(a, b)


def fp8() -> Callable[[], Any]:
    a, b, one = torch.randn(M, K).to(torch.float8_e4m3fn), torch.randn(N, K).to(torch.float8_e4m3fn), torch.tensor(1.0)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)


def lstm() -> Callable[[], Any]:
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(K, N)), {nn.LSTM}, dtype=torch.qint8)
    x = torch.randn(M, 2, K)
    return lambda: net(x)


@pytest.mark.parametrize(
    ("made", "unit", "flop", "weights"),
    [
        (dynamic, "int8", PRODUCT, N * K),
        (static, "int8", PRODUCT, N * K),
        (weights_of_8_bits, "bf16", PRODUCT, N * K + 2 * N),
        (weights_of_4_bits, "bf16", PRODUCT, N * K / 2 + 2 * 2 * 2 * N),
        (integers, "int8", PRODUCT, N * K),
        (fp8, "fp8", PRODUCT, N * K + 8),
        (lstm, "int8", 2.0 * 2 * M * 4 * N * (K + N), 4 * N * (K + N)),
    ],
)
def test_a_product_counts_once(tmp_path: Path, made: Any, unit: str, flop: float, weights: float) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = made()
        program()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            program()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    frame = read_trace(tmp_path / "t.json").frame
    if made is fp8 and "aten::mm" in set(frame["name"]):  # a processor without such a product: fp32 after conversion
        unit, weights = "fp32", 4 * N * K
    assert frame[f"flop_matrix_{unit}"].sum() == flop
    (row,) = frame[frame[f"flop_matrix_{unit}"] > 0].to_dict("records")
    if made is not lstm:
        item = {"fp8": 1, "bf16": 2, "fp32": 4}.get(unit, 4 if made is dynamic else 1)
        assert row["bytes_read"] == M * K * item + weights
    assert not frame["bytes_read"].isna().any()


def test_packed_weights_of_a_gpu_and_of_onednn() -> None:
    def matrix(name: str, *arguments: Argument) -> float:
        cost = CostModel().cost(Call(name, arguments))
        assert cost is not None
        return cost.matrix_flop

    x, scales = TensorSpec((M, K), "bf16"), TensorSpec((K // 32, N, 2), "bf16")
    tiles = TensorSpec((N // 8, K // 32, 32, 1), "int32")  # eight weights each
    assert matrix("aten::_weight_int4pack_mm", x, tiles, 32, scales) == PRODUCT
    assert matrix("aten::_dyn_quant_matmul_4bit", x, TensorSpec((999,), "uint8"), 32, K, N) == PRODUCT
    weight = TensorSpec((K, N), "int8", strided=False)
    assert matrix("onednn::qlinear_pointwise", TensorSpec((M, K), "uint8"), 0.1, 0, weight) == PRODUCT
    two = (TensorSpec((M, 2, K), "fp32"), TensorSpec((4, 2, N), "fp32"), (), True, 2, 0.0, False, True, False)
    weights = 2 * 3 * N * (K + N) + 2 * 3 * N * (2 * N + N)
    assert matrix("aten::quantized_gru", *two) == 2.0 * M * 2 * weights
