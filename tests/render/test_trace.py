"""`perfkit trace`: what the Chrome trace holds, that it is read back, and that no name does harm."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import perfkit
from perfkit.analysis.timeline.layout import SPANS, timeline, timelines
from perfkit.errors import RunFailed
from perfkit.hardware.ceilings import Ceiling, Ceilings
from perfkit.readers import read
from perfkit.readers.unusable import UnusableProfile
from perfkit.render import trace
from perfkit.run_folder import CEILINGS, KERNELS, BackendRun, Manifest, Settings, WorkloadFacts, write_manifest
from perfkit.table import KernelTable, build
from tests.support.render.sample import HOSTILE

CEILING = Ceilings(
    fingerprint="f", device="cuda:0", device_name="A GPU", measured_at="2025-03-01", threads=1,
    bandwidth=[(1e9, 1e12)], compute={"vector_fp32": 1e13},
    details=[Ceiling(name="copy", resource="memory", unit="B/s", value=1e12, how="copied", working_set=1e9)],
)  # fmt: skip


def gpu_rows() -> list[dict[str, Any]]:
    """Two steps of forward, backward and optimizer on stream 7; a copy on stream 8 at the same time."""
    rows: list[dict[str, Any]] = []
    for step in range(2):
        base = 100_000.0 * step
        for i, (pass_, start) in enumerate(
            [("forward", 0), ("forward", 12_000), ("backward", 30_000), ("optimizer", 60_000)]
        ):
            rows.append({
                "name": f"void kernel_{i}<float>(float*)", "short_name": f"kernel_{i}", "kind": "gpu_kernel",
                "device": "cuda:0", "stream": 7, "order": len(rows), "step": step, "pass": pass_,
                "start_ns": base + start, "duration_ns": 10_000.0, "layer": 3, "module": "h.3.mlp",
                "operator": "aten::gelu", "placed_by": "range", "grid_x": 2, "grid_y": 3, "grid_z": 1, "block_x": 128,
                "block_y": 1, "block_z": 1, "registers": 40, "flop_vector_fp32": 2e6, "bytes_read": 3e6,
                "bytes_written": 1e6,
            })  # fmt: skip
    rows.append({
        "name": "Memcpy HtoD", "kind": "memcpy", "device": "cuda:0", "stream": 8, "order": len(rows), "step": 0,
        "start_ns": 5_000.0, "duration_ns": 20_000.0,
    })  # fmt: skip
    return rows


def drawn(table: KernelTable, ceilings: Ceilings | None = CEILING) -> list[dict[str, Any]]:
    return list(trace.events([timeline("eager", table, ceilings)]))


def complete(events: list[dict[str, Any]], category: str = "kernel") -> list[dict[str, Any]]:
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def test_processes_and_lanes_are_named() -> None:
    meta = {(e["name"], e["tid"]): e["args"] for e in drawn(build(gpu_rows())) if e["ph"] == "M"}
    assert meta["process_name", 0] == {"name": "eager"}
    names = [args["name"] for (what, _), args in meta.items() if what == "thread_name"]
    assert names == [SPANS, "cuda:0 stream 7", "cuda:0 stream 8"]


def test_facts_of_a_kernel() -> None:
    first = complete(drawn(build(gpu_rows())))[0]
    assert (first["name"], first["ts"], first["dur"]) == ("void kernel_0<float>(float*)", 0.0, 10.0)
    facts = first["args"]
    wanted = {
        "pass": "forward", "step": 0, "layer": 3, "module": "h.3.mlp", "operator": "aten::gelu", "placed by": "range",
        "grid": [2, 3, 1], "block": [128, 1, 1], "registers per thread": 40, "stream": 7, "device": 0,
        "FLOP": 2e6, "bytes": 4e6, "FLOP/byte": 0.5, "bytes are": "minimal, each tensor once",
        "bound by": "memory", "% of roof": 40.0,  # 4 MB at 1 TB/s: 4 of 10 µs
        "origin": {"time": "counter", "flop": "model", "bytes": "model"},
    }  # fmt: skip
    assert {key: facts[key] for key in wanted} == wanted
    assert facts["ceiling"].startswith("copy") and facts["ceiling"].endswith("1.00 TB/s")
    assert "waves" not in facts and "tensor pipe %" not in facts


def test_golden(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    trace.write(path, [timeline("eager", build(gpu_rows()), CEILING)], "runs/a")
    golden("render/trace.json", path.read_text().replace(perfkit.__version__, "VERSION"))


def test_what_is_unknown_is_left_out() -> None:
    (copy,) = complete(drawn(build(gpu_rows())), "gpu_memcpy")
    assert set(copy["args"]) == {"order", "step", "device", "stream", "origin"}
    without = complete(drawn(build(gpu_rows()), None))[0]["args"]
    assert "% of roof" not in without and "ceiling" not in without and without["FLOP"] == 2e6


def test_steps_and_passes() -> None:
    spans = complete(drawn(build(gpu_rows())), "user_annotation")
    got = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in spans]
    assert got == [
        ("ProfilerStep#0", 0.0, 70.0), ("ProfilerStep#1", 100.0, 170.0),
        ("perfkit:pass:forward", 0.0, 22.0), ("perfkit:pass:backward", 30.0, 40.0),
        ("perfkit:pass:optimizer", 60.0, 70.0), ("perfkit:pass:forward", 100.0, 122.0),
        ("perfkit:pass:backward", 130.0, 140.0), ("perfkit:pass:optimizer", 160.0, 170.0),
    ]  # fmt: skip
    step = spans[0]["args"]
    assert (step["kernels"], step["FLOP"], step["bytes"]) == (5, 8e6, 16e6)
    assert step["% of roof"] == 40.0 and step["bound by"] == "memory"


@pytest.mark.parametrize("seed", range(20))
def test_slices_of_a_lane_never_overlap_partly(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 200
    table = build({
        "name": ["k"] * count, "order": range(count), "device": random.choice(["cuda:0", "cuda:1"], count),
        "stream": random.integers(0, 3, count), "step": random.integers(0, 4, count),
        "pass": random.choice(np.array(["forward", "backward", None], dtype=object), count),
        "start_ns": random.integers(-500, 5000, count).astype(float),
        "duration_ns": random.integers(0, 300, count).astype(float),
    })  # fmt: skip
    lanes: dict[int, list[tuple[float, float]]] = {}
    for e in drawn(table):
        if e["ph"] == "X":
            begin, length = round(e["ts"] * 1e3), round(e["dur"] * 1e3)
            assert begin >= 0
            lanes.setdefault(e["tid"], []).append((begin, begin + length))
    for slices in lanes.values():
        open_: list[float] = []
        for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= begin:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)
    assert sum(map(len, lanes.values())) - len(lanes[1]) == count


def test_without_start_times_kernels_lie_end_to_end() -> None:
    rows = [{k: v for k, v in row.items() if k != "start_ns"} for row in gpu_rows()[:3]]
    made = timeline("ncu", build(rows), None)
    assert not made.measured and "end to end" in made.notes[-1]
    events = list(trace.events([made]))
    assert [e["ts"] for e in complete(events)] == [0.0, 10.0, 20.0]
    assert any(e["name"] == "process_labels" for e in events)


def test_rows_that_cannot_be_drawn_are_counted() -> None:
    rows = gpu_rows()
    rows[0]["duration_ns"] = math.nan
    rows[1]["start_ns"] = math.nan
    made = timeline("x", build(rows), None)
    assert len(made) == len(rows) - 2
    assert made.notes == ["1 row has no duration and is not drawn", "1 row has no start time and is not drawn"]


def test_perfkit_reads_its_own_trace_back(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    trace.write(path, [timeline("eager", build(gpu_rows()), CEILING)], "profile.json")
    back = read(path)
    assert isinstance(back, KernelTable)
    want = build(gpu_rows()).frame.sort_values("start_ns")
    for column in ("name", "kind", "device", "stream", "step", "start_ns", "duration_ns", "grid_y", "registers"):
        assert back.frame[column].astype(object).tolist() == want[column].astype(object).tolist(), column
    assert back.facts["steps"] == 2


def test_operators_of_a_cpu_keep_their_pass(tmp_path: Path) -> None:
    rows = [
        {"name": f"aten::{name}", "kind": "cpu_op", "device": "cpu", "stream": 0, "order": i, "step": 0, "pass": pass_,
         "start_ns": 1e5 * i, "duration_ns": 5e4}
        for i, (name, pass_) in enumerate([("mm", "forward"), ("mm", "backward"), ("add_", "optimizer")])
    ]  # fmt: skip
    path = tmp_path / "t.json.gz"
    trace.write(path, [timeline("eager", build(rows), None)], "runs/a")
    back = read(path)
    assert isinstance(back, KernelTable)
    assert back.frame["pass"].tolist() == ["forward", "backward", "optimizer"]
    assert back.frame["duration_ns"].tolist() == [5e4] * 3


def test_hostile_names_are_harmless(tmp_path: Path) -> None:
    rows = gpu_rows()
    rows[0] |= {"name": HOSTILE, "module": HOSTILE, "range": "\x00", "pass": HOSTILE, "device": HOSTILE}
    rows[1] |= {"name": "x" * 10_000, "shapes": "y" * 100_000}
    path = tmp_path / "t.json"
    trace.write(path, [timeline(HOSTILE, build(rows, [HOSTILE * 100]), CEILING)], HOSTILE)
    raw = path.read_bytes()
    assert b"<" not in raw and b"\x1b" not in raw and "\u202e".encode() not in raw
    events = json.loads(raw)["traceEvents"]
    assert max(len(str(value)) for e in events for value in (e["name"], *e["args"].values())) <= trace.NAME_LIMIT
    assert "</script>" in complete(events)[0]["name"]


@pytest.mark.parametrize("started", [True, False])
def test_absurd_numbers_still_make_a_trace(started: bool, tmp_path: Path) -> None:
    rows = gpu_rows()
    rows[0] |= {"start_ns": -1.7e308, "duration_ns": 1.7e308, "flop_vector_fp32": 1.7e308, "step": 2**53}
    rows[1] |= {"start_ns": 1.7e308, "duration_ns": 1e-300, "bytes_read": 1e308, "step": -5, "grid_x": 2**62}
    rows[2] |= {"duration_ns": 1.7e308, "stream": -(2**53), "layer": 2**53}
    if not started:
        rows = [{**row, "start_ns": math.nan} for row in rows]
    path = tmp_path / "t.json"
    trace.write(path, [timeline("x", build(rows), CEILING)], "s")
    events = json.loads(path.read_text())["traceEvents"]
    assert len([e for e in events if e["ph"] == "X" and e["cat"] != "user_annotation"]) == len(rows)
    for e in events:
        assert 0 <= e["ts"] <= e["ts"] + e.get("dur", 0) < 1e13
    with pytest.raises(UnusableProfile, match="activities of the GPU have no time"):
        read(path)


def test_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [timeline("eager", build(gpu_rows()), CEILING)]
    trace.write(tmp_path / "a.json", made, "s")
    trace.write(tmp_path / "a.json.gz", made, "s")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["otherData"]["ceilings"] == {"eager": "A GPU, measured 2025-03-01"}

    def full_disk(timelines: object) -> Iterator[dict[str, Any]]:
        yield {"ph": "M"}
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace, "events", full_disk)
    for name in ("a.json", "a.json.gz"):
        with pytest.raises(RunFailed, match="No space left"):
            trace.write(tmp_path / name, made, "s")
    assert json.loads((tmp_path / "a.json").read_text()) == whole
    with pytest.raises(RunFailed, match="could not be written"):
        trace.write(tmp_path / "missing" / "a.json", made, "s")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.json.gz"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two backends with ceilings, of which a third was not profiled."""
    folder = tmp_path / "run"
    folder.mkdir()
    for backend in ("eager", "compile"):
        (folder / backend).mkdir()
        build(gpu_rows()).write(folder / backend / KERNELS)
    (folder / CEILINGS).write_bytes(msgspec.json.encode(CEILING))
    manifest = Manifest(
        perfkit="0", created="", command=[], settings=Settings(workload="w", preset="p", batch_size=1),
        workload=WorkloadFacts(title="w", parameters=1, samples_per_step=1),
        backends=[BackendRun(name=n) for n in ("eager", "compile", "thunder")],
    )  # fmt: skip
    write_manifest(folder, manifest)
    return folder


