"""`.nsys-rep` reports: exported by `nsys` where it is there, else a sentence; `nsys` is a script here."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.errors import InputError, Unavailable
from perfkit.readers import read
from perfkit.readers.nsys import export as nsys_export
from perfkit.table import KernelTable
from tests.support.readers.nsys_exports import two_steps, write


def report(tmp_path: Path) -> Path:
    path = tmp_path / "some.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2025@2@1")
    return path


def fake_nsys(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")


def test_a_report_without_nsys_says_how_to_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"nsys export --type sqlite --output profile\.sqlite some\.nsys-rep"):
        read(report(tmp_path))


def test_a_report_is_exported_where_nsys_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = write(tmp_path / "ready.sqlite", two_steps())
    fake_nsys(
        tmp_path,
        f'echo "$@" > {tmp_path}/said\nwhile [ "$1" != --output ]; do shift; done\ncp {ready} "$2"',
        monkeypatch,
    )
    table = read(report(tmp_path))
    assert isinstance(table, KernelTable) and len(table) == 6
    assert table.source["path"].endswith("some.nsys-rep")
    assert (tmp_path / "said").read_text().startswith("export --type sqlite --force-overwrite true --output ")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'cannot open it' >&2; exit 3", r"failed with exit code 3 \(cannot open it\)"),
        ("exit 0", "made no file"),
        ('while [ "$1" != --output ]; do shift; done; echo rubbish > "$2"', "cut off|damaged"),
    ],
)
def test_a_failing_nsys_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, sentence: str
) -> None:
    fake_nsys(tmp_path, script, monkeypatch)
    with pytest.raises(InputError, match=sentence):
        read(report(tmp_path))


def test_an_nsys_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_export, "TIME_LIMIT_S", 0.2)
    fake_nsys(tmp_path, "exec sleep 5", monkeypatch)
    with pytest.raises(InputError, match="did not end within"):
        read(report(tmp_path))
