"""The process that lets NVIDIA's package read the instructions of kernels: on a damaged file it may crash or hang.

Run as `python -I code_worker.py`, with a request as JSON on stdin and one JSON line a result on stdout. It imports
nothing of perfkit.

Request: `path`; `positions` (which results); `counts` (metric by name of the count); `stalls` (a regular expression of
metrics, whose first group is the reason); `courses` (a regular expression of metrics sampled over time, by name);
`package` and `memory` as for `worker.py`.
"""

import contextlib
import itertools
import json
import math
import os
import re
import sys

LONGEST = 400  # characters of an instruction
MOST_SAMPLES = 240  # of a course: more are averaged
MOST_PASSES = 64
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
    courses = [_course(action, name, pattern) for name, pattern in request["courses"].items()]
    return {
        "instructions": made,
        "sources": sources,
        "markers": markers,
        "courses": [course for course in courses if course],
    }


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


def _course(action, name, pattern) -> dict:  # type: ignore[no-untyped-def, type-arg]
    """A counter's samples during the launch; none where it was not sampled, or never in that time."""
    found = next((metric for metric in action.metric_names() if re.fullmatch(pattern, metric)), None)
    metric = action.metric_by_name(found) if found else None
    if metric is None or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    taken = sorted((int(ids.value(i)), float(metric.value(i))) for i in range(metric.num_instances()) if ids.value(i))
    taken = [one for one in taken if math.isfinite(one[1]) and one[1] >= 0]
    if len(taken) < 2:
        return {}
    begin, end = _window(action, taken)
    inside = [(at - begin, value) for at, value in taken if begin <= at <= end]
    steps = sorted(later - at for (at, _), (later, _) in itertools.pairwise(taken))
    size = -(-len(inside) // MOST_SAMPLES) or 1
    parts = [inside[i : i + size] for i in range(0, len(inside), size)]
    unit = str(metric.unit() or "")
    return {
        "name": name, "unit": unit, "interval_ns": float(steps[len(steps) // 2]),
        "at_ns": [sum(at for at, _ in part) / len(part) for part in parts],
        "values": [sum(value for _, value in part) / len(part) for part in parts],
    } if parts else {}  # fmt: skip


def _window(action, taken) -> tuple[int, int]:  # type: ignore[no-untyped-def, type-arg]
    """The launch's begin and end in the pass in which a counter was sampled: of all passes, the one nearest to it."""
    found = []
    for number in range(MOST_PASSES):
        edges = [action.metric_by_name(f"profiler__timestamp_workload_{edge}_{number}") for edge in ("start", "end")]
        if None in edges:
            break
        begin, end = (int(edge.correlation_ids().value(0)) for edge in edges)
        found.append((begin, end))
    middle = (taken[0][0] + taken[-1][0]) / 2
    return min(found, key=lambda edges: abs(sum(edges) / 2 - middle), default=(taken[0][0], taken[-1][0]))


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
