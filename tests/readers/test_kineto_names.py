"""Names that PyTorch's exporter damages: perfkit's own survive, a program's are repaired, what is lost is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from perfkit import profile_names, ranges
from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.kineto.decode.read import read_events
from perfkit.table import KernelTable
from tests.support.readers import traces

ODD = ['say "hi"', "C:\\data", "слой", "tab\there", "two\nlines", "100 %41", 'end"', "a|b;c", "\ud800", ""]


@pytest.mark.parametrize("name", [*ODD, "perfkit:module:ключ", "plain.0.layer"])
def test_a_name_survives_the_trace(name: str) -> None:
    written = profile_names.to_trace(name)
    assert written.isascii()
    assert written.isprintable()
    assert not set('"\\') & set(written)
    assert profile_names.from_trace(written) == name.encode(errors="replace").decode()


def test_plain_names_stay_as_they_are() -> None:
    for name in ("perfkit:step:3", "perfkit:module:h.0.attn", "100 %41", "a b|c;d"):
        assert profile_names.to_trace(name) == name == profile_names.from_trace(name)


@pytest.mark.parametrize("module", [name for name in ODD if name not in ("\ud800", "")])
def test_members_of_a_line_keep_their_names(module: str) -> None:
    name = profile_names.line_name("forward", 3, "symbol", [(module, "a|b", 0.5), ("h.0", "gelu", 0.5)])
    line = profile_names.line_of(profile_names.from_trace(profile_names.to_trace(name)))
    assert line is not None
    assert line.served == ((module, "a|b", 0.5), ("h.0", "gelu", 0.5))


def _captured(path: Path, work: object) -> Path:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        work()  # type: ignore[operator]
    profiler.export_chrome_trace(str(path))
    return path


def _read(path: Path) -> KernelTable:
    table = read(path)
    assert isinstance(table, KernelTable)
    return table


@pytest.mark.parametrize("key", ["ключ", 'a"b', "back\\slash", "tab\tbed"])
def test_modules_of_any_name_are_places(key: str, tmp_path: Path) -> None:
    model = nn.ModuleDict({key: nn.Linear(64, 64), "plain": nn.Linear(8, 8)})
    data = torch.ones(256, 64)

    def work() -> None:
        with ranges.step(0), ranges.in_pass("forward"), ranges.modules_marked(model):
            model[key](data)
            model["plain"](torch.ones(2, 8))

    table = _read(_captured(tmp_path / "t.json", work))
    products = table.frame[table.frame["name"] == "aten::addmm"]
    assert products["module"].tolist() == [key, "plain"]
    assert not [w for w in table.warnings if "unknown" in w or "repaired" in w]


def test_a_programs_own_name_with_a_quote_is_repaired(tmp_path: Path) -> None:
    def work() -> None:
        for name in ('load "train"', "plain"):
            with record_function(name):
                torch.ones(1000).relu()

    path = _captured(tmp_path / "t.json", work)
    named = "load 'train'" if "load 'train'" in path.read_text() else 'load "train"'  # torch 2.14 writes ' for "
    table = _read(path)
    assert {str(r).split("/")[0] for r in table.frame["range"].dropna()} >= {named, "plain"}
    repaired = [w for w in table.warnings if "repaired: 'load \"train\"'" in w]
    try:
        json.loads(path.read_text())
    except json.JSONDecodeError:
        assert repaired
    else:
        assert not repaired


def test_a_name_that_torch_calls_unknown_is_said(tmp_path: Path) -> None:
    def work() -> None:
        with record_function("слой"):
            torch.ones(1000).relu()

    (said,) = [w for w in _read(_captured(tmp_path / "t.json", work)).warnings if "unknown" in w]
    assert said.startswith('1 event is called "unknown"')


_OLD = """{{
  "schemaVersion": 1,{extra}
  "traceEvents": [
  {{
    "ph": "X", "cat": "{cat}", {gap}"name": "{name}", "pid": 1, "tid": "1",
    "ts": 100, "dur": 10,
    "args": {{
      "Device": 1, "External id": 2{args}
    }}
  }},
  {{
    "name": "process_name", "ph": "M", "ts": 100, "pid": 1, "tid": 0,
    "args": {{
      "name": "python"
    }}
  }}
  ]
}}"""


def _old(path: Path, name: str = "plain", cat: str = "cpu_op", gap: str = "", args: str = "", extra: str = "") -> Path:
    path.write_text(_OLD.format(name=name, cat=cat, gap=gap, args=args, extra=extra))
    return path


@pytest.mark.parametrize(
    "old",
    [
        {"name": 'a"b'},
        {"name": "a\\qb"},
        {"name": "tab\there"},
        {"name": 'x"}, {"ph": 3'},
        {"name": 'a"b', "gap": "\n    "},
        {"args": ', "Call stack": "pa"th.py(3): f;g", "Ev Idx": 3'},
        {"args": ',\n      "Call stack": "pa"th.py(3): f;g"'},
        {"extra": '\n  "config": "{"lr": 1, }",'},
    ],
)
def test_texts_of_each_layout_are_repaired(old: dict[str, str], tmp_path: Path) -> None:
    table = _read(_old(tmp_path / "t.json", **old))
    assert [w for w in table.warnings if "they were repaired" in w]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"dur": 10', '"dur": 1"0'),
        lambda text: text.replace('"name": "plain", "pid"', '"name": "pl"ain" "pid"'),
        lambda text: text[:-20],
        lambda text: text.replace('"ts": 100', '"ts" 100'),
        lambda text: text.replace('"plain"', '"pl"ain", "x": 3, "na"me": "y"'),
    ],
)
def test_other_damage_stays_a_sentence(damage: object, tmp_path: Path) -> None:
    path = _old(tmp_path / "t.json")
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(InputError, match="damaged"):
        read(path)


def test_a_repair_across_blocks(tmp_path: Path) -> None:
    """Blocks end in the middle of names: lines are put together first."""
    count = 40_000
    events = ",\n".join(
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "op "{i}"", "pid": 1, "tid": 1,\n    "ts": {i}, "dur": 1\n  }}'
        for i in range(count)
    )
    path = tmp_path / "t.json"
    path.write_text(f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n{events}\n  ]\n}}')
    found = read_events(path, lambda name: False)
    assert len(found.host) == count
    assert set(found.host.names) == {f'op "{i}"' for i in range(count)}


def test_nan_beside_the_events_is_no_damage(tmp_path: Path) -> None:
    path = traces.write(
        tmp_path / "t.json", [traces.op("aten::relu", 0, 10, [[8]])], lr=float("nan"), most=float("inf")
    )
    assert "NaN" in path.read_text()
    assert len(_read(path).frame) == 1
