"""Programs as their authors write them, captured without a change: steps, places, and all else as without perfkit."""

import sys

import pytest

from perfkit.programs.order import Order
from tests.programs.captured import ENVIRONMENT, alone, capture, command

ONE = "a step is one step of the optimizer"
# Program → what its steps are, forward modules that must be among the places, and the pattern of its layers.
PROGRAMS = {
    "plain": (ONE, {"embed", "blocks.0.up", "head"}, "blocks.*"),
    "accumulation": (ONE, {"0", "2", "4", "CrossEntropyLoss"}, ""),
    "amp": (ONE, {"0", "2"}, ""),
    "gan": ("a step is one round of the 2 optimizers", {"Generator.net.0", "Discriminator.net.2"}, ""),
    "workers": (ONE, {"0", "2"}, ""),
    "generation": (
        "a step is one call of the outermost module, and what follows until the next",
        {"transformer.h.0.attn.c_attn", "lm_head"},
        "transformer.h.*",
    ),
}
HEAVY = {
    "compiled": (ONE, {"Sequential"}, ""),
    "trainer": (ONE, {"transformer.h.1.mlp.c_fc", "lm_head"}, "transformer.h.*"),
    "lit": (ONE, {"0", "2"}, ""),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def shares(table):
    """Of the operators' time in steps the part whose pass, and whose module is known."""
    frame = table.frame[table.frame["step"].notna()]
    total = frame["duration_ns"].sum()
    return [frame["duration_ns"][frame[name].notna()].sum() / total for name in ("pass", "module")]


def check(name, expected, tmp_path):
    steps_are, modules, layers = expected
    found = capture(command(name), tmp_path)
    (_, result) = found.recorded[0]
    assert len(found.recorded) == 1 and not result.problem
    assert (result.steps_are, result.layers) == (steps_are, layers)
    assert len(result.step_ns) == 2 and len(result.warmup_ns + result.samples_ns) >= 1
    table = found.table()
    assert table.facts["steps"] == 2
    assert modules <= set(table.frame["module"].dropna())
    assert min(shares(table)) > 0.95
    without = alone(command(name))
    assert found.stdout == without.stdout and found.stderr == without.stderr and found.code == without.returncode == 0
    return table


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, tmp_path):
    table = check(name, PROGRAMS[name], tmp_path)
    passes = set(table.frame["pass"].dropna())
    assert passes == ({"forward"} if name == "generation" else {"forward", "backward", "optimizer"})


@pytest.mark.full
@pytest.mark.parametrize("name", HEAVY)
def test_heavy_programs(name, tmp_path):
    if name == "lit":
        pytest.importorskip("lightning", reason="Lightning is not installed (extra `integrations`)")
    check(name, HEAVY[name], tmp_path)


def test_every_rank_of_torchrun_is_recorded(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", command("ranks")[1]]
    found = capture(words, tmp_path)
    assert [result.rank for _, result in found.recorded] == [0, 1]
    assert [len(result.step_ns) for _, result in found.recorded] == [2, 2]
    assert min(shares(found.table(1))) > 0.85  # what the reducer of gradients does belongs to no module
    assert found.code == 0 and found.stdout == alone(words).stdout


def test_a_step_has_the_batches_that_it_had(tmp_path):
    """Four accumulated batches and one optimizer step in each."""
    table = capture(command("accumulation"), tmp_path).table()
    frame = table.frame
    losses = frame[(frame["module"] == "CrossEntropyLoss") & (frame["pass"] == "forward")]
    assert losses.groupby("step")["operator"].apply(lambda names: (names == "cross_entropy_loss").sum()).nunique() == 1


def test_the_program_can_be_ended_after_the_recorded_steps(tmp_path):
    found = capture(command("plain"), tmp_path, Order(warmup=2, steps=1, stop=True))
    assert found.code == 0 and len(found.recorded) == 1
    assert len(found.stdout.splitlines()) < 6
