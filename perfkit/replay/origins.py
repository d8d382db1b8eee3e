"""Inputs of a backward operator that its forward operator makes: mean and 1/deviation, logsumexp, indices of maxima.

PyTorch's own table of derivatives, which comes with it (torchgen's derivatives.yaml), says which call of the backward
operator belongs to which forward operator, and which of its arguments are results of that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^- name: (\w+)(?:\.(\w+))?\((.*)\) -> (.*)$")
_RESULT = re.compile(r"^result(\d*)$")


@dataclass(frozen=True)
class ForwardOrigin:
    """The forward operator of a backward one, and what each argument of the backward call is, in its order.

    `expressions` are names of the forward operator's arguments, or text that is neither name nor result. `results` are
    the positions of backward arguments that are results of the forward operator, with their numbers.
    """

    operator: str
    overload: str
    expressions: tuple[str, ...]
    results: dict[int, int]


@functools.cache
def origin_of(backward: str) -> ForwardOrigin | None:
    """The forward operator of `aten::NAME`; None where PyTorch's table has none."""
    name = backward.removeprefix("aten::")
    call = re.compile(rf"(?<![\w:.]){re.escape(name)}(?:_symint)?\(")
    for operator, overload, returns, formula in _entries():
        if found := call.search(formula):
            expressions = tuple(_arguments(formula[found.end() :]))
            results = {
                i: number for i, text in enumerate(expressions) if (number := _number(text, returns)) is not None
            }
            if results and "grad" in expressions[0]:
                return ForwardOrigin(f"aten::{operator}", overload, expressions, results)
    return None


def _number(text: str, returns: Sequence[str]) -> int | None:
    """The number of the result that an expression names."""
    if found := _RESULT.match(text):
        return int(found[1] or 0)
    return returns.index(text) if text in returns else None


@functools.cache
def _entries() -> tuple[tuple[str, str, tuple[str, ...], str], ...]:
    """Name, overload, names of results and formula of every line of the table."""
    import torch

    path = Path(torch.__file__).parent.parent / "torchgen/packaged/autograd/derivatives.yaml"
    found: list[tuple[str, str, tuple[str, ...], str]] = []
    head: tuple[str, str, tuple[str, ...]] | None = None
    for line in path.read_text().splitlines() if path.is_file() else ():
        if start := _NAME.match(line):
            names = (part.split() for part in start[4].strip("()").split(","))
            head = start[1], start[2] or "", tuple(words[1] if len(words) > 1 else "" for words in names)
        elif head and line.startswith("  ") and "(" in line:
            found.append((*head, line.partition(":")[2]))
    return tuple(found)


def _arguments(text: str) -> Iterator[str]:
    """The arguments of a call, between its brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter in "([{":
            depth += 1
        elif letter in ")]}" and depth:
            depth -= 1
        elif letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
        elif letter == ")":
            yield text[start:at].strip()
            return


def with_forward(recipe: dict[str, Any]) -> str:
    """Let the forward operator make what it makes of the arguments of a backward `recipe`; a sentence that says so.

    "" where PyTorch's table has no forward operator, or an argument of it is not known.
    """
    import torch

    origin = origin_of(recipe["operator"])
    entries = recipe["arguments"]
    if origin is None:
        return ""
    made = [entries[i] for i in origin.results if i < len(entries) and _is_made(entries[i][2])]
    schemas = torch._C._jit_get_schemas_for_operator(origin.operator)
    schema = next((one for one in schemas if one.overload_name == origin.overload), None)
    if not made or schema is None:
        return ""
    arguments = []
    for argument in schema.arguments:
        value = _forward_value(argument, origin, entries, made[0][2])
        if value is None:
            return ""
        arguments.append([argument.name, argument.kwarg_only, value])
    for position, number in origin.results.items():
        if position < len(entries) and _is_made(entries[position][2]):
            entries[position][2] = {"result": number, "else": entries[position][2]}
    recipe["forward"] = {
        "operator": origin.operator, "overload": origin.overload, "arguments": arguments, "changed": [],
    }  # fmt: skip
    return f"{', '.join(entry[0] for entry in made)}: results of {origin.operator} on the same inputs."


def _is_made(value: dict[str, Any]) -> bool:
    return "tensor" in value or value == {"value": None}


def _forward_value(
    argument: Any, origin: ForwardOrigin, entries: Sequence[Any], result: dict[str, Any]
) -> dict[str, Any] | None:
    """An argument of the forward operator: of the backward call, its default, or a tensor like the result; else
    None."""
    for position, (expression, (name, _, value)) in enumerate(zip(origin.expressions, entries, strict=False)):
        if expression == argument.name and "result" not in value:
            # An argument may have the name of a result (cuDNN's cum_seq_q): the backward call then takes the result.
            return value if position in origin.results and _is_made(value) else {"argument": name}
    if argument.name.startswith("compute_log"):  # compute_log_sumexp: what only a backward pass takes
        return {"value": True}
    if argument.has_default_value():
        return {"value": argument.default_value}
    kind = str(argument.type)
    if kind == "Tensor" and "tensor" in result and argument.name in ("self", "input"):
        return {"tensor": {**result["tensor"], "fill": "normal"}}
    if kind == "float" and "eps" in argument.name:
        return {"value": 1e-5}
    if kind == "bool":
        return {"value": False}
    return {"value": None} if kind.startswith("Optional") else None
