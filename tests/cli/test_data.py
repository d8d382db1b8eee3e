"""`perfkit data criteo`: what it writes, and what it will not do."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from perfkit.cli import main


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


def test_a_file_that_dlrm_reads(tmp_path, capsys):
    out = tmp_path / "new" / "clicks.parquet"
    assert code_of("data", "criteo", "--rows", "1000", "--largest", "30", "--out", str(out)) == 0
    assert str(out) in capsys.readouterr().out
    table = pq.read_table(out)
    assert (table.num_rows, table.num_columns) == (1000, 40)
    assert out.with_suffix(".json").is_file()
    assert sorted(p.name for p in out.parent.iterdir()) == ["clicks.json", "clicks.parquet"]


def test_what_is_there_stays_unless_it_is_to_go(tmp_path, capsys):
    out = tmp_path / "clicks.parquet"
    out.write_text("precious")
    assert code_of("data", "criteo", "--rows", "10", "--out", str(out)) == 2
    assert "is there already" in capsys.readouterr().err
    assert out.read_text() == "precious"
    assert code_of("data", "criteo", "--rows", "10", "--out", str(out), "--overwrite") == 0
    assert pq.read_table(out).num_rows == 10
    assert code_of("data", "criteo", "--out", str(tmp_path / "clicks.json")) == 2
