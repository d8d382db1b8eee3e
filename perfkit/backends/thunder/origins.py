"""Which module and operator of the model each symbol of Thunder's traces comes from.

Thunder interprets the model's Python once to capture it. While it does, every symbol that it binds is tagged with the
module whose code the interpreter is in: the innermost frame of a module's method. Tags are Thunder's own means: they
pass from a symbol to those that its gradient rule and its executors make of it, forward and backward. The operator is
the function that the model called; what that falls apart into has the same origin.

Three sorts of symbols come without a tag. `origins_of` finds their origin, and says from what:
- sums of gradients, which Thunder adds where a tensor is used several times: the gradient that came last, as autograd
  does it in the node that made it (data flow, "symbol");
- symbols that a fusion put together: each of them has an origin of its own ("symbol");
- anything else: the parameter it uses ("parameter"), else the value it uses that was made last ("symbol").

The interpreter's frames are not a public interface: where they differ, `recording` warns, and origins come from
parameters and data flow alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfkit import profile_names

if TYPE_CHECKING:
    import torch

SELF = "self"  # what a module's methods call the module
PARAMETER, SYMBOL = "parameter", "symbol"


@dataclass(frozen=True)
class LogicalOperator:
    """A logical operator of the model: its name, and the path of the module that called it (`ROOT`: the model)."""

    module: str
    operator: str


class ModulePaths:
    """The paths of a model's modules, and of the modules that own its parameters by Thunder's name of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.path = {id(module): path or profile_names.ROOT for path, module in model.named_modules()}
        owners: dict[str, set[str]] = {}
        uses: dict[int, int] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            owners.setdefault("t_" + name.replace(".", "_"), set()).add(name.rpartition(".")[0] or profile_names.ROOT)
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
        # Two paths may read the same with "_" for ".": then the name is ambiguous.
        self.owner = {name: next(iter(paths)) for name, paths in owners.items() if len(paths) == 1}
        self.shared = [
            "t_" + name.replace(".", "_")
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if uses[id(parameter)] > 1
        ]
        self.raised: BaseException | None = None  # the last exception in the interpreter, and the module it came from
        self.left = ""

    def left_by(self, error: BaseException) -> str:
        """The path of the module that was interpreted when `error` came, or what it stems from; "" for unknown."""
        chain: list[BaseException | None] = [error]
        while chain[-1] is not None:
            chain.append(chain[-1].__cause__ or chain[-1].__context__)
        return self.left if any(one is self.raised for one in chain[:-1]) else ""


