"""TensorBoard's event files, read back by TensorBoard itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.render import scalars
from tests.support.render import sample

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def run_folder(tmp_path: Path) -> Path:
    report = sample.report()
    for backend in report.backends:
        (tmp_path / backend.name).mkdir()
    scalars.write_events(report, tmp_path)
    return tmp_path


def read(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return accumulator


def values(accumulator: EventAccumulator, tag: str) -> list[float]:
    return [event.tensor_proto.float_val[0] for event in accumulator.Tensors(tag)]


def test_scalars_of_each_step_and_of_the_run(tmp_path: Path) -> None:
    backend = sample.report().backends[1]
    events = read(run_folder(tmp_path) / backend.name)
    assert values(events, "step/loss") == pytest.approx(backend.losses, rel=1e-6)
    assert values(events, "step/time_ms") == pytest.approx([ns / 1e6 for ns in backend.samples_ns], rel=1e-6)
    assert backend.speedup is not None
    assert values(events, "result/speedup") == pytest.approx([backend.speedup.value])
    assert values(events, "result/peak_memory_MiB") == pytest.approx([2.61 * 1024], rel=1e-6)


def test_a_wrong_backend_has_no_speedup(tmp_path: Path) -> None:
    tags = read(run_folder(tmp_path) / "thunder-wrong").Tags()["tensors"]
    assert "result/speedup" not in tags
    assert "step/loss" in tags


def test_tables_as_text(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    overview = read(folder)
    [verdict] = overview.Tensors("report/1_verdict")
    assert "| **thunder-llmc** | ✓ correct |" in verdict.tensor_proto.string_val[0].decode()
    tags = read(folder / "eager").Tags()["tensors"]
    assert {"tables/2_passes", "tables/4_kernels_by_time"} <= set(tags)


def test_writing_again_replaces(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    before = sorted(folder.rglob("*tfevents*"))
    scalars.write_events(sample.report(), folder)
    assert sorted(folder.rglob("*tfevents*")) == before


def test_no_file_leaves_the_run(tmp_path: Path) -> None:
    report = sample.report()
    report.backends[0].name = "../outside"
    report.backends[1].name = "a/b"
    (tmp_path / "outside").mkdir()
    run = tmp_path / "run"
    (run / "a" / "b").mkdir(parents=True)
    written = scalars.write_events(report, run)
    assert [p.parent for p in written] == [run]
