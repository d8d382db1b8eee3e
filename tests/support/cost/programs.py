"""Small programs for the coverage test: together they run the operators that models and compilers show in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TinyGPT(nn.Module):
    """A GPT-2 style decoder with explicit attention. B batch, T time, C channels, NH heads, V vocabulary."""

    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, channels: int) -> None:
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.blocks = nn.ModuleList(self._block(channels) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)) == 0)

    @staticmethod
    def _block(channels: int) -> nn.ModuleDict:
        return nn.ModuleDict({
            "ln_1": nn.LayerNorm(channels), "c_attn": nn.Linear(channels, 3 * channels),
            "attn_proj": nn.Linear(channels, channels), "ln_2": nn.LayerNorm(channels),
            "c_fc": nn.Linear(channels, 4 * channels), "mlp_proj": nn.Linear(4 * channels, channels),
        })  # fmt: skip

    def attention(self, block: Any, x: Tensor, fused: bool) -> Tensor:
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in block["c_attn"](x).split(c, -1))
        if fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            y = F.softmax(scores.masked_fill(self.mask[:t, :t], float("-inf")), -1) @ v
        return block["attn_proj"](y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, tokens: Tensor, targets: Tensor, fused: bool = False) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = x + self.attention(block, block["ln_1"](x), fused)
            x = x + block["mlp_proj"](F.gelu(block["c_fc"](block["ln_2"](x)), approximate="tanh"))
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def gpt(fused: bool, optimizer: str) -> Callable[[], None]:
    """A training step; `optimizer` is plain, foreach or fused."""
    model = TinyGPT(50, 8, 2, 2, 16)
    flags = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[optimizer]
    adam = torch.optim.AdamW(model.parameters(), **flags)
    tokens = torch.randint(0, 50, (2, 8))

    def step() -> None:
        loss = model(tokens, tokens, fused)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        loss.item()

    return step


def gpt_bf16() -> None:
    """Forward and backward under autocast."""
    model, tokens = TinyGPT(50, 8, 1, 2, 16), torch.randint(0, 50, (2, 8))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens, tokens)
    loss.backward()


def dlrm() -> Callable[[], None]:
    """Dense tower, embeddings and an embedding bag, interaction by bmm, sigmoid, BCE, SGD."""
    bottom = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 4))
    tables = nn.ModuleList(nn.Embedding(r, 4) for r in (3, 100))
    bag = nn.EmbeddingBag(30, 4, mode="mean")
    top = nn.Sequential(nn.Linear(256, 8), nn.ReLU(), nn.Linear(8, 1))
    parameters = [p for m in (bottom, tables, bag, top) for p in m.parameters()]
    sgd = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

    def step() -> None:
        dense, sparse = torch.randn(6, 13), torch.randint(0, 3, (6, 2))
        rows = [t(sparse[:, i]) for i, t in enumerate(tables)]
        rows.append(bag(torch.randint(0, 30, (12,)), torch.arange(0, 12, 2)))
        x = torch.cat([bottom(dense), *rows], 1)
        pairs = torch.bmm(x.unsqueeze(2), x.unsqueeze(1)).flatten(1)
        score = top(pairs).squeeze(1)
        labels = torch.randint(0, 2, (6,)).float()
        loss = F.binary_cross_entropy(torch.sigmoid(score), labels) + F.binary_cross_entropy_with_logits(score, labels)
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=False)

    return step


def lora() -> None:
    """W·x + α·B·A·x + b, then an activation."""
    x, w, b = torch.randn(4, 8), torch.randn(6, 8), torch.randn(6)
    a, up = torch.randn(5, 8, requires_grad=True), torch.zeros(6, 5, requires_grad=True)
    y = torch.relu(x @ w.t() + 0.5 * (x @ a.t() @ up.t()) + b)
    torch.sigmoid(y).mean().backward()


def cnn() -> None:
    """Convolutions, batch and group norm, pooling."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1),
        nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(4, 5),
    )  # fmt: skip
    F.mse_loss(net(torch.randn(2, 3, 24, 24)), torch.randn(2, 5)).backward()
    net.eval()(torch.randn(2, 3, 24, 24))


