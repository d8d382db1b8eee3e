"""A slow program made fast through the server alone: measure, read findings and sources, patch, try, keep.

The client is scripted: it knows a change for each finding, and chooses by what the server answers. It reads and writes
no file of its own.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
from mcp import Client

from tests.agents.test_mcp import _text, _with
from tests.support.render.schema import wrong
from tests.tries.test_trees import git
from tests.tries.test_try import PROGRAM

SLOW = """\
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
WIDTH, ROWS, CLASSES = 32, 1024, 16


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x.t().contiguous().t().contiguous()
        return torch.relu(self.linear(x))


model = torch.nn.Sequential(*[Layer() for _ in range(32)], torch.nn.Linear(WIDTH, CLASSES))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
data = torch.randn(ROWS, WIDTH)
labels = torch.arange(ROWS) % CLASSES
weights = [[1.0 + (i + j) % 3 for j in range(4 * WIDTH)] for i in range(ROWS)]
for step in range(40):
    scale = torch.tensor(weights)
    loss = torch.nn.functional.cross_entropy(model(data * scale[:, :WIDTH]), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.6f}")
"""
# The line that a finding has to name, the text that is changed, and what it becomes.
FIXES = {
    "layout-copies": ("x = x.t()", "        x = x.t().contiguous().t().contiguous()\n", ""),
    "unfused-optimizer": ("optimizer.step()", "foreach=False, fused=False", "fused=True"),
    "list-to-tensor": (
        "scale = torch.tensor", "for step in range(40):\n    scale = torch.tensor(weights)\n",
        "scale = torch.tensor(weights)\nfor step in range(40):\n",
    ),
}  # fmt: skip
# Both look good. One trains the last layer alone: the first loss stays the same. One asks for the default.
WRONG = ("model(data * scale[:, :WIDTH])", "model[-1](model[:-1](data * scale[:, :WIDTH]).detach())")
NOISE = ("zero_grad()", "zero_grad(set_to_none=True)")

Call = Callable[..., Awaitable[dict[str, Any]]]


async def _asked(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, given)
    text = _text(result)
    assert not result.is_error and len(text.encode()) <= 4096, text
    found: dict[str, Any] = json.loads(text)
    print(tool, {name: value for name, value in given.items() if name != "patch"}, "->", text)
    return found


async def _tried(ask: Call, file: str, command: list[str], change: tuple[str, str], keep: bool) -> dict[str, Any]:
    """Try a change of a file, of which the server gives the text."""
    source = await ask("source", path=file)
    assert (source["first"], source["last"]) == (1, source["lines"]) and change[0] in source["text"]
    before, after = source["text"], source["text"].replace(*change)
    lines = [text.splitlines(keepends=True) for text in (before, after)]
    patch = "".join(difflib.unified_diff(*lines, f"a/{file}", f"b/{file}"))
    answer = await ask("try_change", command=command, patch=patch, keep=keep)
    assert not list(wrong(answer)) and answer["change"]["files"] == [file] and answer["more"] == ["history()"]
    return answer


def _project(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "slow")


def test_a_change_is_tried_and_kept(tmp_path: Path) -> None:
    """A right and faster one changes the folder, a wrong one does not; without the server's leave nothing is kept."""
    _project(tmp_path, "train.py", PROGRAM)
    command = ["--whole", "--", sys.executable, "train.py"]
    line = f"--whole -- {sys.executable} train.py"

    async def what(client: Client) -> None:
        ask = partial(_asked, client)
        refused = await client.call_tool("try_change", {"command": command[1:], "patch": "x", "keep": True})
        assert refused.is_error and f"perfkit try --keep {line}" in _text(refused)
        for change, decision in ((("0.3, 1.0", "0.02, 1.1"), "reject"), (("0.3, 1.0", "0.02, 1.0"), "accept")):
            answer = await _tried(ask, "train.py", command, change, keep=True)
            assert answer["decision"] == decision and answer["change"].get("kept", False) == (decision == "accept")
            assert (change[1] in (tmp_path / "train.py").read_text()) == (decision == "accept")
        assert len((await ask("history"))["tables"][0]["rows"]) == 2

    _with(tmp_path, what, "--allow-run", f"perfkit try --keep {line}")


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_three_faults_are_found_and_fixed(tmp_path: Path) -> None:
    _project(tmp_path, "slow.py", SLOW)
    command = ["--", sys.executable, "slow.py"]

    async def what(client: Client) -> None:
        ask, fixed = partial(_asked, client), list[str]()
        while len(fixed) < len(FIXES):
            report = await ask("capture", command=command)
            names = [*(one["rule"] for one in report["findings"]), *report.get("further", ())]
            rule = next(name for name in names if name in FIXES and name not in fixed)
            pages = await ask("select", path=report["measured"]["source"], parts=f"findings.{rule}")
            (finding,) = json.loads(pages["text"])[f"findings.{rule}"]["program"]
            line = finding["lines"][0]
            source = await ask("source", path=line["file"], first=line["line"])
            code, *change = FIXES[rule]
            assert source["text"].lstrip().startswith(code) and line["code"].startswith(code), (rule, line)
            answer = await _tried(ask, line["file"], command, (change[0], change[1]), keep=True)
            assert answer["decision"] == "accept" and answer["results"]["status"] == "right", (rule, answer)
            assert answer["change"]["kept"]
            fixed.append(rule)
        coarse = ["--resolution", "50%"]  # a busy machine cannot show less, and would not decide about noise
        for change, results, more in ((WRONG, "wrong", []), (NOISE, "right", coarse)):
            answer = await _tried(ask, "slow.py", [*more, *command], change, keep=True)
            assert answer["decision"] == "reject" and answer["results"]["status"] == results, answer
        history = await ask("history")
        assert [row[1] for row in history["tables"][0]["rows"]] == ["accept"] * 3 + ["reject"] * 2

    python = f"{sys.executable} slow.py"
    _with(tmp_path, what, "--allow-run", f"perfkit capture -- {python}", "--allow-run", f"perfkit try*-- {python}",
          limit_s=2900)  # fmt: skip
