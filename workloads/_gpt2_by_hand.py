"""GPT-2's training step by hand: what `perfkit.handwritten.language` leaves to it.

Legend: B batch, T time, C channels, V vocabulary; N = B·T rows.

    forward                                       backward, from the bottom up
    x = wte[idx] + wpe
    q, k, v = split_heads(y1·Wqkvᵀ + b)           dqkv, db = split_heads_bias_backward(dq, dk, dv); dWqkv = dqkvᵀ·y1
    h = y2·Wfcᵀ + b; g = gelu(h)                  dh, db = gelu_bias_backward(dg, h); dy2 = dh·Wfc; dWfc = dhᵀ·y2

Where it is faster, GELU is computed inside of the product before it, and so is its backward: db is then a sum apart.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from perfkit.handwritten import at
from perfkit.handwritten.attention import Shapes, alike
from perfkit.handwritten.language import LanguageStep
from perfkit.handwritten.model import LAYER_NORM, Names
from perfkit.handwritten.products import fastest_gelu
from perfkit.run_folder import Settings

WTE, WPE = "transformer.wte", "transformer.wpe"
# Embeddings that the encoder's kernel computes: it reads and writes rows of each.
EMBEDDINGS = [(WTE, "embedding", 2), (WPE, "embedding", 2)]


class GPT2ByHand(LanguageStep):
    """The step over batches of idx (B, T) and targets (B, T)."""

    names = Names(
        encoder=(WTE, WPE),
        layers="transformer.h",
        last_norm="transformer.ln_f",
        head="lm_head",
        norms=("ln_1", "ln_2"),
        attention="attn",
        attention_out="attn.c_proj",
        attention_sum="",
        mlp_out="mlp.c_proj",
    )
    norm = LAYER_NORM
    projects_at_once = True

    def __init__(self, model: Any, settings: Settings) -> None:
        heads = model.transformer.h[0].attn.heads
        weight = model.transformer.h[0].mlp.c_fc.weight
        rows = settings.batch_size * (settings.sequence_length or 1)
        width, channels = weight.shape
        fp8 = settings.dtype == "fp8"  # whose casts read what GELU gives
        ways = (False, False, list[str]()) if fp8 else fastest_gelu(rows, channels, width, weight)
        self.gelu_inside, self.gelu_backward_inside, notes = ways
        super().__init__(model, settings, heads, heads, model.transformer.ln_f.eps)
        self.notes += notes

    def layer_shapes(self) -> Shapes:
        """The MLP's width before and after GELU."""
        return alike(("h", "g"), self.rows, 4 * self.channels)

    def shared_shapes(self) -> Shapes:
        """Gradients of the MLP's width in training, and qkv."""
        names = ("dwide",) if self.gelu_backward_inside else ("wide", "dwide")
        wide = alike(names, self.rows, 4 * self.channels) if self.training else {}
        return wide | {"qkv": (self.rows, 3 * self.channels)}

    def encode(self, idx: Tensor) -> None:
        """x = wte[idx] + wpe."""
        with at(WTE, [*EMBEDDINGS, (WPE, "add", 3)]):
            weights = self.parameters[f"{WTE}.weight"], self.parameters[f"{WPE}.weight"]
            self.call("encoder_forward", idx, *weights, out=[self.x(0)])

    def encode_backward(self, add: bool) -> None:
        """From `dx` the gradients of wte and wpe."""
        dwte, dwpe = self.gradient(f"{WTE}.weight"), self.gradient(f"{WPE}.weight")
        added = [*(["dwte"] if self.embedding_is_added_to(add) else []), *(["dwpe"] if add else [])]
        arguments = self.scratch["dx"], self.tokens["idx"], dwte.shape[0], dwpe.shape[0]
        with at(WTE, EMBEDDINGS):
            self.call("encoder_backward", *arguments, out=[dwte, dwpe], add=added)

    def project(self, i: int) -> None:
        """One product for q, k and v, then their heads."""
        kept, name = self.layer(i), f"{self.path(i)}.attn"
        self.linear(f"{name}.c_attn", kept["y1"], self.attention.projection(kept, self.scratch))
        with at(name):
            self.attention.split(kept, self.scratch)

    def project_backward(self, i: int, add: bool) -> None:
        """Join the heads' gradients, then the product's gradients."""
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.attn"
        linear = f"{name}.c_attn"
        # Eager copies heads in the products; a gradient of a bias reads what the copy wrote.
        with at(name, [(name, "matmul", 2), (linear, "linear", 1)]):
            self.attention.join(shared, self.gradient(f"{linear}.bias"), add)
        self.linear_backward(linear, shared["qkv"], kept["y1"], shared["narrow"], add, summed=True)

    def widen(self, i: int) -> None:
        """h and g = GELU(h), in one product where that is faster."""
        kept, name = self.layer(i), f"{self.path(i)}.mlp"
        linear = f"{name}.c_fc"
        if self.gelu_inside:
            arguments = kept["y2"], self.parameters[f"{linear}.weight"], self.parameters[f"{linear}.bias"]
            with at(name, [(linear, "linear", 2), (name, "gelu", 1)]):  # about the time of each on its own
                self.call("linear_gelu_forward", *arguments, out=[kept["h"], kept["g"]])
            return
        self.linear(linear, kept["y2"], kept["h"])
        amax = self.input_amax(f"{self.path(i)}.{self.names.mlp_out}")
        with at(name):
            if amax is None:
                self.call("gelu_forward", kept["h"], out=[kept["g"]])
            else:
                self.call("gelu_amax_forward", kept["h"], amax, out=[kept["g"]])

    def narrow_backward(self, i: int, add: bool) -> None:
        """Run the gradient of the second linear layer, with GELU's derivative in the product where that is faster."""
        if not self.gelu_backward_inside:
            return super().narrow_backward(i, add)
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.mlp"
        linear, dx = f"{name}.c_proj", shared["dx"].view(self.rows, -1)
        with at(name, [(linear, "linear", 2), (name, "gelu", 1)]):
            self.call("linear_gelu_backward", dx, self.parameters[f"{linear}.weight"], kept["h"], out=[shared["dwide"]])
        self.linear_backward(linear, dx, kept["g"], None, add)

    def widen_backward(self, i: int, add: bool) -> None:
        """GELU's gradient, unless it was in the product, then the linear layer's."""
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.mlp"
        linear = f"{name}.c_fc"
        if not self.gelu_backward_inside:
            amax, added = self.gradient_amax(linear), ["db"] if add else []
            with at(name, [(name, "gelu", 3), (linear, "linear", 1)]):
                given, out = (shared["wide"], kept["h"]), [shared["dwide"], self.gradient(f"{linear}.bias")]
                if amax is None:
                    self.call("gelu_bias_backward", *given, out=out, add=added)
                else:
                    self.call("gelu_bias_amax_backward", *given, amax, out=out, add=added)
        summed, dwide = not self.gelu_backward_inside, shared["dwide"]
        self.linear_backward(linear, dwide, kept["y2"], shared["narrow"], add, summed=summed, measured=True)
