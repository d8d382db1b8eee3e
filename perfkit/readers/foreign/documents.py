"""JSON other than traces of torch.profiler, by its keys."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfkit.readers.foreign import Foreign
from perfkit.readers.sniff import Head

TORCH = "Record one with torch.profiler (`perfkit capture -- COMMAND` does), and give its trace."
NSYS = "Nsight Systems records such programs too: `nsys profile COMMAND`, then give perfkit the export to sqlite."
PERFETTO = "Open it in ui.perfetto.dev."
_SNAPSHOTS = ({"segments", "device_traces"}, {"device_traces", "action"}, {"segment_type", "total_size", "blocks"})
_NUMBERS = re.compile(rb"\[\s*\[\s*(?:-?\d|\])")
_SCOPES = re.compile(rb'"pid"\s*:\s*"[^"]* Core\d+ CTA\d+"')
_LINES = re.compile(rb"\{[^\n]*\}\r?\n\s*\{")


Test = Callable[[Head], bool]


def _all(*keys: str, inside: tuple[str, ...] = ()) -> Test:
    """Asks whether the outermost object has all these keys, and objects inside it all those `inside`."""
    return lambda head: set(keys) <= head.keys[0] and set(inside) <= head.keys[1]


def _listed(*keys: str) -> Test:
    """Asks whether it is a list of objects with these keys, at any depth."""
    return lambda head: head.plain[:1] == b"[" and set(keys) <= head.keys[1]


def _marked(*marks: bytes) -> Test:
    """Asks whether the text holds one of `marks`."""
    return lambda head: any(mark in head.text for mark in marks)


KINDS = (
    Foreign(
        "a report that perfkit wrote",
        "Give the profile or run folder that it was made of.",
        lambda head: {"schema", "perfkit"} <= head.keys[0] and not head.is_of_torch,
    ),
    Foreign(
        "PyTorch's record of compilation (Dynamo's `chromium_events.json`), not a profile of a step",
        f"{PERFETTO} `perfkit capture -- COMMAND` records the steps that the compiled code runs.",
        _marked(b'"dynamo_timed"', b'"entire_frame_compile"', b'"chromium_event"'),
    ),
    Foreign(
        "a memory timeline of torch.profiler: bytes by category over time, without operators and kernels",
        "Export the trace of the same profile: `profiler.export_chrome_trace(FILE)`.",
        lambda head: _NUMBERS.match(head.plain) is not None,
    ),
    Foreign(
        "a memory snapshot of PyTorch as JSON",
        "Write it as a pickle: `perfkit report` reads what torch.cuda.memory._dump_snapshot wrote.",
        lambda head: any(set().union(*head.keys) >= keys for keys in _SNAPSHOTS),
    ),
    Foreign("a Jupyter notebook", f"Give the profile that it made. {TORCH}", _all("cells", inside=("cell_type",))),
    Foreign(
        "an Execution Trace (PyTorch's ExecutionTraceObserver, Chakra): it has no times of kernels",
        "Give the torch.profiler trace of the same recording: what that lacks of shapes and values is taken from an "
        "Execution Trace in its folder.",
        _all("schema", "nodes"),
    ),
    Foreign(
        "a recording of network requests (HAR)", f"Give a profile. {TORCH}", _all("log", inside=("entries", "creator"))
    ),
    Foreign(
        "a profile of Python code for speedscope",
        f"Open it in speedscope.app. {TORCH}",
        lambda head: b"speedscope.app/file-format" in head.text or {"shared", "profiles"} <= head.keys[0],
    ),
    Foreign("a trace of VizTracer", f"`vizviewer FILE` shows it. {TORCH}", _marked(b'"viztracer_metadata"', b'"FEE"')),
    Foreign(
        "a trace of Proton's scopes inside kernels (cycles), without times of kernels",
        "`perfkit inspect FILE` shows the time of the scopes.",
        lambda head: _SCOPES.search(head.text) is not None,
    ),
    Foreign("a profile of Firefox", f"Open it in profiler.firefox.com. {TORCH}", _all("meta", "threads", "libs")),
    Foreign("a CPU profile of V8", f"Open it in Chrome's DevTools. {TORCH}", _all("nodes", "samples", "timeDeltas")),
    Foreign(
        "a session of pyinstrument",
        f"`pyinstrument --load FILE` shows it. {TORCH}",
        _marked(b'"root_frame"', b'"frame_tree"'),
    ),
    Foreign("a profile of Scalene", f"`scalene view FILE` shows it. {TORCH}", _all("files", "elapsed_time_sec")),
    Foreign("a trace of Chrome's DevTools", PERFETTO + " " + TORCH, _marked(b"devtools.timeline", b'"cat":"blink')),
    Foreign(
        "the flight recorder of torch.distributed: collectives without kernels",
        "`torchfrtrace` reads it. Give perfkit the ranks' torch.profiler traces.",
        _all("pg_config", "entries"),
    ),
    Foreign(
        "a log of requests of the Triton Inference Server",
        f"Give a profile of its worker. {NSYS}",
        _listed("timestamps", "ns"),
    ),
    Foreign(
        "an export of Nsight Systems to JSON",
        "Export it to sqlite: `nsys export --type sqlite REPORT.nsys-rep`.",
        _marked(b'"CudaEvent"', b'"NvtxEvent"', b'"TraceProcessEvent"'),
    ),
    Foreign("spans of OpenTelemetry", f"Give a profile. {TORCH}", _all("resourceSpans")),
    Foreign("spans of Jaeger", f"Give a profile. {TORCH}", _all("data", inside=("traceID", "spans"))),
    Foreign("the manifest of a package", f"Give a profile. {TORCH}", _all("name", "version", "dependencies")),
    Foreign("a model's configuration", f"Give a profile of a step of it. {TORCH}", _all("architectures", "model_type")),
    Foreign(
        "JSON Lines: an object on each line, not one trace",
        f"Give a profile. {TORCH}",
        lambda head: _LINES.match(head.plain) is not None,
    ),
)
