"""FLOP on a CPU are those of kernels that ran, once: real programs, each with its count by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jvp, stack_module_state, vmap
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from perfkit.readers.kineto.trace import read_trace
from perfkit.table import FLOP_COLUMNS, KernelTable
from tests.support.readers.traces import mark, op, write

M, N = 64, 128
ONE = 2 * M * N * N  # a product of a layer: forward, or one of the two in its backward pass


def traced(folder: Path, program: Callable[[], Any]) -> KernelTable:
    """The table of a second run of `program`."""
    program()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        program()
    profiler.export_chrome_trace(str(folder / "t.json"))
    return read_trace(folder / "t.json")


def matrix_flop(table: KernelTable) -> float:
    columns = [name for name in FLOP_COLUMNS if name.startswith("flop_matrix") and name in table.frame]
    return float(table.frame[columns].sum().sum())


def counted(program: Callable[[], Any]) -> float:
    with FlopCounterMode(display=False) as counter:
        program()
    return float(counter.get_total_flops())


class Block(nn.Module):
    """Two layers; a recomputation stops in the second, whose output nobody needs again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def test_a_recomputation_that_stops_early(tmp_path: Path) -> None:
    block, x = Block(), torch.randn(M, N)

    def step() -> None:
        checkpoint(block, x, use_reentrant=False).square().mean().backward()

    # Two forward, the first again, and backward two for the second's input and weight, one for the first's weight.
    assert matrix_flop(traced(tmp_path, step)) == 6 * ONE


def test_nested_checkpoints(tmp_path: Path) -> None:
    inner, last, x = Block(), nn.Linear(N, N), torch.randn(M, N)

    def both(x: torch.Tensor) -> torch.Tensor:
        return last(checkpoint(inner, x, use_reentrant=False))

    def step() -> None:
        checkpoint(both, x, use_reentrant=False).square().mean().backward()

    # 3 forward; again both of the inner block, and its first once more; backward 2 + 2 + 1.
    assert matrix_flop(traced(tmp_path, step)) == (3 + 2 + 1 + 5) * ONE


def test_a_convolution_that_began(tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), torch.randn(2, 4, 12, 12)
    first, second = 2 * 2 * 100 * 8 * 4 * 9, 2 * 2 * 64 * 8 * 8 * 9

    def step() -> None:
        checkpoint(net, x, use_reentrant=False).square().mean().backward()

    assert matrix_flop(traced(tmp_path, step)) == 3 * first + 3 * second


def test_products_from_a_cache(tmp_path: Path) -> None:
    """Selective checkpointing keeps the products: the recomputation only looks them up."""
    block, x = Block(), torch.randn(M, N)
    kept = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

    def policy(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def step() -> None:
        checkpoint(block, x, use_reentrant=False, context_fn=contexts).square().mean().backward()

    assert matrix_flop(traced(tmp_path, step)) == 5 * ONE


def test_an_ensemble_by_vmap(tmp_path: Path) -> None:
    models = [nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N)) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base, x = models[0].to("meta"), torch.randn(M, N)

    def one(p: Any, b: Any, x: torch.Tensor) -> Any:
        return functional_call(base, (p, b), (x,))

    def step() -> None:
        with torch.no_grad():
            vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)

    assert matrix_flop(traced(tmp_path, step)) == 3 * 2 * ONE == counted(step)


def test_gradients_of_each_sample(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    x, y = torch.randn(16, 64), torch.randint(0, 10, (16,))

    def loss(p: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(net, p, (a[None],)), b[None])

    def step() -> None:
        vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    table = traced(tmp_path, step)
    # Each sample has both layers forward, both weights' gradients, and the gradient between them.
    assert matrix_flop(table) == 2 * 16 * (2 * 64 * 32 + 3 * 32 * 10) == counted(step)
    assert "aten::nll_loss_forward" not in set(table.frame["name"]), "vmap writes it out"


def test_jvp_and_hessian(tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 10)), torch.randn(24)
    weights = 24 * 32 + 32 * 10
    found = matrix_flop(traced(tmp_path, lambda: jvp(net, (x[None],), (torch.ones(1, 24),))))
    assert 2 * 2 * weights <= found <= 3 * 2 * weights  # PyTorch multiplies by weights' tangents of zero, too
    # Forward and backward with 24 tangents, but for the gradient of the sum, which is constant.
    tangents = 2 * 24 * (2 * 24 * 32 + 32 * 10)
    once = 2 * 2 * weights
    found = matrix_flop(traced(tmp_path, lambda: hessian(lambda a: net(a).sum())(x)))
    assert tangents + once <= found <= tangents + 2 * once


