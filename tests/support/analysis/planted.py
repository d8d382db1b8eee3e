"""Small workloads with one fault each, and the same without it, that really run: under torch.profiler, on the CPU.

A workload is a function that gives the model and a step of it, marked as perfkit marks its own. The shares are such
that the fault takes most of the step however busy the machine is.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from perfkit import ranges
from perfkit.analysis.report.analyse import analyse_table
from perfkit.analysis.results import Finding
from perfkit.cost import CostModel
from perfkit.hardware.ceilings import Ceilings
from perfkit.readers.kineto.trace import read_trace
from perfkit.run import profile

Step = Callable[[int], object]
Made = tuple[nn.Module, Step]


class Model(nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def forward(function: Callable[..., Any], *inputs: Any, **parts: Any) -> Made:
    """Inference of one function."""
    model = Model(function, **parts)

    @torch.no_grad()
    def step(_: int) -> None:
        with ranges.in_pass("forward"):
            model(*inputs)

    return model, step


def training(model: nn.Module, make: Callable[..., torch.optim.Optimizer], *inputs: Tensor) -> Made:
    """Training with the optimizer that `make` gives, of the sum of what the model says."""
    optimizer = make(model.parameters())

    def step(_: int) -> None:
        with ranges.in_pass("forward"):
            loss = model(*inputs).sum()
        with ranges.in_pass("backward"):
            loss.backward()
        with ranges.in_pass("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return model, step


_A_PAGE_NS = 3_000.0  # what the system takes to clear one at most, on machines that were seen


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@dataclass
class Waited:
    """Time of steps in which the program's own code did not run: other programs had its core, or the system cleared
    pages for it. ns, over all steps."""

    ns: float = 0.0

    def noting(self, step: Step) -> Step:
        """Return `step`, with what it waited noted."""

        def noted(number: int) -> None:
            pages, wall, worked = _pages(), time.perf_counter_ns(), time.process_time_ns()
            step(number)
            worked = time.process_time_ns() - worked
            self.ns += max(time.perf_counter_ns() - wall - worked, 0.0) + _A_PAGE_NS * (_pages() - pages)

        return noted


def findings(
    made: Made, folder: Path, ceilings: Ceilings, steps: int = 2, waited: Waited | None = None
) -> dict[str, Finding]:
    """Return the findings in the profile of some steps, by name."""
    model, step = made
    step = waited.noting(step) if waited else step
    program: Any = SimpleNamespace(model=model, keeps_modules=True)
    settings: Any = SimpleNamespace(device="cpu", profile_memory=False, lines=False, ranks=1)
    trace = profile.write(profile.record(program, settings, step, steps), folder).trace
    report = analyse_table(read_trace(trace, costs=CostModel()), ceilings, trace).backends[0]
    return {f.name: f for f in report.findings}


def _matrices() -> Tensor:
    return torch.ones(256, 256)


# ---- lists, values read back, lookups

VALUES = list(range(50_000))


def _list(_: Model) -> Tensor:
    return torch.tensor(VALUES) + 1


def _no_list(model: Model) -> Tensor:
    return model.values + 1


def _items(_: Model, x: Tensor) -> float:
    doubled = x * 2
    return sum(doubled[i].item() for i in range(len(x)))


def _no_items(_: Model, x: Tensor) -> Tensor:
    return x @ x


def _compare(model: Model, x: Tensor) -> Tensor:
    return torch.eq(x.unsqueeze(-1), model.values).long().argmax(dim=-1)


def _search(model: Model, x: Tensor) -> Tensor:
    return torch.searchsorted(model.values, x)


# ---- data that moves for no reason


def _contiguous(_: Model, x: Tensor) -> Tensor:
    return x.t().contiguous() @ x[:, :8]


def _transposed(_: Model, x: Tensor) -> Tensor:
    return x.t() @ x[:, :8]


def _converts(_: Model, x: Tensor) -> Tensor:
    return x.double().sum()


def _as_it_is(_: Model, x: Tensor) -> Tensor:
    return x.sum()


def _chain(_: Model, x: Tensor) -> Tensor:
    return torch.relu((x + 1.0) * 2.0 - x)


def _one_operator(_: Model, x: Tensor) -> Tensor:
    return torch.relu(x)


# ---- compilers: Dynamo alone, without the minutes of code generation


def _recompiles(shapes: Callable[[int], int]) -> Made:
    torch._dynamo.reset()
    model = nn.Linear(64, 64)
    compiled = torch.compile(model, backend="eager", dynamic=False)

    @torch.no_grad()
    def step(index: int) -> None:
        with ranges.in_pass("forward"):
            compiled(torch.ones(shapes(index), 64))

    return model, step


def _breaks(_: Model, x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def _whole(_: Model, x: Tensor) -> Tensor:
    return (x + 1) * 2


def _compiled(function: Callable[..., Any]) -> Made:
    torch._dynamo.reset()
    model = Model(function)
    compiled = torch.compile(model, backend="eager")

    @torch.no_grad()
    def step(_: int) -> None:
        with ranges.in_pass("forward"):
            compiled(torch.ones(8))

    return model, step


# ---- tables, optimizers, precision, data


def _looked_up(model: Model, indices: Tensor) -> Tensor:
    return model.table(indices)


def _table(rows: int, sparse: bool = False) -> Model:
    return Model(_looked_up, table=nn.Embedding(rows, 32, sparse=sparse))


def _layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(10)))


def _multiplies(model: Model, x: Tensor) -> Tensor:
    return x @ model.weight


class Slow(Dataset[Tensor]):
    """Samples that take a while."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.01)
        return torch.ones(8)


