"""Commands that run PyTorch say so in a sentence where it is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.cli.parts import shown
from perfkit.errors import Unavailable


@pytest.mark.parametrize(
    "command", [["bench", "gelu"], ["inspect", "gelu_forward"], ["export", "gpt2", "--llmc", "out"]]
)
def test_the_sentence(command, run_cli, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # A finder that knows no torch, in every process that starts here.
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'torch' else found(name, package)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = run_cli(command, cwd=tmp_path, env={"PYTHONPATH": f"{hidden}:{root}"})
    assert done.rc == 2
    assert "PyTorch is not installed" in done.stderr and "pip install 'perfkit[run]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_torch_nothing_is_said(monkeypatch):
    shown.need_torch("perfkit bench")
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="`perfkit bench` runs it"):
        shown.need_torch("perfkit bench")
