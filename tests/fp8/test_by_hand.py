"""Products of fp8 in the step by hand and in Thunder's: beside eager's, and the check finds what is planted there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.fp8_beside import Side, apart
from perfkit import backends, kernels
from perfkit.fp8 import check_layers, convert
from perfkit.fp8.linear import Linear
from perfkit.handwritten import eights
from perfkit.handwritten.eights import Eights
from perfkit.workloads import find, resolve_settings

kernels.load()
ALL = {"y", "dx", "dW"}
Cast = Callable[..., None]


def a_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Module()
    model.h = nn.ModuleList([nn.Sequential(nn.Linear(48, 32), nn.Linear(32, 48, bias=False))])
    model.bfloat16()
    convert(model, "h.*")
    return model


def wrong(model: nn.Module, calling: Any = eights.calling) -> set[str]:
    """The products that the check finds to be wrong, `scale` for those whose scale is."""
    names = [check.name for check in check_layers(model, calling) if not check.ok]
    return {name.removeprefix("scale of ").split(" ")[0] for name in names}


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, Sequence[Tensor], Tensor], None]) -> None:
    """Have `change` do something to what each cast wrote; it gets the cast's name, its results and its amax."""
    right = Eights._cast

    def cast(self: Eights, kind: str, x: Tensor, amax: Tensor, out: Sequence[Tensor], *more: bool) -> None:
        right(self, kind, x, amax, out, *more)
        change(kind, out, amax)

    monkeypatch.setattr(Eights, "_cast", cast)


def test_right_products_pass() -> None:
    model = a_model()
    before = [p.detach().clone() for p in model.parameters()]
    checks = check_layers(model, eights.calling)
    assert len(checks) == 2 * (4 + 3) and all(check.ok for check in checks)
    assert all(check.error is not None and check.error < check.allowed / 2 for check in checks)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("factor", [1.02, 1.005, 0.995])
@pytest.mark.parametrize(
    ("kind", "seen"), [("fp8_cast", ALL), ("fp8_gradient_cast", {"dx", "dW"})], ids=["forward", "gradients"]
)
def test_a_wrong_scale_is_found(monkeypatch: pytest.MonkeyPatch, factor: float, kind: str, seen: set[str]) -> None:
    """Of 2 %, or of 0.5 %: numbers were cast by another one than the products multiply with."""
    planted(monkeypatch, lambda k, out, amax: out[2].mul_(factor) if k == kind else None)
    assert seen <= wrong(a_model())


def test_an_amax_that_is_off_is_found_though_casts_and_products_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Eights._cast

    def cast(self: Eights, kind: str, x: Tensor, amax: Tensor, out: Sequence[Tensor], *more: bool) -> None:
        kernels.bind("fp8_amax", (x, amax))()
        amax.mul_(1.02)
        right(self, kind, x, amax, out, True)

    monkeypatch.setattr(Eights, "_cast", cast)
    assert wrong(a_model()) >= ALL


def test_a_largest_value_of_an_earlier_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eights, "begin_batch", lambda self: None)
    assert wrong(a_model()) >= ALL


def test_weights_of_an_earlier_step_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right, done = Eights.begin_step, set[int]()

    def once(self: Eights) -> None:
        if id(self) not in done:
            done.add(id(self))
            right(self)

    monkeypatch.setattr(Eights, "begin_step", once)
    assert wrong(a_model()) == {"y", "dx"}


def test_numbers_of_another_format_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations and weights with the mantissa of e5m2, gradients in a number more than e5m2 has."""

    def coarser(kind: str, out: Sequence[Tensor], amax: Tensor) -> None:
        if kind == "fp8_cast":
            for numbers in out[:2]:
                numbers.copy_(numbers.float().to(torch.float8_e5m2).float())

    planted(monkeypatch, coarser)
    assert wrong(a_model()) == ALL


def test_products_that_are_not_of_fp8_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def calling(layers: Sequence[Linear]) -> Any:
        return lambda inputs: [nn.Linear.forward(layer, x) for layer, x in zip(layers, inputs, strict=True)]

    assert wrong(a_model(), calling) == ALL


@pytest.mark.parametrize("backend", ["llmc", "thunder-llmc"])
@pytest.mark.parametrize("workload", ["gpt2", "llama"])
def test_a_step_multiplies_what_eager_multiplies(workload: str, backend: str) -> None:
    """Losses of some steps, and the first gradients: the same numbers of fp8, but for what bf16 rounds otherwise."""
    settings = resolve_settings(
        find(workload), preset="tiny", dtype="fp8", batch_size=2, sequence_length=32, dimensions={"layers": "1"}
    )
    reason = backends.get(backend).unavailable(settings)
    if reason:
        pytest.skip(reason)
    losses, gradients = {}, {}
    for name in ("eager", backend):
        side = Side(settings, name)
        first = float(side.step())
        gradients[name] = {n: g.double().clone() for n, g in side.program.gradients().items()}
        losses[name] = [first, *(float(side.step()) for _ in range(4))]
        assert all(check.ok for check in side.program.checks())
    assert apart(losses[backend], losses["eager"]) < 1e-3
    for name, gradient in gradients["eager"].items():
        assert float((gradients[backend][name] - gradient).norm() / gradient.norm()) < 0.12, name


@pytest.mark.parametrize("more", [{"recompute": True}, {"grad_accumulation": 2}])
def test_recomputing_and_several_batches_change_nothing(more: dict[str, Any]) -> None:
    given = {"preset": "tiny", "dtype": "fp8", "batch_size": 2, "sequence_length": 32, "dimensions": {"layers": "2"}}
    losses = [
        [float(side.step()) for _ in range(3)]
        for side in (Side(resolve_settings(find("llama"), **given, **m), "llmc") for m in ({}, more))
    ]
    assert losses[0] == losses[1] if "recompute" in more else apart(*losses) < 0.01


def test_layers_with_the_same_input_share_its_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Llama's seven linear layers, in four casts; each weight is cast once in a step of two batches."""
    counted: dict[str, int] = {}

    def count(kind: str, out: Sequence[Tensor], amax: Tensor) -> None:
        counted[kind] = counted.get(kind, 0) + 1

    planted(monkeypatch, count)
    settings = resolve_settings(
        find("llama"), preset="tiny", dtype="fp8", batch_size=2, sequence_length=32, grad_accumulation=2,
        dimensions={"layers": "1"},
    )  # fmt: skip
    side = Side(settings, "llmc")
    side.program.train_step([side._batch(0), side._batch(1)])
    assert counted == {"fp8_cast": 7 + 2 * 4, "fp8_gradient_cast": 2 * 7}


def test_thunder_casts_a_tensor_once_and_says_which_lines_cast() -> None:
    settings = resolve_settings(
        find("llama"), preset="tiny", dtype="fp8", batch_size=2, sequence_length=32, dimensions={"layers": "1"}
    )
    reason = backends.get("thunder-llmc").unavailable(settings)
    if reason:
        pytest.skip(reason)
    side = Side(settings, "thunder-llmc")
    side.step()
    casts = {s.trace: s.count for s in side.program.symbols() if s.name == "cast_to_fp8"}
    assert casts == {"forward": 7 + 4, "backward": 7} and not side.program.problems()
    from perfkit.backends.thunder.line_ranges import _members
    from perfkit.backends.thunder.origins import LogicalOperator

    origin = LogicalOperator("model.layers.0.mlp.up_proj", "fp8_linear")
    assert _members([(origin, 4.0)], "fp8_cast") == [(origin.module, "fp8_cast", 1.0)]
    assert _members([(origin, 4.0)]) == [(origin.module, "fp8_linear", 1.0)]
