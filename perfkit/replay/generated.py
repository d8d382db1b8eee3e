"""A kernel that Inductor generated, run again from its source: found where the trace says, or in the run folder.

Its arguments are recorded like an operator's, without names: outputs are among them, and which is which the source
alone knows. Nothing in fp64 computes the same, so its results are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from perfkit.readers.kineto.decode.stream import blocks
from perfkit.replay.arguments import ELSE, NotRebuilt, Rebuilt, entries_of, tensor_of, value_of
from perfkit.replay.recorded import OperatorCalls

_PREFIX = "triton_"
_KEEP = "Replay it where it was recorded, or from a run folder of `perfkit run` or `perfkit capture`, which keeps it."
_LARGEST = 64 << 20  # bytes of a source


class _Launch(msgspec.Struct):
    name: str = ""
    args: dict[str, object] = {}


class _Events(msgspec.Struct):
    traceEvents: list[_Launch] = []


def is_generated(operator: str) -> bool:
    """Return whether an operator of a trace is the launch of a kernel that Inductor generated."""
    return operator.startswith(_PREFIX)


def rebuilt(calls: OperatorCalls, trace: Path, device: str) -> Rebuilt:
    """The recipe of a generated kernel. Raises `NotRebuilt` without a GPU, or without its source."""
    if device == "cpu":
        raise NotRebuilt(f"{calls.operator} is a Triton kernel, which runs on a GPU alone.", ELSE)
    source = source_of(calls.operator, trace)
    entries = entries_of(calls.arguments)
    values = [
        value_of(entry.value) if entry.kind == "Scalar" else tensor_of(calls.operator, f"argument {i}", entry)
        for i, entry in enumerate(entries)
    ]
    shapes = [value["tensor"]["shape"] for value in values if "tensor" in value]
    rows = min((shape[0] for shape in shapes if len(shape) > 1 and shape[0] > 1), default=1)
    for value in values:
        if "tensor" in value and value["tensor"]["dtype"].startswith("int"):
            value["tensor"] |= {"fill": "whole", "bound": rows}  # an index may not leave the smallest tensor
    recipe = {
        "operator": calls.operator, "overload": "", "source": source, "changed": [],
        "arguments": [[f"argument {i}", False, value] for i, value in enumerate(values)],
    }  # fmt: skip
    return Rebuilt(recipe, ["Arguments of a generated kernel have no names; its outputs are among them."])


def source_of(name: str, trace: Path) -> str:
    """The Triton source of a kernel: the file that the trace names, or the generated code next to it.

    Raises `NotRebuilt` where neither is here.
    """
    file = _file_of(name, trace)
    if file is not None and file.is_file() and file.stat().st_size < _LARGEST:
        text = file.read_text(errors="replace")
        if f"def {name}(" in text:
            return text
    for near in sorted({*trace.parent.glob("*.txt"), *trace.parent.glob("*.py")}):
        if near.stat().st_size < _LARGEST:
            found = next(_sources(name, near.read_text(errors="replace")), None)
            if found is not None:
                return found
    where = f": it was {file}" if file is not None else ""
    raise NotRebuilt(f"The source of {name} is not on this machine{where}.", _KEEP)


def _file_of(name: str, trace: Path) -> Path | None:
    """The file that the trace names for a kernel."""
    found = msgspec.json.decode(b"".join(blocks(trace)), type=_Events, strict=False)
    files = (event.args.get("kernel_file") for event in found.traceEvents if event.name == name)
    return next((Path(file) for file in files if isinstance(file, str)), None)


def _sources(name: str, text: str) -> Iterator[str]:
    """The sources of a kernel in the code that Inductor wrote around it."""
    pattern = rf"async_compile\.triton\('{re.escape(name)}', '''(.*?)'''"
    for found in re.finditer(pattern, text, re.DOTALL):
        yield found[1].replace("\\\\", "\\")
