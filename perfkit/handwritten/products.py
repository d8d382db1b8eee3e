"""Products of rows with weights in a step by hand, and the GELU that may be computed inside of them.

Legend: N rows, K width of what a layer takes, M of what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perfkit import kernels
from perfkit.handwritten.calls import Kernels
from perfkit.kernels import cublaslt
from perfkit.kernels.libraries import onednn_is_faster, onednn_linear
from perfkit.kernels.measured import kept, replayed_ns

Times = dict[str, float]  # ns of a pass by the way it is computed
INSIDE, APART = "in the product", "on its own"


class Products:
    """A linear layer's products into given tensors: on a GPU the catalog's by cuBLASLt, elsewhere PyTorch's, on a CPU
    where oneDNN multiplies faster its own.

    `x` of memory outside an arena is `moving`: the call is bound at each use.
    """

    def __init__(self, call: Kernels, device: torch.device) -> None:
        self._call = call
        self._catalog = device.type == "cuda" and cublaslt.unavailable() is None

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, moving: bool = False) -> None:
        """out (N, M) = x (N, K) · Wᵀ, W (M, K), and + b."""
        if self._catalog:
            name, more = ("linear_forward", ()) if bias is None else ("linear_bias_forward", (bias,))
            self._run(name, (x, weight, *more), out, moving=moving)
        elif _by_onednn(out):
            onednn_linear(x, weight, bias, out)
        elif bias is None:
            torch.mm(x, weight.t(), out=out)
        else:
            torch.addmm(bias, x, weight.t(), out=out)

    def backward_input(self, dy: Tensor, weight: Tensor, dx: Tensor, add: bool = False) -> None:
        """dx (N, K) = dy (N, M) · W, or with `add` its sum with what `dx` holds."""
        if self._catalog:
            self._run("linear_backward_input", (dy, weight), dx, "dx" if add else "")
        elif _by_onednn(dx):
            onednn_linear(dy, weight.t(), out=dx, add=add)
        elif add:
            dx.addmm_(dy, weight)
        else:
            torch.mm(dy, weight, out=dx)

    def backward_weight(self, dy: Tensor, x: Tensor, dweight: Tensor, add: bool, moving: bool = False) -> None:
        """dW (M, K) = dyᵀ · x, or with `add` its sum with what `dweight` holds."""
        if self._catalog:
            self._run("linear_backward_weight", (dy, x), dweight, "dweight" if add else "", moving)
        elif _by_onednn(dweight):
            onednn_linear(dy.t(), x.t(), out=dweight, add=add)
        elif add:
            dweight.addmm_(dy.t(), x)
        else:
            torch.mm(dy.t(), x, out=dweight)

    def _run(self, name: str, given: Sequence[Tensor], out: Tensor, add: str = "", moving: bool = False) -> None:
        """Run an operation with one output, which is called `add` where it is added to what `out` holds."""
        added = [add] if add else []
        if moving:
            kernels.bind(name, given, [out], added)()
        else:
            self._call(name, *given, out=[out], add=added)


def _by_onednn(out: Tensor) -> bool:
    return onednn_is_faster(out.dtype, out.device)


def fastest_gelu(rows: int, channels: int, width: int, like: Tensor) -> tuple[bool, bool, list[str]]:
    """Measure once on this machine if an MLP's GELU in bf16 is faster inside of the products before it, forward and
    backward. Return both answers and the report's sentence.

    The MLP is (rows, channels) → (rows, width) → (rows, channels). `like` has the step's precision and device.
    """
    if like.device.type != "cuda" or like.dtype != torch.bfloat16 or cublaslt.unavailable() is not None:
        return False, False, []
    facts = [torch.cuda.get_device_name(like.device), torch.__version__, rows, channels, width, str(like.dtype)]
    times: dict[str, Times] = kept("gelu", facts, lambda: _gelu_times(rows, channels, width, like))
    inside = [min(ways, key=lambda way: ways[way]) == INSIDE for ways in times.values()]
    found = "; ".join(
        f"{part} {', '.join(f'{way} {ns / 1e3:.0f} µs' for way, ns in ways.items())}" for part, ways in times.items()
    )
    note = f"GELU of a layer with its product, measured once on this machine: {found}. The fastest runs."
    return inside[0], inside[1], [note]


def _gelu_times(rows: int, channels: int, width: int, like: Tensor) -> dict[str, Times]:
    x, weight, bias, h, g = (
        torch.randn(*shape, dtype=like.dtype, device=like.device)
        for shape in ((rows, channels), (width, channels), (width,), (rows, width), (rows, width))
    )
    weight *= channels**-0.5
    dbias, turned = torch.empty_like(bias), weight.t().contiguous()
    product = kernels.bind("linear_bias_forward", (x, weight, bias), (h,))
    gelu = kernels.bind("gelu_forward", (h,), (g,))
    both = kernels.bind("linear_gelu_forward", (x, weight, bias), (h, g))
    back = kernels.bind("linear_backward_input", (x, turned), (g,))
    gelu_back = kernels.bind("gelu_bias_backward", (g, h), (g, dbias))
    both_back = kernels.bind("linear_gelu_backward", (x, turned, h), (g,))
    sums = kernels.bind("bias_gradient", (g,), (dbias,))

    def apart() -> None:
        product()
        gelu()

    def apart_back() -> None:
        back()
        gelu_back()

    def inside_back() -> None:
        both_back()
        sums()

    inside_ns, apart_ns, inside_back_ns, apart_back_ns = replayed_ns([both, apart, inside_back, apart_back], calls=4)
    return {
        "forward": {INSIDE: inside_ns, APART: apart_ns},
        "backward": {INSIDE: inside_back_ns, APART: apart_back_ns},
    }
