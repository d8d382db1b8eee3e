"""benchmarks/scaling.py: which jobs there are, that it resumes and ends by itself, and what it calls off."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


@pytest.fixture
def script():
    return runpy.run_path(str(SCRIPT), run_name="imported")


def options(out, until):
    return SimpleNamespace(
        workload="gpt2", ranks="2,4", parallel="ddp,fsdp", device="cpu", dtype="fp32", backend="eager", steps=2,
        out=out, until=until,
    )  # fmt: skip


def test_jobs_begin_alone_then_go_by_way(script, tmp_path):
    names = [job.name for job in script["jobs"](options(tmp_path, 0.0))]
    assert names == ["gpt2-1", *(f"gpt2-{ranks}-{way}" for way in ("ddp", "fsdp") for ranks in (1, 2, 4))]


def test_it_resumes_and_begins_nothing_that_may_not_end(script, tmp_path, monkeypatch):
    """Jobs take 10 s of the 25 that are left: the third would end too late. What is there is not run again."""
    now, ran = [100.0], []

    def run(arguments, ranks, options):
        name = Path(arguments[-1] if "--parallel" not in arguments else arguments[arguments.index("--out") + 1]).name
        ran.append(name if arguments[0] == "run" else f"ceilings-{ranks}")
        if arguments[0] == "run":
            now[0] += 10.0
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.json").touch()
        return True

    measured = script["measured"]
    monkeypatch.setitem(measured.__globals__, "run", run)
    monkeypatch.setattr(script["time"], "monotonic", lambda: now[0])
    asked = options(tmp_path, 125.0)
    wanted = list(script["jobs"](asked))
    left = measured(wanted, asked)
    assert ran == ["ceilings-2", "ceilings-4", "gpt2-1", "gpt2-1-ddp"]
    later = ["gpt2-2-ddp", "gpt2-4-ddp", "gpt2-1-fsdp", "gpt2-2-fsdp", "gpt2-4-fsdp"]
    assert [job.name for job in left] == later
    ran.clear()
    asked.until = now[0] + 100.0
    assert measured(wanted, asked) == [] and ran == later


def test_how_far_off_a_step_is(script):
    given = {"workload": "gpt2", "backend": "eager", "ranks": 2, "way": "ddp", "low": None, "high": None}
    row = script["Row"](**given, status="ok", step=10e6, memory=None, rate=None, predicted=12e6)
    assert row.off == pytest.approx(0.2)
    assert script["Row"](**given, status="wrong", step=1e6, memory=None, rate=None, predicted=12e6).off is None
    assert script["Row"](**given, status="ok", step=1e6, memory=None, rate=None, predicted=None).off is None