def elementwise() -> None:
    """Activations and arithmetic, with broadcasting, in place and with out=."""
    x, row = torch.randn(4, 6), torch.randn(6)
    x.add(row, alpha=2).mul_(2).sub(1).div(3).pow(2).sqrt().rsqrt()
    torch.add(x, row, out=torch.empty(4, 6))
    for f in (torch.exp, torch.log1p, torch.sin, torch.abs, torch.neg, torch.floor, torch.erf, torch.tanh, torch.sign):
        f(x)
    for g in (F.silu, F.gelu, F.leaky_relu, F.elu, F.hardtanh, F.softplus, F.mish, F.hardswish, F.hardsigmoid,
              F.logsigmoid, F.relu6, F.selu, torch.relu):  # fmt: skip
        y = x.clone().requires_grad_()
        g(y).sum().backward()
    torch.where(x > 0, x, row), x.masked_fill(x > 0, 0.0), x.clamp(-1, 1), x.clamp_(min=0), torch.maximum(x, row)
    torch.lerp(x, x, 0.5), torch.addcmul(x, x, x, value=2), torch.addcdiv(x, x, x + 1), torch.atan2(x, row)
    (x > 0) & (x < 1) | ~(x == 2), x.tril(), x.triu(1), torch.isnan(x), torch.isfinite(x), torch.logical_and(x, x)
    torch.arange(5) // 2, torch.arange(5) % 3, torch.arange(5) / 2, torch.bitwise_xor(torch.arange(5), 3)


def reductions() -> None:
    """Sums, means, extrema, norms, scans."""
    x = torch.randn(4, 6)
    x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(), x.mean(1), x.var(), x.std(1), x.prod(), x.prod(1)
    x.max(), x.max(1), x.min(0), x.amax(1), x.argmax(), x.argmin(1), x.norm(), torch.linalg.vector_norm(x, dim=1)
    x.cumsum(1), x.cumprod(0), x.logsumexp(1), torch.aminmax(x), (x > 0).any(), (x > 0).all(1), torch.var_mean(x, 1)
    x.count_nonzero(), F.softmax(x, -1), F.log_softmax(x, 0), torch.cdist(x, x), torch.equal(x, x), x.median()
    torch.arange(4).sum(), torch.bincount(torch.arange(4)), x.sum(dtype=torch.float64), torch.std_mean(x, 0)
    F.rms_norm(x, (6,), torch.ones(6)), F.layer_norm(x, (6,)), F.instance_norm(x[None]), x.cummax(0)


