"""The last columns of a kernel table, which any reader's rows give: order, short names, families, layers, passes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfkit.columns import Coded, integers
from perfkit.cost import NOT_RECORDED, CostModel
from perfkit.numbers import first_rows, numbered
from perfkit.profile_names import OPTIMIZER, ROOT, ZERO_GRAD
from perfkit.readers.kernel_names import short_name
from perfkit.run_folder import DeclaredKernel
from perfkit.table import CATEGORY, COLUMNS, TEXT
from perfkit.tree import shares
from perfkit.units import cropped

_NAMED = 5  # operators without a cost that a warning names
UNKNOWN_WORK = "FLOP and bytes are unknown"
_WORTH_SAYING = 0.001  # of the kernel time
_NUMBERED = re.compile(r"^(.*)_(\d{1,9})$")


def finish(
    columns: dict[str, Any],
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    passes: Mapping[str, tuple[str, ...]],
    layers: str,
) -> None:
    """Add short name, family and layer, the order where there is none, and split the forward pass as the workload names
    its parts."""
    names, modules = Coded.of(columns["name"]), Coded.of(columns["module"])
    if "order" not in columns:
        columns["order"] = integers(np.arange(len(names.code)))
    columns["short_name"] = names.mapped(short_name)
    if "family" not in columns:
        columns["family"] = _families(names, Coded.of(columns["operator"]), declared, costs)
    layer = np.array([*layer_numbers(modules.words, layers), -1], dtype=np.int64)
    columns["layer"] = integers(layer[modules.code])
    columns["pass"] = _split_forward(Coded.of(columns["pass"]), modules, passes)
    if "serves" in columns:
        columns["serves"] = _served(Coded.of(columns["serves"]), columns["pass"], passes)
    columns["step"] = integers(columns["step"])
    for column in COLUMNS:
        if column.dtype in (TEXT, CATEGORY) and column.name in columns:
            columns[column.name] = Coded.of(_plain(columns[column.name]))


def _families(names: Coded, operators: Coded, declared: Mapping[str, DeclaredKernel], costs: CostModel) -> Coded:
    """The family of each row, by its name and the operator that it is a kernel of."""
    known = {name: kernel.family for name, kernel in declared.items()}
    each = len(operators.words) + 1
    pairs, rows = numbered((names.code.astype(np.int64) + 1) * each + operators.code + 1)
    found = []
    for at, of in zip((pairs // each - 1).tolist(), (pairs % each - 1).tolist(), strict=True):
        name = names.words[at] if at >= 0 else ""
        found.append(known.get(name) or costs.family_of_kernel(name, operators.words[of] if of >= 0 else None))
    families = Coded.of(found)
    return Coded(families.words, families.code[rows])


def _plain(values: Any) -> Any:
    """Words as they are; other sequences (an array of objects) as a list."""
    return values if isinstance(values, Coded | list) else list(values)


def uncosted(columns: Mapping[str, Any], total_ns: float | None = None) -> list[str]:
    """A warning that names the kernels without a cost and their share of the time, if there are any.

    `columns` are of all kernels, or of some where `total_ns` is the time of all; "name" may still be coded. Copies and
    collectives are left out: links bound them, and the facts hold their bytes.
    """
    time = np.nan_to_num(np.asarray(columns["duration_ns"], dtype=float))  # not known of every kernel
    whole = time.sum() if total_ns is None else total_ns
    unknown = np.isnan(np.asarray(columns["bytes_read"], dtype=float))
    unknown &= ~((columns["kind"] == "memcpy") | (columns["family"] == "collective"))
    if time[unknown].sum() < _WORTH_SAYING * whole or not whole:
        return []
    names = Coded.of(columns["name"])
    code = names.code[unknown]
    used, place = numbered(code)
    first = first_rows(place, len(used))
    of_name = np.bincount(code, weights=time[unknown], minlength=len(names.words))
    total = {names.words[c]: float(of_name[c]) for c in used[np.argsort(first)].tolist()}
    largest = sorted(total, key=lambda n: -total[n])
    bare = {name: short_name(name) if name.startswith("void ") else name for name in largest[:_NAMED]}
    shown = ", ".join(f"{cropped(short)} ({total[name] / whole:.1%})" for name, short in bare.items())
    more = f" and {len(largest) - _NAMED} more" if len(largest) > _NAMED else ""
    return [f"{UNKNOWN_WORK} for {sum(total.values()) / whole:.1%} of the kernel time: {shown}{more}"]


def hidden(shapes: Coded, duration_ns: Any) -> list[str]:
    """A warning of attention whose mask or lengths the trace does not hold, so that its FLOP are unknown."""
    time = np.nan_to_num(np.asarray(duration_ns, dtype=float))
    unknown = np.array([*(word is not None and word.endswith(NOT_RECORDED) for word in shapes.words), False])[
        shapes.code
    ]
    if not unknown.any():
        return []
    share = f"{time[unknown].sum() / time.sum():.1%}" if time.sum() else "a part"
    return [
        f"FLOP are unknown for {share} of the kernel time: attention whose mask, or lengths of sequences, the trace "
        "does not record. Profile with record_shapes=True and PyTorch 2.1 or newer, which record whether it is causal"
    ]


def _split_forward(passes: Coded, modules: Coded, patterns: Mapping[str, tuple[str, ...]]) -> Coded:
    """Forward work in a module that matches a pass's patterns, or in a module below one, belongs to that pass."""
    passes = passes.mapped(lambda word: {ZERO_GRAD: OPTIMIZER}.get(word, word) or None)
    if not patterns or "forward" not in passes.words:
        return passes
    of_module = Coded.of([*(_pass_of(m, patterns) for m in modules.words), _pass_of(None, patterns)])
    offset = len(passes.words)
    split = offset + of_module.code[modules.code]
    # A word may be in both: a compiler's call sites have their pass already.
    distinct = Coded.of([*passes.words, *of_module.words, None])
    return Coded(
        distinct.words, distinct.code[np.where(passes.code == passes.words.index("forward"), split, passes.code)]
    )


