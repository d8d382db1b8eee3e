"""Brief answers of every command and sample profile: by the schema of the docs, short, and no number of their own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.render import brief, terminal
from perfkit.render.output import of_report
from tests.support.render import sample
from tests.support.render.schema import SCHEMA, fields, wrong

FIELDS = Path(__file__).with_name("brief-fields-1.txt")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_OF_ANSWER = ("schema", "left_out", "more")  # what is about the answer itself
# Commands about a profile: the options of both runs, and those that print all of the page.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "report": (("--format", "none"), ("--limit", "0")),
    "compare": (("--anyway",), ("--limit", "0")),
    "inspect": ((), ("--limit", "0")),
}
COMMANDS_READ = {"report": 15, "compare": 15, "inspect": 4}  # samples that each reads at least
SMALL = (
    "kineto/triton-tiny.json.gz",
    "kineto/rocm-mi250-tiny.json.gz",
    "nsys/runtime-only-no-kernel-table-schema3.17.2.sqlite",
)


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (one for key in value for one in (str(key), *_values(value[key])))
    elif isinstance(value, list):
        yield from (one for each in value for one in _values(each))
    elif not isinstance(value, bool) and value is not None:
        yield value


def _numbers(texts: Sequence[str]) -> set[str]:
    """The numbers that texts hold, as written."""
    return {number for text in texts for number in _NUMBER.findall(text)}


def holds(text: str, full: Any, page: str = "") -> None:
    """Assert that a brief answer is valid and short, and that its numbers are those of the `full` result and `page`."""
    assert len(text.encode()) <= brief.LARGEST and text.count("\n") == 1
    said = json.loads(text)
    assert not list(wrong(said))
    told = [one for name, value in said.items() if name not in _OF_ANSWER for one in _values(value)]
    known = [*_values(full)]
    assert {one for one in told if not isinstance(one, str)} <= {one for one in known if not isinstance(one, str)}
    texts = [page, *map(str, known)]
    assert _numbers([one for one in told if isinstance(one, str)]) <= _numbers(texts)
    assert not any(ord(character) < 32 for character in text.rstrip("\n"))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that is wide enough for all columns of a table: a narrow one leaves some out."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(terminal, "WIDEST", 1000)


def _run(words: Sequence[object]) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0)


def test_fields_are_only_added() -> None:
    """A field that disappears or changes its type breaks its readers: a new one goes into the list, none leaves it."""
    assert SCHEMA["properties"]["schema"]["const"] == brief.SCHEMA == 1
    assert sorted(fields()) == FIELDS.read_text().split("\n")[:-1]


@pytest.mark.parametrize("name", ["sample", "hostile"])
def test_reports_are_of_the_schema(name: str) -> None:
    report = sample.report() if name == "sample" else sample.hostile()
    output = of_report(report)
    holds(brief.render(output), json.loads(output.text("json")), output.text("txt"))


def _samples(folder: Path) -> list[Path]:
    """Every profile: files, and folders of a job's ranks."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".md", ".txt")]
    ranks = {path.parent for path in files if "ranks" in path.parts}
    return [*files, *sorted(ranks)]


def _same(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> bool:
    """Hold the brief answer of a command about a profile against its full result; whether it could be read."""
    before, after = COMMANDS[command]
    words = [command, *([path] * (1 + (command == "compare"))), *before]
    if _run([*words, "--brief"]) == 2:
        error = capsys.readouterr().err
        assert error.count("\n") >= 1 and "Traceback" not in error
        return False
    answer = capsys.readouterr().out
    _run([*words, "--json"])
    full = capsys.readouterr().out
    _run([*words, *after])
    holds(answer, json.loads(full), capsys.readouterr().out)
    return True


@pytest.mark.parametrize("name", SMALL)
def test_small_samples(name: str, samples: Path, wide: None, capsys: pytest.CaptureFixture[str]) -> None:
    _same(samples / name, "report", capsys)
    _same(samples / name, "compare", capsys)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", COMMANDS)
def test_all_samples(command: str, samples: Path, wide: None, capsys: pytest.CaptureFixture[str]) -> None:
    read = [path for path in _samples(samples) if _same(path, command, capsys)]
    assert len(read) >= COMMANDS_READ[command]


MEASURED: dict[str, tuple[str, ...]] = {
    "run": ("run", "mlp", "--steps", "2", "--backend", "eager"),
    "bench": ("bench", "gelu_forward", "--implementation", "pytorch,c:1", "--sizes", "N=64", "--no-ceilings"),
    "bench of a trace": (
        "bench",
        "SAMPLES/kineto/rocm-mi250-tiny.json.gz",
        "--kernel",
        "1",
        "--no-ceilings",
        "--seconds",
        "0.01",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MEASURED)
def test_commands_that_measure(name: str, samples: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    words = [word.replace("SAMPLES", str(samples)) for word in MEASURED[name]]
    done = run_cli([*words, "--out", tmp_path / "out", "--brief"])
    assert done.rc == 0, done.stderr
    full = tmp_path / "out" / "report.json" if name == "run" else next((tmp_path / "out").glob("*.json"))
    holds(done.stdout, json.loads(full.read_text()), full.with_suffix(".md").read_text())
    if name == "run":
        options = ["--ranks", "2", "--link", "pcie4", "--out", tmp_path / "scale", "--brief"]
        scaled = run_cli(["scale", tmp_path / "out", *options])
        assert scaled.rc == 0, scaled.stderr
        full = tmp_path / "scale" / "scale.json"
        holds(scaled.stdout, json.loads(full.read_text()), full.with_suffix(".md").read_text())


@pytest.mark.full
def test_a_capture(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(8, 8)\nfor _ in range(30): model(torch.ones(4, 8))\n"
    )
    done = run_cli(["capture", "--brief", "--out", tmp_path / "out", "--", sys.executable, "train.py"], cwd=tmp_path)
    assert done.rc == 0, done.stderr
    full = tmp_path / "out" / "report.json"
    holds(done.stderr.splitlines(keepends=True)[-1], json.loads(full.read_text()), full.with_suffix(".md").read_text())


@pytest.mark.full
def test_an_inspection(run_cli: Callable[..., Any]) -> None:
    words = ["inspect", "gelu_forward", "--implementation", "c"]
    brief_, full = run_cli([*words, "--brief"]), run_cli([*words, "--json"])
    assert brief_.rc == full.rc == 0, brief_.stderr
    holds(brief_.stdout, json.loads(full.stdout))
    assert json.loads(brief_.stdout)["tables"][0]["columns"] == ["fact", "value"]
