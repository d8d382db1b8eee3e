"""Files that perfkit does not read: each kind gets a sentence that names it, and the next step."""

from __future__ import annotations

import bz2
import contextlib
import cProfile
import gzip
import io
import json
import lzma
import marshal
import pickle
import random
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from perfkit.cli import main
from perfkit.errors import PerfkitError
from perfkit.readers import read, sniff
from perfkit.readers.formats import all_formats
from perfkit.table import KernelTable
from tests.support.packed import ncu_file
from tests.support.readers import mutations, traces


def _zip(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def _tar(mode: str = "w", *files: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name in files:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return made.getvalue()


def _saved(**options: bool) -> bytes:
    made = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, made, **options)  # type: ignore[arg-type]
    return made.getvalue()


def _stats() -> bytes:
    profile = cProfile.Profile()
    profile.runcall(sorted, [3, 1, 2])
    profile.create_stats()
    return marshal.dumps(profile.stats)  # type: ignore[attr-defined]


def _events(**event: object) -> dict[str, object]:
    return {
        "traceEvents": [
            {"ph": "X", "ts": i * 10, "dur": 5, "pid": 1, "tid": 1, "name": "op", **event} for i in range(9)
        ]
    }


def _packet(content: bytes) -> bytes:
    return b"\n" + bytes([len(content)]) + content


JSON = {
    "Dynamo": ([{"name": "compile", "ph": "B", "cat": "dynamo_timed", "ts": 1}], "record of compilation"),
    "memory timeline": ([[1, 2, 3], [[0, 0], [1, 2], [3, 4]]], "memory timeline"),
    "raw memory timeline": ([[-1, 0, 512, 3], [20, 1, 512, 3]], "memory timeline"),
    "notebook": ({"cells": [{"cell_type": "code", "source": []}], "nbformat": 4}, "Jupyter notebook"),
    "Execution Trace": ({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1}]}, "Execution Trace"),
    "HAR": ({"log": {"version": "1.2", "creator": {"name": "x"}, "entries": []}}, "HAR"),
    "speedscope": ({"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {}}, "speedscope"),
    "VizTracer": ({**_events(cat="FEE"), "viztracer_metadata": {"version": "1"}}, "VizTracer"),
    "Firefox": ({"meta": {}, "libs": [], "threads": []}, "Firefox"),
    "V8": ({"nodes": [], "startTime": 1, "endTime": 2, "samples": [], "timeDeltas": []}, "V8"),
    "pyinstrument": ({"start_time": 1, "root_frame": {"function": "main"}}, "pyinstrument"),
    "Scalene": ({"elapsed_time_sec": 1.0, "files": {}}, "Scalene"),
    "DevTools": (_events(cat="disabled-by-default-devtools.timeline"), "DevTools"),
    "flight recorder": ({"version": "2.5", "pg_config": {}, "entries": []}, "flight recorder"),
    "snapshot": ({"segments": [], "device_traces": [[]]}, "memory snapshot"),
    "large snapshot": ({"segments": [{"segment_type": "small", "total_size": 1, "blocks": [{"size": 1}] * 9000}],
                        "device_traces": [[]]}, "memory snapshot"),
    "segments": ([{"segment_type": "small", "total_size": 1, "blocks": []}], "memory snapshot"),
    "Triton server": ([{"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 1}]}], "Triton Inference Server"),
    "OpenTelemetry": ({"resourceSpans": []}, "OpenTelemetry"),
    "Jaeger": ({"data": [{"traceID": "1", "spans": []}]}, "Jaeger"),
    "package": ({"name": "x", "version": "1.0.0", "dependencies": {}}, "manifest of a package"),
    "model": ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "model's configuration"),
    "perfkit's report": ({"schema": 1, "perfkit": "0.1.0", "title": "t"}, "report that perfkit wrote"),
    "other JSON": ({"alpha": 1, "beta": [1], "c": {}, "d": 1, "e": 2}, r"its keys: alpha, beta, c, d, …"),
    "an empty object": ({}, "no list of events"),
    "an empty list": ([], "its list holds no events"),
    "numbers": ([1, 2, 3], "its list holds no events"),
    "tracer in a kernel": (_events(), "Chrome trace of another tool"),
    "another category": (_events(cat="engine"), "Chrome trace of another tool"),
    "pairs": (_events(ph="B"), "Chrome trace of another tool"),
    "a bare list of another tool": (_events(cat="gui")["traceEvents"], "Chrome trace of another tool"),
}  # fmt: skip
TABLE = (
    "-----  ------------\n Name    Self CPU %   Self CUDA   # of Calls\n-----  ------------\naten::mm  10%  2ms  3\n"
)
OTHERS = {
    "Dynamo, cut": (b'[\n{"name": "x", "cat": "dynamo_timed", "ph": "B", "ts": 1},', "record of compilation"),
    "JSON Lines": (b'{"step": 1}\n{"step": 2}\n', "JSON Lines"),
    "nsys JSON": (b'{"Type":81,"CudaEvent":{"startNs":"1"}}\n{"Type":81}\n', "export of Nsight Systems to JSON"),
    "zip": (_zip(**{"trace.json": b"{}"}), "zip archive"),
    "empty zip": (_zip(), "zip archive"),
    "saved tensors": (_saved(), "torch.save"),
    "saved by old torch": (_saved(_use_new_zipfile_serialization=False), "torch.save"),
    "npz": (_zip(**{"a.npy": b"\x93NUMPY"}), "NumPy archive"),
    "tar": (_tar("w", "rank0.json"), "tar archive"),
    "tar.gz": (_tar("w:gz", "rank0.json"), "tar archive, compressed by gzip"),
    "empty tar.gz": (_tar("w:gz"), "tar archive, compressed by gzip"),
    "tar.bz2": (_tar("w:bz2", "rank0.json"), "tar archive, compressed by bzip2"),
    "tar.xz": (_tar("w:xz", "rank0.json"), "tar archive, compressed by xz"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\x04", "7z"),
    "json.bz2": (bz2.compress(b'{"traceEvents": []}'), "compressed by bzip2"),
    "json.xz": (lzma.compress(b'{"schemaVersion": 1, "traceEvents": []}'), "compressed by xz"),
    "json.zst": (pa.compress(b'{"schemaVersion": 1}', "zstd", asbytes=True), "compressed by zstd"),
    "sqlite.gz": (gzip.compress(b"SQLite format 3\0" + bytes(99)), "compressed by gzip"),
    "flight recorder": (pickle.dumps({"version": "2", "pg_config": {}, "entries": []}), "flight recorder"),
    "pickle": (pickle.dumps({"a": 1}), "Python pickle"),
    "pickle.gz": (gzip.compress(pickle.dumps({"segments": [], "device_traces": []})), "memory snapshot.*by gzip"),
    "cProfile": (_stats(), "cProfile"),
    "memray": (b"memray\0\x0c\0", "memray"),
    "perf": (b"PERFILE2" + bytes(40), "Linux perf"),
    "Perfetto": (_packet(b"\x40\0abc") * 4, "Perfetto"),
    "tfevents": (b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\x24\x1a\x0dbrain.Event:2", "log of TensorBoard"),
    "ONNX": (b"\x08\x09\x12\x07pytorch\x1a\x052.3.0:\x10", "ONNX"),
    "safetensors": (b'\x40\0\0\0\0\0\0\0{"weight":{"dtype":"F32"}}', "safetensors"),
    "TFLite": (b"\x1c\0\0\0TFL3\0", "TensorFlow Lite"),
    "TensorRT": (b"ptrt\0\0", "engine of TensorRT"),
    "GGUF": (b"GGUF\x03\0\0\0", "GGUF"),
    "npy": (b"\x93NUMPY\x01\0", "NumPy array"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    "Arrow": (b"ARROW1\0\0", "Arrow"),
    "ELF": (b"\x7fELF\x02\x01", "ELF"),
    "PNG": (b"\x89PNG\r\n\x1a\n", "image"),
    "PDF": (b"%PDF-1.7", "PDF"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "Git LFS"),
    "git-annex": (b"/annex/objects/SHA256E-s3--00.json\n", "git-annex"),
    "SVG": (b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x">\n<svg xmlns="x">', "flame graph"),
    "HTML": (b"<!DOCTYPE html>\n<html><head>", "web page"),
    "memory_viz": (b'<!DOCTYPE html>\n<script type="module">\nimport {add_local_files} from "https://cdn/torch/utils/viz/'
                   b'MemoryViz.js"\nconst local_files = [{"name": "snapshot.pickle"', "page of torch.cuda._memory_viz"),
    "key_averages": (TABLE.encode(), "key_averages"),
    "ncu's page": (b"==PROF== Connected to process 1\n[1] app@127.0.0.1\n", "page that ncu printed"),
    "ncu's page, bare": (b"[1] app@127.0.0.1\n  k (1, 1, 1)\n    Section: GPU Speed Of Light\n", "page that ncu"),
    "nvprof": (b"==123== NVPROF is profiling process 123\n", "nvprof"),
    "nsys stats, CSV": (b'"Time (%)","Total Time (ns)","Instances"\n"90.0","9000","3"\n', "summary of `nsys stats`"),
    "nsys stats, text": (b" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n", "summary of `nsys stats`"),
    "nsys trace": (b'"Start (ns)","Duration (ns)","CorrId"\n"1000","3000","11"\n', "table of `nsys stats`"),
    "rocprof": (b'"Kind","Agent_Id","Queue_Id"\n"KERNEL_DISPATCH","Agent 4",1\n', "rocprof"),
    "rocprof, old": (b'"Index","KernelName","gpu-id"\n0,"k",1\n', "rocprof"),
    "pstats": (b"   4 function calls in 0.001 seconds\n\n   ncalls  tottime\n", "cProfile"),
    "folded": (b"main;train;step 12\nmain;load 3\n", "folded stacks"),
    "perf script": (b"python 123 [000] 12345.678901:     250000 cycles:\n\tffff main\n", "perf script"),
    "PTX": (b"//\n// Generated by NVIDIA NVVM Compiler\n.version 8.5\n.target sm_90\n", "PTX"),
    "UTF-16": ("name,ms\n".encode("utf-16"), "UTF-16"),
    "prose": (b"The step took 12 ms.\n", "is not a profile that perfkit knows"),
    "bytes": (bytes(range(128, 256)), "is not a profile that perfkit knows"),
}  # fmt: skip
ALL = {name: (json.dumps(content).encode(), says) for name, (content, says) in JSON.items()} | OTHERS


@pytest.mark.parametrize("name", ALL)
def test_each_kind_is_named_with_the_next_step(name: str, tmp_path: Path) -> None:
    content, says = ALL[name]
    path = tmp_path / "some.file"
    path.write_bytes(content)
    with pytest.raises(PerfkitError, match=says) as refused:
        read(path)
    assert refused.value.exit_code == 2
    assert refused.value.message.startswith(str(path))
    assert refused.value.hint, "the next step"


@pytest.mark.parametrize("name", ["Execution Trace", "memory timeline", "tar.gz", "snapshot", "an empty list"])
def test_the_command_ends_with_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(ALL[name][0])
    with pytest.raises(SystemExit) as ended:
        main(["report", str(path)])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert len(said.err.strip().splitlines()) <= 2
    assert not said.out


@pytest.mark.parametrize("pretty", [None, 2])
def test_json_is_known_in_any_layout(pretty: int | None, tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content, says in JSON.values():
        text = json.dumps(content, indent=pretty, separators=(",", ":") if pretty is None else None)
        for packed in (text.encode(), b"\xef\xbb\xbf\r\n" + text.encode(), gzip.compress(text.encode())):
            path.write_bytes(packed)
            with pytest.raises(PerfkitError, match=says):
                read(path)


def test_names_in_a_trace_make_it_no_other_kind(tmp_path: Path) -> None:
    marks = (
        '"hlo_module"',
        "dynamo_timed",
        "root_frame",
        "viztracer_metadata",
        "# of Calls",
        "/host:CPU",
        "Self CPU %",
    )
    events = [traces.op("aten::relu", i * 10, i * 10 + 5, [[8]]) | {"name": "aten::relu"} for i in range(3)]
    events += [traces.mark(name, 0, 40) for name in marks]
    for bare in (False, True):
        path = traces.write(tmp_path / "t.json", events)
        if bare:
            path.write_text(json.dumps(events))
        table = read(path)
        assert isinstance(table, KernelTable)
        assert len(table.frame) == 3


def test_an_empty_trace_of_torch_is_one(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}')
    assert isinstance(read(path), KernelTable)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL(start int, end int)", "StringTable(value text)"], "nvprof"),
        (["rocpd_kernel_dispatch(start int)"], "rocprof"),
        (["runs(name text)"], "not an export of Nsight Systems"),
    ],
)
def test_databases_of_others(tables: list[str], says: str, tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    with sqlite3.connect(path) as made:
        for table in tables:
            made.execute(f"create table {table}")
    made.close()
    with pytest.raises(PerfkitError, match=says) as refused:
        read(path)
    assert refused.value.hint


def test_no_format_shares_a_file_with_a_foreign_kind(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content, _ in ALL.values():
        path.write_bytes(content)
        head = sniff.head_of(path)
        assert not [one.files for one in all_formats() if one.knows(head)]


def test_mutations_of_every_kind_make_no_traceback(tmp_path: Path) -> None:
    path, r = tmp_path / "f", random.Random(3)
    for content, _ in ALL.values():
        for _ in range(4):
            path.write_bytes(mutations.of_bytes(content, r)[1])
            with contextlib.suppress(PerfkitError):
                assert isinstance(read(path), KernelTable)


def test_a_report_of_ncu_compressed_by_zstd_is_read(tmp_path: Path) -> None:
    report = ncu_file("products-full.ncu-rep")
    plain, packed = tmp_path / "r.ncu-rep", tmp_path / "r.ncu-repz"
    plain.write_bytes(report)
    packed.write_bytes(pa.compress(report, "zstd", asbytes=True))
    first, second = read(plain), read(packed)
    assert isinstance(first, KernelTable)
    assert isinstance(second, KernelTable)
    assert first.frame.equals(second.frame)
    assert second.source == {**first.source, "path": str(packed)}
    packed.write_bytes(packed.read_bytes()[:-5000])
    with pytest.raises(PerfkitError, match=r"r\.ncu-repz is damaged"):
        read(packed)
    packed.write_bytes(pa.compress(report[:-5000], "zstd", asbytes=True))
    with pytest.raises(PerfkitError, match=r"r\.ncu-repz is a damaged Nsight Compute report"):
        read(packed)


def test_an_unfinished_recording_of_nsys(tmp_path: Path) -> None:
    path = tmp_path / "r.qdstrm"
    path.write_bytes(b"anything")
    with pytest.raises(PerfkitError, match=r"unfinished recording.*nsys import"):
        read(path)
