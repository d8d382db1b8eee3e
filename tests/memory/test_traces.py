"""Who holds the memory in recorded steps, held against the program's own objects and their sizes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from perfkit.readers import read

NET = """
import sys, torch
from torch.utils.checkpoint import checkpoint

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(32, 256), torch.nn.Linear(256, 32)
    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x)))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(8))
        self.register_buffer("scale", torch.ones(1000))
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in sys.argv else block(x)
        return x

net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(12):
    loss = net(torch.randn(512, 32)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("over")
"""
PARAMETERS = 8 * (32 * 256 + 256 + 256 * 32 + 32) * 4
STATE = 2 * PARAMETERS + 8 * 4 * 4  # two moments, and the number of steps of each of 32 parameters


def _captured(run_cli: Any, folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    program = folder / "net.py"
    program.write_text(NET)
    options = ["--warmup", "4", "--steps", "2", "--out", folder / "run"]
    command = ["capture", "--memory", *options, "--", sys.executable, program]
    done = run_cli([*command, *arguments], env={"OMP_NUM_THREADS": "1"})
    assert (done.rc, done.stdout) == (0, "over\n"), done.stderr
    (backend,) = json.loads((folder / "run" / "report.json").read_text())["backends"]
    (device,) = backend["memory"]
    return device, done.stderr


@pytest.mark.slow
def test_a_captured_program_and_what_checkpointing_saves(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "checkpointed").mkdir()
    plain, said = _captured(run_cli, tmp_path / "plain")
    kinds = {part["kind"]: part["bytes"] for part in plain["peak"]["parts"]}
    assert (kinds["parameters"], kinds["buffers"], kinds["optimizer state"]) == (PARAMETERS, 4000, STATE)
    known = {part["kind"]: part["known_bytes"] for part in plain["end"]["parts"]}
    assert known["gradients"] == PARAMETERS
    assert sum(kinds.values()) == plain["peak"]["allocated"] == sum(one["bytes"] for one in plain["peak"]["owners"])
    assert {"blocks.0", "blocks.7"} <= {one["name"] for one in plain["peak"]["owners"] if one["kind"] == "activations"}
    line = 1 + NET.splitlines().index("        return x + self.b(torch.tanh(self.a(x)))")
    activations = [one for one in plain["peak"]["owners"] if one["name"] == "blocks.0" and one["kind"] == "activations"]
    assert {(Path(one["file"]).name, one["line"]) for one in activations} == {("net.py", line)}
    assert "Who holds the peak: cpu" in said

    (remedy,) = [one for one in plain["remedies"] if one["name"] == "checkpointing"]
    assert remedy["costs_ns"] > 0
    checkpointed, _ = _captured(run_cli, tmp_path / "checkpointed", "checkpoint")
    measured = plain["peak"]["allocated"] - checkpointed["peak"]["allocated"]
    assert remedy["saves"] == pytest.approx(measured, rel=0.1)


def test_a_trace_of_somebody_else(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, record_shapes=True) as profiler:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(256, 64)).square().mean().backward()
            optimizer.step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    (device,) = read(tmp_path / "trace.json").facts["memory"]  # type: ignore[union-attr]
    kinds = {part["kind"]: part["bytes"] for part in device["peak"]["parts"]}
    assert sum(kinds.values()) == device["peak"]["allocated"]
    assert kinds["activations"] >= 256 * 512 * 4, "what tanh saves"
    assert {part["kind"]: part["bytes"] for part in device["end"]["parts"]}["gradients"] == sum(
        p.numel() * 4 for p in net.parameters()
    )
    assert not any(part["known_bytes"] for part in device["peak"]["parts"]), "nothing here knows the program's objects"


class Lion(torch.optim.Optimizer):
    """An optimizer of the program's own, which works on lists as PyTorch's do."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        torch._foreach_sub_(parameters, torch._foreach_mul([p.grad for p in parameters], 1e-3))


@pytest.mark.parametrize("stacks", [False, True])
def test_an_optimizer_of_the_program_has_no_fused_one(tmp_path: Path, stacks: bool) -> None:
    for make, advised in ((lambda p: torch.optim.Adam(p, foreach=True), True), (lambda p: Lion(p, {}), False)):
        parameter = torch.nn.Parameter(torch.zeros(1 << 20))
        parameter.grad, optimizer = torch.ones_like(parameter), make([parameter])
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=cpu, profile_memory=True, with_stack=stacks) as profiler:
            optimizer.step()
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        (device,) = read(tmp_path / "trace.json").facts["memory"]  # type: ignore[union-attr]
        assert device["peak"]["allocated"] >= 4 << 20
        assert ("fused" in [remedy["name"] for remedy in device["remedies"]]) == advised