def _served(serves: Coded, passes: Coded, patterns: Mapping[str, tuple[str, ...]]) -> Coded:
    """Return what rows serve, with the pass of each member: the row's own, but forward work is split as `patterns`
    say."""
    used, code = np.unique(np.stack([serves.code, passes.code]), axis=1, return_inverse=True)
    words: list[str | None] = []
    for what, within in used.T.tolist():
        if what < 0:
            words.append(None)
            continue
        own = passes.words[within] if within >= 0 else ""
        forward = own in ("forward", *patterns)
        served = shares.read(serves.words[what])
        words.append(shares.text([m._replace(pass_=_pass_of(m.module, patterns) if forward else own) for m in served]))
    distinct = Coded.of(words)
    return Coded(distinct.words, distinct.code[code.reshape(-1)])


def _pass_of(module: str | None, patterns: Mapping[str, tuple[str, ...]]) -> str:
    parts = module.split(".") if module and module != ROOT else []
    paths = [".".join(parts[: i + 1]) for i in range(len(parts))] or [module or ""]
    for name, alternatives in patterns.items():
        if any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in alternatives):
            return name
    return "forward"


def layer_numbers(modules: Sequence[str], pattern: str) -> list[int]:
    """For each module path the index of the repeated block that it is in, −1 outside blocks.

    It is the number in the place of the * of `pattern`. Without a pattern, the modules that the profiler's Python stack
    names (`Block_0.Linear_1`) show it: blocks are the outermost modules of one class that occur several times next to
    each side and hold others, and count in the order of their numbers.
    """
    if "*" in pattern:
        before, _, after = pattern.partition("*")
        expression = re.compile(rf"{re.escape(before)}(\d{{1,9}}){re.escape(after)}(\.|$)")
        return [int(found[1]) if (found := expression.match(m)) else -1 for m in modules]
    return _numbered_blocks(modules) if not pattern else [-1] * len(modules)


def _numbered_blocks(modules: Sequence[str]) -> list[int]:
    holders = {m.rpartition(".")[0] for m in modules if "." in m}
    groups: dict[tuple[str, str], set[int]] = {}
    for path in holders:
        around, _, word = path.rpartition(".")
        if found := _NUMBERED.match(word):
            groups.setdefault((around, found[1]), set()).add(int(found[2]))
    rank = {key: {n: i for i, n in enumerate(sorted(numbers))} for key, numbers in groups.items() if len(numbers) > 1}
    return [_block(path, rank) for path in modules]


def _block(path: str, rank: Mapping[tuple[str, str], Mapping[int, int]]) -> int:
    parts = path.split(".")
    for depth, word in enumerate(parts):
        found = _NUMBERED.match(word)
        number = rank.get((".".join(parts[:depth]), found[1]), {}).get(int(found[2])) if found else None
        if number is not None:
            return number
    return -1
