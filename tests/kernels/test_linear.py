"""A linear layer's products as operations of the catalog, and the library that makes them on a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import perfkit.kernels
from perfkit.cost.model import Call, TensorSpec
from perfkit.errors import RunFailed
from perfkit.kernels import check, cublaslt, find, measured
from perfkit.kernels.languages import candidates, device_unavailable
from perfkit.tree.names import parts

perfkit.kernels.load()
NAMES = ["forward", "bias_forward", "gelu_forward", "backward_input", "backward_weight", "gelu_backward"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_reference(name: str, dtype: str) -> None:
    for result in check(f"linear_{name}", dtype=dtype):
        result.require()


def test_the_library_serves_gpus_and_has_no_kernels_by_itself(monkeypatch) -> None:
    operation = find("linear_forward")
    monkeypatch.setattr(cublaslt, "unavailable", lambda: None)
    assert [i.language for i in candidates(operation, "cuda", "bf16")] == ["torch", "cublaslt"]
    assert [i.language for i in candidates(operation, "cpu", "bf16")] == ["torch"]
    assert [i.language for i in candidates(find("linear_gelu_forward"), "cuda", "fp32")] == ["torch"]
    family = SimpleNamespace(operations=(operation,))
    assert device_unavailable([family], "cuda") == "The kernel catalog has no versions for cuda."


def test_says_why_the_library_cannot_serve(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA GPU" in (cublaslt.unavailable() or "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "99.1")
    cublaslt._library.cache_clear()
    assert "libcublasLt.so.99" in (cublaslt.unavailable() or "")


def test_operators_of_the_tree() -> None:
    assert parts("perfkit::linear_bias_forward") == parts("perfkit::linear_backward_weight") == (("linear", 1.0),)
    assert parts("perfkit::linear_gelu_backward") == (("linear", 2 / 3), ("gelu", 1 / 3))


@pytest.mark.parametrize(
    ("name", "shapes", "mask", "flop", "read", "written"),
    [  # N = 5, K = 3, M = 7 in fp32
        ("forward", ((5, 3), (7, 3)), None, {"matrix_fp32": 210.0}, 4 * (15 + 21), 4 * 35),
        ("gelu_forward", ((5, 3), (7, 3), (7,)), None, {"matrix_fp32": 210.0, "vector_fp32": 350.0}, 172, 280),
        ("backward_input", ((5, 7), (7, 3)), 1, {"matrix_fp32": 210.0}, 4 * (35 + 21 + 15), 4 * 15),
        ("backward_weight", ((5, 7), (5, 3)), None, {"matrix_fp32": 210.0}, 4 * (35 + 15), 4 * 21),
        ("gelu_backward", ((5, 7), (7, 3), (5, 3)), None, {"matrix_fp32": 210.0, "vector_fp32": 270.0}, 284, 60),
    ],
)
def test_cost(name, shapes, mask, flop, read, written) -> None:
    specs = [TensorSpec(shape, "fp32") for shape in shapes]
    cost = find(f"linear_{name}").cost(Call(f"perfkit::linear_{name}", (*specs, *([mask] if mask else []))))
    assert (cost.flop, cost.bytes_read, cost.bytes_written) == (flop, read, written)


def test_alignment_is_that_of_the_worst_address() -> None:
    assert cublaslt._alignment([SimpleNamespace(data_ptr=lambda p=p: p) for p in (4096, 512 + 64)]) == 64
    assert cublaslt._alignment([SimpleNamespace(data_ptr=lambda: 1 << 20)]) == 256


def test_what_the_library_refuses_is_a_sentence() -> None:
    with pytest.raises(RunFailed, match="cuBLASLt could not run a product: status 15"):
        cublaslt._require(15, "run a product")


def test_what_was_measured_is_kept_by_its_facts(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    numbers = iter(range(9))
    assert [measured.kept("kind", ["a GPU", n], lambda: [next(numbers)]) for n in (1, 1, 2)] == [[0], [0], [1]]
    for path in (tmp_path / "kind").iterdir():
        path.write_text("{")  # cut
    assert measured.kept("kind", ["a GPU", 1], lambda: None) is None
    assert measured.kept("kind", ["a GPU", 1], lambda: [next(numbers)]) is None  # nothing is a result too


def test_a_cache_that_cannot_be_written_costs_a_measurement(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "file"))  # no folder: not even root writes there
    assert measured.kept("kind", [], lambda: 1.5) == 1.5
