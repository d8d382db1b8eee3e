"""Llama by hand: of the training step what `perfkit.handwritten.language` leaves to it, and a token's pass.

Legend: B batch, T time, C channels, NH heads, NKV heads of keys and values, HS head size, F width of the MLP, V
vocabulary; N = B·T rows.

    forward                                       backward, from the bottom up
    x = embedding[idx]
    q, k = rotary(y1·Wqᵀ, y1·Wkᵀ); v = y1·Wvᵀ     dy1 = dq·Wq + dk·Wk + dv·Wv; dWq = dqᵀ·y1, …; dq, dk turned back
    g = swiglu(y2·Wgateᵀ, y2·Wupᵀ)                dy2 = dgate·Wgate + dup·Wup; dWgate = dgateᵀ·y2, …
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from perfkit import kernels
from perfkit.handwritten import RawDecode, at
from perfkit.handwritten.attention import Shapes, alike
from perfkit.handwritten.decode import Cache
from perfkit.handwritten.language import LanguageStep
from perfkit.handwritten.model import RMS_NORM, Names
from perfkit.kernels import direct
from perfkit.run_folder import Settings

OF_A_TOKEN = (
    "embedding_forward", "decode_qkv", "decode_attention", "decode_sum", "decode_swiglu", "decode_head", "decode_token",
)  # fmt: skip


class LlamaByHand(LanguageStep):
    """The step over batches of idx (B, T) and targets (B, T)."""

    names = Names(
        encoder=("model.embed_tokens",),
        layers="model.layers",
        last_norm="model.norm",
        head="lm_head",
        norms=("input_layernorm", "post_attention_layernorm"),
        attention="self_attn",
        attention_out="self_attn.o_proj",
        attention_sum="post_attention_layernorm",
        mlp_out="mlp.down_proj",
    )
    norm = RMS_NORM
    same_inputs = (
        tuple(f"self_attn.{part}_proj" for part in ("q", "k", "v")), tuple(f"mlp.{p}_proj" for p in ("gate", "up")),
    )  # fmt: skip

    def __init__(self, model: Any, settings: Settings) -> None:
        sizes, rotary = model.sizes, model.model.rotary
        self.width = sizes.width
        self.logits_inside = sizes.logits == "inside"
        self.of_keys = sizes.kv_heads * sizes.head_size
        super().__init__(model, settings, sizes.heads, sizes.kv_heads, sizes.norm_eps)
        self.angles = [table[: self.sizes[1]] for table in (rotary.cos, rotary.sin)]  # (T, HS / 2)

    def layer_shapes(self) -> Shapes:
        """Gate, up and their product, of the MLP's width."""
        return alike(("gate", "up", "g"), self.rows, self.width)

    def shared_shapes(self) -> Shapes:
        """q, k and v, and in training the gradients of the MLP's width."""
        wide = alike(("wide", "dup"), self.rows, self.width) if self.training else {}
        narrow = alike(("k", "v"), self.rows, self.of_keys)
        return wide | narrow | {"q": (self.rows, self.channels)}

    def encode(self, idx: Tensor) -> None:
        """x = embedding[idx]."""
        with at(self.names.encoder[0]):
            self.call("embedding_forward", idx, self.parameters[self.embedding], out=[self.x(0)])

    def encode_backward(self, add: bool) -> None:
        """From `dx` the gradient of the embedding."""
        gradient = self.gradient(self.embedding)
        added = ["dweight"] if self.embedding_is_added_to(add) else []
        with at(self.names.encoder[0]):
            arguments = self.scratch["dx"], self.tokens["idx"], gradient.shape[0]
            self.call("embedding_backward", *arguments, out=[gradient], add=added)

    # ---- queries, keys and values -----------------------------------------------------------------------------------

    def project(self, i: int) -> None:
        """Three products for q, k and v, rotary embeddings, then the heads."""
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.self_attn"
        parts = self.attention.projections(kept, shared)
        for part, out in parts.items():
            self.linear(f"{name}.{part}_proj", kept["y1"], out)
        with at(name):
            q, k = self._in_heads(parts["q"]), self._in_heads(parts["k"])
            self.call("rotary_forward", q, k, *self.angles, out=[q, k])
        with at(name, [(name, "matmul", 1)]):  # eager copies them in the products
            self.attention.split_parts(kept, shared)

    def project_backward(self, i: int, add: bool) -> None:
        """Join the heads' gradients, turn them back, then the products' gradients."""
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.self_attn"
        with at(name, [(name, "matmul", 1)]):
            dq, dk, dv = self.attention.join_parts(shared)
        with at(name):
            turned = [self._in_heads(shared[part]) for part in ("q", "k")]
            arguments = self._in_heads(dq), self._in_heads(dk), *self.angles
            kernels.bind("rotary_backward", arguments, turned, [])()  # an operator's results move: bound for this call
        for part, dy in (("q", shared["q"]), ("k", shared["k"]), ("v", dv)):
            arguments = dy, kept["y1"], shared["narrow"]
            self.linear_backward(f"{name}.{part}_proj", *arguments, add=add, add_dx=part != "q")

    def _in_heads(self, x: Tensor) -> Tensor:
        """(N, heads·HS) as (B, T, heads, HS)."""
        return x.view(*self.sizes, -1, self.attention.size)

    # ---- the MLP ----------------------------------------------------------------------------------------------------

    def widen(self, i: int) -> None:
        """g = silu(gate) · up."""
        kept, name = self.layer(i), f"{self.path(i)}.mlp"
        for part in ("gate", "up"):
            self.linear(f"{name}.{part}_proj", kept["y2"], kept[part])
        amax = self.input_amax(f"{self.path(i)}.{self.names.mlp_out}")
        with at(name):
            if amax is None:
                self.call("swiglu_forward", kept["gate"], kept["up"], out=[kept["g"]])
            else:
                self.call("swiglu_amax_forward", kept["gate"], kept["up"], amax, out=[kept["g"]])

    def widen_backward(self, i: int, add: bool) -> None:
        """The gradients of gate and up, then those of their products."""
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.mlp"
        dgate, dup = shared["wide"], shared["dup"]  # the gate's gradient takes the place of g's
        given, out = (shared["wide"], kept["gate"], kept["up"]), [dgate, dup]
        amaxes = [self.gradient_amax(f"{name}.{part}_proj") for part in ("gate", "up")]
        with at(name):
            if None in amaxes:
                self.call("swiglu_backward", *given, out=out)
            else:
                self.call("swiglu_amax_backward", *given, *amaxes, out=out)
        self.linear_backward(f"{name}.gate_proj", dgate, kept["y2"], shared["narrow"], add, measured=True)
        more = {"add": add, "add_dx": True, "measured": True}
        self.linear_backward(f"{name}.up_proj", dup, kept["y2"], shared["narrow"], **more)


