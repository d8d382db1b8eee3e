"""`benchmarks/llama_gpu.py`: figures are kept as they come, whatever becomes of the parts behind them."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import llama_gpu
from benchmarks.llama_gpu import Goal


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["llama_gpu.py", *arguments])
    return llama_gpu.main()


def test_a_part_that_fails_leaves_the_figures_of_the_others(tmp_path, monkeypatch, capsys):
    path = tmp_path / "figures.json"
    seen = []

    def breaks(options, folder):
        yield Goal("before", 2.0, 1.0)
        seen.extend(json.loads(path.read_text()))  # written before the part went on
        raise RuntimeError("no memory")

    def works(options, folder):
        yield Goal("after", 0.5, 1.0, most=True)

    monkeypatch.setattr(llama_gpu, "PARTS", {"breaks": breaks, "works": works})
    assert main(monkeypatch, "--json", str(path)) == 1
    assert [row["what"] for row in seen] == ["before"]
    rows = json.loads(path.read_text())
    assert [(row["part"], row["what"], row["reached"]) for row in rows] == [
        ("breaks", "before", True),
        ("works", "after", True),
    ]
    printed = capsys.readouterr().out
    assert "FAILED   breaks: RuntimeError: no memory" in printed
    assert printed.splitlines()[-1] == "2 of 2 reached, failed: breaks"
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]


def test_a_missed_goal_and_a_reached_one(monkeypatch, capsys):
    monkeypatch.setattr(llama_gpu, "PARTS", {"one": lambda options, folder: [Goal("speed", None, 1.0)]})
    assert main(monkeypatch) == 1
    monkeypatch.setattr(llama_gpu, "PARTS", {"one": lambda options, folder: [Goal("speed", 1.0, 1.0)]})
    assert main(monkeypatch) == 0
    assert "MISSED   speed: none, asked ≥ 1.0" in capsys.readouterr().out


def test_the_limit_ends_a_run_and_begins_no_other(monkeypatch, capsys):
    monkeypatch.setattr(llama_gpu, "PERFKIT", [sys.executable, "-c", "import time; time.sleep(60)"])
    assert main(monkeypatch, "--only", "train,decode", "--limit", "0.2") == 1
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("FAILED")] == [
        f"FAILED   {part}: TimeoutError: ended by --limit 0.2" for part in ("train", "decode")
    ]


def test_a_part_that_does_not_exist(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        main(monkeypatch, "--only", "kernels,speed")
    assert ended.value.code == 2
    assert "--only knows no speed; there are kernels, head, train, decode." in capsys.readouterr().err


@pytest.mark.parametrize(("part", "backends"), [("train", llama_gpu.TRAIN), ("decode", llama_gpu.DECODE)])
def test_the_backends_are_those_of_the_goals_unless_others_are_asked_for(part, backends, monkeypatch):
    calls = []
    monkeypatch.setattr(llama_gpu, "perfkit", lambda options, *arguments: calls.append(arguments))
    main(monkeypatch, "--only", part)
    main(monkeypatch, "--only", part, "--backend", "thunder")
    assert [call[call.index("--backend") + 1] for call in calls] == [backends, "thunder"]
    assert "thunder" not in llama_gpu.DECODE.split(",")
