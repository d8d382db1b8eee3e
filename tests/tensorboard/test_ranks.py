"""A folder with the traces of several ranks under the logdir: found, and answered with one report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from perfkit import readers
from perfkit.ranks import rank_table
from perfkit.ranks.analyse import analyse
from tests.support.tensorboard.asking import Asking
from tests.support.tensorboard.logdirs import FIXTURES, write_run


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_run(folder / "run", "eager")
    for place in ("job", "run/eager"):
        (folder / place).mkdir(exist_ok=True)
        for rank in (0, 1):
            source = FIXTURES / "ranks" / f"ddp.rank{rank}.json.gz"
            shutil.copy(source, folder / place / f"rank{rank}.123.pt.trace.json.gz")
    (folder / "alone").mkdir()
    shutil.copy(FIXTURES / "ranks" / "ddp.rank0.json.gz", folder / "alone" / "rank0.pt.trace.json.gz")
    return folder


def test_folders_of_ranks_are_entries(logs: Path) -> None:
    entries = {e["name"]: e["kind"] for e in Asking(logs).json("/runs")["entries"]}
    assert {name for name, kind in entries.items() if kind == "ranks"} == {"job", "run/eager"}
    assert entries["run"] == "run" and entries["alone/rank0.pt.trace.json.gz"] == "trace"
    assert entries["job/rank0.123.pt.trace.json.gz"] == "trace", "each rank can still be looked at by itself"


def test_the_page_is_that_of_the_report(logs: Path) -> None:
    asking = Asking(logs)
    (entry,) = [e for e in asking.json("/runs")["entries"] if e["name"] == "job"]
    found = asking.json("/ranks", run=entry["id"])
    files = [logs / "job" / f"rank{rank}.123.pt.trace.json.gz" for rank in (0, 1)]
    report = analyse([rank_table.of_table(readers.read(file)) for file in files])
    assert found["page"]["verdict"] == report.headline and found["page"]["title"] == "2 ranks of one job"
    titles = [s["table"]["title"] for s in found["page"]["sections"] if s["table"]]
    assert titles[0] == "Ranks: where a step goes" and "What to do next" in titles
    assert len(found["timeline"]) > 1000


def test_ranks_of_different_jobs_are_refused_in_a_sentence(logs: Path) -> None:
    other = logs / "mixed"
    other.mkdir()
    for name in ("a.rank0", "b.rank0"):
        shutil.copy(FIXTURES / "ranks" / "ddp.rank0.json.gz", other / f"{name}.pt.trace.json.gz")
    asking = Asking(logs)
    (entry,) = [e for e in asking.json("/runs")["entries"] if e["name"] == "mixed"]
    found = asking.json("/ranks", run=entry["id"])
    assert found["state"] == "failed" and "not two ranks of one job" in found["message"]
