"""From decided events to the columns of the kernel table."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfkit.cost import CostModel
from perfkit.readers.kernel_names import short_name
from perfkit.readers.kineto_events import ANNOTATION, HostEvents, Integers
from perfkit.readers.kineto_place import EVIDENCE, ROOT, Place
from perfkit.readers.kineto_rows import Rows
from perfkit.run_folder import DeclaredKernel
from perfkit.table import FLOP_COLUMNS, RESOURCES

_NAMED = 5  # operators without a cost that a warning names
_WORTH_SAYING = 0.001  # of the kernel time


def host_rows(host: HostEvents, places: Place, rows: Rows) -> dict[str, Any]:
    """Columns of the rows on the CPU, by start."""
    chosen = np.flatnonzero(rows.is_row)
    chosen = chosen[np.argsort(host.start[chosen], kind="stable")]
    columns: dict[str, Any] = {
        "name": [host.names[n] for n in host.name[chosen]],
        "kind": ["cpu_op"] * len(chosen),
        "device": ["cpu"] * len(chosen),
        "stream": host.lane[chosen],
        "start_ns": host.start[chosen].astype(float),
        "duration_ns": rows.time_ns[chosen].astype(float),
    }
    columns.update(placed(host, places, chosen, places.step[chosen]))
    columns.update(costed(rows, chosen))
    return columns


def placed(host: HostEvents, places: Place, chosen: Integers, step: Integers) -> dict[str, Any]:
    """Place columns of the host events `chosen`, in this order; −1 stands for none and gives absent values."""
    return {
        "step": step,
        "pass": _words(places.pass_names, places.pass_, chosen),
        "module": _words(places.module_names, places.module, chosen),
        "operator": _words(host.names, np.where(places.operator >= 0, host.name[places.operator], -1), chosen),
        "range": _words(*_range_paths(host), chosen),
        "placed_by": [EVIDENCE[e] if i >= 0 else EVIDENCE[0] for i, e in _at(places.evidence, chosen)],
    }


def costed(rows: Rows, chosen: Integers) -> dict[str, Any]:
    """Shapes, FLOP and bytes of the host events `chosen`; absent where the kind of call has no cost."""
    kinds = rows.kinds
    code = np.where(chosen >= 0, rows.kind[chosen], -1) if len(rows.kind) else np.full(len(chosen), -1)
    result: dict[str, Any] = {"shapes": _take([k.shapes for k in kinds], code)}
    for resource, column in zip(RESOURCES, FLOP_COLUMNS, strict=True):
        values = [k.cost.flop.get(resource, np.nan) if k.cost else np.nan for k in kinds]
        if not np.isnan(values).all():
            result[column] = _numbers(values, code)
    result["bytes_read"] = _numbers([k.cost.bytes_read if k.cost else np.nan for k in kinds], code)
    result["bytes_written"] = _numbers([k.cost.bytes_written if k.cost else np.nan for k in kinds], code)
    return result


def finish(
    columns: dict[str, Any],
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    passes: Mapping[str, tuple[str, ...]],
    layers: str,
) -> None:
    """Add order, short name, family and layer, and split the forward pass as the workload names its parts."""
    names = columns["name"]
    columns["order"] = np.arange(len(names))
    short = {n: short_name(n) for n in set(names)}
    columns["short_name"] = [short[n] for n in names]
    family = {n: declared[n].family if n in declared else costs.family(n) for n in short}
    columns["family"] = [family[n] for n in names]
    modules = set(columns["module"])
    layer = {m: _layer(m, layers) for m in modules}
    columns["layer"] = [layer[m] for m in columns["module"]]
    columns["pass"] = _split_forward(columns["pass"], columns["module"], passes)
    step = np.asarray(columns["step"])
    columns["step"] = _absent_below_zero(step)


def uncosted(columns: Mapping[str, Any]) -> list[str]:
    """A warning that names the operators without a cost and their share of the time, if there are any."""
    time = np.asarray(columns["duration_ns"], dtype=float)
    unknown = np.isnan(np.asarray(columns["bytes_read"], dtype=float))
    if time[unknown].sum() < _WORTH_SAYING * time.sum() or not time.sum():
        return []
    total: dict[str, float] = {}
    for name, ns in zip(np.asarray(columns["name"], dtype=object)[unknown], time[unknown], strict=True):
        total[name] = total.get(name, 0.0) + ns
    largest = sorted(total, key=lambda n: -total[n])
    shown = ", ".join(f"{_cropped(n)} ({total[n] / time.sum():.1%})" for n in largest[:_NAMED])
    more = f" and {len(largest) - _NAMED} more" if len(largest) > _NAMED else ""
    return [f"FLOP and bytes are unknown for {sum(total.values()) / time.sum():.1%} of the kernel time: {shown}{more}"]


def _cropped(name: str, width: int = 60) -> str:
    bare = short_name(name) if name.startswith("void ") else name
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def _split_forward(
    passes: list[str | None], modules: list[str | None], patterns: Mapping[str, tuple[str, ...]]
) -> list[str | None]:
    """Forward work in a module that matches a pass's patterns, or in a module below one, belongs to that pass."""
    of_module = {m: _pass_of(m, patterns) for m in set(modules)}
    renamed = {"zero_grad": "optimizer"}
    return [
        of_module[m] if p == "forward" else renamed.get(p, p) if p else None
        for p, m in zip(passes, modules, strict=True)
    ]


