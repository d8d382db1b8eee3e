"""CONTRIBUTING's diffs of a new reader, backend, finding, kernel family and section: new files, and nothing else."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfkit import backends
from perfkit.analysis.report.analyse import analyse_any
from perfkit.analysis.rules.base import Rule
from perfkit.errors import InputError
from perfkit.readers import formats, read
from perfkit.render import html, markdown, notebook, terminal
from perfkit.table import KernelTable
from tests.conftest import ROOT
from tests.support.analysis import faults
from tests.support.render import sample

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
        "perfkit/readers/formats", "perfkit/backends", "perfkit/analysis/rules", "kernels/squared_relu",
        "kernels/squared_relu", "kernels/squared_relu", "perfkit/render/sections",
    ]  # fmt: skip
    assert not [path for path in diffs() if (ROOT / path).exists()]


def test_a_format(applied: Callable[[str], None], tmp_path: Path) -> None:
    listed = tmp_path / "mine.durations"
    listed.write_text("# durations\ngelu,2.5\nmm,10\n")
    with pytest.raises(InputError, match="not a profile"):
        read(listed)
    applied("perfkit/readers/formats/durations.py")
    table = read(listed)
    assert isinstance(table, KernelTable)
    assert table.frame["duration_ns"].tolist() == [2500, 10000]
    report = analyse_any(table, listed)
    assert (report.title, report.backends[0].per) == ("List of durations mine", "profile")
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
    monkeypatch.setattr(rules, "RULES", rules.collected(rules.__name__, Rule))
    assert "sorting" in rules.by_name()
    slow = faults.report([faults.product(), faults.cpu("sort", 300)], 1300)
    found = {finding.name: finding for finding in slow.findings}
    assert found["sorting"].saving_ns == pytest.approx(300e3)
    assert "sorting" not in {f.name for f in faults.report([faults.product()], 1000).findings}


_TRAINED = """
import sys
import torch
import perfkit.bench.setup
import perfkit.kernels

for name in ("squared_relu_forward", "squared_relu_backward"):
    for result in perfkit.kernels.check(name, extra_dirs=[sys.argv[1]]):
        result.require()
perfkit.kernels.load([sys.argv[1]])


def losses(activation):
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(10):
        loss = (second(activation(first(x))) - y).square().mean()
        yield float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


own, plain = (list(losses(f)) for f in (torch.ops.perfkit.squared_relu_forward, lambda x: x.relu() ** 2))
assert own[-1] < own[0] and torch.allclose(torch.tensor(own), torch.tensor(plain), rtol=1e-5), (own, plain)
operations = [o.name for family in perfkit.kernels.catalog([sys.argv[1]]) for o in family.operations]
assert "squared_relu_forward" in operations, operations
benchmark = perfkit.bench.setup.benchmarks("squared_relu_forward", "cpu", False, [sys.argv[1]])[0]
assert [way.name for way in benchmark.ways][:2] == ["naive", "pytorch"], benchmark.ways
"""


def test_a_kernel_family(tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "squared_relu"
    folder.mkdir(parents=True)
    for path, text in diffs().items():
        if path.startswith("kernels/"):
            (folder / Path(path).name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _TRAINED, str(folder.parent)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_section_of_the_report(applied: Callable[[str], None]) -> None:
    report = sample.report()
    assert "Longest calls" not in terminal.render(report, limit=0)
    applied("perfkit/render/sections/longest_calls.py")
    texts = [terminal.render(report, limit=0), markdown.render(report), html.data(report)]
    assert all("Longest calls" in text for text in texts)
    assert "Longest calls" not in notebook.render(report), "it is folded away in a summary"
    lines = terminal.render(report, limit=0).splitlines()
    at = lines.index("Longest calls")
    assert lines[at + 3].split()[0] == max(report.backends[0].kernels, key=lambda g: g.time_ns / g.count).key
