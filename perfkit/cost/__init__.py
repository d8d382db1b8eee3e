"""The analytic model: FLOP and minimal bytes of operators, from shapes and dtypes alone.

    model = CostModel()
    call = Call("aten::mm", (TensorSpec((2, 3), "fp32"), TensorSpec((3, 4), "fp32")))
    model.cost(call)           # Cost(flop={"matrix_fp32": 48.0}, bytes_read=72.0, bytes_written=32.0)
    model.kind("aten::view")   # "view"

docs/costs.md lists every formula; it is made from the registry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from perfkit.cost.model import Argument, Call, Cost, CostFunction, TensorSpec
from perfkit.cost.names import family_of_kernel_name, is_dispatch_name, normalise
from perfkit.cost.operators import OPERATORS
from perfkit.cost.operators.masks import NOT_RECORDED
from perfkit.cost.own import WrongCost, own_cost, registered
from perfkit.cost.recorded import recorded_call
from perfkit.cost.registry import ANY, FAMILIES, KINDS, Operator
from perfkit.cost.transformer import GPTShape, matmul_flop

__all__ = [
    "FAMILIES", "KINDS", "NOT_RECORDED", "OPERATORS", "Argument", "Call", "Cost", "CostFunction", "CostModel",
    "GPTShape", "Operator", "TensorSpec", "family_of_kernel_name", "fused_cost", "matmul_flop", "normalise",
    "recorded_call",
]  # fmt: skip


# Families of kernels by which operators of other families do their work, and those of such operators.
_MEANS = frozenset(("matmul", "elementwise", "reduction"))
_WHOLE = frozenset(
    ("convolution", "attention", "normalization", "softmax", "loss", "embedding", "optimizer", "sort", "fft", "linalg")
)
# Operators of these libraries take weights in a layout of their own, which holds every element.
_LIBRARIES = ("mkl", "onednn")


class CostModel:
    """Costs, kinds and families of operators by name.

    `extra` adds or replaces cost functions by operator name (perfkit's or a user's own kernels), `families` says which
    family these belong to (else their name decides), `composed` which of them leave their work to other operators that
    they call, and `parts` which GPU kernels share the cost of one: a pattern of each name, and its part. Costs that a
    user registered (`perfkit.cost.own`) replace any. `missing` collects why a working operator got no cost, `problems`
    what is wrong with a registered one, as a sentence by name.
    """

    def __init__(
        self,
        extra: Mapping[str, CostFunction] | None = None,
        families: Mapping[str, str] | None = None,
        composed: Iterable[str] = (),
        parts: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self._extra = {normalise(name): function for name, function in (extra or {}).items()}
        self._families = {normalise(name): family for name, family in (families or {}).items()}
        self._composed = frozenset(map(normalise, composed))
        self._parts = {normalise(name): dict(kernels) for name, kernels in (parts or {}).items()}
        self.own = registered()
        self.missing: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def cost(self, call: Call) -> Cost | None:
        """The cost of `call`; zero for views, allocations and waits; None where it is not known (see `missing`).

        Never raises: an unknown operator, or arguments that are missing or do not fit, give None.
        """
        name = normalise(call.name)
        if name in self.own:
            return self.registered_cost(call)
        function = self._extra.get(name)
        if function is None:
            operator = self._find(name)
            if operator is None:
                self._note(name, "unknown operator")
                return None
            if operator.kind in ("view", "allocation", "sync"):
                return Cost()
            function = operator.cost
        if function is None:
            return None
        if not any(library in name for library in _LIBRARIES) and not all(tensor.strided for tensor in call.tensors):
            self._note(name, "a sparse argument, whose elements are not recorded")
            return None
        try:
            cost = function(call if name == call.name else Call(name, call.arguments, call.matmul_precision))
            values = (*cost.flop.values(), cost.bytes_read, cost.bytes_written)
            if all(map(math.isfinite, values)) and min(values) >= 0:
                return cost
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            pass
        self._note(name, "its arguments were not recorded or do not fit")
        return None

    def registered_cost(self, call: Call) -> Cost | None:
        """The cost that a user registered for `call`; None where it cannot be used, which `problems` say."""
        name = normalise(call.name)
        try:
            return own_cost(self.own[name], call)
        except WrongCost as error:
            self.problems[name] = f"the registered cost of {name} is left out: it {error}"
            self.missing[name] = "its registered cost cannot be used"
            return None

    def parts(self, call: Call) -> Mapping[str, float]:
        """The GPU kernels that share the cost of `call`: a pattern of the name of each, and its part of the cost.

        Empty where one kernel does the work, or it is not known.
        """
        name = normalise(call.name)
        operator = self._find(name)
        if name in self._parts or operator is None or operator.parts is None:
            return self._parts.get(name, {})
        try:
            return operator.parts(call)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return {}

    def variant(self, call: Call) -> str:
        """How `call` differs from others with the same shapes: `causal`, for example; empty where it does not."""
        operator = self._find(normalise(call.name))
        if operator is None or operator.variant is None:
            return ""
        try:
            return operator.variant(call)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return ""

    def kind(self, name: str, below: Iterable[str] = ()) -> str:
        """work, view, dispatch, allocation or sync; unknown names are work.

        `below` names the operators that ran inside this one: where one of them did its work, it is dispatch.
        """
        name = normalise(name)
        if name in self._composed and any(self.kind(called) == "work" for called in below):
            return "dispatch"
        if name in self.own or name in self._extra:
            return "work"
        operator = self._find(name)
        if operator is None:
            return "dispatch" if is_dispatch_name(name) else "work"
        if operator.kind == "work" and self._delegated(operator, below):
            return "dispatch"
        return operator.kind

    def is_composite(self, name: str) -> bool:
        """Return whether an operator leaves its work to others, but has a cost where none of them does it."""
        operator = self._find(normalise(name))
        return operator is not None and operator.kind == "dispatch" and operator.cost is not None

    def family(self, name: str) -> str:
        """One of `FAMILIES`: from the registry, else from the name, else other."""
        name = normalise(name)
        if name in self._families:
            return self._families[name]
        operator = self._find(name)
        return operator.family if operator else family_of_kernel_name(name)

    def family_of_kernel(self, name: str, operator: str | None) -> str:
        """The family of a GPU kernel: by its name, and by the operator that launched it where the name says nothing, or
        only how the operator's work is done."""
        family = self.family(name)
        launched_by = self._find(normalise(operator)) if operator else None
        if operator is None or self._find(normalise(name)):
            return family
        if family == "other":
            return launched_by.family if launched_by else family_of_kernel_name(operator)
        whole = launched_by.family if launched_by else family
        return whole if family in _MEANS and whole in _WHOLE else family

    def _find(self, name: str) -> Operator | None:
        return OPERATORS.get(name) or (OPERATORS.get(f"aten::{name}") if "::" not in name else None)

    def _delegated(self, operator: Operator, below: Iterable[str]) -> bool:
        if ANY in operator.delegates:
            return any(self.kind(name) == "work" for name in below)
        # One overload that calls another of the same operator has left the work to it.
        doers = {operator.name, *operator.delegates}
        return any(normalise(name) in doers for name in below)

    def _note(self, name: str, reason: str) -> None:
        if self.kind(name) == "work":
            self.missing[name] = reason


def fused_cost(parts: Iterable[Cost], read: Iterable[TensorSpec], written: Iterable[TensorSpec]) -> Cost:
    """Cost of a fused region: the FLOP of its operators, and only the region's inputs and outputs as bytes."""
    total = sum(parts, Cost())
    return Cost(total.flop, float(sum(t.nbytes for t in read)), float(sum(t.nbytes for t in written)))
