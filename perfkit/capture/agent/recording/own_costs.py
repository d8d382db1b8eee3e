"""Costs that the program registered, worked out for the calls in its trace while the program is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit.cost.model import Call

_KEPT = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "grid", "block")
_MOST = 1000  # kinds of calls of one name


def recorded(trace: Path) -> list[list[Any]]:
    """For each kind of call in the `trace` of an operator or kernel with a registered cost: its name, the arguments as
    in the trace, and FLOP by unit, bytes read and written; or in place of these a sentence on why there is no cost.

    Empty where nothing is registered, without a look at the trace.
    """
    if not {"perfkit.cost.own", "torch.utils.flop_counter"} & set(sys.modules) or not trace.is_file():
        return []
    from perfkit.cost import own

    functions = own.registered(of_file=False)  # the file is the launcher's to run
    if not functions:
        return []
    text, found = trace.read_text(errors="replace"), []
    for name, function in functions.items():
        for arguments in _calls(text, name):
            try:
                cost = own.own_cost(function, call_of(name, arguments))
                found.append([name, arguments, [dict(cost.flop), cost.bytes_read, cost.bytes_written]])
            except own.WrongCost as error:
                found.append([name, arguments, f"the registered cost of {name} is left out: it {error}"])
    return found


def joined(trace: Path, others: list[list[Any]]) -> list[list[Any]]:
    """The registered costs of the calls in `trace`, and those of `others` whose names nobody registered."""
    registered = recorded(trace)
    known = {name for name, *_ in registered}
    return [*registered, *(one for one in others if one[0] not in known)]


def call_of(name: str, arguments: dict[str, Any]) -> Call:
    """Return the call of an event: of an operator, or a launch without arguments."""
    from perfkit.cost.model import Launch
    from perfkit.cost.recorded import recorded_call

    if "grid" in arguments:
        return Launch(name, (), grid=tuple(arguments["grid"]), block=tuple(arguments.get("block", ())))
    return recorded_call(name, arguments)


def _calls(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Return the distinct arguments of the events called `name`, each as in the trace."""
    seen: set[str] = set()
    decode, mark = json.JSONDecoder().raw_decode, f'"name": {json.dumps(name)}'
    at = text.find(mark)
    while at >= 0 and len(seen) < _MOST:
        begin = text.rfind("{", 0, at)
        try:
            event, _ = decode(text, begin)
        except ValueError:
            event = {}
        arguments = event.get("args") if isinstance(event, dict) else None
        kept = {key: value for key, value in (arguments or {}).items() if key in _KEPT}
        key = json.dumps(kept, sort_keys=True)
        if kept and key not in seen:
            seen.add(key)
            yield kept
        at = text.find(mark, at + 1)
