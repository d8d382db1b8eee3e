"""Formats by name, files written, whole kernel tables, the notebook's summaries."""

from __future__ import annotations

import json as json_module
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from perfkit.errors import InputError, RunFailed, UsageError
from perfkit.render import html, notebook, output
from perfkit.table import KernelTable, build
from tests.support.render import sample


def kernels() -> KernelTable:
    rows = [
        {"name": name, "order": i, "duration_ns": 1000.0 * (i + 1), "flop_matrix_fp32": flop, "family": "matmul"}
        for i, (name, flop) in enumerate([("aten::mm", 5.0), ("=cmd()", None), (sample.HOSTILE, None)])
    ]
    return build(rows, warnings=[sample.HOSTILE], source={"path": "trace.json"})


def test_a_report_is_written_in_every_format(tmp_path: Path) -> None:
    written = output.of_report(sample.report()).write(tmp_path, output.FORMATS)
    assert [p.name for p in written] == ["report.html", "report.md", "report.txt", "report.json", "report.csv"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in written)


def test_chosen_formats() -> None:
    assert output.chosen("html, json,html") == ("html", "json")
    assert output.chosen("all") == tuple(output.FORMATS)
    assert output.chosen("none") == ()
    with pytest.raises(UsageError, match="pdf is not a report format"):
        output.chosen("html,pdf")


@pytest.mark.parametrize("name", ["parquet", "kernels-csv"])
def test_whole_tables_are_exported_when_asked_for(tmp_path: Path, name: str) -> None:
    [path] = output.of_report(sample.report(), lambda: {"../my backend": kernels()}).write(tmp_path, [name])
    assert path.parent == tmp_path
    frame = pd.read_csv(path) if path.suffix == ".csv" else KernelTable.load(path).frame
    assert frame["duration_ns"].tolist() == [1000.0, 2000.0, 3000.0]
    assert frame["flop_matrix_fp32"].isna().tolist() == [False, True, True]
    assert frame["name"][1] == ("'=cmd()" if path.suffix == ".csv" else "=cmd()")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(RunFailed, match="could not be written"):
        output.of_report(sample.report()).write(tmp_path, ["json"])
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_html_data_cannot_end_its_element() -> None:
    text = html.data(sample.hostile())
    assert "<" not in text
    assert json_module.loads(text)["report"]["title"] == sample.HOSTILE


def test_html_is_one_file_without_addresses_to_load() -> None:
    page = html.render(sample.hostile()).replace("http://www.w3.org/2000/svg", "the name of SVG")
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in page
    assert "connect-src" not in page
    assert "unsafe-eval" not in page
    assert len(page.encode()) < 1_000_000


def test_html_of_an_incomplete_template_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks"):
        html.render(sample.report(), tmp_path)
    (tmp_path / "template.html").write_text("{{nonsense}}")
    with pytest.raises(InputError, match="unknown place"):
        html.render(sample.report(), tmp_path)


def test_html_takes_a_template_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "template.html").write_text("<title>{{title}}</title>{{script a.js}}<!--{{csp}}-->")
    (tmp_path / "a.js").write_text("let a = 1;")
    page = html.render(sample.hostile(), tmp_path)
    assert page.startswith("<title>&lt;/script&gt;&lt;img")
    assert "let a = 1;" in page
    assert page.count("'sha256-") == 1


def test_notebook_summary_is_escaped_and_names_what_matters() -> None:
    page = notebook.render(sample.hostile())
    assert "<img" not in page
    assert "<script" not in page
    assert "✗ wrong" in page
    assert "Kernels by time" in page


def test_rendering_loads_neither_torch_nor_pandas(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from perfkit.render import output;"
        "from tests.support.render import sample;"
        "output.of_report(sample.report()).write(Path(sys.argv[1]), output.FORMATS);"
        "print([m for m in ('torch', 'pandas', 'tensorboard') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