def test_double_backward(tmp_path: Path) -> None:
    layer, x = nn.Linear(N, N), torch.randn(M, N, requires_grad=True)

    def step() -> None:
        (gradient,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
        gradient.square().sum().backward()

    # Forward and the gradient of x; then of both factors of that gradient's product, and of the layer's.
    assert matrix_flop(traced(tmp_path, step)) == (1 + 1 + 2 + 2) * ONE


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_are_work(tmp_path: Path, rank: int) -> None:
    layer = getattr(nn, f"ConvTranspose{rank}d")(8, 12, 3, stride=2, groups=2)
    x = torch.randn(2, 8, *[5] * rank)
    with torch.no_grad():
        table = traced(tmp_path, lambda: layer(x))
    assert matrix_flop(table) == 2 * 2 * 5**rank * 8 * (12 // 2) * 3**rank
    assert table.frame["family"].tolist()[0] == "convolution"


def test_a_decoder_spends_its_time_in_kernels(tmp_path: Path) -> None:
    net = nn.Sequential(nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.PixelShuffle(2), nn.Flatten(2), nn.MaxPool1d(2))
    x = torch.randn(8, 16, 64, 64)
    with torch.no_grad():
        table = traced(tmp_path, lambda: [net(x) for _ in range(4)])
    assert {"aten::pixel_shuffle", "aten::max_pool1d"} <= set(table.frame["name"])
    assert matrix_flop(table) == 4 * 2 * 8 * 64 * 64 * 16 * 16 * 16


def test_cells_are_composites(tmp_path: Path) -> None:
    cells = nn.LSTMCell(8, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8)
    x = torch.randn(4, 8)
    with torch.no_grad():
        table = traced(tmp_path, lambda: [cell(x) for cell in cells])
    assert not {name for name in table.frame["name"] if name.endswith("_cell")}
    assert matrix_flop(table) == 2 * 4 * 8 * 2 * 8 * (4 + 3 + 1)


def test_an_unknown_operator_around_known_ones_is_no_kernel(tmp_path: Path) -> None:
    """But one that takes most of its time itself is."""
    inner = [op("aten::tanh", 20, 21, [[4, 4]]), op("aten::tanh", 30, 31, [[4, 4]])]
    around = [op("my::view_and_more", 12, 28), op("my::tanh_and_more", 29, 60)]
    parts = [op("aten::reshape", 13, 20), op("aten::reshape", 21, 28)]
    frame = read_trace(write(tmp_path / "t.json", [mark("ProfilerStep#1", 0, 100), *around, *parts, *inner])).frame
    assert frame["name"].tolist() == ["aten::tanh", "my::tanh_and_more", "aten::tanh"]


def test_a_composite_that_always_takes_long_is_work_of_its_own(tmp_path: Path) -> None:
    def events(*took: float) -> list[Any]:
        calls = [op("aten::special_softmax", 1000 * i, 1000 * i + long) for i, long in enumerate(took)]
        return [mark("ProfilerStep#1", 0, 5000), *calls]

    always = read_trace(write(tmp_path / "a.json", events(50, 60, 50)))
    assert always.frame["name"].tolist() == ["aten::special_softmax"] * 3
    assert any("FLOP and bytes are unknown" in warning for warning in always.warnings)
    assert not len(read_trace(write(tmp_path / "b.json", events(50, 60, 3))).frame)


def test_what_python_computes_of_tensors_without_memory_is_no_work(tmp_path: Path) -> None:
    """Thunder makes one on the meta device in each pass. A machine that was busy meanwhile made rows of them."""
    events = [
        mark("ProfilerStep#1", 0, 9000),
        *[op("ThunderFunction", 100, 8000), op("ThunderOutputFunction", 8100, 8900)],
        *[op("aten::randn", 150, 5000), op("prims::normal", 1000, 4900), op("aten::empty_strided", 2000, 2010)],
        op("aten::tanh", 6000, 6100, [[4, 4]]),
    ]
    table = read_trace(write(tmp_path / "a.json", events))
    assert table.frame["name"].tolist() == ["aten::tanh"]


def test_compiled_code_that_records_nothing_is_work_of_unknown_amount(tmp_path: Path) -> None:
    """By the time that it takes itself, less what Python needs between the operators inside: of the C interface of
    AOTInductor, an extension's function, a graph of Inductor's. Functions that only wrap operators do not count."""

    def events(name: str, took: float) -> list[Any]:
        inside = op("aten::tanh", 110, 120, [[4, 4]])
        return [mark("ProfilerStep#1", 0, 5000), op(name, 100, 120 + took), inside]

    for number, name in enumerate(("aoti_torch_cpu_addmm_out", "my_function", "## Call CompiledFxGraph abc ##")):
        table = read_trace(write(tmp_path / f"{number}.json", events(name, 450)))
        assert table.frame["name"].tolist() == [name, "aten::tanh"]
        assert table.frame["flop_vector_fp32"].isna().tolist() == [True, False]
        assert table.frame["duration_ns"].sum() == 470_000 and table.facts["busy_ns"] == [470_000]
        short = read_trace(write(tmp_path / f"short{number}.json", events(name, 350)))
        assert short.frame["name"].tolist() == ["aten::tanh"]
    wraps = read_trace(write(tmp_path / "wraps.json", events("TorchDynamo Cache Lookup", 450)))
    assert wraps.frame["name"].tolist() == ["aten::tanh"]
    of_library = read_trace(write(tmp_path / "own.json", events("GeneratedBackwardFor_mine_scale_default", 450)))
    assert of_library.frame["name"].tolist() == ["aten::tanh"]  # torch.library's: Python that calls operators
