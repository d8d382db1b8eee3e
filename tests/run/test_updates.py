"""Updates of a program's optimizer, held against the workload's own in fp64 on the program's gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from perfkit.backends import get
from perfkit.backends.interface import AutogradProgram
from perfkit.run import memory, updates
from perfkit.run.updates import Updates
from perfkit.workloads import find, resolve_settings

SMALL = str(Path(__file__).parents[1] / "support" / "run" / "small.py")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def prepared(workload: str, dtype: str = "fp32", **given: Any) -> tuple[Any, Any, AutogradProgram]:
    work = find(workload)
    settings = resolve_settings(work, dtype=dtype, **given)
    program = get("eager").prepare(work, work.build(settings).to(DTYPES[dtype]), settings)
    assert isinstance(program, AutogradProgram)
    return work, settings, program


def placed(batch: Any, dtype: torch.dtype) -> Any:
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in batch)


def followed(work: Any, settings: Any, program: AutogradProgram, steps: int = 3) -> Updates:
    following = Updates(program, work, settings)
    for step in range(steps):
        following.before()
        program.train_step([placed(work.batch(settings, step), DTYPES[settings.dtype])])
        following.after(step + 1, compare=step in (0, steps - 1))
    return following


def worst(found: Updates) -> float:
    assert not found.warnings
    return worst_of(found)


def worst_of(found: Updates) -> float:
    assert found.errors
    errors = [error for error in found.errors.values() if error is not None]
    assert len(errors) == len(found.errors)
    return max(errors)


DLRM = {"preset": "small", "batch_size": 16}
KINDS: list[tuple[str, dict[str, Any]]] = [
    (SMALL, {}),
    ("mlp", {"preset": "wide", "batch_size": 16}),
    ("lora", {"preset": "small", "optimizer": "fused"}),
    ("dlrm", DLRM),
    ("dlrm", DLRM | {"dimensions": {"gradient": "sparse"}}),
    ("gpt2", {"preset": "tiny", "batch_size": 1, "sequence_length": 16}),
]


@pytest.mark.parametrize(("dtype", "most"), [("fp32", 1e-6), ("bf16", 0.012)])
@pytest.mark.parametrize(("workload", "given"), KINDS)
def test_pytorchs_optimizers_change_what_they_should(
    workload: str, given: dict[str, Any], dtype: str, most: float
) -> None:
    found = followed(*prepared(workload, dtype, **given))
    assert worst(found) < most
    assert {name.rpartition(" ")[2] for name in found.errors} == {"1", "3"}


def test_a_learning_rate_that_is_off_by_a_thousandth_shows() -> None:
    work, settings, program = prepared(SMALL)
    assert program.optimizer is not None
    program.optimizer.param_groups[0]["lr"] *= 1.001
    assert 5e-4 < worst(followed(work, settings, program)) < 1.1e-3


def test_a_second_moment_that_grows_by_a_thousandth_a_step_shows_in_the_last_step_alone() -> None:
    work, settings, program = prepared(SMALL)
    optimizer = program.optimizer
    assert optimizer is not None

    def grow(*_: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg_sq"].mul_(1.001)

    optimizer.register_step_post_hook(grow)
    found = followed(work, settings, program, steps=10)
    first = max(error or 0.0 for name, error in found.errors.items() if name.endswith("step 1"))
    assert first < 1e-6 and worst(found) > 1e-3


def test_parameters_that_the_optimizer_forgets_and_frozen_ones_that_move_show() -> None:
    work, settings, program = prepared(SMALL)
    assert program.optimizer is not None
    program.optimizer.param_groups[0]["params"].pop()
    assert worst(followed(work, settings, program)) > 0.5
    work, settings, program = prepared("lora", preset="small")
    frozen = next(p for p in program.model.parameters() if not p.requires_grad)
    following = Updates(program, work, settings)
    following.before()
    program.train_step([work.batch(settings, 0)])
    frozen.data.mul_(1.01)
    following.after(1, compare=True)
    assert following.errors["update of layers.0.weight, step 1"] == pytest.approx(0.01, rel=0.2)


def test_master_weights_are_compared_where_the_program_keeps_some() -> None:
    """A bf16 model whose optimizer steps fp32 copies: what it holds is those."""
    work, settings, program = prepared(SMALL, "bf16")
    names = [name for name, _ in program.model.named_parameters()]
    masters = {name: p.detach().float().requires_grad_() for name, p in program.model.named_parameters()}
    stepping = torch.optim.AdamW(masters.values(), lr=1e-4)

    class Mastered(AutogradProgram):
        updates_in = "fp32"

        def parameters(self) -> dict[str, torch.Tensor]:
            return dict(masters)

        def train_step(self, batches: Any) -> Any:
            result = super().train_step(batches)
            for name, p in self.model.named_parameters():
                assert p.grad is not None
                masters[name].grad = p.grad.float()
            stepping.step()
            with torch.no_grad():
                for name, p in self.model.named_parameters():
                    p.copy_(masters[name])
            return result

    idle = torch.optim.SGD(program.model.parameters(), lr=0.0)
    found = followed(work, settings, Mastered(work, program.model, program.model, idle))
    assert worst(found) < 1e-6 and len(found.errors) == 2 * len(names)


def test_following_leaves_the_numbers_that_a_step_draws_as_they_were() -> None:
    work, settings, program = prepared(SMALL)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    Updates(program, work, settings)
    assert torch.equal(torch.rand(3), wanted)


def test_an_optimizer_that_does_not_step_in_fp64_is_said_and_nothing_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Picky(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            if self.param_groups[0]["params"][0].dtype == torch.float64:
                raise TypeError("only single precision\nat line 3")
            return super().step(closure)

    work, settings, program = prepared(SMALL)
    monkeypatch.setattr(type(work), "optimizer", lambda self, model, settings: Picky(model.parameters(), lr=0.1))
    found = followed(work, settings, program)
    assert found.errors == {}
    assert len(found.warnings) == 1 and "does not step in fp64 (TypeError: only single precision)." in found.warnings[0]


def test_where_memory_is_short_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    work, settings, program = prepared(SMALL)
    monkeypatch.setattr(memory, "available_bytes", lambda device="cpu": 100.0)
    found = followed(work, settings, program)
    assert found.errors == {} and "memory is too short" in found.warnings[0]


def test_where_memory_is_short_for_some_the_others_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    work, settings, program = prepared("gpt2", preset="tiny", batch_size=1, sequence_length=16)
    sizes = {name: p.numel() for name, p in program.model.named_parameters()}
    room = sum(sizes.values()) - 1
    monkeypatch.setattr(updates, "_room", lambda device: room)
    found = followed(work, settings, program)
    missing = {name for name in sizes if f"update of {name}, step 1" not in found.errors}
    assert missing == {max(sizes, key=lambda name: sizes[name])} and worst_of(found) < 1e-6
    share = 1 - max(sizes.values()) / sum(sizes.values())
    assert found.warnings[0].startswith(
        f"What the optimizer changes was checked for {len(sizes) - 1} of {len(sizes)} parameters ({share:.0%} of"
    )


def test_a_gpu_that_is_nearly_full_leaves_small_models_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    room = {"cuda:0": 8e9, "cpu": 64e9}
    monkeypatch.setattr(memory, "available_bytes", lambda device="cpu": room[device])
    small, large = {"a": 1_000_000}, {"a": 90_000_000, "b": 34_000_000}
    huge = {"a": 900_000_000, "b": 3_000_000, "c": 2_000_000, "d": 12_000_000}
    assert updates.place(small, "cuda:0") == ("cuda:0", {"a"})
    assert updates.place(large, "cuda:0") == ("cpu", {"a", "b"})
    assert updates.place(huge, "cuda:0") == ("cuda:0", {"b", "c"})
    assert updates.place(large, "cpu") == ("cpu", {"a", "b"})


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of these small models are sampled too."""
    monkeypatch.setattr(updates, "SAMPLED", 256)
    monkeypatch.setattr(updates, "EDGE", 16)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(("dtype", "most"), [("fp32", 1e-6), ("bf16", 0.02)])
