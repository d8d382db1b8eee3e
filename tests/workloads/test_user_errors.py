"""An error in a user's own code is one sentence with the file and the line, wherever it happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit import faults
from perfkit.errors import InputError
from perfkit.workloads import find, resolve_settings
from tests.support.workloads.checking import said

TEXT = """import torch
from torch import nn
from torch.nn.functional import mse_loss
from perfkit.workloads import Workload
# import

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        # forward
        return self.a(x)

class Mine(Workload):
    name = "mine"
    summary = "mine"
    presets = {"small": {"batch_size": 4}}

    def build(self, settings):
        # build
        return Net()

    def batch(self, settings, step):
        # batch
        return torch.ones(4, 8)

    def optimizer(self, model, settings):
        # optimizer
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(self, outputs, batch):
        # loss
        return mse_loss(outputs, batch)
"""
STEP = """
    def step(self, model, batch, optimizer):
        model(batch).frobnicate()
"""


def written(folder: Path, place: str, line: str) -> Path:
    path = folder / "mine.py"
    path.write_text(TEXT.replace(f"# {place}", line), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("place", "line", "number", "error"),
    [
        ("build", "raise ValueError('no\\nmore')", 22, "ValueError: no"),
        ("batch", "1 / 0", 26, "ZeroDivisionError: division by zero"),
        ("optimizer", "settings.nothing", 30, "AttributeError: 'Settings' object has no attribute 'nothing'"),
        ("forward", "x = x[:, :5]", 14, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 8x8)"),
        ("loss", "outputs = outputs['logits']", 34, "IndexError: too many indices for tensor of dimension 2"),
    ],
)
def test_the_sentence_names_file_line_and_method(place, line, number, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = resolve_settings(find(str(written(tmp_path, place, line))))
    assert said(settings, tmp_path) == ("RunFailed", f"mine.py, line {number}, in {place}: {error}")


def test_an_error_in_a_step_of_its_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TEXT + STEP, encoding="utf-8")
    number = len(TEXT.splitlines()) + 3
    expected = f"{path}, line {number}, in step: AttributeError: 'Tensor' object has no attribute 'frobnicate'"
    assert said(resolve_settings(find(str(path))), tmp_path) == ("RunFailed", expected)


def test_an_error_in_a_file_that_it_imports(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("x = 1\ny = nothing\n", encoding="utf-8")
    path = written(tmp_path, "import", "import helper_of_mine")
    with pytest.raises(InputError, match=r"helper_of_mine\.py, line 2, failed while it was loaded: NameError"):
        find(str(path))


@pytest.mark.parametrize(
    ("place", "line", "error"),
    [
        (
            "batch",
            "return 'text'",
            "The workload's batch is of type str. Return a tensor, a tuple or a mapping of tensors.",
        ),
        ("loss", "return None", "The model returns no loss, and training needs one."),
        ("loss", "return outputs", "The loss has the shape (4, 8), and training needs one number. Take its mean."),
        ("loss", "return outputs.sum().detach()", "The loss does not depend on a parameter that learns."),
    ],
)
def test_what_is_of_a_wrong_form_is_said_to_be(place, line, error, tmp_path):
    kind, sentence = said(resolve_settings(find(str(written(tmp_path, place, line)))), tmp_path)
    assert kind == "InputError" and sentence.startswith(error)


def test_the_command_ends_with_one_sentence(run_cli, tmp_path):
    """In a process of its own, for once: no traceback, the exit code, nothing left behind."""
    path = written(tmp_path, "forward", "x = x.nothing")
    (tmp_path / "home").mkdir()
    done = run_cli(["inspect", path, "--backend", "compile"], cwd=tmp_path, env={"HOME": str(tmp_path / "home")})
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert done.rc == 1
    assert lines == [
        "perfkit: mine.py, line 13, in forward: AttributeError: 'Tensor' object has no attribute 'nothing'"
    ]


def test_a_place_that_only_the_message_tells():
    """As torch.compile repeats the user's traceback in its own message."""
    text = f'Dynamo failed\nfrom user code:\n  File "{__file__}", line 7, in forward\n    x.nothing'
    assert faults.place(RuntimeError(text)) == f"{faults._shown(__file__)}, line 7, in forward"


def test_what_came_from_an_engine_alone_has_no_place():
    assert faults.sentence(ValueError("wrong\nmore")) == "ValueError: wrong"
    assert faults.sentence(KeyError()) == "KeyError"
