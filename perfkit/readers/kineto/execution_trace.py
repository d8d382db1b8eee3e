"""Shapes, strides and values of operators from an Execution Trace next to a trace of the same recording.

PyTorch's ExecutionTraceObserver writes one node for each operator that ran, with all of its arguments; the profiler's
events then have the node's `rf_id`. What an event lacks it gets from its node: all arguments where shapes were not
recorded, else those alone that this version of the profiler leaves out.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perfkit.readers.sniff import head_of

_FIELDS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_TENSOR, _LIST = "Tensor(", "GenericList["
_UNDEFINED = "nullptr"  # in the type of an optional tensor that was not given
_MOST = 64  # files of a folder that are looked at
_SCALARS = ("Int", "Double", "Bool")


class _Inputs(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []


class _NodeAttribute(msgspec.Struct):
    name: str = ""
    value: Any = None


class _Node(msgspec.Struct):
    name: str = ""
    inputs: _Inputs = msgspec.field(default_factory=_Inputs)
    attrs: list[_NodeAttribute] = []


class _Document(msgspec.Struct):
    nodes: list[_Node]
    pid: int = -1


def is_execution_trace(keys: frozenset[str]) -> bool:
    """Return whether a JSON object with these outermost keys is an Execution Trace."""
    return {"schema", "nodes"} <= keys


def in_folder(folder: Path) -> list[Path]:
    """Return the Execution Traces in a folder."""
    return [path for path in sorted(folder.glob("*.json"))[:_MOST] if _begins(path)]


def _begins(path: Path) -> bool:
    """Return whether a file begins as an Execution Trace does, by few bytes of it."""
    try:
        with path.open("rb") as file:
            begins = file.read(256)
    except OSError:
        return False
    return b'"schema"' in begins and is_execution_trace(head_of(path).keys[0])


@contextmanager
def joined(trace: Path) -> Iterator[tuple[Path, str]]:
    """Give `trace`, or a temporary one with the arguments of an Execution Trace next to it, and a sentence about that.

    An Execution Trace of another process or recording, whose nodes have other names than the events, is left alone.
    """
    for path in in_folder(trace.parent):
        try:
            events = _with_arguments(trace, path)
        except (msgspec.MsgspecError, OSError, EOFError, UnicodeDecodeError, LookupError, TypeError, AttributeError):
            continue  # either is damaged, and the trace's reader says so of it
        if events is None:
            continue
        document, count = events
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            made = Path(folder) / "trace.json"
            made.write_bytes(msgspec.json.encode(document))
            yield made, f"arguments of {count:,} operators come from {path.name}, the Execution Trace next to the trace"
        return
    yield trace, ""


def _with_arguments(trace: Path, path: Path) -> tuple[dict[str, Any], int] | None:
    """The trace with the arguments of its operators, and of how many; None where the two are not of one recording."""
    found = msgspec.json.decode(path.read_bytes(), type=_Document)
    nodes = {rf_id: node for node in found.nodes if (rf_id := _identity(node)) is not None}
    raw = trace.read_bytes()
    document = msgspec.json.decode(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    count = 0
    for event in document["traceEvents"]:
        args = event.get("args") if event.get("cat") == "cpu_op" else None
        node = nodes.get(args.get("Record function id", -1)) if args else None
        if args is None or node is None:
            continue
        if node.name != event["name"] or found.pid not in (-1, event["pid"]):
            return None
        lacking = {name: value for name, value in arguments(node.inputs).items() if not args.get(name)}
        args.update(lacking)
        count += bool(lacking)
    return (document, count) if count else None


def _identity(node: _Node) -> int | None:
    """The `rf_id` of an operator, 0 for anything else."""
    found = next((attr.value for attr in node.attrs if attr.name == "rf_id"), None)
    return found if isinstance(found, int) and found > 0 else None


def arguments(inputs: _Inputs) -> Mapping[str, list[Any]]:
    """Return the arguments of a node as a trace with shapes has them: dimensions, types, strides, and values as text.

    None where its lists do not belong together.
    """
    types = inputs.types
    if not types or any(len(one) != len(types) for one in (inputs.values, inputs.shapes)):
        return {}
    strides = inputs.strides if len(inputs.strides) == len(types) else [[] for _ in types]
    dims = [_of_tensors(kind, shape) for kind, shape in zip(types, inputs.shapes, strict=True)]
    kept = [_of_tensors(kind, stride) for kind, stride in zip(types, strides, strict=True)]
    values = [_text(kind, value) for kind, value in zip(types, inputs.values, strict=True)]
    return dict(zip(_FIELDS, (dims, list(map(_type, types)), kept, values), strict=True))


def _element_types(kind: str) -> list[str]:
    return kind.removeprefix(_LIST).removesuffix("]").split(",") if kind.startswith(_LIST) else []


def _of_tensors(kind: str, sizes: Any) -> Any:
    """The sizes of a tensor or of a list of tensors; empty for anything else."""
    return sizes if _type(kind) not in ("", "Scalar", "ScalarList") else []


def _type(kind: str) -> str:
    """The type as the profiler calls it: that of a tensor's numbers, else a word."""
    if kind.startswith(_TENSOR):
        return "" if _UNDEFINED in kind else kind.removeprefix(_TENSOR).removesuffix(")")
    members = _element_types(kind)
    if members:
        return "TensorList" if members[0].startswith(_TENSOR) else "ScalarList" if members[0] in _SCALARS else ""
    return "Scalar" if kind in _SCALARS else ""


def _text(kind: str, value: Any) -> str:
    """The value of a number or list of numbers as the profiler writes it; "" of anything else."""
    if kind in _SCALARS:
        return str(value)
    return str(value) if _type(kind) == "ScalarList" and isinstance(value, list) else ""
