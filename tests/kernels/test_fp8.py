"""Casts to fp8 and products of fp8: every bf16 number against PyTorch's own cast, and each product's reference."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.bench.catalog import cost_of
from perfkit.cost.model import Call, TensorSpec
from perfkit.kernels import check, cost_model, cublaslt, find, load
from perfkit.kernels.checking import Inputs
from perfkit.kernels.languages import candidates
from perfkit.tree.names import parts

load()
ops = torch.ops.perfkit
PRODUCTS = ("forward", "bias_forward", "backward_input", "backward_weight")
CASTS = [(ops.fp8_cast, torch.float8_e4m3fn), (ops.fp8_gradient_cast, torch.float8_e5m2)]


@pytest.mark.parametrize("amax", [448.0, 57344.0, 1.0, 3e38, 1e-40])
@pytest.mark.parametrize(("cast", "dtype"), CASTS)
def test_every_number_is_cast_as_pytorch_casts_it(cast, dtype: torch.dtype, amax: float) -> None:
    """All bf16 numbers, NaN and infinities among them, to the last bit; both layouts."""
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).view(128, 512)
    numbers, turned, scale = cast(x, torch.tensor(amax))
    most = torch.finfo(dtype).max
    factor = (torch.tensor(amax).clamp(min=2.0**-100) / most).reciprocal()
    expected = (x.float() * factor).clamp(-most, most).to(dtype).view(torch.uint8)
    nan = x.isnan() | (x.isinf() if math.isinf(float(factor)) else torch.zeros_like(x, dtype=torch.bool))
    assert torch.equal(numbers.view(torch.uint8)[~nan], expected[~nan])
    assert numbers.float()[nan].isnan().all()
    assert torch.equal(turned.view(torch.uint8), numbers.view(torch.uint8).t())
    assert float(scale) == float(torch.tensor(amax).clamp(min=2.0**-100) / most)


@pytest.mark.parametrize("name", ["fp8_amax", "gelu_amax_forward"])
def test_an_amax_keeps_what_is_not_finite_and_what_is_larger(name: str) -> None:
    x = torch.randn(1000).bfloat16()
    for bad in (math.inf, math.nan):
        y, amax = x.clone(), torch.tensor(3.0)
        y[500] = bad
        getattr(ops, name)(y, amax)
        assert not amax.isfinite()
    amax = torch.tensor(1000.0)
    getattr(ops, name)(x, amax)
    assert float(amax) == 1000.0


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_agree_with_the_reference(name: str) -> None:
    for result in check(f"fp8_linear_{name}", dtype="e4m3"):
        result.require()


def test_the_library_multiplies_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "unavailable", lambda: None)
    operation = find("fp8_linear_forward")
    assert [i.language for i in candidates(operation, "cuda", "e4m3")] == ["torch", "cublaslt"]
    assert [i.language for i in candidates(operation, "cpu", "e4m3")] == ["torch"]
    assert candidates(operation, "cpu", "bf16") == []


def test_operators_of_the_tree() -> None:
    assert (
        parts("perfkit::fp8_linear_bias_forward") == parts("perfkit::fp8_linear_backward_weight") == (("linear", 1.0),)
    )
    assert parts("perfkit::gelu_amax_forward") == (("gelu", 1.0),)
    assert parts("perfkit::gelu_bias_amax_backward") == (("gelu", 3 / 4), ("linear", 1 / 4))
    assert parts("perfkit::fp8_gradient_cast") == parts("perfkit::fp8_cast") == (("fp8_cast", 1.0),)


@pytest.mark.parametrize(
    ("name", "shapes", "more", "vector", "read"),
    [  # N = 5, K = 3, M = 7: one byte a number, two a result
        ("forward", ((5, 3), (7, 3)), (), 0, 15 + 21 + 8),
        ("bias_forward", ((5, 3), (7, 3)), (TensorSpec((7,), "bf16"),), 35, 15 + 21 + 8 + 14),
        ("backward_input", ((5, 7), (3, 7)), (), 0, 35 + 21 + 8),
        ("backward_input", ((5, 7), (3, 7)), (1,), 0, 35 + 21 + 8 + 30),
        ("backward_weight", ((7, 5), (3, 5)), (1,), 0, 35 + 15 + 8 + 42),
    ],
)
def test_costs_by_hand(name: str, shapes: tuple, more: tuple, vector: int, read: int) -> None:
    numbers = [TensorSpec(shape, "fp8") for shape in shapes]
    cost = cost_model().cost(Call(f"perfkit::fp8_linear_{name}", (*numbers, *[TensorSpec((), "fp32")] * 2, *more)))
    assert cost is not None and cost.flop["matrix_fp8"] == 210
    assert cost.flop.get("vector_bf16", 0) == vector and cost.bytes_read == read


class Library:
    """cuBLASLt as far as a plan calls it: it keeps what it is told, by object and attribute, and multiplies nothing."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.told: dict[tuple[int, int], bytes] = {}
        self.run: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name.endswith("Create"):
                number = len(self.made) + 1
                ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_void_p))[0] = number
                self.made[number] = arguments[1:]
            elif name.endswith("SetAttribute"):
                thing, attribute, value, size = arguments
                self.told[thing.value, attribute] = ctypes.string_at(value, size.value)
            elif name == "cublasLtMatmul":
                self.run.append(arguments)
            return 0

        return call