def indexing() -> None:
    """Copies, joins, gathers, scatters, sorts, fills, random numbers."""
    x, i = torch.randn(4, 6), torch.tensor([0, 2])
    x.to(torch.bfloat16).half().long(), x.t().contiguous(), torch.cat([x, x]), torch.stack([x, x]), x.repeat(2, 2)
    x.index_select(0, i), x.gather(1, torch.zeros(4, 2, dtype=torch.long)), torch.roll(x, 1, 0), x.flip(0)
    x.scatter(1, torch.zeros(4, 2, dtype=torch.long), 1.0), x.scatter_add_(1, torch.zeros(4, 6).long(), x + 1)
    x.index_add_(0, i, torch.ones(2, 6)), x.index_copy_(0, i, torch.ones(2, 6)), x.index_fill_(0, i, 1.0)
    x[i] = torch.ones(2, 6)
    x[x > 0] = 1.0
    torch.sort(x), torch.topk(x, 2), torch.unique(i), torch.nonzero(x), F.one_hot(i), F.one_hot(i, 5), x.argsort()
    F.pad(x, (1, 1)), torch.zeros(3), torch.ones(3), torch.full((3,), 2.0), torch.arange(5), torch.arange(0, 1, 0.1)
    torch.randn(3), torch.rand(3), torch.randint(0, 5, (3,)), torch.randperm(5), torch.bernoulli(torch.rand(3))
    torch.multinomial(torch.rand(5), 2), F.dropout(x, 0.5), x.masked_select(x > 0), torch.linspace(0, 1, 5)
    torch.eye(3), x.new_zeros(3), torch.zeros_like(x), x.fill_(1), x.zero_(), torch.empty(3).random_(5)
    torch.searchsorted(torch.arange(5.0), torch.rand(3)), torch.bucketize(torch.rand(3), torch.arange(5.0))
    torch.repeat_interleave(i, 2), F.interpolate(torch.randn(1, 1, 4, 4), scale_factor=2), torch.diag_embed(x)
    y = torch.randn(4, 6, requires_grad=True)
    (y[0].sum() + y[:, 1:].sum() + y.index_select(1, i).sum() + y.gather(0, torch.zeros(1, 6).long()).sum()).backward()
    F.smooth_l1_loss(y, x).backward(), F.huber_loss(y, x).backward(), F.l1_loss(y, x).backward()
    paths = torch.randn(6, 2, 5, requires_grad=True)
    F.ctc_loss(paths.log_softmax(-1), torch.ones(2, 3).long(), torch.full((2,), 6), torch.full((2,), 3)).backward()
    F.nll_loss(F.log_softmax(y, 1), torch.zeros(4).long(), weight=torch.ones(6)), F.kl_div(y, x)


def products() -> None:
    """Matrix products in every form."""
    a, b, v = torch.randn(4, 6), torch.randn(6, 4), torch.randn(6)
    a @ b, a @ v, v @ v, torch.outer(v, v), torch.baddbmm(torch.zeros(2, 4, 4), a.expand(2, 4, 6), b.expand(2, 6, 4))
    torch.addmm(torch.zeros(4), a, b, beta=0.5, alpha=2), torch.addmv(torch.zeros(4), a, v)
    torch.einsum("ij,kj->ik", a, a)
    torch.mm(a, b, out=torch.empty(4, 4)), torch.tensordot(a, b, 1), torch.randn(3, 4, 6) @ b, torch.addr(a, a[:, 0], v)
    torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8))
    torch.addbmm(torch.zeros(4, 4), a.expand(2, 4, 6), b.expand(2, 6, 4)), a.double() @ b.double()


def layers() -> None:
    """PyTorch's own encoder layer (training, and its fused inference) and an LSTM."""
    encoder, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(2, 5, 16)
    encoder(x).sum().backward()
    with torch.no_grad():
        encoder.eval()(x)
    nn.LSTM(8, 8)(torch.randn(3, 2, 8))[0].sum().backward()


def optimizers() -> None:
    """The optimizers in their forms."""
    parameters = [torch.randn(5, 4, requires_grad=True) for _ in range(2)]
    for p in parameters:
        p.grad = torch.randn(5, 4)
    for kind, flags in (
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
        (torch.optim.SGD, {"foreach": True}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adagrad, {}),
    ):
        kind(parameters, lr=0.1, **flags).step()


def sampled() -> None:
    """Interpolation, grid sampling and columns, forward and backward."""
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    modes = [(x[0], "linear"), (x, "bilinear"), (x, "bicubic"), (x[None], "trilinear"), (x, "nearest")]
    for part, mode in modes:
        F.interpolate(part, scale_factor=2, mode=mode).sum().backward()
    grid = F.affine_grid(torch.eye(2, 3).repeat(2, 1, 1).requires_grad_(), [2, 3, 5, 5], align_corners=False)
    for mode in ("bilinear", "nearest"):
        F.grid_sample(x, grid, mode=mode, align_corners=False).sum().backward(retain_graph=True)
    F.fold(F.unfold(x, 3, padding=1), (8, 8), 3, padding=1).sum().backward()
    x.unfold(3, 4, 2).sum().backward()