class LlamaDecode(RawDecode):
    """Five kernels a layer, each a product with what lies around it, then norm and head, then the choice."""

    def __init__(self, model: Any, settings: Settings) -> None:
        super().__init__(model, settings)
        sizes, rotary = model.sizes, model.model.rotary
        self.layers, self.heads, self.eps = sizes.layers, sizes.heads, sizes.norm_eps
        self.scale = sizes.head_size**-0.5
        self.angles = rotary.cos, rotary.sin  # (positions, HS / 2)
        self.run = SimpleNamespace(**{name: direct(name) for name in OF_A_TOKEN})

    def decode(self, token: Tensor, cache: Cache, position: Tensor) -> tuple[Tensor, Tensor]:
        """token (B, 1) at `position` (1) → logits (B, 1, V), next token (B, 1)."""
        with at("model.embed_tokens"):
            x = self.run.embedding_forward(token, self._weight("model.embed_tokens"))[:, 0]
        for i in range(self.layers):
            x = self._attended(f"model.layers.{i}", x, cache[i], position)
            x = self._widened(f"model.layers.{i}", x)
        with self._products("model.norm", "lm_head"):
            logits = self.run.decode_head(x, self._weight("model.norm"), self._weight("lm_head"), self.eps)
        with at("choose"):
            return logits[:, None], self.run.decode_token(logits)

    def _attended(self, layer: str, x: Tensor, past: tuple[Tensor, Tensor], position: Tensor) -> Tensor:
        """x (B, C) and what attention adds to it."""
        own = f"{layer}.self_attn"
        norm, projections = f"{layer}.input_layernorm", [f"{own}.{part}_proj" for part in ("q", "k", "v")]
        with self._products(norm, *projections):
            weights = self._weight(norm), *map(self._weight, projections)
            q = self.run.decode_qkv(x, *weights, *self.angles, position, *past, self.eps)
        with at(own):
            y = self.run.decode_attention(q.view(len(x), self.heads, -1), *past, position, self.scale)
        with self._products("", f"{own}.o_proj"):
            return self.run.decode_sum(y.view_as(x), self._weight(f"{own}.o_proj"), x)

    def _widened(self, layer: str, x: Tensor) -> Tensor:
        """x (B, C) and what the MLP adds to it."""
        norm, gate, up = f"{layer}.post_attention_layernorm", f"{layer}.mlp.gate_proj", f"{layer}.mlp.up_proj"
        with self._products(norm, gate, up):
            weights = (self._weight(name) for name in (norm, gate, up))
            g = self.run.decode_swiglu(x, *weights, self.eps)
        with self._products("", f"{layer}.mlp.down_proj"):
            return self.run.decode_sum(g, self._weight(f"{layer}.mlp.down_proj"), x)

    def _products(self, norm: str, *linear: str) -> AbstractContextManager[None]:
        """Mark a kernel that serves these modules: a share follows the weights that it reads for each."""
        serves = [(norm, "rms_norm", float(self._weight(norm).numel()))] if norm else []
        serves += [(name, "linear", float(self._weight(name).numel())) for name in linear]
        return at(linear[0].rpartition(".")[0] or linear[0], serves)

    def _weight(self, module: str) -> Tensor:
        return self.parameters[f"{module}.weight"]
