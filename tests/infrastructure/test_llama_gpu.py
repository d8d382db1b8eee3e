"""`benchmarks/llama_gpu.py`: figures are kept as they come, even if later parts fail."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(("found", "code"), [(0.9, 0), (None, 1)])
def test_measuring_misses_a_goal_without_failing_but_not_a_figure(monkeypatch, found, code):
    monkeypatch.setattr(llama_gpu, "PARTS", {"one": lambda options, folder: [Goal("speed", found, 1.0)]})
    assert main(monkeypatch, "--measure") == code


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
    monkeypatch.setattr(llama_gpu, "perfkit", lambda options, *arguments: calls.append(arguments) or "")
    main(monkeypatch, "--only", part)
    main(monkeypatch, "--only", part, "--backend", "thunder")
    assert [call[call.index("--backend") + 1] for call in calls] == [backends, "thunder"]
    assert "thunder" not in llama_gpu.DECODE.split(",")


SAYS = "import sys; print('beside it', file=sys.stderr); print('the report')"


def test_what_perfkit_says_is_shown_and_returned(monkeypatch, capfd):
    monkeypatch.setattr(llama_gpu, "PERFKIT", [sys.executable, "-c", SAYS])
    options = SimpleNamespace(began=time.monotonic(), limit=float("inf"))
    assert llama_gpu.perfkit(options, "run") == "beside it\n"
    shown = capfd.readouterr()
    assert shown.out == "$ perfkit run\nthe report\n" and shown.err == "beside it\n"


@pytest.mark.parametrize("reported", [True, False], ids=["for a backend", "for the whole run"])
def test_half_the_batch_is_trained_where_memory_runs_out(tmp_path, monkeypatch, capsys, reported):
    batches = []

    def perfkit(options, *arguments):
        batch = int(arguments[arguments.index("-B") + 1])
        batches.append(batch)
        short = "The GPU's memory ran out: 15.66 GiB more were asked for." if batch > 2 else ""
        if short and not reported:
            return f"perfkit: {short}"
        step = {"value": 1e6}
        backends = [{"name": name, "status": "ok", "reason": "", "step": step} for name in ("compile", "llmc")]
        backends[0] |= {"status": "failed", "reason": short, "step": None} if short else {}
        out = Path(arguments[arguments.index("--out") + 1])
        out.mkdir(parents=True)
        (out / "report.json").write_text(json.dumps({"backends": backends}))
        return ""

    monkeypatch.setattr(llama_gpu, "perfkit", perfkit)
    main(monkeypatch, "--only", "train", "--out", str(tmp_path))
    printed = capsys.readouterr().out
    assert batches == [8, 4, 2]
    assert "B = 8 does not fit: B = 4\nB = 4 does not fit: B = 2\n" in printed
    assert "reached  share of the backends that are right at B = 2: 1.00" in printed


def test_a_kernel_is_held_against_a_copy_of_as_many_bytes(tmp_path, monkeypatch, capsys):
    row = {"way": "cuda:1", "status": "ok", "cold": {"ns": {"value": 1e4}, "bandwidth": 1.8e12}}
    point = {"bytes": 84e6, "rows": [row]}
    for name in llama_gpu.KERNELS:
        (tmp_path / f"bench-{name}.json").write_text(json.dumps({"points": [point]}))
    monkeypatch.setattr(llama_gpu, "perfkit", lambda options, *arguments: "")
    monkeypatch.setattr(llama_gpu, "copied", lambda device, moved: 2e12 if moved == 84e6 else 3e12)
    main(monkeypatch, "--only", "kernels", "--out", str(tmp_path))
    shares = [line for line in capsys.readouterr().out.splitlines() if "that of a copy of" in line]
    assert len(shares) == len(llama_gpu.KERNELS)
    assert shares[0].startswith("reached") and shares[0].endswith(
        "cuda:1, bandwidth / that of a copy of the 84 MB that it moves (0.60 of a large copy's): 0.90, asked ≥ 0.9"
    )
