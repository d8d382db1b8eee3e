"""Text files: tables that profilers print, pages, and what stands where a file should be."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfkit.readers.foreign import Foreign
from perfkit.readers.foreign.binaries import RUN, TORCH
from perfkit.readers.sniff import Head

NSYS = "Give the capture itself: `nsys export --type sqlite REPORT.nsys-rep`, and then the sqlite file."
NCU = "Give the report itself (REPORT.ncu-rep), or print it as CSV: `ncu --import REPORT.ncu-rep --csv --page raw`."
ROCPROF = "Record the program with torch.profiler, whose traces of AMD GPUs perfkit reads."
_BEGINNING = 1 << 14


def _says(pattern: str, flags: int = 0) -> Callable[[Head], bool]:
    """Asks whether `pattern` is found in the beginning."""
    compiled = re.compile(pattern.encode(), flags | re.MULTILINE)
    return lambda head: compiled.search(head.text[:_BEGINNING]) is not None


KINDS = (
    Foreign(
        "a pointer of Git LFS, not the file itself",
        "Get the file with `git lfs pull`.",
        lambda head: head.text.startswith(b"version https://git-lfs.github.com/spec/"),
    ),
    Foreign(
        "a pointer of git-annex, not the file itself",
        "Get the file with `git annex get FILE`.",
        lambda head: head.text.startswith((b"/annex/objects/", b"../.git/annex/")),
    ),
    Foreign(
        "a flame graph (SVG)",
        f"Open it in a browser. {TORCH}",
        _says(r"\A\s*(?:<\?xml.*?)?(?:<!.*?>\s*)?<svg\b", re.S | re.I),
    ),
    Foreign(
        "a page of torch.cuda._memory_viz, with a memory snapshot inside",
        "Give the snapshot itself: `perfkit report` reads the pickle that torch.cuda.memory._dump_snapshot wrote.",
        _says(r"\bMemoryViz\.js\b"),
    ),
    Foreign(
        "a web page",
        f"If it was downloaded, the server sent a page and not the file: download the raw file. {TORCH}",
        _says(r"\A\W*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head|script|div)\b", re.S | re.I),
    ),
    Foreign(
        "a table of `key_averages()`: sums by operator, without times of day",
        "Export the trace of the same profile: `profiler.export_chrome_trace(FILE)`.",
        _says(r"Self CPU(?: time)? ?(?:%|total)|# of Calls"),
    ),
    Foreign(
        "a page that ncu printed as text",
        NCU,
        _says(r"^==PROF== |Section: GPU Speed Of Light|Metric Name +Metric Unit"),
    ),
    Foreign(
        "the output of nvprof",
        "Profile with its successor: `nsys profile COMMAND`; then give perfkit the export to sqlite.",
        _says(r"^==\d+==|GPU activities:"),
    ),
    Foreign(
        "a summary of `nsys stats`",
        NSYS,
        _says(r'^"?Time ?\(%\)"?,|Time \(%\) +Total Time|^"?Total Time \(ns\)|\(cuda_\w+_sum\)|\(\w*kernsum\)'),
    ),
    Foreign("a table of `nsys stats` or `nsys export`", NSYS, _says(r'^"?Start ?\(\w+\)"?,"?Dur(?:ation)? ?\(')),
    Foreign(
        "a table of AMD's rocprof",
        ROCPROF,
        _says(r'^"?Kind"?,"?Agent_Id"?|^"?Index"?,"?KernelName"?|"?Dispatch_Id"?,'),
    ),
    Foreign("a table of Python's cProfile", TORCH, _says(r"function calls.* in .* seconds|ncalls +tottime")),
    Foreign(
        "folded stacks of a flame graph", TORCH, _says(r"\A(?:[^\n]*;[^\n]* \d+\r?\n){2}|\A[^\n]+;[^\n]+ \d+\r?\n?\Z")
    ),
    Foreign("a listing of `perf script`", TORCH, _says(r"\A\S.* \d+(?:/\d+)? (?:\[\d+\] )?\d+\.\d+: +\d+ \S+:")),
    Foreign(
        "PTX, the code of a kernel",
        RUN,
        _says(r"^\.version \d+\.\d+\s"),
    ),
    Foreign("UTF-16 text", "Save it as UTF-8.", lambda head: head.text.startswith((b"\xff\xfe", b"\xfe\xff"))),
)
