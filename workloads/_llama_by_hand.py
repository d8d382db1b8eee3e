"""Llama's training step by hand: what `perfkit.raw.language` leaves to it.

Legend: B batch, T time, C channels, NH heads, NKV heads of keys and values, HS head size, F width of the MLP, V
vocabulary; N = B·T rows.

    forward                                       backward, from the bottom up
    x = embedding[idx]
    q, k = rotary(y1·Wqᵀ, y1·Wkᵀ); v = y1·Wvᵀ     dy1 = dq·Wq + dk·Wk + dv·Wv; dWq = dqᵀ·y1, …; dq, dk turned back
    g = swiglu(y2·Wgateᵀ, y2·Wupᵀ)                dy2 = dgate·Wgate + dup·Wup; dWgate = dgateᵀ·y2, …
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from perfkit.raw import at
from perfkit.raw.attention import Shapes, alike
from perfkit.raw.language import LanguageStep
from perfkit.raw.model import RMS_NORM, Names
from perfkit.run_folder import Settings


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

    def __init__(self, model: Any, settings: Settings) -> None:
        sizes, rotary = model.sizes, model.model.rotary
        self.width = sizes.width
        self.logits_inside = sizes.logits == "inside"
        self.of_keys = sizes.kv_heads * sizes.head_size
        super().__init__(model, settings, sizes.heads, sizes.kv_heads, sizes.norm_eps)
        self.angles = [table[: self.sizes[1]] for table in (rotary.cos, rotary.sin)]  # (T, HS / 2)

    def layer_shapes(self) -> Shapes:
        return alike(("gate", "up", "g"), self.rows, self.width)

    def shared_shapes(self) -> Shapes:
        wide = alike(("wide", "dup"), self.rows, self.width) if self.training else {}
        narrow = alike(("k", "v"), self.rows, self.of_keys)
        return wide | narrow | {"q": (self.rows, self.channels)}

    def encode(self, idx: Tensor) -> None:
        with at(self.names.encoder[0]):
            self.call("embedding_forward", idx, self.parameters[self.embedding], out=[self.x(0)])

    def encode_backward(self, add: bool) -> None:
        gradient = self.gradient(self.embedding)
        added = ["dweight"] if self.embedding_is_added_to(add) else []
        with at(self.names.encoder[0]):
            arguments = self.scratch["dx"], self.tokens["idx"], gradient.shape[0]
            self.call("embedding_backward", *arguments, out=[gradient], add=added)

    # ---- queries, keys and values -----------------------------------------------------------------------------------

    def project(self, i: int) -> None:
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.self_attn"
        for part in ("q", "k", "v"):
            self.linear(f"{name}.{part}_proj", kept["y1"], shared[part])
        with at(name):
            self._turn("rotary_forward")
        with at(name, [(name, "matmul", 1)]):  # eager copies them in the products
            for part, heads in self._heads().items():
                # Merging heads backwards is taking them apart.
                self.call("merge_heads_backward", self.of_batch(shared[part]), heads, out=[kept[part]])

    def project_backward(self, i: int, add: bool) -> None:
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.self_attn"
        with at(name, [(name, "matmul", 1)]):
            for part in self._heads():
                self.call("merge_heads_forward", shared[f"d{part}"], out=[self.of_batch(shared[part])])
        with at(name):
            self._turn("rotary_backward")
        for part in self._heads():
            arguments = shared[part], kept["y1"], shared["narrow"]
            self.linear_backward(f"{name}.{part}_proj", *arguments, add=add, add_dx=part != "q")

    def _heads(self) -> dict[str, int]:
        return {"q": self.attention.heads, "k": self.attention.kv_heads, "v": self.attention.kv_heads}

    def _turn(self, direction: str) -> None:
        """Turn q and k in their place, or back."""
        heads = [self.scratch[part].view(*self.sizes, self._heads()[part], -1) for part in ("q", "k")]
        self.call(direction, *heads, *self.angles, out=heads)

    # ---- the MLP ----------------------------------------------------------------------------------------------------

    def widen(self, i: int) -> None:
        kept, name = self.layer(i), f"{self.path(i)}.mlp"
        for part in ("gate", "up"):
            self.linear(f"{name}.{part}_proj", kept["y2"], kept[part])
        with at(name):
            self.call("swiglu_forward", kept["gate"], kept["up"], out=[kept["g"]])

    def widen_backward(self, i: int, add: bool) -> None:
        kept, shared, name = self.layer(i), self.scratch, f"{self.path(i)}.mlp"
        dgate, dup = shared["wide"], shared["dup"]  # the gate's gradient takes the place of g's
        with at(name):
            self.call("swiglu_backward", shared["wide"], kept["gate"], kept["up"], out=[dgate, dup])
        self.linear_backward(f"{name}.gate_proj", dgate, kept["y2"], shared["narrow"], add)
        self.linear_backward(f"{name}.up_proj", dup, kept["y2"], shared["narrow"], add, add_dx=True)
