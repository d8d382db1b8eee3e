"""An operator's schema: the names and kinds of its arguments, and the names of its outputs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfkit.errors import InputError

KINDS = ("Tensor", "int", "float", "bool")
_FORM = re.compile(
    r"\s*\((?P<inputs>(?:[^()]|\(\w!\))*)\)\s*->\s*(?:\((?P<outputs>[^()]*)\)|(?P<output>Tensor \w+))\s*"
)
_MUTATED = re.compile(r"Tensor\(\w!\)")


@dataclass(frozen=True)
class Schema:
    """`kinds[i]` is the kind of the argument `inputs[i]`; all `outputs` are tensors.

    `mutated` names the arguments that the operator changes in place, written `Tensor(a!) x`.
    """

    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    outputs: tuple[str, ...]
    mutated: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Everything that a call changes or makes: the mutated arguments, then the outputs."""
        return self.mutated + self.outputs

    @property
    def tensors(self) -> tuple[int, ...]:
        """The positions of the tensors among the arguments."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind == "Tensor")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The positions of the other arguments."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind != "Tensor")

    @classmethod
    def parse(cls, operation: str, text: str) -> Schema:
        """Parse `(Tensor x, int heads) -> (Tensor q, Tensor k)`. Raises `InputError` naming `operation`."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise _bad(operation, text)
        inputs = _pairs(operation, text, match["inputs"])
        outputs = _pairs(operation, text, match["outputs"] or match["output"] or "")
        mutated = tuple(name for kind, name in inputs if _MUTATED.fullmatch(kind))
        if not (outputs or mutated) or any(kind != "Tensor" for kind, _ in outputs):
            raise _bad(operation, text)
        kinds = tuple(_MUTATED.sub("Tensor", kind) for kind, _ in inputs)
        return cls(tuple(name for _, name in inputs), kinds, tuple(name for _, name in outputs), mutated)


def _pairs(operation: str, text: str, part: str) -> list[tuple[str, str]]:
    pairs = []
    for item in filter(None, (p.strip() for p in part.split(","))):
        kind, _, name = item.partition(" ")
        if _MUTATED.sub("Tensor", kind) not in KINDS or not name.isidentifier():
            raise _bad(operation, text)
        pairs.append((kind, name))
    return pairs


def _bad(operation: str, text: str) -> InputError:
    return InputError(
        f"The schema of the operation {operation} cannot be read: {text!r}.",
        "Write it as (Tensor x, int n, float eps) -> (Tensor y, Tensor z), every argument and output named; an "
        "argument changed in place is Tensor(a!) x.",
    )