@pytest.mark.parametrize(("workload", "given"), KINDS)
def test_a_sample_of_elements_changes_as_it_should(
    workload: str, given: dict[str, Any], dtype: str, most: float
) -> None:
    assert worst(followed(*prepared(workload, dtype, **given))) < most


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("name", updates.ELEMENTWISE)
def test_optimizers_that_are_sampled_treat_each_element_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, work = getattr(torch.optim, name), find(SMALL)
    monkeypatch.setattr(type(work), "optimizer", lambda self, model, settings: kind(model.parameters(), lr=1e-3))
    work, settings, program = prepared(SMALL)
    following = followed(work, settings, program, steps=5)
    assert following._sampled and worst(following) < 1e-5


@pytest.mark.usefixtures("sampled")
def test_a_sample_shows_a_moment_that_is_a_thousandth_off_and_the_last_element_left_out() -> None:
    work, settings, program = prepared(SMALL)
    optimizer = program.optimizer
    assert optimizer is not None

    def grow(*_: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg_sq"].mul_(1.001)

    optimizer.register_step_post_hook(grow)
    found = followed(work, settings, program, steps=10)
    assert found._sampled and worst(found) > 1e-3

    work, settings, program = prepared(SMALL)
    optimizer, steps = program.optimizer, []
    assert optimizer is not None
    large = max(program.model.parameters(), key=lambda p: p.numel())

    def forget(*_: Any) -> None:
        steps.append(large.detach().clone())
        if len(steps) > 1:
            with torch.no_grad():
                large.view(-1)[-1] = steps[-2].view(-1)[-1]

    optimizer.register_step_post_hook(forget)
    assert worst(followed(work, settings, program, steps=3)) > 0.5


@pytest.mark.usefixtures("sampled")
def test_an_optimizer_that_is_not_known_to_treat_each_element_by_itself_is_followed_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(torch.optim.SGD):
        pass

    work = find(SMALL)
    monkeypatch.setattr(type(work), "optimizer", lambda self, model, settings: Own(model.parameters(), lr=0.1))
    found = followed(*prepared(SMALL))
    assert not found._sampled and worst(found) < 1e-6
