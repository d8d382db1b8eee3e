"""Parts of a report's JSON by short paths: `kernels[:10],findings.gpu-idle,modules.transformer.h.*`.

A path begins with a field of the report, or of its backends (then the answer has each backend's). After it come, in any
number: `[3]`, `[:10]`, `[2:5]` of a list; `.NAME` of an object, or of a list the entry of that name; `.*` all entries.
`modules` is the tree of modules, whose names hold dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.errors import UsageError

_PATH = re.compile(r"([A-Za-z_]\w*)((?:\[-?\d*:?-?\d*\]|\.[^.\[\],]+)*)")
_STEP = re.compile(r"\[(?P<slice>-?\d*:-?\d*)\]|\[(?P<index>-?\d+)\]|\.(?P<name>[^.\[\],]+)")
_MODULES, _TREE = "modules", "tree"
_KEYS = ("name", "key", "rule", "path", "title")  # by which an entry of a list is called


def render(report: str, paths: str) -> str:
    """Return the parts of a report, given and returned as JSON. Raises `UsageError` as `select` does."""
    return json.dumps(select(json.loads(report), paths), indent=1, ensure_ascii=False) + "\n"


def select(report: Mapping[str, Any], paths: str) -> dict[str, Any]:
    """Return the parts of `report` (plain data) that `paths` names, by path; of fields of backends by backend.

    Raises `UsageError` for a malformed path, and for a field that no report has.
    """
    return {path: _selected(report, path) for path in (part.strip() for part in paths.split(",")) if path}


def _selected(report: Mapping[str, Any], path: str) -> Any:
    found = _PATH.fullmatch(path)
    if found is None:
        raise UsageError(f"{path} is not a path into a report.", "Such as kernels[:10] or findings.gpu-idle.")
    field, rest = found[1], found[2]
    backends = {backend["name"]: backend for backend in report.get("backends") or []}
    if field == _MODULES:
        return {name: _module(backend.get(_TREE), rest) for name, backend in backends.items()}
    if field in report:
        return _within(report[field], rest)
    if not any(field in backend for backend in backends.values()):
        known = sorted({*report, _MODULES, *(name for backend in backends.values() for name in backend)})
        raise UsageError(f"A report has no {field}.", f"It has {', '.join(known)}.")
    return {name: _within(backend.get(field), rest) for name, backend in backends.items()}


def _within(value: Any, rest: str) -> Any:
    """Return the value at the end of a path; None where there is nothing of that name."""
    for step in _STEP.finditer(rest):
        if value is None:
            return None
        if step["name"] is not None:
            value = _named(value, step["name"])
        elif not isinstance(value, list):
            return None
        elif step["index"] is not None:
            at = int(step["index"])
            value = value[at] if -len(value) <= at < len(value) else None
        else:
            low, high = (int(text) if text else None for text in step["slice"].split(":"))
            value = value[low:high]
    return value


def _named(value: Any, name: str) -> Any:
    """The entry of an object or a list that is called `name`; all of them for `*`."""
    if name == "*":
        return value
    if isinstance(value, Mapping):
        return value.get(name)
    if not isinstance(value, list):
        return None
    found = [one for one in value if isinstance(one, Mapping) and any(one.get(key) == name for key in _KEYS)]
    return found or None


def _module(node: Any, rest: str) -> Any:
    """The node of the tree at a path of modules, without what is in it; for `.*` at the end, with it."""
    parts = rest.removeprefix(".").split(".") if rest else []
    for part in parts:
        if part == "*":
            return [_bare(child) for child in (node or {}).get("children", [])]
        node = next((child for child in (node or {}).get("children", []) if _last(child) == part), None)
    return _bare(node)


def _last(node: Mapping[str, Any]) -> str:
    return str(node.get("name", "")).rpartition(".")[2]


def _bare(node: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if node is None else {key: value for key, value in node.items() if key != "children"}
