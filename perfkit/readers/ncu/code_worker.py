"""The process that lets NVIDIA's package read the instructions of kernels: on a damaged file it may crash or hang.

Run as `python -I code_worker.py`, with a request as JSON on stdin and one JSON line a result on stdout. It imports
nothing of perfkit.

Request: `path`; `positions` (which results); `counts` (metric by name of the count); `stalls` (a regular expression of
metrics, whose first group is the reason); `package` and `memory` as for `worker.py`.
"""

import contextlib
import json
import math
import os
import re
import sys

LONGEST = 400  # characters of an instruction
MOST_SOURCE = 2_000_000  # characters of a file


def main() -> None:
    """Answer the request on stdin: a line a result."""
    request = json.load(sys.stdin)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    sys.path.append(request["package"])
    import ncu_report

    context = ncu_report.load_report(request["path"])
    wanted, position = set(request["positions"]), 0
    for number in range(len(context)):
        part = context[number]
        for index in range(len(part)):
            if position in wanted:
                print(json.dumps({"order": position, **_code(part[index], request)}))
            position += 1


def _code(action, request) -> dict:  # type: ignore[no-untyped-def, type-arg]
    """The instructions of one launch, its imported sources and markers."""
    counts = {name: _by_address(action, metric) for name, metric in request["counts"].items()}
    pattern, stalls = re.compile(request["stalls"]), {}
    for metric in action.metric_names():
        if match := pattern.fullmatch(metric):
            stalls[match[1]] = _by_address(action, metric)
    addresses = sorted({pc for found in (*counts.values(), *stalls.values()) for pc in found})
    addresses = [pc for pc in addresses if action.sass_by_pc(pc)]
    first = addresses[0] if addresses else 0
    sampled = bool(counts.get("samples"))
    made = []
    for pc in addresses:
        own = {name: found[pc] for name, found in counts.items() if pc in found}
        if sampled:
            own.setdefault("samples", 0.0)  # the sampler met it nowhere
        made.append(
            {**_where(action, pc, first), "counts": own, "stalls": {n: f[pc] for n, f in stalls.items() if f.get(pc)}}
        )
    sources = {str(name): str(text)[:MOST_SOURCE] for name, text in action.source_files().items() if text}
    markers = [_marker(marker, first) for marker in action.source_markers()]
    return {"instructions": made, "sources": sources, "markers": markers}


def _by_address(action, name) -> dict:  # type: ignore[no-untyped-def, type-arg]
    """The values of a metric by instruction; none where the report does not have it."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return {}
    ids, found = metric.correlation_ids(), {}
    for index in range(metric.num_instances()):
        value = metric.value(index)
        if isinstance(value, (int, float)) and math.isfinite(value) and value >= 0:
            found[int(ids.value(index))] = float(value)
    return found


def _where(action, pc, first) -> dict:  # type: ignore[no-untyped-def, type-arg]
    source = action.source_info(pc)
    return {
        "at": pc - first,
        "sass": " ".join(str(action.sass_by_pc(pc)).split())[:LONGEST],
        "ptx": " ".join(str(action.ptx_by_pc(pc)).split())[:LONGEST],
        "file": str(source.file_name())[:LONGEST] if source is not None else "",
        "line": int(source.line()) if source is not None else 0,
    }


def _marker(marker, first) -> dict:  # type: ignore[no-untyped-def, type-arg]
    place, address = marker.get("source_location") or {}, marker.get("source_address")
    return {
        "rule": str(marker.get("rule_identifier", ""))[:200],
        "message": str(marker.get("message", ""))[:2000],
        "at": int(address) - first if address else None,
        "file": str(place.get("file_name", ""))[:LONGEST],
        "line": int(place.get("line", 0)),
    }


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the package's own clean-up may crash after all is written
