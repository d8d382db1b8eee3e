"""The place of an operation in a JAX program, from the name that its scopes and transformations gave it.

`jit(step)/transpose(jvp(h0))/attn/dot_general`: the operator is dot_general, the module h0.attn, and the pass backward,
because the transpose of a derivative (jvp) is what reverse-mode differentiation runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from perfkit.profile_names import BACKWARD, FORWARD

_WRAPPED = re.compile(r"(\w+)\((.*)\)")
_FUNCTIONS = ("jit", "pjit", "xla_pmap", "pmap", "shard_map")  # hold the name of a function, not a scope
# Names of JAX itself: control flow, and functions with rules of differentiation.
_OWN = {
    "main", "while", "body", "cond", "scan", "closed_call", "core_call", "remat", "checkpoint", "rematted_computation",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "named_call", *_FUNCTIONS,
}  # fmt: skip
_BRANCH = re.compile(r"branch_\d+_fun")
_LONGEST = 2000  # characters of a name that is taken apart


class XlaPlace(NamedTuple):
    """Operator, module path and pass of an operation; None where its name does not say."""

    operator: str | None = None
    module: str | None = None
    pass_: str | None = None


@lru_cache(maxsize=65536)
def place_of(name: str) -> XlaPlace:
    """Return the place that the name of an operation says."""
    parts = list(_parts(next(_parts(name[:_LONGEST], ";"))))  # of operations that were merged, the first
    if len(parts) < 2:  # an argument of the program, which a copy or a conversion is named after
        return XlaPlace()
    scopes = [scope for part in parts[:-1] for scope in _scopes(part)]
    above = "/".join(parts[:-1])
    pass_ = BACKWARD if "transpose(" in above else FORWARD if "jvp(" in above else None
    return XlaPlace(parts[-1] or None, ".".join(scopes) or None, pass_)


def _parts(name: str, between: str = "/") -> Iterator[str]:
    """The parts of a name between slashes outside of brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(name):
        depth += (letter == "(") - (letter == ")")
        if letter == between and depth <= 0:
            yield name[begin:at]
            begin = at + 1
    yield name[begin:]


def _scopes(part: str) -> Iterator[str]:
    """The scopes of the program in a part of a name, without transformations and functions around them."""
    if found := _WRAPPED.fullmatch(part):
        if found[1] not in _FUNCTIONS:
            for inner in _parts(found[2]):
                yield from _scopes(inner)
    elif part and part not in _OWN and "->" not in part and not _BRANCH.fullmatch(part):  # einsum: a,b->c
        yield part
