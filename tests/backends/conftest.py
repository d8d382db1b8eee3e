"""A tiny GPT-2 on every backend, and what its results must be within."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from perfkit import backends  # noqa: E402
from perfkit.run_folder import Settings  # noqa: E402
from perfkit.workloads import Workload, loader  # noqa: E402
from perfkit.workloads.settings import resolve_settings  # noqa: E402
from tests.support.compiled import fresh_graphs  # noqa: E402

ONE_LAYER = {"dimensions": {"layers": 1}}  # of the tiny GPT-2's two: enough for a mode, and half the compilation
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


@dataclass
class Result:
    """Results of one training step or inference."""

    outputs: Any
    loss: Any
    gradients: dict[str, Any]


class Bench:
    """GPT-2 tiny under `settings`: a program of a backend, and a step of it from the same weights and batches."""

    def __init__(self, **settings: Any) -> None:
        self.workload = loader.find("gpt2")
        chosen = {"preset": "tiny", "batch_size": 2, "sequence_length": 16} | settings
        self.settings: Settings = resolve_settings(self.workload, **chosen)

    def program(self, name: str, dtype: str | None = None) -> Any:
        model = self.workload.build(self.settings).to(TORCH_DTYPES[dtype or self.settings.dtype])
        return backends.get(name).prepare(self.workload, model, self.settings)

    def batches(self, first: int = 0) -> list[Any]:
        return [self.workload.batch(self.settings, first + i) for i in range(self.settings.grad_accumulation)]

    def step(self, program: Any, first: int = 0) -> Result:
        if not self.settings.training:
            outputs, loss = program.forward(self.batches(first)[0])
            return Result(outputs, loss, {})
        outputs, loss = program.train_step(self.batches(first))
        return Result(outputs, loss, {name: g.clone() for name, g in program.gradients().items()})

    def reference(self) -> Result:
        """The step by eager in fp64."""
        return self.step(self.program("eager", "fp64"))


def relative_error(value: Any, reference: Any) -> float:
    """‖value − reference‖ / ‖reference‖ in fp64."""
    difference = torch.linalg.vector_norm(value.double() - reference.double())
    return float(difference / torch.linalg.vector_norm(reference.double()))


def errors(result: Result, reference: Result) -> dict[str, float]:
    """Relative error of outputs, loss and each gradient."""
    pairs = {"outputs": (result.outputs, reference.outputs)}
    if reference.loss is not None:
        pairs["loss"] = (result.loss, reference.loss)
    assert result.gradients.keys() == reference.gradients.keys()
    pairs |= {name: (result.gradients[name], g) for name, g in reference.gradients.items()}
    return {name: relative_error(*pair) for name, pair in pairs.items()}


def worst(found: dict[str, float], names: Sequence[str] = ()) -> float:
    """The largest error (of `names`, where given)."""
    return max(found[name] for name in names or found)


@pytest.fixture(scope="session")
def bench() -> Callable[..., Bench]:
    """`bench(training=False, …)` makes a `Bench` with these options of a run."""
    return Bench


@pytest.fixture
def fresh_dynamo():
    """torch.compile without what earlier tests compiled, but for the compiled C++."""
    with fresh_graphs():
        yield


@pytest.fixture(scope="module")
def gpt2() -> Workload:
    return loader.find("gpt2")


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def workload(request: pytest.FixtureRequest) -> Workload:
    """Models whose heads have keys of their own, with a tied head; and whose heads share keys, with an untied head."""
    return loader.find(request.param)