def told(dtypes: tuple[torch.dtype, ...], scales: cublaslt.Scales | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a plan of out (32, 48) = a (32, 16) · bᵀ, b (48, 16), tells the library: attributes, layouts, addresses."""
    library = Library()
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    monkeypatch.setattr(cublaslt, "_handle", lambda device: ctypes.c_void_p(99))
    monkeypatch.setattr(cublaslt, "_workspace", lambda device, stream: torch.empty(16))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    a, b, out = (torch.empty(s, dtype=d) for s, d in zip(((32, 16), (48, 16), (32, 48)), dtypes, strict=True))
    fast, plain = scales is not None and scales.fast, cublaslt.Epilogue.NONE
    form = cublaslt.ProductShape(32, 48, 16, (False, True), dtypes, plain, False, False, fast, 16, 0)
    plan = cublaslt._Plan(form)
    plan(a, b, out, (None, None, scales))
    description = plan._description.value
    attributes = {attribute: value for (thing, attribute), value in library.told.items() if thing == description}
    (call,) = library.run
    layouts = [
        [int(getattr(x, "value", x)) for x in library.made[plan_of.value]] for plan_of in (call[4], call[6], call[9])
    ]
    assert (call[3].value, call[5].value, call[8].value) == (b.data_ptr(), a.data_ptr(), out.data_ptr())
    return attributes, layouts


def number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def test_what_the_library_is_told_of_a_product_of_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transpose: the library's A is b, turned, and has b's scale."""
    scales = cublaslt.Scales(torch.tensor(2.0), torch.tensor(3.0), fast=True)
    types = torch.float8_e5m2, torch.float8_e4m3fn, torch.bfloat16
    attributes, layouts = told(types, scales, monkeypatch)
    assert number(attributes[3]) == 1 and number(attributes[4]) == 0  # A turned, B not
    assert number(attributes[17]) == scales.of_b.data_ptr() and number(attributes[18]) == scales.of_a.data_ptr()
    assert attributes[25] == b"\x01"
    assert layouts == [[28, 16, 48, 16], [29, 16, 32, 16], [14, 48, 32, 48]]  # type, rows, columns, stride


def test_what_the_library_is_told_of_a_product_of_bf16_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes, layouts = told((torch.bfloat16,) * 3, None, monkeypatch)
    assert {a: number(v) for a, v in attributes.items()} == {3: 1, 4: 0, 7: 1}
    assert layouts == [[14, 16, 48, 16], [14, 16, 32, 16], [14, 48, 32, 48]]


def test_a_benchmark_knows_the_work_of_a_product() -> None:
    operation = find("fp8_linear_forward")
    cost = cost_of(operation, operation.inputs(Inputs("e4m3", 1), N=16, K=32, M=48))
    assert cost.flop == {"matrix_fp8": 2.0 * 16 * 32 * 48}
    assert (cost.bytes_read, cost.bytes_written) == (16 * 32 + 48 * 32 + 8, 2 * 16 * 48)
