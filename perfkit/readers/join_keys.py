"""Keys by which kernel launches of two profiles are matched, in whichever spelling of names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.tree.sequences import Integers

if TYPE_CHECKING:
    import pandas as pd

_SIZES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")

# In the spelling of template arguments the tools differ in casts, placeholders, unnamed things, lambdas and namespaces:
# the lines that ncu prints have at::FillFunctor for at::native::FillFunctor.
_CAST = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long)\)")
_TYPES = "void|const|volatile|unsigned|signed|int|long|short|char|bool|true|false|restrict|__restrict__"
_SYNTAX = "anonymous|namespace|unnamed|lambda|instance|operator|typename|class|struct|enum|decltype|auto"
_NOISE = frozenset(f"{_TYPES}|{_SYNTAX}".split("|"))
_WORD = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_]\w*\b(?!::)")
_PLACEHOLDER = re.compile(r"T\d+")


@dataclass(frozen=True)
class Keys:
    """Keys of launches: codes of (function, grid, block), and of the template arguments (−1: unknown)."""

    launch: Integers
    template: Integers


def keys(trace: pd.DataFrame, counters: pd.DataFrame) -> tuple[Keys, Keys]:
    """Codes that are equal in both for launches that may be the same."""
    launches: dict[Any, int] = {}
    templates: dict[Any, int] = {}
    found = []
    for frame in (trace, counters):
        sizes = frame[list(_SIZES)].astype(object).where(frame[list(_SIZES)].notna(), None).to_numpy()
        names, short = frame["name"].tolist(), frame["short_name"].fillna(frame["name"]).tolist()
        parts: dict[str, frozenset[str] | None] = {name: template_words(name) for name in set(names)}
        found.append(
            Keys(
                np.array(
                    [launches.setdefault((s, *z), len(launches)) for s, z in zip(short, sizes.tolist(), strict=True)],
                    dtype=np.int64,
                ),
                np.array(
                    [-1 if (p := parts[n]) is None else templates.setdefault(p, len(templates)) for n in names],
                    dtype=np.int64,
                ),
            )
        )
    return found[0], found[1]


def template_words(name: str) -> frozenset[str] | None:
    """The names in the template arguments of a kernel, without what the tools spell differently; None without any.

    `void scale<float>(float*, int)` and `void scale<float>(T1 *, int)` both give {"float"}.
    """
    start, depth = name.find("<"), 0
    while name.startswith(("<unnamed>", "<lambda"), start) and start >= 0:
        start = name.find("<", start + 1)
    if start < 0:
        return None
    for end in range(start, len(name)):
        depth += (name[end] == "<") - (name[end] == ">" and name[end - 1] != "-")
        if depth == 0:
            break
    inside = _CAST.sub("", name[start : end + 1])
    return frozenset(w for w in _WORD.findall(inside) if w not in _NOISE and not _PLACEHOLDER.fullmatch(w))
