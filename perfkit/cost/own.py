"""Costs that a user registers: for an operator or a GPU kernel by name, from the shapes of a call.

    @perfkit.register_cost("mylib::scale")
    def scale(call):
        x = call.tensor(0)
        return Cost({"vector_fp32": x.numel}, bytes_read=x.nbytes, bytes_written=x.nbytes)

`torch.utils.flop_counter.register_flop_formula` is heard too, where the same process has torch.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from perfkit.cost.model import ITEM_BYTES, Call, Cost, CostFunction, Launch, TensorSpec
from perfkit.cost.names import normalise
from perfkit.cost.shapes import matrix_unit
from perfkit.errors import InputError, PerfkitError, UsageError

FILE = "PERFKIT_COSTS"  # the environment variable with the file that `--costs` names, for every process of a command
UNITS = frozenset(
    [f"vector_{name}" for name in ("fp64", "fp32", "fp16", "bf16", "int")]
    + [f"matrix_{name}" for name in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")]
)
_REGISTERED: dict[str, CostFunction] = {}
_OF_TORCH = ("aten", "prims", "prim", "c10d", "flash_attn")
_F = TypeVar("_F", bound=Callable[..., Any])


class WrongCost(Exception):
    """Why a registered function gives no cost, as the end of a sentence."""


def register_cost(name: str, function: CostFunction | Cost | None = None) -> Any:
    """Register the cost of the operator or GPU kernel `name`: a function of a `Call`, or a `Cost` that holds for all.

    Without `function` it decorates one. A later registration replaces an earlier one, and either replaces perfkit's
    own. Raises `UsageError` for what is neither a function nor a `Cost`.
    """
    if function is None:
        return functools.partial(_register, name)
    return _register(name, function)


def _register(name: str, function: _F | Cost) -> Any:
    if not isinstance(name, str) or not name:
        raise UsageError("register_cost needs the name of an operator or kernel.", 'Such as "mylib::scale".')
    if not (isinstance(function, Cost) or callable(function)):
        raise UsageError(f"The cost of {name} is neither a function nor a Cost.", "docs/my-own-kernel.md has examples.")
    _REGISTERED[normalise(name)] = (lambda call: function) if isinstance(function, Cost) else function
    return function


def registered(of_file: bool = True) -> Mapping[str, CostFunction]:
    """All registered costs by name: those of this process, torch's formulas, and with `of_file` those of the file that
    `--costs` named.

    Raises `InputError` where the file cannot be run.
    """
    if of_file and (path := os.environ.get(FILE)):
        load(path)
    return {**dict(_formulas()), **_REGISTERED}


@functools.cache
def load(path: str) -> None:
    """Run the Python file at `path`, once, which registers costs. Raises `InputError` where it cannot be run."""
    if not Path(path).is_file():
        raise InputError(f"{path} is not a Python file of costs.", "Give a .py that calls perfkit.register_cost.")
    module = ModuleType("perfkit_costs")
    module.__file__ = path
    before = dict(_REGISTERED)
    try:
        # Not by an import, which may take the bytecode of what the file was a moment ago.
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    except PerfkitError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} fails: {type(error).__name__}: {error}.", "Run it with Python to see where."
        ) from error
    if before == _REGISTERED:
        raise InputError(f"{path} registers no cost.", "It has to call perfkit.register_cost: docs/my-own-kernel.md.")


def own_cost(function: CostFunction, call: Call) -> Cost:
    """Return the cost that a registered function gives. Raises `WrongCost` for one that cannot be used."""
    try:
        cost = function(call)
    except WrongCost:
        raise
    except Exception as error:
        raise WrongCost(f"raised {type(error).__name__}: {error}") from error
    if not isinstance(cost, Cost):
        raise WrongCost(f"gave {type(cost).__name__}, not a perfkit.cost.Cost")
    if unknown := sorted(set(cost.flop) - UNITS):
        raise WrongCost(f"names {unknown[0]}, which is not a unit such as vector_fp32 or matrix_bf16")
    named = {**cost.flop, "bytes_read": cost.bytes_read, "bytes_written": cost.bytes_written}
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongCost(f"gave {type(value).__name__} for {name}, not a number")
        if value < 0:
            raise WrongCost(f"gave the negative number {value:g} for {name}")
        if not math.isfinite(value) and not (_without_bytes(function) and name.startswith("bytes")):
            raise WrongCost(f"gave {value} for {name}, which is not a number")
    return cost


def _without_bytes(function: CostFunction) -> bool:
    """Return whether a cost may leave its bytes unknown: torch's formulas do, here or in the program."""
    return isinstance(function, _Formula) or getattr(function, "func", None) is _looked_up


def _formulas() -> Iterator[tuple[str, CostFunction]]:
    """The FLOP formulas that the program registered with torch's counter, for operators that are not torch's own."""
    counter = sys.modules.get("torch.utils.flop_counter")
    for packet, formula in list(getattr(counter, "flop_registry", {}).items()):
        name = getattr(packet, "_qualified_op_name", "")
        if "::" in name and name.partition("::")[0] not in _OF_TORCH:
            yield normalise(name), _Formula(formula)


def _shape(argument: Any) -> Any:
    """An argument as torch's counter hands it on: a tensor is its shape."""
    if isinstance(argument, TensorSpec):
        return argument.shape
    return tuple(map(_shape, argument)) if isinstance(argument, tuple) else argument


class _Formula:
    """A FLOP formula of torch's counter as a cost: its bytes are not known, and it sees no result."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        self._formula = formula

    def __call__(self, call: Call) -> Cost:
        shapes = [_shape(argument) for argument in call.arguments]
        flop = self._formula(*shapes, out_val=None)
        real = next((t.dtype for t in call.tensors if t.dtype in ITEM_BYTES and t.dtype[:2] in ("fp", "bf")), "fp32")
        return Cost({matrix_unit(real, call.matmul_precision): flop}, math.nan, math.nan)


_NEITHER = Cost({}, math.inf, math.inf)  # of several costs


def of_recorded(
    found: list[list[Any]], call_of: Callable[[str, dict[str, Any]], Call]
) -> tuple[dict[str, CostFunction], dict[str, str]]:
    """Costs that a program left of its calls (`agent/recording/own_costs.py`), by name, and the problem of each name.

    `call_of` makes the call of a name and its recorded arguments.
    """
    known: dict[str, dict[str, Cost]] = {}
    problems: dict[str, str] = {}
    for name, arguments, said in found:
        of_name = known.setdefault(name, {})
        if isinstance(said, str):
            problems[name] = said
            continue
        key, cost = _key(call_of(name, arguments)), Cost(*said)
        if of_name.setdefault(key, cost) != cost:  # launches that a trace does not distinguish
            problems[name] = f"the work of {name} is not known: launches of one grid had different arguments"
            of_name[key] = _NEITHER
    return {name: functools.partial(_looked_up, costs) for name, costs in known.items() if costs}, problems


def _looked_up(costs: Mapping[str, Cost], call: Call) -> Cost:
    found = costs.get(_key(call), _NEITHER)
    if found is _NEITHER:
        raise WrongCost("was worked out for no call like this one")
    return found


def _key(call: Call) -> str:
    """The arguments of a call; of a launch its grid and block, for the program knows no others."""
    if isinstance(call, Launch):
        return repr((call.grid, call.block))
    return repr(call.arguments)
