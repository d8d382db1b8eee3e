"""GPT-2's training step by hand: every kernel of the forward and the backward, in order, over one arena.

Legend: B batch, T time, C channels, NH heads, HS = C / NH head size, V vocabulary, Vp the same padded, L layers;
N = B·T rows.

    forward of a layer                                        its backward, from the bottom up
    y1 = layernorm(x)                                         dx += layernorm_backward(dy1)
    q, k, v = split_heads(y1·Wqkvᵀ + b)                       dy1 = dqkv·Wqkv; dWqkv = dqkvᵀ·y1; db = Σ dqkv
    att = causal_softmax(q·kᵀ / √HS)                          dq = ds·k; dk = dsᵀ·q; ds = causal_softmax_backward(datt)
    z = merge_heads(att·v)                                    datt = dh·vᵀ; dv = attᵀ·dh; dh = merge_heads_backward(dz)
    xm, y2 = residual_layernorm(x, z·Woᵀ + b)                 dx += layernorm_backward(dy2); dz = dx·Wo; dWo = dxᵀ·z
    h = y2·Wfcᵀ + b; g = gelu(h)                              dh = gelu_backward(dg, h); dy2 = dh·Wfc; dWfc = dhᵀ·y2
    x, y1 of the next layer = residual_layernorm(xm, g·Wprᵀ + b)      dg = dx·Wpr; dWpr = dxᵀ·g
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from perfkit.raw import Arena, RawStep, at, product
from perfkit.run_folder import Settings

IGNORED = -1  # a target that does not count
WTE, WPE = "transformer.wte.weight", "transformer.wpe.weight"
# The logits' rows begin on 16-byte boundaries then: the tensor cores' products need that. V = 50257 becomes 50304.
PADDED_TO = 64
# What the encoder's kernel serves: of each embedding rows are read and written.
EMBEDDINGS = [("transformer.wte", "embedding", 2), ("transformer.wpe", "embedding", 2)]
FLASH_DEVICES = ("cuda",)  # where attention in one kernel is fast


class GPT2ByHand(RawStep):
    """The step over batches of idx (B, T) and targets (B, T)."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.vocabulary, self.channels = model.transformer.wte.weight.shape
        self.padded = -(-self.vocabulary // PADDED_TO) * PADDED_TO
        super().__init__(model, settings, {WTE: self.padded})
        blocks = model.transformer.h
        self.layers, self.heads = len(blocks), blocks[0].attn.heads
        self.flash = settings.variant == "sdpa" and self.device.type in FLASH_DEVICES
        self.scale = 1.0 / math.sqrt(self.channels // self.heads)
        self.eps = model.transformer.ln_f.eps
        self.training = settings.training
        self.names = [f"transformer.h.{i}" for i in range(self.layers)]
        rows, time = settings.batch_size, settings.sequence_length
        assert time is not None
        self.sizes = (rows, time)
        # In inference no layer needs what the others wrote: all share the activations of one.
        kept = self.layers if self.training else 1
        self.kept = [Arena(self._of_a_layer(), self.dtype, self.device) for _ in range(kept)]
        self.scratch = Arena(self._of_all_layers(), self.dtype, self.device)
        statistics: dict[str, tuple[int, ...]] = {f"mean {i}": (rows * time,) for i in range(2 * kept + 1)}
        statistics |= {f"rstd {i}": (rows * time,) for i in range(2 * kept + 1)}
        if self.flash:
            statistics |= {f"lse {i}": (rows, self.heads, time) for i in range(kept)}
        self.statistics = Arena(statistics, torch.float32, self.device)
        self.losses = torch.zeros(rows * time, device=self.device)
        self.tokens = Arena({"idx": self.sizes, "targets": (rows * time,)}, torch.int64, self.device)

    def _of_a_layer(self) -> dict[str, tuple[int, ...]]:
        """What the backward needs of each layer; x is what enters it, y1 and y2 what its LayerNorms gave."""
        (B, T), C, NH = self.sizes, self.channels, self.heads
        head = (B, NH, T, C // NH)
        wide = (B * T, 4 * C)
        weights = {"o": head} if self.flash else {"att": (B, NH, T, T)}  # flash attention keeps o = att · v instead
        return weights | {"x": (B, T, C), "y1": (B * T, C), "q": head, "k": head, "v": head, "z": (B * T, C),
                          "xm": (B, T, C), "y2": (B * T, C), "h": wide, "g": wide}  # fmt: skip

    def _of_all_layers(self) -> dict[str, tuple[int, ...]]:
        """The last residual and its LayerNorm, the logits, and what the next kernel reads and none after it."""
        (B, T), C, NH, V = self.sizes, self.channels, self.heads, self.padded
        head = (B, NH, T, C // NH)
        square = {} if self.flash else {"scores": (B, NH, T, T)}
        always = square | {"x": (B, T, C), "y": (B * T, C), "logits": (B * T, V), "qkv": (B * T, 3 * C),
                           "heads": head, "branch": (B * T, C)}  # fmt: skip
        if not self.training:
            return always
        square = {} if self.flash else {"datt": (B, NH, T, T)}
        return always | square | {"dx": (B, T, C), "dq": head, "dk": head, "dv": head, "wide": (B * T, 4 * C),
                                  "dwide": (B * T, 4 * C), "narrow": (B * T, C)}  # fmt: skip

    # ---- forward ----------------------------------------------------------------------------------------------------

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        shared = self.scratch
        with at("transformer.wte", [*EMBEDDINGS, ("transformer.wpe", "add", 3)]):
            idx = self.tokens["idx"].copy_(batch[0])
            weights = self.parameters[WTE], self.parameters[WPE]
            self.call("encoder_forward", idx, *weights, out=[self._layer(0)["x"]])
        with at(f"{self.names[0]}.ln_1"):
            weights = self._norm(f"{self.names[0]}.ln_1")
            self.call("layernorm_forward", self._layer(0)["x"], *weights, self.eps, out=self._normed(0, 0))
        for i in range(self.layers):
            self._attention(i)
            self._mlp(i)
        with at("lm_head"):
            product(shared["y"], self.parameters[WTE].t(), shared["logits"])
        return self._rows_of_batch(shared["logits"])[:, :, : self.vocabulary]

    def _attention(self, i: int) -> None:
        kept, shared, name = self._layer(i), self.scratch, self.names[i]
        with at(f"{name}.attn.c_attn"):
            self._linear(f"{name}.attn.c_attn", kept["y1"], shared["qkv"])
        with at(f"{name}.attn"):
            qkv = shared["qkv"].view(*self.sizes, -1)
            self.call("split_heads_forward", qkv, self.heads, out=[kept["q"], kept["k"], kept["v"]])
            self._attend(i)
            self.call(
                "merge_heads_forward",
                kept["o"] if self.flash else shared["heads"],
                out=[self._rows_of_batch(kept["z"])],
            )
        with at(f"{name}.attn.c_proj"):
            self._linear(f"{name}.attn.c_proj", kept["z"], shared["branch"])
        with at(f"{name}.ln_2", _sum_and_norm(name, f"{name}.ln_2")):
            terms = kept["x"], self._rows_of_batch(shared["branch"]), *self._norm(f"{name}.ln_2")
            self.call("residual_layernorm_forward", *terms, self.eps, out=[kept["xm"], *self._normed(i, 1)])

    def _attend(self, i: int) -> None:
        """att · v of a layer: to its `o` by flash attention, else to `heads`."""
        kept, shared = self._layer(i), self.scratch
        q, k, v = kept["q"], kept["k"], kept["v"]
        if self.flash:
            self.call("flash_attention_forward", q, k, v, self.scale, out=[kept["o"], self._lse(i)])
            return
        _batched(q, k.transpose(2, 3), shared["scores"])
        self.call("causal_softmax_forward", shared["scores"], self.scale, out=[kept["att"]])
        _batched(kept["att"], v, shared["heads"])

    def _mlp(self, i: int) -> None:
        kept, shared, name = self._layer(i), self.scratch, self.names[i]
        with at(f"{name}.mlp.c_fc"):
            self._linear(f"{name}.mlp.c_fc", kept["y2"], kept["h"])
        with at(f"{name}.mlp"):
            self.call("gelu_forward", kept["h"], out=[kept["g"]])
        with at(f"{name}.mlp.c_proj"):
            self._linear(f"{name}.mlp.c_proj", kept["g"], shared["branch"])
        last = i + 1 == self.layers
        following = "transformer.ln_f" if last else f"{self.names[i + 1]}.ln_1"
        with at(following, _sum_and_norm(name, following)):
            terms = kept["xm"], self._rows_of_batch(shared["branch"]), *self._norm(following)
            x = shared["x"] if last else self._layer(i + 1)["x"]
            self.call("residual_layernorm_forward", *terms, self.eps, out=[x, *self._normed(i + 1, 0)])

    # ---- loss and backward ------------------------------------------------------------------------------------------

    def loss(self, batch: tuple[Tensor, ...], scale: float) -> Tensor:
        """Mean cross entropy over the targets that count; the logits become their gradient."""
        with at("loss"):
            targets = self.tokens["targets"].copy_(batch[1].reshape(-1))
            counted = int((targets != IGNORED).sum())
            upstream = scale / counted if counted else math.nan
            self.call(
                "classifier", self.scratch["logits"], targets, upstream, self.vocabulary, IGNORED, out=[self.losses]
            )
            return self.losses.sum() / counted if counted else self.losses.new_tensor(math.nan)

    def backward(self, batch: tuple[Tensor, ...], add: bool) -> None:
        assert self.gradients is not None
        shared, dwte = self.scratch, self.gradients[WTE]
        with at("lm_head"):
            product(shared["logits"], self.parameters[WTE], shared["narrow"])
            product(shared["logits"].t(), shared["y"], dwte, add)
        with at("transformer.ln_f"):
            self._norm_backward("transformer.ln_f", shared["x"], 2 * self.layers, add, residual=False)
        for i in reversed(range(self.layers)):
            self._mlp_backward(i, add)
            self._attention_backward(i, add)
        with at("transformer.wte", EMBEDDINGS):
            dwpe = self.gradients[WPE]
            sizes = dwte.shape[0], dwpe.shape[0]  # dwte holds the head's part already
            self.call(
                "encoder_backward",
                shared["dx"],
                self.tokens["idx"],
                *sizes,
                out=[dwte, dwpe],
                add=["dwte", "dwpe"] if add else ["dwte"],
            )

    def _mlp_backward(self, i: int, add: bool) -> None:
        kept, shared, name = self._layer(i), self.scratch, self.names[i]
        with at(f"{name}.mlp.c_proj"):
            self._linear_backward(f"{name}.mlp.c_proj", shared["dx"], kept["g"], shared["wide"], add)
        with at(f"{name}.mlp"):
            self.call("gelu_backward", shared["wide"], kept["h"], out=[shared["dwide"]])
        with at(f"{name}.mlp.c_fc"):
            self._linear_backward(f"{name}.mlp.c_fc", shared["dwide"], kept["y2"], shared["narrow"], add)
        with at(f"{name}.ln_2"):
            self._norm_backward(f"{name}.ln_2", kept["xm"], 2 * i + 1, add, residual=True)

    def _attention_backward(self, i: int, add: bool) -> None:
        kept, shared, name = self._layer(i), self.scratch, self.names[i]
        with at(f"{name}.attn.c_proj"):
            self._linear_backward(f"{name}.attn.c_proj", shared["dx"], kept["z"], shared["narrow"], add)
        with at(f"{name}.attn"):
            self.call("merge_heads_backward", self._rows_of_batch(shared["narrow"]), self.heads, out=[shared["heads"]])
            self._attend_backward(i)
            parts = shared["dq"], shared["dk"], shared["dv"]
            self.call("split_heads_backward", *parts, out=[shared["qkv"].view(*self.sizes, -1)])
        with at(f"{name}.attn.c_attn"):
            self._linear_backward(f"{name}.attn.c_attn", shared["qkv"], kept["y1"], shared["narrow"], add)
        with at(f"{name}.ln_1"):
            self._norm_backward(f"{name}.ln_1", kept["x"], 2 * i, add, residual=True)

    def _attend_backward(self, i: int) -> None:
        """From the gradient of att · v in `heads`, those of q, k and v."""
        kept, shared = self._layer(i), self.scratch
        q, k, v, upstream = kept["q"], kept["k"], kept["v"], shared["heads"]
        if self.flash:
            out = [shared["dq"], shared["dk"], shared["dv"]]
            self.call("flash_attention_backward", upstream, q, k, v, kept["o"], self._lse(i), self.scale, out=out)
            return
        _batched(upstream, v.transpose(2, 3), shared["datt"])
        _batched(kept["att"].transpose(2, 3), upstream, shared["dv"])
        self.call("causal_softmax_backward", shared["datt"], kept["att"], self.scale, out=[shared["scores"]])
        _batched(shared["scores"], k, shared["dq"])
        _batched(shared["scores"].transpose(2, 3), q, shared["dk"])

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _layer(self, i: int) -> Arena:
        return self.kept[i if self.training else 0]

    def _lse(self, i: int) -> Tensor:
        return self.statistics[f"lse {i if self.training else 0}"]

    def _rows_of_batch(self, x: Tensor) -> Tensor:
        """(N, C) as (B, T, C)."""
        return x.view(*self.sizes, x.shape[-1])

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        return self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]

    def _normed(self, i: int, which: int) -> list[Tensor]:
        """Where LayerNorm `which` (0 or 1) of layer `i` writes y (B, T, C), mean and rstd (B, T); i = L is the last."""
        y = self.scratch["y"] if i == self.layers else self._layer(i)["y1" if which == 0 else "y2"]
        return [self._rows_of_batch(y), *self._mean_and_rstd(2 * i + which)]

    def _mean_and_rstd(self, number: int) -> tuple[Tensor, Tensor]:
        slot = number if self.training else 0
        mean, rstd = (self.statistics[f"{name} {slot}"].view(self.sizes) for name in ("mean", "rstd"))
        return mean, rstd

    def _linear(self, name: str, x: Tensor, out: Tensor) -> None:
        """out (N, M) = x (N, K) · Wᵀ + b, W (M, K)."""
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        torch.addmm(bias, x, weight.t(), out=out)

    def _linear_backward(self, name: str, dy: Tensor, x: Tensor, dx: Tensor, add: bool) -> None:
        """dx (N, K) = dy (N, M) · W, and the gradients of W (M, K) and of b (M)."""
        assert self.gradients is not None
        dy = dy.view(-1, dy.shape[-1])
        product(dy, self.parameters[f"{name}.weight"], dx)
        product(dy.t(), x, self.gradients[f"{name}.weight"], add)
        self.call("bias_gradient", dy, out=[self.gradients[f"{name}.bias"]], add=["db"] if add else [])

    def _norm_backward(self, name: str, x: Tensor, number: int, add: bool, residual: bool) -> None:
        """From the gradient of the LayerNorm's result, in `narrow`, those of weight and bias, and of x (B, T, C).

        The latter goes to `dx`; with `residual` it is added there to what reached x past this branch.
        """
        assert self.gradients is not None
        dy, dx = self._rows_of_batch(self.scratch["narrow"]), self.scratch["dx"]
        dweight, dbias = self.gradients[f"{name}.weight"], self.gradients[f"{name}.bias"]
        added = [*(["dx"] if residual else []), *(["dweight", "dbias"] if add else [])]
        arguments = dy, x, self.parameters[f"{name}.weight"], *self._mean_and_rstd(number)
        self.call("layernorm_backward", *arguments, out=[dx, dweight, dbias], add=added)


def _sum_and_norm(block: str, norm: str) -> list[tuple[str, str, float]]:
    """What a residual sum with a LayerNorm serves: the sum reads two tensors and writes one, LayerNorm one and one."""
    return [(block, "add", 3), (norm, "layer_norm", 2)]


def _batched(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out = a · b for each head of each sample: (B, NH, M, K), (B, NH, K, N) → (B, NH, M, N)."""
    torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out=out.flatten(0, 1))
