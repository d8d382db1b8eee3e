"""The training step of `widths_gpt2.py` by hand: llm.c's step, with the arenas of each layer in its own width.

Legend as there; N = B·T rows, Vp the vocabulary padded to 64.
"""

import math

import torch

from perfkit.handwritten import Arena, RawStep, at

HEAD, WTE, WPE = "lm_head.weight", "transformer.wte.weight", "transformer.wpe.weight"


class WidthsByHand(RawStep):
    def __init__(self, model, settings) -> None:
        self.vocabulary, last = model.lm_head.weight.shape
        self.padded = -(-self.vocabulary // 64) * 64
        super().__init__(model, settings, {HEAD: self.padded})
        B, T = self.sizes = settings.batch_size, settings.sequence_length
        N = self.rows = B * T
        blocks = model.transformer.h
        self.heads = 2
        self.widths = [block.ln_1.weight.shape[0] for block in blocks]
        first = model.transformer.wte.weight.shape[1]
        self.layers = [self._arena(self._of_layer(C)) for C in self.widths]
        self.outer = self._arena({
            "x": (B, T, first), "dx": (B, T, first), "y": (N, last), "z": (N, last), "dz": (N, last), "dy": (N, last),
            "logits": (N, self.padded),
        })  # fmt: skip
        names = [f"{kind}{i}" for i in range(2 * len(blocks) + 1) for kind in ("mean", "rstd")]
        self.statistics = Arena(dict.fromkeys(names, (B, T)), torch.float32, self.device)
        self.losses = torch.zeros(N, device=self.device)
        self.tokens = Arena({"idx": (B, T), "targets": (N,)}, torch.int64, self.device)

    def _arena(self, shapes) -> Arena:
        return Arena(shapes, self.dtype, self.device)

    def _of_layer(self, C: int) -> dict[str, tuple[int, ...]]:
        (B, T), N, NH = self.sizes, self.rows, self.heads
        head, square = (B, NH, T, C // NH), (B, NH, T, T)
        narrow = dict.fromkeys(("x", "y1", "z", "branch", "xm", "y2", "out", "dx", "dy"), (N, C))
        wide = dict.fromkeys(("h", "g", "dh", "dg"), (N, 4 * C))
        heads = dict.fromkeys(("q", "k", "v", "o", "do", "dq", "dk", "dv"), head)
        return narrow | wide | heads | {"qkv": (N, 3 * C), "s": square, "att": square, "datt": square}

    def _shaped(self, x):
        return x.view(*self.sizes, x.shape[-1])

    # ---- forward

    def forward(self, batch):
        with at("transformer.wte"):
            idx = self.tokens["idx"].copy_(batch[0])
            self.call("encoder_forward", idx, self.parameters[WTE], self.parameters[WPE], out=[self.outer["x"]])
        before = self.outer["x"].view(self.rows, -1)
        for i, kept in enumerate(self.layers):
            with at(f"transformer.bridges.{i}"):
                self.products.forward(before, self.parameters[f"transformer.bridges.{i}.weight"], None, kept["x"])
            self._block(i, kept)
            before = kept["out"]
        last = len(self.layers)
        with at(f"transformer.bridges.{last}"):
            self.products.forward(before, self.parameters[f"transformer.bridges.{last}.weight"], None, self.outer["y"])
        self._norm("transformer.ln_f", self.outer["y"], self.outer["z"], 2 * last)
        with at("lm_head"):
            self.products.forward(self.outer["z"], self.parameters[HEAD], None, self.outer["logits"])
        return self._shaped(self.outer["logits"])[:, :, : self.vocabulary]

    def _block(self, i: int, kept: Arena) -> None:
        name = f"transformer.h.{i}"
        self._norm(f"{name}.ln_1", kept["x"], kept["y1"], 2 * i)
        self._linear(f"{name}.attn.c_attn", kept["y1"], kept["qkv"])
        with at(f"{name}.attn"):
            heads = [kept["q"], kept["k"], kept["v"]]
            self.call("split_heads_forward", self._shaped(kept["qkv"]), self.heads, out=heads)
            _batched(kept["q"], kept["k"].transpose(2, 3), kept["s"])
            self.call("causal_softmax_forward", kept["s"], self._scale(i), out=[kept["att"]])
            _batched(kept["att"], kept["v"], kept["o"])
            self.call("merge_heads_forward", kept["o"], out=[self._shaped(kept["z"])])
        self._linear(f"{name}.attn.c_proj", kept["z"], kept["branch"])
        with at(name):
            self.call("residual_forward", kept["x"], kept["branch"], out=[kept["xm"]])
        self._norm(f"{name}.ln_2", kept["xm"], kept["y2"], 2 * i + 1)
        self._linear(f"{name}.mlp.c_fc", kept["y2"], kept["h"])
        with at(f"{name}.mlp"):
            self.call("gelu_forward", kept["h"], out=[kept["g"]])
        self._linear(f"{name}.mlp.c_proj", kept["g"], kept["branch"])
        with at(name):
            self.call("residual_forward", kept["xm"], kept["branch"], out=[kept["out"]])

    def _scale(self, i: int) -> float:
        return 1.0 / math.sqrt(self.widths[i] // self.heads)

    def _linear(self, name: str, x, out) -> None:
        with at(name):
            torch.addmm(self.parameters[f"{name}.bias"], x, self.parameters[f"{name}.weight"].t(), out=out)

    def _norm(self, name: str, x, out, number: int) -> None:
        with at(name):
            weights = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"], 1e-5
            statistics = self.statistics[f"mean{number}"], self.statistics[f"rstd{number}"]
            self.call("layernorm_forward", self._shaped(x), *weights, out=[self._shaped(out), *statistics])

    # ---- loss and backward

    def loss(self, batch, scale):
        with at("loss"):
            targets = self.tokens["targets"].copy_(batch[1].reshape(-1))
            upstream = scale / self.rows
            self.call("classifier", self.outer["logits"], targets, upstream, self.vocabulary, -1, out=[self.losses])
            return self.losses.mean()

    def backward(self, batch, add):
        outer, last = self.outer, len(self.layers)
        with at("lm_head"):
            self.products.backward_input(outer["logits"], self.parameters[HEAD], outer["dz"])
            self.products.backward_weight(outer["logits"], outer["z"], self.gradients[HEAD], add)
        self._norm_backward("transformer.ln_f", outer["dz"], outer["y"], outer["dy"], 2 * last, add, residual=False)
        upstream = outer["dy"]
        for i in range(last, -1, -1):
            kept = self.layers[i - 1] if i else None
            x = kept["out"] if kept else outer["x"].view(self.rows, -1)
            dx = kept["dx"] if kept else outer["dx"].view(self.rows, -1)
            with at(f"transformer.bridges.{i}"):
                weight = f"transformer.bridges.{i}.weight"
                self.products.backward_input(upstream, self.parameters[weight], dx)
                self.products.backward_weight(upstream, x, self.gradients[weight], add)
            if kept:
                self._block_backward(i - 1, kept, add)
            upstream = dx
        with at("transformer.wte"):
            sizes = self.parameters[WTE].shape[0], self.parameters[WPE].shape[0]
            dwte, dwpe = self.gradients[WTE], self.gradients[WPE]
            added = ["dwte", "dwpe"] if add else []
            self.call("encoder_backward", outer["dx"], self.tokens["idx"], *sizes, out=[dwte, dwpe], add=added)

    def _block_backward(self, i: int, kept: Arena, add: bool) -> None:
        name = f"transformer.h.{i}"
        self._linear_backward(f"{name}.mlp.c_proj", kept["dx"], kept["g"], kept["dg"], add)
        with at(f"{name}.mlp"):
            self.call("gelu_backward", kept["dg"], kept["h"], out=[kept["dh"]])
        self._linear_backward(f"{name}.mlp.c_fc", kept["dh"], kept["y2"], kept["dy"], add)
        self._norm_backward(f"{name}.ln_2", kept["dy"], kept["xm"], kept["dx"], 2 * i + 1, add, residual=True)
        self._linear_backward(f"{name}.attn.c_proj", kept["dx"], kept["z"], kept["dy"], add)
        with at(f"{name}.attn"):
            self.call("merge_heads_backward", self._shaped(kept["dy"]), self.heads, out=[kept["do"]])
            _batched(kept["do"], kept["v"].transpose(2, 3), kept["datt"])
            _batched(kept["att"].transpose(2, 3), kept["do"], kept["dv"])
            self.call("causal_softmax_backward", kept["datt"], kept["att"], self._scale(i), out=[kept["s"]])
            _batched(kept["s"], kept["k"], kept["dq"])
            _batched(kept["s"].transpose(2, 3), kept["q"], kept["dk"])
            heads = kept["dq"], kept["dk"], kept["dv"]
            self.call("split_heads_backward", *heads, out=[self._shaped(kept["qkv"])])
        self._linear_backward(f"{name}.attn.c_attn", kept["qkv"], kept["y1"], kept["dy"], add)
        self._norm_backward(f"{name}.ln_1", kept["dy"], kept["x"], kept["dx"], 2 * i, add, residual=True)

    def _linear_backward(self, name: str, dy, x, dx, add: bool) -> None:
        with at(name):
            self.products.backward_input(dy, self.parameters[f"{name}.weight"], dx)
            self.products.backward_weight(dy, x, self.gradients[f"{name}.weight"], add)
            self.call("bias_gradient", dy, out=[self.gradients[f"{name}.bias"]], add=["db"] if add else [])

    def _norm_backward(self, name: str, dy, x, dx, number: int, add: bool, residual: bool) -> None:
        with at(name):
            statistics = self.statistics[f"mean{number}"], self.statistics[f"rstd{number}"]
            weight, bias = f"{name}.weight", f"{name}.bias"
            added = [*(["dx"] if residual else []), *(["dweight", "dbias"] if add else [])]
            arguments = self._shaped(dy), self._shaped(x), self.parameters[weight], *statistics
            out = [self._shaped(dx), self.gradients[weight], self.gradients[bias]]
            self.call("layernorm_backward", *arguments, out=out, add=added)


def _batched(a, b, out) -> None:
    torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out=out.flatten(0, 1))
