"""The process around NVIDIA's reader: whatever it does, what comes back is complete or refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.errors import InputError, Unavailable
from perfkit.readers.ncu import child
from perfkit.readers.ncu.container import Container, check
from tests.support.readers.ncu_reports import whole

WHOLE = {
    "name": "k()",
    "function": "k",
    "metrics": 1,
    "values": {"gpu__time_duration.sum": 2.0},
    "units": {"gpu__time_duration.sum": "usecond"},
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(whole())
    return path


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a program in the place of the worker; it finds the request in `request`."""

    def put(program: str) -> None:
        path = tmp_path / "worker.py"
        path.write_text(f"import json, os, sys, time\nrequest = json.load(sys.stdin)\nWHOLE = {WHOLE!r}\n{program}")
        monkeypatch.setattr(child, "WORKER", path)
        monkeypatch.setattr(child, "package_folder", lambda: tmp_path)

    return put


ALL = """
for _ in range(request["last"] - request["first"]): print(json.dumps(WHOLE))
print(json.dumps({"done": request["last"] - request["first"], "results": 3}))
"""


def test_results_come_back_in_base_units(report: Path, worker) -> None:  # type: ignore[no-untyped-def]
    worker(ALL)
    results = child.read_results(report, check(report))
    assert [r.values["gpu__time_duration.sum"] for r in results] == [2000.0] * 3


def test_large_reports_are_read_in_slices(report: Path, worker, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    worker(ALL)
    monkeypatch.setattr(child, "SLICE_BYTES", 10)
    assert list(child._slices(Container([6, 3, 6]))) == [(0, 2), (2, 3)]
    assert list(child._slices(Container([60, 3]))) == [(0, 1), (1, 2)]
    assert len(child.read_results(report, check(report))) == 3


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("os.abort()", "died of SIGABRT"),
        ("os.kill(os.getpid(), 11)", "died of SIGSEGV"),
        ("raise SystemExit('no such thing')", "no such thing"),
        ("time.sleep(60)", "did not finish within 1 s"),
        ("print('x')", "cannot be understood"),
        ("", "cannot be understood"),
        ("print(json.dumps({'done': 0, 'results': 0}))", "states 3 results, of which 0 can be read"),
        ("print(json.dumps(WHOLE)); print(json.dumps({'done': 1, 'results': 3}))", "states 3 results"),
        (
            ALL.replace("json.dumps(WHOLE)", "json.dumps({**WHOLE, 'metrics': 0, 'values': {}})"),
            "3 of its 3 results come back",
        ),
    ],
)
def test_a_reader_that_fails_is_a_sentence(report: Path, worker, program: str, why: str) -> None:  # type: ignore[no-untyped-def]
    worker(program)
    with pytest.raises(InputError, match=why):
        child.read_results(report, check(report), seconds=1.0 if "sleep" in program else 30.0)


def test_a_report_that_changes_meanwhile_is_refused(report: Path, worker) -> None:  # type: ignore[no-untyped-def]
    worker(f"open({str(report)!r}, 'ab').write(b'more')\n{ALL}")
    with pytest.raises(InputError, match="changed while it was read"):
        child.read_results(report, check(report))


def test_without_the_package_the_extra_is_named(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "package_folder", lambda: None)
    with pytest.raises(Unavailable, match=r"pip install 'perfkit\[ncu\]'"):
        child.read_results(report, check(report))


def test_the_worker_speaks_the_language_of_the_parent() -> None:
    """The worker imports nothing of perfkit, so that the names that both use are checked here."""
    source = child.WORKER.read_text()
    assert "perfkit" not in "".join(line for line in source.splitlines() if line.startswith(("import", "from")))
    for name in json.loads(json.dumps(["path", "first", "last", "wanted", "package", "memory"])):
        assert f'request["{name}"]' in source