def fourier() -> None:
    """A spectral layer as of a Fourier neural operator, rotary embedding in complex numbers, and a spectrogram."""
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    weight = torch.randn(3, 4, 5, 5, dtype=torch.complex64, requires_grad=True)
    modes = torch.fft.rfft2(x)[..., :5, :5]
    out = torch.zeros(2, 4, 16, 9, dtype=torch.complex64)
    out[..., :5, :5] = torch.einsum("bixy,ioxy->boxy", modes, weight)
    torch.fft.irfft2(out, s=(16, 16)).square().mean().backward()
    angles = torch.polar(torch.ones(8, 4), torch.outer(torch.arange(8.0), torch.rand(4)))
    turned = (
        torch.view_as_complex(x.reshape(4, 8, 12, 4, 1).expand(4, 8, 12, 4, 2).contiguous()).transpose(1, 2) * angles
    )
    torch.view_as_real(turned).flatten(3).sum().backward()
    spectrum = torch.stft(torch.randn(400), 64, return_complex=True, window=torch.hann_window(64))
    spectrum.abs().log1p().mean(), torch.istft(spectrum, 64, window=torch.hann_window(64))
    torch.fft.ifft(torch.fft.fft(torch.randn(4, 32)), norm="ortho").real.sum()
    F.glu(x, dim=-1).sum().backward()


def linear_algebra() -> None:
    """Factorisations, solving with them, and their gradients."""
    a = (torch.eye(12).repeat(3, 1, 1) * 4 + 0.1).requires_grad_()
    b = torch.randn(3, 12, 5, requires_grad=True)
    factor = torch.linalg.cholesky(a)
    found = [
        torch.cholesky_solve(b, factor), torch.linalg.solve_triangular(factor, b, upper=False), torch.linalg.inv(a),
        torch.linalg.solve(a, b), torch.linalg.slogdet(a)[1], torch.linalg.qr(b)[1], torch.cholesky_inverse(factor),
    ]  # fmt: skip
    torch.stack([y.sum() for y in found]).sum().backward()
    with torch.no_grad():
        torch.linalg.householder_product(*torch.geqrf(b))
        torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b)
        torch.linalg.ldl_factor(a)


def composed() -> None:
    """Operators that leave their work to another with a cost of its own, some of them only on a CPU."""
    x = torch.randn(6, 8, requires_grad=True)
    (1 - x).pow(2).sum().backward()
    matrices = torch.randn(3, 4, 5)
    with torch.no_grad():
        torch.addbmm(torch.zeros(4, 2), matrices, torch.randn(3, 5, 2))
        torch._grouped_mm(torch.randn(16, 8), torch.randn(2, 8, 4), offs=torch.tensor([8, 16], dtype=torch.int32))
        torch.vdot(x[0], x[1])
        torch.count_nonzero(x, dim=1)
        x.index_fill(0, torch.tensor([1, 2]), 0.0)
        x.index_add(0, torch.tensor([1, 2]), torch.randn(2, 8))
    image = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    kernel = torch.randn(4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    F.conv2d(image, kernel).sum().backward()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "fourier": fourier,
    "sampled": sampled,
    "gpt explicit, plain optimizer": gpt(False, "plain"),
    "gpt fused attention, foreach optimizer": gpt(True, "foreach"),
    "gpt fused optimizer": gpt(False, "fused"),
    "gpt bf16": gpt_bf16,
    "dlrm": dlrm(),
    "lora": lora,
    "cnn": cnn,
    "elementwise": elementwise,
    "reductions": reductions,
    "indexing": indexing,
    "products": products,
    "layers": layers,
    "linear algebra": linear_algebra,
    "composed": composed,
    "optimizers": optimizers,
}
