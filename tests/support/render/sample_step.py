"""One training step of GPT-2 124M as kernel calls: what the sample report is made of.

Legend: N = B·T tokens, C channels, V vocabulary, NH heads, L layers. Work and bytes are those of the shapes; the times
follow from made-up efficiencies, so every figure is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

B, T, C, V, NH, L = 4, 64, 768, 50257, 12, 12
N = B * T
PARAMETERS = 124_439_808
BANDWIDTH, MATRIX, VECTOR = 21.4e9, 181e9, 58e9  # bytes/s, FLOP/s, FLOP/s


@dataclass(frozen=True)
class Row:
    """One kind of kernel call: work and bytes of one call, `count` calls a step, the share of its roof it reaches."""

    name: str
    family: str
    pass_: str
    module: str
    shapes: str
    flop: float
    bytes: float
    eff: float | None
    count: float = 1

    @property
    def roof(self) -> float:
        compute = self.flop / (MATRIX if self.family in ("matmul", "attention") else VECTOR)
        return 1e9 * max(compute, self.bytes / BANDWIDTH)

    @property
    def time(self) -> float:
        return self.roof / (self.eff or 0.2)


def linear(pass_: str, module: str, i: int, o: int, eff: float, name: str = "aten::addmm") -> Row:
    return Row(
        name, "matmul", pass_, module, f"[{o}], [{N}, {i}], [{i}, {o}]", 2 * N * i * o, 4 * (N * i + i * o + N * o), eff
    )


def elementwise(
    name: str, family: str, pass_: str, module: str, size: int, flop: float, tensors: int, eff: float | None
) -> Row:
    return Row(name, family, pass_, module, f"[{B}, {T}, {size // N}]", flop * size, 4 * tensors * size, eff)


def block(i: int) -> Iterable[Row]:
    """The rows of one block, forward and backward."""
    h = f"transformer.h.{i}"
    yield elementwise("aten::native_layer_norm", "normalization", "forward", f"{h}.ln_1", N * C, 8, 2, 0.31)
    yield linear("forward", f"{h}.attn.c_attn", C, 3 * C, 0.83)
    yield replace(elementwise("aten::copy_", "copy", "forward", f"{h}.attn", N * C, 0, 2, 0.42), count=4)
    for product in ("QKᵀ", "PV"):
        yield Row(
            "aten::bmm",
            "attention",
            "forward",
            f"{h}.attn",
            f"[{B * NH}, {T}, 64] {product}",
            2 * N * T * C,
            12 * N * C,
            0.36,
        )
    yield elementwise("aten::masked_fill", "elementwise", "forward", f"{h}.attn", N * NH * T, 1, 2, 0.22)
    yield elementwise("aten::_softmax", "softmax", "forward", f"{h}.attn", N * NH * T, 5, 2, 0.27)
    yield linear("forward", f"{h}.attn.c_proj", C, C, 0.79)
    yield replace(elementwise("aten::add", "elementwise", "forward", h, N * C, 1, 3, 0.61), count=2)
    yield elementwise("aten::native_layer_norm", "normalization", "forward", f"{h}.ln_2", N * C, 8, 2, 0.31)
    yield linear("forward", f"{h}.mlp.c_fc", C, 4 * C, 0.86)
    yield elementwise("aten::gelu", "elementwise", "forward", f"{h}.mlp.gelu", N * 4 * C, 14, 2, 0.24)
    yield linear("forward", f"{h}.mlp.c_proj", 4 * C, C, 0.81)
    yield from block_backward(h)


def block_backward(h: str) -> Iterable[Row]:
    for module, i, o in (
        ("mlp.c_proj", 4 * C, C),
        ("mlp.c_fc", C, 4 * C),
        ("attn.c_proj", C, C),
        ("attn.c_attn", C, 3 * C),
    ):
        for eff in (0.74, 0.68):
            yield linear("backward", f"{h}.{module}", i, o, eff, "aten::mm")
        yield elementwise("aten::sum", "reduction", "backward", f"{h}.{module}", N * o, 1, 1, 0.18)
    yield elementwise("aten::gelu_backward", "elementwise", "backward", f"{h}.mlp.gelu", N * 4 * C, 22, 3, 0.26)
    for module in ("ln_1", "ln_2"):
        yield elementwise(
            "aten::native_layer_norm_backward", "normalization", "backward", f"{h}.{module}", N * C, 14, 3, 0.21
        )
    for product in range(4):
        yield Row(
            "aten::bmm",
            "attention",
            "backward",
            f"{h}.attn",
            f"[{B * NH}, 64, {T}] d{product}",
            2 * N * T * C,
            12 * N * C,
            0.33,
        )
    yield elementwise("aten::_softmax_backward_data", "softmax", "backward", f"{h}.attn", N * NH * T, 4, 3, 0.25)
    yield elementwise("aten::masked_fill", "elementwise", "backward", f"{h}.attn", N * NH * T, 1, 2, 0.22)
    yield replace(elementwise("aten::copy_", "copy", "backward", f"{h}.attn", N * C, 0, 2, 0.38), count=5)
    yield replace(elementwise("aten::add_", "elementwise", "backward", h, N * C, 1, 3, 0.64), count=2)


def step_rows() -> list[Row]:
    """One training step in eager execution."""
    rows = [
        Row("aten::embedding", "embedding", "encoder", "transformer.wte", f"[{V}, {C}], [{B}, {T}]", 0, 8 * N * C, 0.4),
        Row("aten::embedding", "embedding", "encoder", "transformer.wpe", f"[1024, {C}], [{T}]", 0, 8 * T * C, 0.3),
        elementwise("aten::add", "elementwise", "encoder", "transformer", N * C, 1, 3, 0.58),
    ]
    rows += [row for i in range(L) for row in block(i)]
    rows += [
        elementwise("aten::native_layer_norm", "normalization", "classifier", "transformer.ln_f", N * C, 8, 2, 0.31),
        linear("classifier", "lm_head", C, V, 0.88, "aten::mm"),
        elementwise("aten::_log_softmax", "softmax", "classifier", "lm_head", N * V, 5, 2, 0.29),
        Row("aten::nll_loss_forward", "loss", "classifier", "", f"[{N}, {V}], [{N}]", N, 16 * N, 0.02),
        elementwise("aten::_log_softmax_backward_data", "softmax", "backward", "lm_head", N * V, 4, 3, 0.3),
        Row("aten::nll_loss_backward", "loss", "backward", "", f"[{N}, {V}]", N, 4 * N * V, 0.55),
        linear("backward", "lm_head", C, V, 0.79, "aten::mm"),
        linear("backward", "lm_head", V, C, 0.72, "aten::mm"),
        Row(
            "aten::embedding_dense_backward",
            "embedding",
            "backward",
            "transformer.wte",
            f"[{V}, {C}]",
            N * C,
            4 * V * C,
            0.35,
        ),
        Row("aten::_foreach_zero_", "fill", "optimizer", "", "148 tensors", 0, 4 * PARAMETERS, 0.8),
        Row("aten::_fused_adamw_", "optimizer", "optimizer", "", "148 tensors", 14 * PARAMETERS, 28 * PARAMETERS, 0.35),
        Row("aten::_local_scalar_dense", "copy", "optimizer", "", "[]", 0, 8, None),
    ]
    return rows


def with_own_kernels(rows: list[Row]) -> list[Row]:
    """The same step with hand-written kernels in place of the parts that PyTorch does slowly."""
    own = {
        "aten::native_layer_norm": "layernorm_forward",
        "aten::native_layer_norm_backward": "layernorm_backward",
        "aten::gelu": "gelu_forward",
        "aten::gelu_backward": "gelu_backward",
        "aten::_softmax": "softmax_forward",
        "aten::_softmax_backward_data": "softmax_backward",
        "aten::copy_": "permute",
        "aten::_log_softmax": "cross_entropy_forward",
        "aten::_log_softmax_backward_data": "cross_entropy_backward",
        "aten::_fused_adamw_": "adamw",
    }
    return [
        replace(row, name=f"perfkit::{own[row.name]}", eff=min(0.93, (row.eff or 0.2) * 2.6))
        if row.name in own
        else row
        for row in rows
        if row.name != "aten::masked_fill"
    ]
