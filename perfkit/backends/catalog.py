"""Backends that run a model under PyTorch's autograd with kernels of the catalog in the place of some functions.

The functions are those of `perfkit.functional`; while tokens are generated also PyTorch's `linear`, which linear layers
call. A model that calls none of them runs as in eager. The backend `kernels` takes the fastest kernels there are for
the device (C on a CPU, CUDA on a GPU), `triton` those written in Triton.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock

from perfkit import kernels
from perfkit.backends import parallel
from perfkit.backends.eager import NO_TORCH
from perfkit.backends.interface import AutogradProgram, Backend
from perfkit.errors import torch_installed
from perfkit.kernels.languages import LANGUAGES
from perfkit.run_folder import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

    from perfkit.workloads.batch_formats import Outputs
    from perfkit.workloads.interface import Batch, Workload


def split_heads(qkv: Tensor, heads: int) -> Any:
    """`perfkit.functional.split_heads` by kernels, as are those below."""
    return _operator("split_heads_forward")(qkv, heads)


def merge_heads(x: Tensor) -> Any:
    """(B, NH, T, HS) → (B, T, C), as `perfkit.functional.merge_heads`."""
    return _operator("merge_heads_forward")(x)


def causal_softmax(scores: Tensor, scale: float) -> Any:
    """Return the softmax of scores (B, NH, T, S), as `perfkit.functional.causal_softmax`."""
    return _operator("causal_softmax_forward")(scores, scale)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Causal attention of q (B, NH, T, HS) to k and v (B, NKV, T, HS)."""
    return _operator("flash_attention_forward")(q, k, v, q.shape[-1] ** -0.5)[0]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension of x."""
    return _operator("rmsnorm_forward")(x, weight, eps)[0]


def residual_rms_norm(x: Tensor, branch: Tensor, weight: Tensor, eps: float) -> Any:
    """x + branch, and RMSNorm of it."""
    return _operator("residual_rmsnorm_forward")(x, branch, weight, eps)[:2]


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """q (B, T, NH, HS) and k (B, T, NKV, HS), turned by the angles of each position."""
    return _operator("rotary_forward")(q, k, cos, sin)


def swiglu(gate: Tensor, up: Tensor) -> Any:
    """silu(gate)·up, element by element."""
    return _operator("swiglu_forward")(gate, up)


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, ignore_index: int) -> Any:
    """Its forward makes the gradients as well: where nobody asks for them, the logits are cheaper."""
    import torch

    from perfkit import functional

    if not torch.is_grad_enabled():
        return inspect.unwrap(functional.linear_cross_entropy)(x, weight, targets, ignore_index)
    return _operator("linear_cross_entropy_forward")(x, weight, targets, weight.shape[0], ignore_index)[0]


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
    """The product by the library, bias and ReLU by one kernel."""
    from torch.nn.functional import linear

    return _operator("bias_relu_forward")(linear(x, weight), bias)


def multiply_add_activation(x: Tensor, z: Tensor, alpha: float, bias: Tensor, activation: str) -> Any:
    """activation(x + alpha·z + bias), by one kernel."""
    return _operator(f"multiply_add_{activation}_forward")(x, z, alpha, bias)


# Rows up to which a product takes its kernel: with more, libraries use what they keep of the weight in their caches.
FEW_ROWS = 8


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`torch.nn.functional.linear` of a few rows: the weight read once, at memory's speed; of more, PyTorch's own."""
    import torch

    if x.numel() > FEW_ROWS * weight.shape[1] or x.dtype not in (torch.float32, torch.bfloat16):
        return torch._C._nn.linear(x, weight, bias)
    return _operator("gemv")(x, weight) if bias is None else _operator("gemv_bias")(x, weight, bias)


def _operator(name: str) -> Any:
    import torch

    return getattr(torch.ops.perfkit, name).default


REPLACING: tuple[Callable[..., Any], ...] = (
    split_heads, merge_heads, causal_softmax, rms_norm, residual_rms_norm, rotary, swiglu, linear_cross_entropy,
    linear_relu, multiply_add_activation,
)  # fmt: skip
# PyTorch's attention on a GPU is cuDNN's or FlashAttention's: the kernel in Triton does not come before it.
ALSO_IN = {"triton": (grouped_attention,)}


class CatalogProgram(AutogradProgram):
    """Eager's program, with `REPLACING` in force and the language of the kernels settled while a step runs."""

    replays_passes = True

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        made: parallel.Parallel,
        language: str | None,
    ) -> None:
        super().__init__(workload, model, made.call, made.optimizer, keeps_modules=True, parallel=made)
        self._language = language
        self._replacing = (*REPLACING, *ALSO_IN.get(language or "", ()))
        self._called: set[str] = set()

    def forward(self, batch: Batch) -> tuple[Outputs, Tensor | None]:
        """Run one batch with the catalog's kernels in place of the functions of `perfkit.functional`."""
        with self._in_force():
            return super().forward(batch)

    def train_step(self, batches: Sequence[Batch]) -> tuple[Outputs, Tensor | None]:
        """Run a step with the catalog's kernels in place of the functions of `perfkit.functional`."""
        with self._in_force():
            return super().train_step(batches)

    def warnings(self) -> list[str]:
        """A sentence where nothing of the model ran on kernels."""
        if self._called:
            return super().warnings()
        return ["the model calls no function that kernels replace (perfkit.functional): it ran as in eager"]

    @contextmanager
    def _in_force(self) -> Iterator[None]:
        from perfkit import functional

        with ExitStack() as stack:
            stack.enter_context(functional.replaced({f.__name__: self._noted(f) for f in self._replacing}))
            if self.generation is not None:  # without gradients, which the kernel has none for
                stack.enter_context(mock.patch("torch.nn.functional.linear", self._noted(linear)))
            if self._language:
                stack.enter_context(kernels.use_version(language=self._language))
            yield

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._called.add(function.__name__)
            return function(*arguments)

        return call


class CatalogBackend(Backend):
    """The fastest kernels of the catalog for the device."""

    name = "kernels"
    summary = "eager, with hand-written kernels in the place of perfkit.functional's functions"
    language: ClassVar[str | None] = None

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Return why the kernels cannot run here, or None."""
        return kernels.unavailable(_device(settings)) if torch_installed() else NO_TORCH

    def load(self, settings: Settings) -> None:
        """Load the catalog's kernels."""
        kernels.load(settings.kernel_dirs)

    def prepare(self, workload: Workload, model: torch.nn.Module, settings: Settings) -> CatalogProgram:
        """Make the program on the catalog's kernels."""
        kernels.load(settings.kernel_dirs)
        return CatalogProgram(workload, model, parallel.begin(workload, model, settings), self.language)


class Triton(CatalogBackend):
    """The kernels of the catalog that are written in Triton."""

    name = "triton"
    summary = "eager, with Triton kernels in the place of perfkit.functional's functions"
    language = "triton"

    def unavailable(self, settings: Settings | None = None) -> str | None:
        """Why Triton's kernels cannot run: on a GPU they do, on a CPU only under its interpreter."""
        if not torch_installed():
            return NO_TORCH
        triton, device = LANGUAGES["triton"], _device(settings)
        if device == triton.test_device():
            return None
        if device not in triton.devices:
            return "Triton's kernels run on a GPU: choose --device cuda."
        return triton.unavailable()


def _device(settings: Settings | None) -> str:
    return settings.device.split(":")[0] if settings else "cpu"
