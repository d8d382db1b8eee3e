"""CONTRIBUTING's diffs of a new reader, backend and finding: each adds one file, and that is enough."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfkit import backends
from perfkit.errors import InputError
from perfkit.readers import formats, read
from perfkit.table import KernelTable
from tests.conftest import ROOT
from tests.support.analysis import faults

_DIFF = re.compile(r"^```diff\n--- /dev/null\n\+\+\+ b/(\S+)\n@@ -0,0 \+1,(\d+) @@\n(.*?)^```$", re.M | re.S)


def diffs() -> dict[str, str]:
    """The new files of CONTRIBUTING's diffs, by path."""
    found = {}
    for path, lines, body in _DIFF.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        assert all(line.startswith("+") for line in body.splitlines())
        assert len(body.splitlines()) == int(lines)
        found[path] = "".join(line[1:] + "\n" for line in body.splitlines())
    return found


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Apply the diff of a path: its package finds the new file next to its own."""
    added = []

    def apply(path: str) -> None:
        package = importlib.import_module(str(Path(path).parent).replace("/", "."))
        (tmp_path / Path(path).name).write_text(diffs()[path], encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        added.append((package, Path(path).stem))
        _forget()

    yield apply
    for package, name in added:
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)
    _forget()


def _forget() -> None:
    formats.all_formats.cache_clear()
    backends._built_in.cache_clear()


def test_there_is_one_of_each() -> None:
    assert [str(Path(path).parent) for path in diffs()] == [
        "perfkit/readers/formats", "perfkit/backends", "perfkit/analysis/rules"
    ]  # fmt: skip
    assert not [path for path in diffs() if (ROOT / path).exists()]


def test_a_format(applied: Callable[[str], None], tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("# durations\ngelu,2.5\nmm,10\n")
    with pytest.raises(InputError, match="not a profile"):
        read(listed)
    applied("perfkit/readers/formats/durations.py")
    table = read(listed)
    assert isinstance(table, KernelTable)
    assert table.frame["duration_ns"].tolist() == [2500, 10000]
    listed.write_text("# durations\ngelu\n")
    with pytest.raises(InputError, match="name,microseconds"):
        read(listed)
    listed.write_text("else")
    with pytest.raises(InputError) as refused:
        read(listed)
    assert "lists of durations" in str(refused.value) + str(vars(refused.value))


def test_a_backend(applied: Callable[[str], None]) -> None:
    from perfkit.workloads import loader
    from perfkit.workloads.settings import resolve_settings

    assert "traced" not in backends.names()
    applied("perfkit/backends/traced.py")
    assert "traced" in backends.names()
    workload = loader.find("gpt2")
    settings = resolve_settings(workload, preset="tiny")
    losses = []
    for name in ("eager", "traced"):
        program = backends.get(name).prepare(workload, workload.build(settings), settings)
        losses.append(float(program.train_step([workload.batch(settings, step=0)])[1]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_finding(applied: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    rules = importlib.import_module("perfkit.analysis.rules")
    assert "sorting" not in rules.by_name()
    applied("perfkit/analysis/rules/sorting.py")
    monkeypatch.setattr(rules, "RULES", (*rules._of_steps(), *rules.OF_KERNELS))
    assert "sorting" in rules.by_name()
    slow = faults.report([faults.product(), faults.cpu("sort", 300)], 1300)
    found = {finding.name: finding for finding in slow.findings}
    assert found["sorting"].saving_ns == pytest.approx(300e3)
    assert "sorting" not in {f.name for f in faults.report([faults.product()], 1000).findings}
