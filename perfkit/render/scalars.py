"""The report for TensorBoard: scalars a step and a backend, and the report's tables as text, in event files.

The files are written with tensorboard's own protocol buffers; neither TensorFlow nor torch is loaded. An event file is
a sequence of records: length (8 bytes, little endian), masked CRC-32C of that, the event, masked CRC-32C of it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfkit.analysis.results import BackendReport, Report
from perfkit.render import markdown
from perfkit.render.page import SUMMARY, WHOLE, Section
from perfkit.render.report import ReportLength, report_page
from perfkit.run_folder import write_whole

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_FORM = ReportLength(rows=25, findings=25)  # what is shown as text
MEBI = 2.0**20

Scalar = tuple[str, int, float]  # tag, step, value


def write_events(report: Report, folder: Path) -> list[Path]:
    """Write the event files of a run into `folder` (what concerns all backends) and its backends' folders; the paths.

    A second call replaces what the first wrote. Nothing is written where the package tensorboard is not installed.
    Raises `RunFailed` when a file cannot be written.
    """
    if find_spec("tensorboard") is None:
        return []
    start = _started(report)
    name = f"events.out.tfevents.{int(start)}.perfkit"
    contents = {folder: _events(start, (), dict(overview(report)))}
    for backend in report.backends:
        place = folder / backend.name
        # A manifest may come from anywhere: a backend's name is only ever a folder directly in the run.
        if place.is_dir() and place.resolve().parent == folder.resolve():
            contents[place] = _events(start, scalars(report, backend), dict(texts(report, backend)))
    written = []
    for place, events in contents.items():
        write_whole(place / name, b"".join(_record(event.SerializeToString()) for event in events))
        written.append(place / name)
    return written


def write_scalars(values: Iterable[Scalar], folder: Path) -> Path | None:
    """Write `values` as one event file into `folder`, replacing what a call before wrote; its path.

    None where the package tensorboard is not installed. Raises `RunFailed` when the file cannot be written.
    """
    if find_spec("tensorboard") is None:
        return None
    path = folder / "events.out.tfevents.0.perfkit"
    write_whole(path, b"".join(_record(event.SerializeToString()) for event in _events(0.0, values, {})))
    return path


def scalars(report: Report, backend: BackendReport) -> Iterator[Scalar]:
    """Loss and time of each step, then single figures at step 0; what is unknown is left out."""
    yield from (("step/loss", i, loss) for i, loss in enumerate(backend.losses))
    yield from (("step/time_ms", i, ns / 1e6) for i, ns in enumerate(backend.samples_ns))
    sample = report.workload.sample_name if report.workload else "samples"
    memory = backend.peak_memory_bytes
    single = {
        "result/median_step_ms": backend.step.value / 1e6 if backend.step else None,
        "result/speedup": backend.speedup.value if backend.speedup else None,
        f"result/{sample}_per_second": backend.samples_per_second,
        "result/peak_memory_MiB": memory / MEBI if memory is not None else None,
        "result/power_W": backend.power.watts if backend.power else None,
        "result/energy_J": backend.energy_j,
        "result/mfu": backend.mfu,
        "result/efficiency": backend.efficiency,
        "result/prepare_s": backend.prepare_ns / 1e9 if backend.prepare_ns is not None else None,
    }
    yield from ((tag, 0, value) for tag, value in single.items() if value is not None)


def overview(report: Report) -> Iterator[tuple[str, str]]:
    """Tag and Markdown of what concerns all backends."""
    made = report_page(report, _FORM)
    named = {part.backend for part in made.parts if part.backend}
    others = [section for part in made.parts if part.backend not in named for section in part.sections]
    first = [section for section in made.sections if section.fold == SUMMARY]
    yield "report/1_verdict", markdown.page(replace(made, sections=first, parts=[], warnings=[]), WHOLE)
    for number, section in enumerate((s for s in made.sections if s.fold > SUMMARY), 2):
        yield _tagged("report", number, section)
    last = replace(made, title="How it was made", settings=[], about=[], verdict=[], sections=others, parts=[])
    yield "report/9_how_it_was_made", markdown.page(last, WHOLE)


def texts(report: Report, backend: BackendReport) -> Iterator[tuple[str, str]]:
    """Tag and Markdown of one backend's sections."""
    part = next(p for p in report_page(report, _FORM).parts if p.backend == backend.name)
    for number, section in enumerate((s for s in part.sections if not s.empty), 1):
        yield _tagged("tables", number, section)


def _tagged(kind: str, number: int, section: Section) -> tuple[str, str]:
    name = (section.name or "Coverage").partition(" (")[0].replace(" ", "_").lower()[:40]
    return f"{kind}/{number}_{name}", "\n\n".join(block for block in markdown.section(section) if block)


def _started(report: Report) -> float:
    """When the run was made, in seconds since 1970; now, if it does not say."""
    try:
        return datetime.fromisoformat(report.created).timestamp()
    except ValueError:
        return time.time()


def _events(start: float, values: Iterable[Scalar], text: dict[str, str]) -> Iterator[Event]:
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

    def event(tag: str, step: int, plugin: str, kind: int, tensor: tensor_pb2.TensorProto) -> Event:
        data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin)
        metadata = summary_pb2.SummaryMetadata(plugin_data=data, data_class=kind)
        value = summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
        return event_pb2.Event(wall_time=start + step, step=step, summary=summary_pb2.Summary(value=[value]))

    yield event_pb2.Event(wall_time=start, file_version="brain.Event:2")
    for tag, step, number in values:
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[number])
        yield event(tag, step, "scalars", summary_pb2.DATA_CLASS_SCALAR, tensor)
    row = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    for tag, content in text.items():
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=row, string_val=[content.encode()])
        yield event(tag, 0, "text", summary_pb2.DATA_CLASS_TENSOR, tensor)


def _record(data: bytes) -> bytes:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))))