def test_a_process_a_backend(run: Path) -> None:
    events = list(trace.events(timelines(read(run), "run")))
    assert {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"} == {1: "eager", 2: "compile"}
    assert all(e["args"]["% of roof"] == 40.0 for e in complete(events))


def test_the_command(run_cli: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    done = run_cli(["trace", run])
    assert done.rc == 0, done.stderr
    path = run / "perfkit.pt.trace.json.gz"
    assert "eager: 9 rows" in done.stdout and str(path) in done.stdout
    assert len(complete(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])) == 16
    of_file = run_cli(["trace", run / "eager" / KERNELS], cwd=tmp_path)
    assert of_file.rc == 0 and (tmp_path / "kernels.perfkit.pt.trace.json.gz").is_file()
    dotted = tmp_path / "a.b-2025.1.parquet"
    dotted.write_bytes((run / "eager" / KERNELS).read_bytes())
    assert run_cli(["trace", dotted], cwd=tmp_path).stdout.startswith("a.b-2025.1: 9 rows")
    assert (tmp_path / "a.b-2025.1.perfkit.pt.trace.json.gz").is_file()
    named = run_cli(["trace", run, "--out", tmp_path / "new" / "t.json"])
    assert named.rc == 0 and json.loads((tmp_path / "new" / "t.json").read_text())["schemaVersion"] == 1


def test_mistakes(run_cli: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    kernels = run / "eager" / KERNELS
    before = kernels.read_bytes()
    timeless = [{**row, "duration_ns": math.nan, "start_ns": math.nan} for row in gpu_rows()]
    build(timeless).write(tmp_path / "timeless.parquet")
    build([]).write(tmp_path / "empty.parquet")
    for arguments, part in (
        (["nowhere"], "does not exist"),
        ([run, "--out", tmp_path], "is a folder"),
        ([kernels, "--out", kernels], "is the profile that is read"),
        ([tmp_path / "timeless.parquet", "--out", tmp_path / "t.json"], "no kernels with a duration"),
        ([tmp_path / "empty.parquet", "--out", tmp_path / "t.json"], "no kernels with a duration"),
    ):
        done = run_cli(["trace", *arguments])
        assert done.rc == 2 and part in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
    assert kernels.read_bytes() == before and not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "kineto/training-2022-109k-events.json.gz",
        "kineto/rocm-mi250-tiny.json.gz",
        "nsys/t4-cupy-nvtx-schema3.20.2.sqlite",
    ],
)
def test_traces_of_samples_keep_every_kernel(samples: Path, name: str, tmp_path: Path) -> None:
    table, path = read(samples / name), tmp_path / "t.json.gz"
    trace.write(path, timelines(table, "sample"), name)
    back = read(path)
    assert isinstance(table, KernelTable) and isinstance(back, KernelTable)
    assert sorted(back.frame["name"]) == sorted(table.frame["name"])
    assert np.array_equal(np.sort(back.frame["duration_ns"]), np.sort(table.frame["duration_ns"]))