@contextlib.contextmanager
def recording(modules: ModulePaths, warn: Callable[[str], None]) -> Iterator[None]:
    """Tag every symbol that Thunder binds while it interprets the model; a step that traces nothing costs nothing.

    While the block runs, `modules.left_by` gives the module in whose code an exception came.
    """
    from thunder.core.interpreter import InterpreterRuntimeCtx
    from thunder.core.symbol import Symbol

    original, pop = Symbol.bind, getattr(InterpreterRuntimeCtx, "_pop_frame_stack", None)

    def popped(self: Any) -> Any:
        raised = sys.exc_info()[1] or getattr(self, "curexc", None)  # the interpreter's own, or the model's
        if raised is not None and raised is not modules.raised:
            modules.raised = raised
            with contextlib.suppress(Exception):
                modules.left = _module_of(self.frame_stack, modules.path)
        return pop(self) if pop else None

    def bind(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = original(self, *args, **kwargs)
        try:
            path = _module_of(_frames(), modules.path)
        except Exception as error:  # a private structure that changed must never break the user's program
            warn(f"Some lines are placed by parameters and data flow only: {type(error).__name__}: {error}.")
            return bound
        if path:
            bound.tags.add(LogicalOperator(path, self.name))  # type: ignore[arg-type]  # a set holds any tag
        return bound

    setattr(Symbol, "bind", bind)  # noqa: B010  # mypy knows a method that cannot be assigned
    if pop:
        setattr(InterpreterRuntimeCtx, "_pop_frame_stack", popped)  # noqa: B010
    try:
        yield
    finally:
        modules.raised = None
        setattr(Symbol, "bind", original)  # noqa: B010
        if pop:
            setattr(InterpreterRuntimeCtx, "_pop_frame_stack", pop)  # noqa: B010


def _frames() -> Sequence[Any]:
    """The interpreter's frames, outermost first; none while nothing is interpreted (a transform binds a symbol)."""
    from thunder.core.interpreter import get_interpreterruntimectx

    try:
        return list(get_interpreterruntimectx().frame_stack)
    except LookupError:
        return []


def _module_of(frames: Sequence[Any], path: dict[int, str]) -> str:
    """The module whose method the interpreter is in, innermost first; "" outside of all."""
    for frame in reversed(frames):
        for index, value in enumerate(frame.localsplus):
            if frame.get_localsplus_name(index) == SELF and (found := path.get(id(getattr(value, "value", value)))):
                return found
    return ""


def settle(bound_symbols: Sequence[Any]) -> None:
    """Give what an operator of the captured trace falls apart into the operator's own origin.

    What torch.utils.checkpoint recomputes counts as if it stood in the trace.
    """
    for bound in bound_symbols:
        if bound.sym.id == "activation_checkpoint":
            settle(bound.subsymbols)
        elif origin := tagged(bound):
            _inherit(bound.subsymbols, origin[0])


def _inherit(bound_symbols: Sequence[Any], origin: LogicalOperator) -> None:
    for bound in bound_symbols:
        for other in tagged(bound):
            bound.tags.discard(other)
        bound.tags.add(origin)
        _inherit(bound.subsymbols, origin)


def tagged(bound: Any) -> list[LogicalOperator]:
    """The origins that a symbol is tagged with."""
    return [tag for tag in bound.tags if isinstance(tag, LogicalOperator)]


def origins_of(
    bound_symbols: Sequence[Any], modules: ModulePaths
) -> list[tuple[list[tuple[LogicalOperator, float]], str]]:
    """For each symbol of an executed trace its origins with the bytes that each touches, and the evidence.

    A list of several origins is a fusion's; an empty one says that the origin is unknown (evidence "").
    """
    made: dict[str, LogicalOperator] = {}  # by the name of a value
    when: dict[str, int] = {}
    found = []
    for index, bound in enumerate(bound_symbols):
        origins, evidence = _origins(bound, made, when, modules)
        found.append((origins, evidence))
        if origins:
            last = origins[-1][0]
            for proxy in bound.flat_proxy_outs:
                made.setdefault(proxy.name, last)
                when.setdefault(proxy.name, index)
    return found


def _origins(
    bound: Any, made: dict[str, LogicalOperator], when: dict[str, int], modules: ModulePaths
) -> tuple[list[tuple[LogicalOperator, float]], str]:
    if own := tagged(bound):
        return [(own[0], 1.0)], SYMBOL
    inner = [(origin, _bytes(sub)) for sub in bound.subsymbols if bound.sym.is_fusion for origin in tagged(sub)[:1]]
    if inner:
        return inner, SYMBOL
    names = [proxy.name for proxy in bound.flat_proxy_args]
    owners = [modules.owner[name] for name in names if name in modules.owner]
    if owners and not _unpacks(bound):
        return [(LogicalOperator(owners[0], str(bound.sym.name)), 1.0)], PARAMETER
    known = [name for name in names if name in made]
    if known and not _unpacks(bound):
        return [(made[max(known, key=lambda name: when[name])], 1.0)], SYMBOL
    return [], ""


def _unpacks(bound: Any) -> bool:
    """Return whether a symbol only hands values over: unpacking, return, del."""
    return bound.sym.executor is None or bound.sym.executor.name == "python"


def _bytes(bound: Any) -> float:
    """Bytes of a symbol's arguments and results."""
    proxies = {p.name: p for p in (*bound.flat_proxy_args, *bound.flat_proxy_outs) if hasattr(p, "numel")}
    return float(sum(p.numel() * p.dtype.bytes for p in proxies.values() if hasattr(p.dtype, "bytes")))
