"""The process that lets NVIDIA's package read a slice of a report: on a damaged file that package may crash or hang.

Run as `python -I worker.py`, with a request as JSON on stdin and one JSON line a result on stdout, then a last line
`{"done": N}`. It imports nothing of perfkit.

Request: `path`; `first` and `last` (results first … last − 1); `wanted` (a regular expression of metric names);
`package` (the folder that ncu_report is in); `memory` (bytes of address space).
"""

import contextlib
import json
import math
import os
import re
import sys

LONGEST = 20_000  # characters of a text: names of kernels may be long, those of damaged files endless


def main() -> None:
    """Answer the request on stdin: a line a result on stdout, then the count. Dies of what the package dies of."""
    request = json.load(sys.stdin)
    _limit(request["memory"])
    sys.path.append(request["package"])
    import ncu_report

    first, last = request["first"], request["last"]
    context = ncu_report.load_report(request["path"])
    wanted = WantedMetrics(request["wanted"])
    position = written = 0
    for number in range(len(context)):
        part = context[number]
        for index in range(len(part)):
            if first <= position < last:
                if position == 0:
                    part[index].source_files()  # no use for them, but damage in them shows here: this dies of it
                print(json.dumps(_result(part[index], wanted)))
                written += 1
            position += 1
    print(json.dumps({"done": written, "results": position}), flush=True)


class WantedMetrics(dict):  # type: ignore[type-arg]
    """Cache of whether a metric of a name is wanted: a report asks for the same names with every kernel."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def __missing__(self, name: str) -> bool:
        self[name] = known = self._pattern.fullmatch(name) is not None
        return known


def _limit(memory: int) -> None:
    """No core file, and no more memory than a whole slice can need."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _result(action, wanted) -> dict:  # type: ignore[no-untyped-def, type-arg]
    names = action.metric_names()
    values: dict[str, float | str] = {}
    units: dict[str, str] = {}
    for name in names:
        if wanted[name]:
            metric = action.metric_by_name(name)
            value = metric.value() if metric is not None and metric.has_value() else None
            if isinstance(value, str):
                values[name] = value[:LONGEST]
            elif isinstance(value, (int, float)) and math.isfinite(value):
                values[name] = float(value)
                units[name] = str(metric.unit())[:50]
    return {
        "name": str(action.name(1))[:LONGEST],
        "function": str(action.name(0))[:LONGEST],
        "mangled": str(action.name(2))[:LONGEST],
        "type": int(action.workload_type()),
        "metrics": len(names),
        "sections": [str(section.name())[:200] for section in action.sections()],
        "values": values,
        "units": units,
        "rules": [_rule(rule) for rule in action.rule_results_as_dicts()],
        "ranges": _ranges(action.nvtx_state()),
    }


def _rule(rule) -> dict:  # type: ignore[no-untyped-def, type-arg]
    message = rule.get("rule_message") or {}
    speedup = rule.get("speedup_estimation") or {}
    gain = speedup.get("speedup")
    return {
        "name": str(rule.get("name", ""))[:200],
        "section": str(rule.get("section_identifier", ""))[:200],
        "title": str(message.get("title", ""))[:LONGEST],
        "message": str(message.get("message", ""))[:LONGEST],
        "kind": int(message.get("type", 0)),
        "speedup": float(gain) if isinstance(gain, (int, float)) and math.isfinite(gain) else None,
        "scope": int(speedup.get("type", 0)),
    }


def _ranges(state) -> list:  # type: ignore[no-untyped-def, type-arg]
    """Names of the push/pop ranges around the launch, outermost first."""
    found: list[str] = []
    for number in state.domains() if state is not None else ():
        domain = state.domain_by_id(number)
        found += [str(name)[:LONGEST] for name in (domain.push_pop_ranges() if domain is not None else ())]
    return found


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the package's own clean-up may crash after all is written