def _pass_of(module: str | None, patterns: Mapping[str, tuple[str, ...]]) -> str:
    parts = module.split(".") if module and module != ROOT else []
    paths = [".".join(parts[: i + 1]) for i in range(len(parts))] or [module or ""]
    for name, alternatives in patterns.items():
        if any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in alternatives):
            return name
    return "forward"


def _layer(module: str | None, pattern: str) -> int | None:
    """The number that stands for the * of `pattern` in `module`, or None."""
    if not module or "*" not in pattern:
        return None
    before, _, after = pattern.partition("*")
    found = re.match(rf"{re.escape(before)}(\d+){re.escape(after)}(\.|$)", module)
    return int(found[1]) if found else None


def _range_paths(host: HostEvents) -> tuple[list[str], Integers]:
    """Paths of the annotations around each event, perfkit's own and the profiler's steps left out."""
    shown = [not n.startswith(("perfkit:", "ProfilerStep#")) for n in host.names]
    own = np.flatnonzero((host.category == ANNOTATION) & host.named(shown))
    nearest = np.full(len(host), -1, np.int64)
    nearest[own] = own
    nearest = host.inherit(nearest)
    paths: dict[str, int] = {}
    code_of: dict[int, int] = {-1: -1}
    for i in own.tolist():
        parent = host.parent[i]
        around = code_of[int(nearest[parent])] if parent >= 0 else -1
        text = host.names[host.name[i]]
        path = f"{list(paths)[around]}/{text}" if around >= 0 else text
        code_of[i] = paths.setdefault(path, len(paths))
    return list(paths), np.array([code_of[i] for i in nearest.tolist()], dtype=np.int64)


def _at(values: Integers, chosen: Integers) -> Any:
    safe = np.maximum(chosen, 0)
    return zip(chosen.tolist(), values[safe].tolist() if len(values) else [0] * len(chosen), strict=True)


def _words(words: list[str], code: Integers, chosen: Integers) -> list[str | None]:
    """The word of each chosen event; None where there is no event or it has none."""
    return [words[c] if i >= 0 and c >= 0 else None for i, c in _at(code, chosen)]


def _take(values: list[Any], code: Integers) -> list[Any]:
    return [values[c] if c >= 0 else None for c in code.tolist()]


def _numbers(values: list[float], code: Integers) -> Any:
    return np.append(np.asarray(values, dtype=float), np.nan)[code]


def _absent_below_zero(values: Integers) -> Any:
    import pandas as pd

    return pd.array([None if v < 0 else v for v in values.tolist()], dtype="Int64")