def _loading(inside: bool) -> Made:
    batch = next(iter(DataLoader(Slow(), batch_size=4)))

    @torch.no_grad()
    def step(_: int) -> None:
        found = next(iter(DataLoader(Slow(), batch_size=4))) if inside else batch
        with ranges.in_pass("forward"):
            F.relu(found)

    return nn.ReLU(), step


def _many_small(_: Model, x: Tensor) -> Tensor:
    for _i in range(200):
        x = x.view(2, 2).view(4)
    return x + 1


# rule → with the fault, and without
PLANTED: dict[str, tuple[Callable[[], Made], Callable[[], Made]]] = {
    "list-to-tensor": (lambda: forward(_list), lambda: forward(_no_list, values=torch.tensor(VALUES))),
    "sync": (lambda: forward(_items, torch.ones(2000)), lambda: forward(_no_items, _matrices())),
    "compare-with-all": (
        lambda: forward(_compare, torch.arange(64), values=torch.arange(20_000)),
        lambda: forward(_search, torch.arange(64), values=torch.arange(20_000)),
    ),
    "layout-copies": (
        lambda: forward(_contiguous, torch.ones(1500, 1500)),
        lambda: forward(_transposed, torch.ones(1500, 1500)),
    ),
    "dtype-conversions": (
        lambda: forward(_converts, torch.ones(1_000_000)),
        lambda: forward(_as_it_is, torch.ones(1_000_000)),
    ),
    "elementwise-chain": (
        lambda: forward(_chain, torch.ones(1_000_000)),
        lambda: forward(_one_operator, torch.ones(1_000_000)),
    ),
    "unfused-optimizer": (
        lambda: training(_layers(), lambda p: torch.optim.Adam(p, foreach=False), torch.ones(4, 64)),
        lambda: training(_layers(), lambda p: torch.optim.Adam(p, fused=True), torch.ones(4, 64)),
    ),
    "recompilation": (lambda: _recompiles(lambda index: 8 + index), lambda: _recompiles(lambda _: 8)),
    "graph-breaks": (lambda: _compiled(_breaks), lambda: _compiled(_whole)),
    "fp32-matmul": (
        lambda: forward(_multiplies, torch.ones(512, 512), weight=torch.ones(512, 512)),
        lambda: forward(_multiplies, torch.ones(64, 64).bfloat16(), weight=torch.ones(64, 64).bfloat16()),
    ),
    "gather-bound": (
        lambda: forward(_looked_up, torch.randint(0, 200_000, (100_000,)), table=nn.Embedding(200_000, 8)),
        lambda: forward(_no_items, _matrices()),
    ),
    "dense-embedding-gradient": (
        lambda: training(_table(100_000), torch.optim.Adam, torch.arange(64)),
        lambda: training(_table(100_000, sparse=True), lambda p: torch.optim.SGD(p, lr=0.1), torch.arange(64)),
    ),
    "overhead": (lambda: forward(_many_small, torch.ones(4)), lambda: forward(_no_items, torch.ones(1500, 1500))),
    "data": (lambda: _loading(inside=True), lambda: _loading(inside=False)),
}
