"""The shared step by hand of decoder-only language models: all but encoder, projections and the MLP's middle.

Legend: B batch, T time, C channels, NH heads, NKV heads of keys and values, HS = C / NH head size, V vocabulary, Vp the
same padded, L layers; N = B·T rows.

    forward of a layer                          its backward, from the bottom up
    q, k, v = project(y1)                       dx += norm_backward(dy1); dy1 = project_backward(dq, dk, dv)
    z = merge_heads(attention(q, k, v))         dq, dk, dv = attention_backward(dh); dh = merge_heads_backward(dz)
    xm, y2 = residual_norm(x, z·Woᵀ)            dx += norm_backward(dy2); dz = dx·Wo; dWo = dxᵀ·z
    g = widen(y2)                               dy2 = widen_backward(dg)
    x, y1 of the next = residual_norm(xm, g·Wprᵀ)       dg = dx·Wpr; dWpr = dxᵀ·g
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from perfkit.fp8.model import is_fp8
from perfkit.handwritten.arena import Arena
from perfkit.handwritten.attention import Attention, Shapes, alike
from perfkit.handwritten.calls import at
from perfkit.handwritten.eights import Eights
from perfkit.handwritten.fastest_attention import fastest
from perfkit.handwritten.head import ChunkedHead, LossHead, WholeHead
from perfkit.handwritten.model import Names, Norm
from perfkit.handwritten.step import RawStep
from perfkit.run_folder import Settings

# The logits' rows begin on 16-byte boundaries then: the tensor cores' products need that. V = 50257 becomes 50304.
PADDED_TO = 64
FLASH_DEVICES = ("cuda",)  # where attention in one kernel is fast


class LanguageStep(RawStep):
    """The step over batches of idx (B, T) and targets (B, T), of a model whose parts `names` and `norm` describe.

    x(i) (B, T, C) enters layer i. Its other activations are in `layer(i)`: y1 and y2 (N, C) are what its norms gave,
    xm (B, T, C) the sum after attention, z (N, C), q, k and v those of `Attention`, and `layer_shapes`.
    Those that all layers share are in `scratch`: `branch` and `narrow` (N, C), `dx` (B, T, C), and `shared_shapes`.
    With `recompute` layers share all but x, and backward computes the rest again.
    """

    recomputes = True
    captures = True
    projects_at_once = False  # whether q, k and v are one projection (N, 3·C): an operator of PyTorch's may read that
    logits_inside = False  # whether a training step keeps them inside the loss: it returns what enters the head
    same_inputs: tuple[tuple[str, ...], ...] = ()  # linear layers of a layer that take the same
    names: Names
    norm: Norm

    def __init__(self, model: nn.Module, settings: Settings, heads: int, kv_heads: int, eps: float) -> None:
        self.embedding = f"{self.names.encoder[0]}.weight"
        named = dict(model.named_parameters())  # a shared parameter once, under its first name
        head = f"{self.names.head}.weight"
        self.head = head if head in named else self.embedding
        self.vocabulary, self.channels = named[self.head].shape
        self.padded = -(-self.vocabulary // PADDED_TO) * PADDED_TO
        self.layers = sum(1 for _ in model.get_submodule(self.names.layers).children())
        super().__init__(model, settings, {self.head: self.padded})
        assert settings.sequence_length is not None
        self.sizes = settings.batch_size, settings.sequence_length
        self.rows = math.prod(self.sizes)
        self.eps, self.training, self.recompute = eps, settings.training, settings.training and settings.recompute
        flash = settings.variant == "sdpa" and self.device.type in FLASH_DEVICES
        plain = Attention(self.call, *self.sizes, heads, kv_heads, self.channels // heads, flash)
        self.attention, self.notes = fastest(plain, self.projects_at_once, self.parameters.flat)
        self._allocate()
        self.eights = self._in_fp8(model)
        self.prepares = self.eights is not None
        self.loss_head = self._head(settings.grad_accumulation > 1)

    def _allocate(self) -> None:
        # In inference no layer needs what the others wrote: all share the activations of one.
        kept = self.layers if self.training and not self.recompute else 1
        narrow, shaped = (self.rows, self.channels), (*self.sizes, self.channels)
        entering = alike((f"x {i}" for i in range(self.layers if self.training else 1)), *shaped)
        self.entering = Arena(entering, self.dtype, self.device)
        of_a_layer = {"y1": narrow, "xm": shaped, "y2": narrow}
        of_a_layer |= self.attention.kept() | self.layer_shapes()
        self.kept = [Arena(of_a_layer, self.dtype, self.device) for _ in range(kept)]
        self.chunked = self.training and self.logits_inside
        logits = {} if self.chunked else {"logits": (self.rows, self.padded)}
        shared: Shapes = {"x": shaped, "y": narrow, "branch": narrow} | logits
        shared |= {"dx": shaped, "narrow": narrow} if self.training else {}
        shared |= self.attention.scratch(self.training) | self.shared_shapes()
        self.scratch = Arena(shared, self.dtype, self.device)
        statistics: Shapes = {f"{s} {i}": self.sizes for s in self.norm.statistics for i in range(2 * kept + 1)}
        statistics |= {f"{s} {i}": shape for s, shape in self.attention.statistics().items() for i in range(kept)}
        self.statistics = Arena(statistics, torch.float32, self.device)
        self.tokens = Arena({"idx": self.sizes, "targets": (self.rows,)}, torch.int64, self.device)

    def _in_fp8(self, model: nn.Module) -> Eights | None:
        """The products of the layers that multiply fp8, where there are any."""
        start = f"{self.names.layers}."
        weights = {n: self.parameters[f"{n}.weight"] for n, m in model.named_modules() if is_fp8(m)}
        if not weights or not self.training:
            return None

        def parted(name: str) -> tuple[str, str]:
            layer, _, rest = name.removeprefix(start).partition(".")
            return layer, rest

        def leader(name: str) -> str:
            layer, rest = parted(name)
            group = next((group for group in self.same_inputs if rest in group), (rest,))
            return next(found for one in group if (found := f"{start}{layer}.{one}") in weights)

        def slot(name: str) -> str:
            layer, rest = parted(name)
            return f"{int(layer) % len(self.kept)}.{rest}"

        return Eights(self.call, weights, self.rows, leader, slot)

    def _head(self, accumulates: bool) -> LossHead:
        shared, name, weight = self.scratch, self.names.head, self.parameters[self.head]
        dy, gradient = (shared["narrow"], self.gradient(self.head)) if self.training else (None, None)
        parts = self.call, self.products, name, shared["y"], dy, weight, gradient, self.vocabulary
        if self.chunked:
            return ChunkedHead(*parts, accumulates=accumulates)
        return WholeHead(*parts, shared["logits"], torch.zeros(self.rows, device=self.device))

    def units(self, names: list[str]) -> list[list[str]]:
        """Names of parameters as backward is done with them: of the head, the layers from the last on, the encoder."""
        start = f"{self.names.layers}."
        layers: dict[str, list[str]] = {}
        for name in names:
            layer = name.removeprefix(start).partition(".")[0] if name.startswith(start) else "rest"
            layers.setdefault(layer, []).append(name)
        rest = layers.pop("rest")
        first = [name for name in rest if name.rpartition(".")[0] in self.names.encoder]
        return [[name for name in rest if name not in first], *reversed(layers.values()), first]

    def narrow_backward(self, i: int, add: bool) -> None:
        """From `dx` the gradient of g in `wide`, and those of the MLP's last product."""
        shared, name = self.scratch, f"{self.path(i)}.{self.names.mlp_out}"
        self.linear_backward(name, shared["dx"], self.layer(i)["g"], shared["wide"], add)

    # ---- what each model does in its own way ------------------------------------------------------------------------

    @abstractmethod
    def layer_shapes(self) -> Shapes:
        """Further tensors of each layer that the backward needs: g among them, the width of the MLP wide."""

    @abstractmethod
    def shared_shapes(self) -> Shapes:
        """Tensors that only the next kernel reads: in training with `wide`, for g's gradient."""

    @abstractmethod
    def encode(self, idx: Tensor) -> None:
        """From the tokens idx (B, T), in memory that stays, the first layer's x."""

    @abstractmethod
    def encode_backward(self, add: bool) -> None:
        """From `dx` the gradients of the encoder's parameters; with a tied head the embedding's has that part already.

        Use `embedding_is_added_to(add)` for it.
        """

    @abstractmethod
    def project(self, i: int) -> None:
        """From y1 of layer `i` its q, k and v."""

    @abstractmethod
    def project_backward(self, i: int, add: bool) -> None:
        """From `dq`, `dk` and `dv` the gradient of y1, in `narrow`, and those of the parameters."""

    @abstractmethod
    def widen(self, i: int) -> None:
        """From y2 of layer `i` its g; where g enters a product of fp8, its amax is raised (`input_amax`)."""

    @abstractmethod
    def widen_backward(self, i: int, add: bool) -> None:
        """From the gradient of g in `wide` that of y2, in `narrow`, and those of the parameters."""

    # ---- forward ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Cast the weights of layers that multiply fp8."""
        if self.eights:
            self.eights.begin_step()

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T), or y (B, T, C) where the head works by chunks."""
        if self.eights:
            self.eights.begin_batch()
        self.encode(self.tokens["idx"].copy_(batch[0]))
        self._first_norm(0)
        for i in range(self.layers):
            self._attention(i)
            self.widen(i)
            self._end(i)
        return self.loss_head.forward().unflatten(0, self.sizes)

    def _first_norm(self, i: int) -> None:
        name = f"{self.path(i)}.{self.names.norms[0]}"
        with at(name):
            call, terms = f"{self.norm.kernel}_forward", self._norm_parameters(name)
            self.call(call, self.x(i), *terms, self.eps, out=self._normed(i, 0))

    def _attention(self, i: int) -> None:
        kept, names, path = self.layer(i), self.names, self.path(i)
        self.project(i)
        with at(f"{path}.{names.attention}"):
            self.attention.mix(kept, self.scratch, self._of_attention(i))
        z, moving = self.attention.result(kept), self.attention.moves
        self.linear(f"{path}.{names.attention_out}", z, self.scratch["branch"], moving)
        total = f"{path}.{names.attention_sum}".rstrip(".")
        self._add_and_norm(total, self.x(i), f"{path}.{names.norms[1]}", kept["xm"], self._normed(i, 1))

    def _end(self, i: int) -> None:
        """The MLP's last product, the sum with what it gave, and the norm that follows."""
        kept, names, path = self.layer(i), self.names, self.path(i)
        self.linear(f"{path}.{names.mlp_out}", kept["g"], self.scratch["branch"], measured=True)
        norm = names.last_norm if i + 1 == self.layers else f"{self.path(i + 1)}.{names.norms[0]}"
        self._add_and_norm(path, kept["xm"], norm, self.x(i + 1), self._normed(i + 1, 0))

    def _add_and_norm(self, total: str, before: Tensor, norm: str, x: Tensor, normed: list[Tensor]) -> None:
        """x = `before` + `branch`, a sum of the module `total`, and its `norm`."""
        # A sum reads two tensors and writes one, a norm one and one.
        with at(norm, [(total, "add", 3), (norm, self.norm.operator, 2)]):
            terms = before, self.of_batch(self.scratch["branch"]), *self._norm_parameters(norm)
            self.call(f"residual_{self.norm.kernel}_forward", *terms, self.eps, out=[x, *normed])

    # ---- loss and backward ------------------------------------------------------------------------------------------

    def loss(self, batch: tuple[Tensor, ...], scale: float) -> Tensor:
        """Mean cross entropy over the targets that count; whole logits become their gradient."""
        with at("loss"):
            return self.loss_head.loss(self.tokens["targets"].copy_(batch[1].reshape(-1)), scale)

    def backward(self, batch: tuple[Tensor, ...], add: bool) -> None:
        """All gradients, from the last layer to the first; with `add` they are added to those of the batch before."""
        self.loss_head.backward(add)
        self._norm_backward(self.names.last_norm, self.x(self.layers), 2 * self.layers, add, residual=False)
        self.final(0)
        for i in reversed(range(self.layers)):
            if self.recompute and i + 1 < self.layers:  # what the last layer gave is still there
                self._first_norm(i)
                self._attention(i)
                self.widen(i)
                self._cast_widened(i)
            self._mlp_backward(i, add)
            self._attention_backward(i, add)
            self.final(self.layers - i)
        self.encode_backward(add)
        self.final(self.layers + 1)

    def _cast_widened(self, i: int) -> None:
        """Cast g again where the gradient of the MLP's last product takes it in fp8."""
        name = f"{self.path(i)}.{self.names.mlp_out}"
        if self.eights and name in self.eights:
            with at(name):
                self.eights.cast_input(name, self.layer(i)["g"], measured=True)

    def _mlp_backward(self, i: int, add: bool) -> None:
        kept, names, path = self.layer(i), self.names, self.path(i)
        self.narrow_backward(i, add)
        self.widen_backward(i, add)
        self._norm_backward(f"{path}.{names.norms[1]}", kept["xm"], 2 * i + 1, add, residual=True)

    def _attention_backward(self, i: int, add: bool) -> None:
        kept, shared, names, path = self.layer(i), self.scratch, self.names, self.path(i)
        z, moving = self.attention.result(kept), self.attention.moves
        self.linear_backward(f"{path}.{names.attention_out}", shared["dx"], z, shared["narrow"], add, moving=moving)
        with at(f"{path}.{names.attention}"):
            self.attention.mix_backward(kept, shared, self._of_attention(i))
        self.project_backward(i, add)
        self._norm_backward(f"{path}.{names.norms[0]}", self.x(i), 2 * i, add, residual=True)

    def _norm_backward(self, name: str, x: Tensor, number: int, add: bool, residual: bool) -> None:
        """From the gradient of the norm's result, in `narrow`, those of its parameters, and of x (B, T, C).

        The latter goes to `dx`; with `residual` it is added there to what reached x past this branch.
        """
        dy, dx = self.of_batch(self.scratch["narrow"]), self.scratch["dx"]
        own = self.norm.parameters
        added = [*(["dx"] if residual else []), *([f"d{p}" for p in own] if add else [])]
        arguments = dy, x, self.parameters[f"{name}.weight"], *self._statistics(number)
        with at(name):
            out = [dx, *(self.gradient(f"{name}.{p}") for p in own)]
            self.call(f"{self.norm.kernel}_backward", *arguments, out=out, add=added)

    # ---- parts ------------------------------------------------------------------------------------------------------

    def x(self, i: int) -> Tensor:
        """The input (B, T, C) of layer `i`, or for i = L of the last norm."""
        return self.scratch["x"] if i == self.layers else self.entering[f"x {i if self.training else 0}"]

    def layer(self, i: int) -> Arena:
        """The activations of layer `i`."""
        return self.kept[i % len(self.kept)]

    def path(self, i: int) -> str:
        """The module path of layer `i`."""
        return f"{self.names.layers}.{i}"

    def of_batch(self, x: Tensor) -> Tensor:
        """(N, C) as (B, T, C)."""
        return x.view(*self.sizes, x.shape[-1])

    def gradient(self, name: str) -> Tensor:
        """The tensor for the gradient of this parameter."""
        assert self.gradients is not None, "a step made for inference has no gradients"
        return self.gradients[name]

    def embedding_is_added_to(self, add: bool) -> bool:
        """Return whether the gradient of the embedding holds something to add to."""
        return add or self.head == self.embedding

    def input_amax(self, name: str) -> Tensor | None:
        """The amax that the kernel before the linear layer `name` raises; None where that multiplies no fp8."""
        return self.eights.input_amax(name) if self.eights else None

    def gradient_amax(self, name: str) -> Tensor | None:
        """The same of the gradient of what it gives."""
        return self.eights.gradient_amax(name) if self.eights else None

    def linear(self, name: str, x: Tensor, out: Tensor, moving: bool = False, measured: bool = False) -> None:
        """out (N, M) = x (N, K) · Wᵀ, W (M, K), and with a bias + b. `moving`: x lies elsewhere each time.

        `measured`: where it is in fp8, x's amax was raised.
        """
        weight, bias = self.parameters[f"{name}.weight"], self.parameters.tensors.get(f"{name}.bias")
        with at(name):
            if self.eights and name in self.eights:
                self.eights.forward(name, x, bias, out, measured, moving)
            else:
                self.products.forward(x, weight, bias, out, moving)

    def linear_backward(
        self, name: str, dy: Tensor, x: Tensor, dx: Tensor | None, add: bool,
        add_dx: bool = False, summed: bool = False, moving: bool = False, measured: bool = False,
    ) -> None:  # fmt: skip
        """dx (N, K) = dy (N, M) · W, with `add_dx` added there, and the gradients of W (M, K), and of b (M).

        Without `dx` these alone. `summed`: the kernel that made dy has made the gradient of b, `measured`: it has
        raised dy's amax. `moving`: x lies elsewhere each time.
        """
        dy = dy.view(-1, dy.shape[-1])
        bias = f"{name}.bias"
        with at(name):
            if self.eights and name in self.eights:
                self.eights.backward(name, dy, dx, self.gradient(f"{name}.weight"), add, add_dx, measured)
            else:
                if dx is not None:
                    self.products.backward_input(dy, self.parameters[f"{name}.weight"], dx, add_dx)
                self.products.backward_weight(dy, x, self.gradient(f"{name}.weight"), add, moving)
            if bias in self.parameters.tensors and not summed:
                self.call("bias_gradient", dy, out=[self.gradient(bias)], add=["db"] if add else [])

    def _of_attention(self, i: int) -> list[Tensor]:
        return [self.statistics[f"{name} {i % len(self.kept)}"] for name in self.attention.statistics()]

    def _norm_parameters(self, name: str) -> list[Tensor]:
        return [self.parameters[f"{name}.{parameter}"] for parameter in self.norm.parameters]

    def _normed(self, i: int, which: int) -> list[Tensor]:
        """Tensors for y (B, T, C) and statistics (B, T) of norm `which` (0 or 1) of layer `i`; i = L is the last."""
        y = self.scratch["y"] if i == self.layers else self.layer(i)["y1" if which == 0 else "y2"]
        return [self.of_batch(y), *self._statistics(2 * i + which)]

    def _statistics(self, number: int) -> list[Tensor]:
        slot = number % (2 * len(self.kept)) if number < 2 * self.layers else 2 * len(self.kept)
        return [self.statistics[f"{name} {slot}"] for name in self.norm.statistics]
