"""`perfkit report RUN --annotate`: listings next to the programs, a link in the report, and a person's mistakes."""

from __future__ import annotations

import pytest

from perfkit import table
from perfkit.run_folder import BackendRun, Manifest, Settings, WorkloadFacts, write_manifest

PROGRAM = "def forward(x):\n  a = linear(x)\n  return a\n"


def run_folder(path, generated):
    """A run of one backend; with `generated` it made a program."""
    backend = path / "thunder"
    backend.mkdir(parents=True)
    rows = [
        {"name": name, "short_name": name, "kind": "cpu_op", "order": i, "step": 0, "duration_ns": ns, "range": where}
        for i, (name, ns, where) in enumerate([("aten::addmm", 9e5, "generated:2"), ("aten::lerp_", 1e5, None)])
    ]
    table.build(rows, facts={"steps": 1}).write(backend / "kernels.parquet")
    if generated:
        (backend / "generated.txt").write_text(PROGRAM)
    record = BackendRun(name="thunder", generated="generated.txt" if generated else "")
    facts = WorkloadFacts(title="a model", parameters=1, samples_per_step=1)
    settings = Settings(workload="gpt2", preset="tiny", batch_size=1)
    write_manifest(
        path, Manifest(perfkit="0", created="", command=[], settings=settings, workload=facts, backends=[record])
    )
    return path


@pytest.fixture
def run(tmp_path):
    return run_folder(tmp_path / "run", generated=True)


def test_listings_are_written_and_linked(run_cli, run):
    result = run_cli(["report", run, "--annotate"])
    assert result.rc == 0, result.stderr
    assert f"Annotated:   {run / 'thunder' / 'annotated.txt'} and .html" in result.stdout
    assert "1 line 900.0 µs (90.0%), and 100.0 µs that no line owns" in (run / "thunder" / "annotated.txt").read_text()
    assert "no line owns" in (run / "thunder" / "annotated.html").read_text()
    assert '"annotated":"thunder/annotated.html"' in (run / "report.html").read_text()
    again = run_cli(["report", run, "--json"])
    assert '"annotated": "thunder/annotated.html"' in again.stdout


def test_elsewhere_the_listings_lie_beside_the_report(run_cli, run, tmp_path):
    out = tmp_path / "out"
    assert run_cli(["report", run, "--annotate", "--out", out, "--format", "json"]).rc == 0
    assert sorted(p.name for p in (out / "thunder").iterdir()) == ["annotated.html", "annotated.txt"]
    assert not (run / "thunder" / "annotated.txt").exists()


def test_a_report_elsewhere_has_no_link_that_leads_nowhere(run_cli, run, tmp_path):
    assert run_cli(["report", run, "--annotate", "--format", "none"]).rc == 0
    assert run_cli(["report", run, "--out", tmp_path / "out", "--format", "json"]).rc == 0
    assert '"annotated": ""' in (tmp_path / "out" / "report.json").read_text()


def test_a_run_without_programs_is_a_sentence(run_cli, tmp_path):
    folder = run_folder(tmp_path / "run", generated=False)
    result = run_cli(["report", folder, "--annotate"])
    assert result.rc == 2
    assert "No backend of this run made a program of its own" in result.stderr
    assert "Traceback" not in result.stderr


def test_only_runs_have_programs(run_cli, run):
    result = run_cli(["report", run / "thunder" / "kernels.parquet", "--annotate"])
    assert result.rc == 2
    assert "--annotate lists the programs of a run" in result.stderr
