"""Marks in Thunder's executed traces: each line is a range that says where its work belongs.

The marks are calls between the symbols of the trace, which cost a call and a test while nobody listens. They are in
the callable that Thunder makes of a trace, and are left out of what perfkit shows of it: line numbers are those of the
trace without them.

Import it only after `support.load()`: it needs Thunder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.core.symbol import Symbol
from thunder.core.trace import TraceTag, from_trace
from thunder.core.transforms import Transform

from perfkit import profile_names, ranges
from perfkit.backends.thunder.origins import PARAMETER, LogicalOperator, ModulePaths, origins_of, settle

BEGIN, LINE, END = "perfkit_begin", "perfkit_line", "perfkit_end"
_MARKS = (BEGIN, LINE, END)
_PYTHON = ("python_del", "clear_mutable_collection")
_RETURN = "python_return"
_OWN_OPERATOR = {"cast_to_fp8": "fp8_cast"}  # of symbols that are only part of what the model called
BETWEEN = "\n\n"  # two traces in a text


class LineRanges(Transform):
    """Marks the lines of the traces of one model; `before` gives the number of lines of text before its own."""

    def __init__(self, modules: ModulePaths, before: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self._modules = modules
        self._before = before
        self._before_backward = 0  # lines that `as_text` writes before the backward trace
        self._first_use: dict[str, LogicalOperator] = {}  # of a value in the forward trace, where a parameter is used

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        """Settle the origins of the captured trace; the traces stay what they are."""
        settle(computation_trace.bound_symbols)
        return prologue_trace, computation_trace, epilogue_trace

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        """The executed trace, forward or backward, with a mark before each symbol that computes."""
        trace = computation_trace
        first = self._first_line(trace)
        lines = [line and first + line - 1 for line in line_numbers(trace)]
        origins = origins_of(trace.bound_symbols, self._modules)
        bind = _binder()
        marked = from_trace(trace)
        begun = False
        for bound, line, (found, evidence) in zip(trace.bound_symbols, lines, origins, strict=True):
            if found and direction(trace) == "forward":
                for proxy in bound.flat_proxy_args:
                    self._first_use.setdefault(proxy.name, found[0][0])
            if bound.sym.name == _RETURN:
                marked.bound_symbols += self._at_return(trace, line, bind) if begun else []
            elif bound.sym.executor is not None and bound.sym.name not in _PYTHON:
                members = _members(found, _OWN_OPERATOR.get(bound.sym.name, ""))
                name = profile_names.line_name(direction(trace), line, evidence or "none", members)
                marked.bound_symbols.append(bind(LINE if begun else BEGIN, name))
                begun = True
            marked.bound_symbols.append(bound)
        marked.set_provenance(trace.get_provenance())
        return marked

    def _first_line(self, trace: Any) -> int:
        """The number of the trace's first line in what `as_text` writes; Thunder makes the forward trace first."""
        if direction(trace) == "backward":
            return self._before_backward + 1
        before = self._before()
        self._before_backward = before + len(as_text({"forward": trace, "backward": ""}).splitlines())
        return before + 2

    def _at_return(self, trace: Any, line: int, bind: Callable[..., Any]) -> list[Any]:
        """The last mark. Behind a backward trace autograd sums the gradients of a parameter that is used twice.

        In eager PyTorch it does so where the last of them comes from: the operator that used the parameter first.
        """
        used = [self._first_use[name] for name in self._modules.shared if name in self._first_use]
        if direction(trace) == "forward" or not used:
            return [bind(END)]
        name = profile_names.line_name(direction(trace), line, PARAMETER, [(used[0].module, used[0].operator, 1.0)])
        return [bind(LINE, name), bind(END)]


def as_text(traces: dict[str, Any], program: str = "") -> str:
    """Traces, by direction, as one text; where the `program` has a name, it stands before the direction."""
    return BETWEEN.join(f"# {' '.join(filter(None, (program, name)))}\n{trace}" for name, trace in traces.items())


def direction(trace: Any) -> str:
    """Which of a model's two traces `trace` is: forward or backward."""
    tag = TraceTag.BACKWARD  # type: ignore[attr-defined]  # an enumeration that mypy does not see through
    return "backward" if tag in trace.tags else "forward"


def without_marks(trace: Any) -> Any:
    """The trace as it would be without marks; the same object for a trace that has no marks."""
    kept = [bound for bound in trace.bound_symbols if bound.sym.name not in _MARKS]
    if len(kept) == len(trace.bound_symbols):
        return trace
    plain = from_trace(trace)
    plain.bound_symbols = kept
    plain.set_provenance(trace.get_provenance())
    return plain


def count_marks(trace: Any) -> int:
    """Count the marks of an executed trace: the lines whose ranges it opens, and its end."""
    return sum(bound.sym.name in _MARKS for bound in trace.bound_symbols)


def line_numbers(trace: Any) -> list[int]:
    """Return for each symbol of a trace the number, from 1, of its first line in the trace's text; 0 for none.

    A line is known by what it assigns to: objects such as a memory format have other names outside their trace.
    """
    text = str(trace).splitlines()
    numbers, at = [], 0
    for bound in trace.bound_symbols:
        printed = next((line for line in bound.python(indent=1) if line.strip()), "")
        target, sign, _ = printed.partition(" = ")
        here = next((i for i in range(at, len(text)) if printed and text[i].startswith(target + sign)), None)
        numbers.append(0 if here is None else here + 1)
        at = at if here is None else here + 1
    return numbers


def _members(found: list[tuple[LogicalOperator, float]], operator: str = "") -> list[tuple[str, str, float]]:
    """Members with shares by the bytes they touch; equal shares where nothing is known of those.

    `operator` stands for that of each member, where it is given.
    """
    weight: dict[LogicalOperator, float] = {}
    for origin, size in found:
        weight[origin] = weight.get(origin, 0.0) + size
    whole = sum(weight.values())
    return [(o.module, operator or o.operator, w / whole if whole else 1 / len(weight)) for o, w in weight.items()]


def _binder() -> Callable[..., Any]:
    """Return a function that makes a mark, a bound symbol; the marks of one trace share one open range."""
    calls = dict(zip(_MARKS, ranges.line_marker(), strict=True))
    symbols = {name: Symbol(name=name, meta=None) for name in _MARKS}

    def bind(name: str, *args: str) -> Any:
        return symbols[name].bind(*args, output=None, _call_ctx={name: calls[name]})

    return bind
