"""The plugin's routes: what is found under a logdir, what is answered, and what is not."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from perfkit.render import frontend
from perfkit.tensorboard import logdir as logdir_module
from tests.support.tensorboard.asking import Asking
from tests.support.tensorboard.logdirs import FIXTURES, HOSTILE, write_run, write_trace


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    write_run(folder / "first", "eager", "compile", memory=True)
    write_trace(folder / "plain.pt.trace.json", [100, 300, 200])
    return folder


def test_what_is_found(logs: Path) -> None:
    (logs / "deep" / "er").mkdir(parents=True)
    (logs / "deep" / "er" / "host_1.123.pt.trace.json.gz").write_bytes(b"damaged")
    (logs / "deep" / "renamed.json.gz").write_bytes((FIXTURES / "kineto" / "eager.json.gz").read_bytes())
    (logs / "counters.ncu-rep").write_bytes(b"NVR\0")
    (logs / "nsight.sqlite").write_bytes(b"SQLite format 3\0")
    (logs / "package.json").write_text('{"name": "no trace"}')
    (logs / "events.out.tfevents.1").write_bytes(b"")
    (logs / ".hidden.pt.trace.json").write_text("{}")
    entries = Asking(logs).json("/runs")["entries"]
    assert {e["name"]: e["kind"] for e in entries} == {
        "first": "run", "plain.pt.trace.json": "trace", "deep/er/host_1.123.pt.trace.json.gz": "trace",
        "deep/renamed.json.gz": "trace", "counters.ncu-rep": "ncu", "nsight.sqlite": "nsys",
    }  # fmt: skip
    assert all(e["size"] > 0 and e["modified"] > 0 for e in entries)


def test_a_logdir_that_is_a_run_itself(logs: Path) -> None:
    asking = Asking(logs / "first")
    assert asking.names() == ["first"]
    assert asking.json("/report", run="0/.")["report"]["title"] == "toy: training step, fp32 on cpu"


def test_new_runs_appear_and_a_changed_one_is_read_again(logs: Path) -> None:
    asking = Asking(logs)
    assert asking.names() == ["first", "plain.pt.trace.json"]
    assert len(asking.json("/report", run="0/plain.pt.trace.json")["report"]["backends"][0]["kernels"]) == 1
    write_run(logs / "second", "eager")
    write_trace(logs / "plain.pt.trace.json", names=["aten::add", "aten::mul"])
    assert asking.names() == ["first", "plain.pt.trace.json", "second"]
    assert len(asking.json("/report", run="0/plain.pt.trace.json")["report"]["backends"][0]["kernels"]) == 2


def test_nothing_there(tmp_path: Path) -> None:
    assert Asking(tmp_path).plugin.is_active() is False
    gone = Asking(tmp_path / "gone")
    assert gone.plugin.is_active() is False
    assert "is not a folder" in gone.json("/runs")["notes"][0]


def test_a_logdir_spec(logs: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "other" / "again", "eager")
    asking = Asking("", f"one:{logs},two:{tmp_path / 'other'},gs://bucket/logs")
    assert asking.plugin.is_active()
    assert asking.names() == ["one/first", "one/plain.pt.trace.json", "two/again"]
    assert "local folders only" in asking.json("/runs")["notes"][0]
    assert asking.json("/report", run="1/again")["report"]["source"] == "two/again"


def test_the_report_of_a_run(logs: Path) -> None:
    report = Asking(logs).json("/report", run="0/first")["report"]
    assert report["source"] == "first"
    assert [b["name"] for b in report["backends"]] == ["eager", "compile"]
    assert report["verdict"][0].startswith("In this run a step took 50.00 ms in compile and 100.0 ms in eager.")
    assert {g["key"] for g in report["backends"][0]["kernels"]} == {"mm", "add", "op", "exp"}


def test_the_page_and_what_it_loads(logs: Path) -> None:
    asking = Asking(logs)
    script = asking.get("/index.js")
    assert script.mimetype == "text/javascript" and "export { render };" in script.text
    assert "{{" not in script.text.partition("const OVERVIEW")[2].partition("\n")[0]
    assert asking.get("/style.css").mimetype == "text/css"
    assert "export async function mount" in asking.get("/timeline/timeline.js").text
    for name in ("package.json", "..%2freport%2fmain.js", "../report/main.js", "nothing.js"):
        assert asking.get(f"/timeline/{name}").status_code == 404
    assert asking.plugin.frontend_metadata().es_module_path == "/index.js"


def test_every_part_of_the_page_is_in_its_folder() -> None:
    reports = Path(frontend.content_dir("reports"))
    assert {p.name for p in (reports / "tensorboard").glob("*.js")} == set(frontend.PLUGIN_PARTS)
    for name in frontend.report_parts():
        assert (reports / "report" / name).is_file()


def test_every_answer_says_that_it_is_no_page(logs: Path) -> None:
    asking = Asking(logs)
    for route in ("/runs", "/index.js", "/report"):
        headers = asking.get(route, run="0/first").headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert asking.get("/runs", method="POST").status_code == 405


def test_memory_by_backend(logs: Path) -> None:
    asking = Asking(logs)
    eager, compiled = asking.json("/memory", run="0/first")
    assert (eager["name"], eager["devices"][0]["peak_allocated"]) == ("eager", 8192)
    assert (compiled["name"], compiled["devices"][0]["peak_allocated"]) == ("compile", 4096)
    assert eager["devices"][0]["time_ns"] == [0, 10e3, 20e3]
    [plain] = asking.json("/memory", run="0/plain.pt.trace.json")
    assert plain["devices"][0]["allocated"] == [100, 300, 200]
    (logs / "first" / "eager" / "x.pt.trace.json").write_text("{")
    eager, compiled = asking.json("/memory", run="0/first")
    assert "damaged" in eager["problem"] and compiled["devices"]


def test_the_difference_of_two_backends(logs: Path) -> None:
    asking = Asking(logs)
    asked = {"run": "0/first", "backend": "eager", "other": "0/first", "other_backend": "compile"}
    found = asking.json("/diff", **asked)
    assert found["total"]["ratio"] == pytest.approx(0.5)
    add = found["kernels"][0]
    assert (add["key"], add["first_ns"], add["second_ns"], add["difference_ns"]) == ("add", 200e3, 100e3, -100e3)
    failed = asking.json("/diff", **{**asked, "other_backend": "nothing"})
    assert failed["state"] == "failed" and "no backend 'nothing'" in failed["message"]


def test_the_timeline_is_columns(logs: Path) -> None:
    asking = Asking(logs)
    answer = asking.made("/timeline", run="0/plain.pt.trace.json", backend="plain")
    assert answer.mimetype == "application/octet-stream" and answer.data.startswith(b"PKTL")
    assert asking.made("/timeline", run="0/first", backend="compile").data.startswith(b"PKTL")
    assert asking.json("/timeline", run="0/first", backend="nothing")["state"] == "failed"


@pytest.mark.parametrize(
    "identity",
    [
        "", "0", "0/", "0/..", "0/../secret", "0/first/../../secret", "0//etc/passwd", "/etc/passwd", "1/first",
        "-1/first", "0/%2e%2e/secret", "0/..%2fsecret", "0/%2fetc%2fpasswd", "0/first%00", "0/" + "a" * 5000,
        "0/nothing", "0/first/eager", "0/first/run.json", "\u0660/first", "99999999999999999999/first",
    ],
)  # fmt: skip
def test_nothing_outside_is_reached(logs: Path, identity: str) -> None:
    write_run(logs.parent / "secret", "eager")
    asking = Asking(logs)
    for route in ("/report", "/memory", "/timeline", "/diff"):
        answer = asking.get(route, run=identity, backend="eager", other=identity, other_backend="eager")
        assert answer.status_code == 404
        assert answer.json and "There is no such run" in answer.json["message"]
        assert "secret" not in answer.text


def test_links_out_of_the_logdir_are_not_followed(logs: Path) -> None:
    secret = write_run(logs.parent / "secret", "eager")
    trace = write_trace(logs.parent / "secret.pt.trace.json")
    (logs / "link").symlink_to(secret)
    (logs / "link.pt.trace.json").symlink_to(trace)
    (logs / "half").mkdir()
    (logs / "half" / "run.json").symlink_to(secret / "run.json")
    write_run(logs / "inner", "eager")
    (logs / "inner" / "eager" / "kernels.parquet").unlink()
    (logs / "inner" / "eager" / "kernels.parquet").symlink_to(secret / "eager" / "kernels.parquet")
    (logs / "alias.pt.trace.json").symlink_to(logs / "plain.pt.trace.json")
    asking = Asking(logs)
    assert asking.names() == ["alias.pt.trace.json", "first", "inner", "plain.pt.trace.json"]
    for name in ("link", "link.pt.trace.json", "half", "inner"):
        assert asking.get("/report", run=f"0/{name}").status_code == 404, name
    assert asking.json("/report", run="0/alias.pt.trace.json")["report"]["title"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "../../secret"), ("name", "/etc"), ("name", "eager\0"), ("trace", "../../../secret/run.json")],
)
def test_a_manifest_that_names_a_file_outside(logs: Path, field: str, value: str) -> None:
    write_run(logs.parent / "secret", "eager")
    manifest = json.loads((logs / "first" / "run.json").read_text())
    manifest["backends"][0][field] = value
    (logs / "first" / "run.json").write_text(json.dumps(manifest))
    assert Asking(logs).get("/report", run="0/first").status_code == 404


def test_a_damaged_file_is_a_message(logs: Path) -> None:
    whole = (FIXTURES / "kineto" / "eager.json.gz").read_bytes()
    (logs / "cut.pt.trace.json.gz").write_bytes(whole[: len(whole) // 2])
    (logs / "empty.pt.trace.json").write_bytes(b"")
    (logs / "text.ncu-rep").write_bytes(b"not a report")
    (logs / "bad").mkdir()
    (logs / "bad" / "run.json").write_text('{"schema": 1')
    (logs / "first" / "eager" / "kernels.parquet").write_bytes(b"PAR1")
    asking = Asking(logs)
    for name in ("cut.pt.trace.json.gz", "empty.pt.trace.json", "text.ncu-rep", "bad"):
        said = asking.json("/report", run=f"0/{name}")
        assert said["state"] == "failed" and name in said["message"]
        assert str(logs) not in said["message"], "paths are shown as under the logdir"
    report = asking.json("/report", run="0/first")["report"]
    assert report["backends"][1]["kernels"], "a damaged backend leaves the other"
    assert any("is damaged" in w for w in report["backends"][0]["warnings"])


def test_hostile_names_are_data(logs: Path) -> None:
    write_trace(logs / "<img src=x onerror=alert(1)>.pt.trace.json", names=[f"aten::{HOSTILE}"])
    asking = Asking(logs)
    [entry] = [e for e in asking.json("/runs")["entries"] if "img" in e["name"]]
    assert entry["id"] == "0/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E.pt.trace.json"
    answer = asking.made("/report", run=entry["id"])
    assert answer.mimetype == "application/json"
    assert answer.json and answer.json["report"]["backends"][0]["kernels"][0]["example"] == f"aten::{HOSTILE}"


def test_a_name_that_is_no_unicode(logs: Path) -> None:
    path = os.fsencode(logs) + b"/\xff\xfe.pt.trace.json"
    try:
        os.rename(os.fsencode(write_trace(logs / "x.pt.trace.json")), path)
    except OSError:
        pytest.skip("this file system takes only names in Unicode")
    asking = Asking(logs)
    [entry] = [e for e in asking.json("/runs")["entries"] if e["id"].startswith("0/%FF%FE")]
    assert asking.json("/report", run=entry["id"])["report"]["backends"]


def test_a_name_of_ten_megabytes_is_cut(logs: Path) -> None:
    write_trace(logs / "long.pt.trace.json", names=["aten::" + "x" * 10_000_000])
    answer = Asking(logs).made("/report", run="0/long.pt.trace.json")
    assert answer.status_code == 200 and len(answer.data) < 200_000


@pytest.mark.parametrize(
    ("field", "value"), [("ts", math.nan), ("dur", math.nan), ("dur", -5.0), ("ts", -1e300), ("dur", 1e300)]
)
def test_times_that_are_none(logs: Path, field: str, value: float) -> None:
    write_trace(logs / "odd.pt.trace.json", names=["aten::a", "aten::b"], **{field: value})
    asking = Asking(logs)
    for route in ("/report", "/memory", "/timeline"):
        answer = asking.made(route, run="0/odd.pt.trace.json", backend="odd")
        assert answer.status_code == 200
        assert b"NaN" not in answer.data


def test_a_bomb_is_refused(logs: Path) -> None:
    (logs / "bomb.pt.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 100_000_000))
    said = Asking(logs).json("/report", run="0/bomb.pt.trace.json.gz")
    assert said["state"] == "failed"


def test_a_pipe_under_the_logdir_does_not_stop_the_list(logs: Path) -> None:
    os.mkfifo(logs / "pipe.json")
    assert Asking(logs).names() == ["first", "plain.pt.trace.json"]


def test_a_logdir_with_too_much_in_it_says_so(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logdir_module, "MOST_VISITED", 1)
    assert "not everything is listed" in Asking(logs).json("/runs")["notes"][0]
