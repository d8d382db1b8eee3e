"""Facts from a kernel's PTX: the widths of its memory accesses, and the instructions it computes with."""

from __future__ import annotations

import re
from collections import Counter

_ACCESS = re.compile(
    r"\b(?P<what>ld|st)\.(?P<space>global|shared|local|param)(?P<rest>(?:\.\w+|::\w+)*)\.(?P<type>[bsuf]\d+|bf16x2|f16x2|bf16|f16)\b"
)
_ASYNC = re.compile(r"\bcp\.async\.c[ag]\.[^;]*?\][^;]*?\], *(0x[0-9a-f]+|\d+)")
_MATRIX = re.compile(r"\b(wgmma\.mma_async|mma|wmma\.mma)\.[\w.:]+")
_OTHERS = {
    "multiply-add": re.compile(r"\bfma\.r\w*\.[\w.]+"),
    "exponential, tanh, …": re.compile(r"\b(ex2|lg2|tanh|sin|cos|rcp|rsqrt|sqrt)\.approx"),
    "shuffle": re.compile(r"\bshfl\.\w+"),
    "barrier": re.compile(r"\b(bar|barrier)\.\w+"),
    "atomic": re.compile(r"\b(atom|red)\.global"),
}


def accesses(ptx: str) -> dict[tuple[str, str], Counter[int]]:
    """(load or store, memory) → bytes of one thread's access → how many instructions. `param` is left out."""
    found: dict[tuple[str, str], Counter[int]] = {}
    for match in _ACCESS.finditer(ptx):
        if match["space"] == "param":
            continue
        vector = re.search(r"\.v([248])\b", match["rest"])
        size = int(vector[1]) if vector else 1
        kind = match["type"]
        bits = 32 if kind.endswith("x2") else 16 if kind in ("bf16", "f16") else int(kind[1:])
        what = "load" if match["what"] == "ld" else "store"
        found.setdefault((what, match["space"]), Counter())[size * bits // 8] += 1
    return found


def summary(ptx: str) -> list[tuple[str, str]]:
    """Facts of one kernel's PTX, in words."""
    facts = []
    by_place = accesses(ptx)
    for (what, space), widths in sorted(by_place.items()):
        shown = ", ".join(f"{size} B ×{count}" for size, count in sorted(widths.items(), reverse=True))
        facts.append((f"{space} {what}s a thread", shown))
    copies = Counter(int(size, 0) for size in _ASYNC.findall(ptx))
    if copies:
        facts.append(("asynchronous copies", ", ".join(f"{size} B ×{n}" for size, n in sorted(copies.items()))))
    matrix = Counter(m[0] for m in _MATRIX.finditer(ptx))
    if matrix:
        facts.append(("tensor cores", ", ".join(f"{name} ×{n}" for name, n in matrix.most_common(4))))
    counts = {name: len(pattern.findall(ptx)) for name, pattern in _OTHERS.items()}
    known = [f"{name} {n}" for name, n in counts.items() if n]
    if known:
        facts.append(("instructions", ", ".join(known)))
    return facts


def entry(ptx: str, symbol: str) -> str:
    """Return the part of a module's PTX that is the kernel `symbol`; all of it without such an entry."""
    start = ptx.find(f".entry {symbol}")
    if start < 0:
        return ptx
    end = ptx.find(".entry ", start + 7)
    return ptx[start : end if end > 0 else len(ptx)]
