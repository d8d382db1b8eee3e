"""oneDNN's products: where they are taken, whole and in pieces, into given memory, of any strides."""

from __future__ import annotations

import types

import pytest
import torch

from perfkit.kernels import libraries, memory

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")


def test_onednn_multiplies_fp32_products_where_mkl_is_at_a_disadvantage(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, fp32 = torch.device("cpu"), torch.float32
    monkeypatch.setattr(libraries, "_here", lambda: True)
    assert libraries.onednn_is_faster(fp32, cpu)
    assert not libraries.onednn_is_faster(torch.bfloat16, cpu)
    assert not libraries.onednn_is_faster(fp32, torch.device("cuda"))
    monkeypatch.undo()
    for model, wanted in (("AMD EPYC 9R14", True), ("Intel(R) Xeon(R) Platinum 8488C", False)):
        monkeypatch.setattr(libraries, "read_cpu", lambda model=model: types.SimpleNamespace(model=model))
        libraries._here.cache_clear()
        assert libraries._here() is (wanted and torch.backends.mkldnn.is_available())
    libraries._here.cache_clear()


@pytest.mark.parametrize("shape", [(9, 7, 50), (50, 7, 9), (1, 7, 50), (50, 7, 1)])
@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_pieces_make_the_same_product(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], pieces: bool, biased: bool
) -> None:
    n, k, m = shape
    calls, real = [], libraries._product
    monkeypatch.setattr(libraries, "_product", lambda *given: calls.append(given) or real(*given))
    if pieces:
        monkeypatch.setattr(memory, "WORTH_HUGE_PAGES", 4 * n * m)
        monkeypatch.setattr(libraries, "PIECE", 4 * min(n, m) * 16)  # 16, 16, 16 and 2 of the 50
    x, weight, bias = torch.randn(n, k), torch.randn(m, k), torch.randn(m) if biased else None
    wanted = torch.nn.functional.linear(x, weight, bias)
    out = torch.full((n, m + 3), torch.nan)[:, :m]  # rows do not follow each other
    for given in (None, out):
        made = libraries.onednn_linear(x, weight, bias, given)
        assert given is None or made is given
        torch.testing.assert_close(made, wanted)
    torch.testing.assert_close(libraries.onednn_linear(x, weight, bias, out, add=True), 2 * wanted)
    assert len(calls) == 3 * (4 if pieces else 1)


def test_no_matrix_whose_rows_and_columns_both_have_gaps_reaches_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], torch.ops.mkldnn._linear_pointwise
    fake = type("Ops", (), {"_linear_pointwise": staticmethod(lambda *given: seen.extend(given[:2]) or real(*given))})
    monkeypatch.setattr(torch.ops, "mkldnn", fake)
    x, weight = torch.randn(7, 9).t()[2:8], torch.randn(7, 12).t()[1:6]
    torch.testing.assert_close(libraries.onednn_linear(x, weight), x @ weight.t())
    libraries.onednn_linear(torch.randn(7, 9).t(), torch.randn(5, 7))
    assert all(one.is_contiguous() or one.t().is_contiguous() for one in seen)
    assert not seen[2].is_contiguous(), "a whole transposed matrix is taken as it is"
