"""A step by hand's products on a CPU: either library's, into given memory, alone and added."""

from __future__ import annotations

import pytest
import torch

from perfkit.handwritten import products
from perfkit.handwritten.calls import Kernels
from perfkit.handwritten.products import Products
from perfkit.kernels import libraries


@pytest.mark.parametrize("onednn", [True, False])
def test_either_library_multiplies_into_given_memory(monkeypatch: pytest.MonkeyPatch, onednn: bool) -> None:
    if onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    asked, real = [], libraries.onednn_linear
    monkeypatch.setattr(libraries, "_here", lambda: onednn)
    monkeypatch.setattr(products, "onednn_linear", lambda *a, **k: asked.append(a) or real(*a, **k))
    made = Products(Kernels(), torch.device("cpu"))
    x, weight, bias, dy = (torch.randn(size) for size in ((6, 7), (5, 7), (5,), (6, 5)))
    out, dx, dweight = torch.full((6, 5), torch.nan), torch.full((6, 7), torch.nan), torch.full((5, 7), torch.nan)
    for b in (bias, None):
        made.forward(x, weight, b, out)
        torch.testing.assert_close(out, torch.nn.functional.linear(x, weight, b))
    for times in (1, 2):
        made.backward_input(dy, weight, dx, add=times > 1)
        torch.testing.assert_close(dx, times * (dy @ weight))
        made.backward_weight(dy, x, dweight, add=times > 1)
        torch.testing.assert_close(dweight, times * (dy.t() @ x))
    assert len(asked) == (6 if onednn else 0)
