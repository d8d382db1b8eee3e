"""From decided events to the columns of the kernel table."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfkit.cost import CostModel
from perfkit.readers.kernel_names import short_name
from perfkit.readers.kineto.events import ANNOTATION, Booleans, HostEvents, Integers
from perfkit.readers.kineto.place import EVIDENCE, ROOT, Place
from perfkit.readers.kineto.rows import Rows
from perfkit.run_folder import DeclaredKernel
from perfkit.table import CATEGORY, COLUMNS, FLOP_COLUMNS, RESOURCES, TEXT
from perfkit.tree import shares

_NAMED = 5  # operators without a cost that a warning names
UNKNOWN_WORK = "FLOP and bytes are unknown"
_WORTH_SAYING = 0.001  # of the kernel time
_LONGEST_PATH = 10_000  # characters of a path of ranges; damaged traces nest without end
_NUMBERED = re.compile(r"^(.*)_(\d{1,9})$")


@dataclass(frozen=True)
class Coded:
    """A column of words: the distinct `words`, and for each row the place of its word in them, −1 for none."""

    words: list[str]
    code: Integers

    @classmethod
    def of(cls, values: Coded | Sequence[str | None]) -> Coded:
        """The same column from a plain list."""
        if isinstance(values, Coded):
            return values
        places: dict[str, int] = {}
        code = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
        return cls(list(places), np.array(code, dtype=np.int32))

    def mapped(self, function: Callable[[str], str | None]) -> Coded:
        """Each word replaced by what `function` gives for it; None gives none."""
        new = Coded.of([function(word) for word in self.words])
        return Coded(new.words, np.append(new.code, np.int32(-1))[self.code])

    def array(self, dtype: str) -> Any:
        """The column in pandas, as text or as categories."""
        import pandas as pd

        if dtype == TEXT:
            return self._text()
        used = np.flatnonzero(np.bincount(self.code[self.code >= 0], minlength=len(self.words))).tolist()
        used.sort(key=lambda i: self.words[i])
        rank = np.full(len(self.words) + 1, -1, np.int32)  # the last one stands for none
        rank[used] = np.arange(len(used))
        return pd.Categorical.from_codes(rank[self.code], categories=[self.words[i] for i in used], validate=False)

    def _text(self) -> Any:
        """The column as pandas keeps text, made in one go: Arrow's own way takes several times its memory."""
        import pandas as pd
        import pyarrow as pa

        words = [*(w.encode(errors="replace") for w in self.words), b""]  # the last one stands for none
        length = np.array([len(w) for w in words], dtype=np.int64)
        ends = np.zeros(len(self.code) + 1, np.int64)
        np.cumsum(length[self.code], out=ends[1:])
        text = b"".join(np.array(words, dtype=object).take(self.code))
        known = np.packbits(self.code >= 0, bitorder="little")
        buffers = [pa.py_buffer(b) for b in (known, ends, text)]
        return pd.array(
            pa.LargeStringArray.from_buffers(len(self.code), buffers[1], buffers[2], buffers[0]), dtype=TEXT
        )


def integers(values: Integers, known: Booleans | None = None) -> Any:
    """Whole numbers of a column in pandas; absent where negative, or where not `known`."""
    import pandas as pd

    values = np.asarray(values).astype(np.int64)
    return pd.arrays.IntegerArray(values, values < 0 if known is None else ~known)


def host_rows(host: HostEvents, places: Place, rows: Rows) -> dict[str, Any]:
    """Columns of the rows on the CPU, by start."""
    chosen = events_of(host, rows)
    columns: dict[str, Any] = {
        "name": Coded(host.names, host.name[chosen]),
        "kind": same("cpu_op", len(chosen)),
        "device": same("cpu", len(chosen)),
        "stream": integers(host.lane[chosen]),
        "start_ns": host.start[chosen].astype(float),
        "duration_ns": rows.time_ns[chosen].astype(float),
    }
    columns.update(placed(host, places, chosen, places.step[chosen]))
    columns.update(costed(rows, chosen))
    return columns


def events_of(host: HostEvents, rows: Rows) -> Integers:
    """The events that are rows on the CPU, in the order of the rows."""
    chosen = np.flatnonzero(rows.is_row)
    return chosen[np.argsort(host.start[chosen], kind="stable")]


def same(word: str, rows: int) -> Coded:
    """A column with the same word in all rows."""
    return Coded([word], np.zeros(rows, np.int32))


def placed(host: HostEvents, places: Place, chosen: Integers, step: Integers) -> dict[str, Any]:
    """Place columns of the host events `chosen`, in this order; −1 stands for none and gives absent values."""
    operator = _at(places.operator, chosen)
    return {
        "step": step,
        "pass": Coded(places.pass_names, _at(places.pass_, chosen)),
        "module": Coded(places.module_names, _at(places.module, chosen)),
        "operator": Coded(host.names, _at(host.name, operator)),
        "range": _range_paths(host, chosen),
        "placed_by": Coded(list(EVIDENCE), np.maximum(_at(places.evidence, chosen), 0)),
    }


def costed(rows: Rows, chosen: Integers) -> dict[str, Any]:
    """Shapes, FLOP and bytes of the host events `chosen`; absent where the kind of call has no cost."""
    kinds = rows.kinds
    code = _at(rows.kind, chosen)
    result: dict[str, Any] = {"shapes": shapes_of(rows, code)}
    units = {unit for k in kinds if k.cost for unit in k.cost.flop}
    for resource, column in zip(RESOURCES, FLOP_COLUMNS, strict=True):
        if resource not in units:
            continue
        values = [k.cost.flop.get(resource, np.nan) if k.cost else np.nan for k in kinds]
        if not np.isnan(values).all():
            result[column] = _numbers(values, code)
    result["bytes_read"] = _numbers([k.cost.bytes_read if k.cost else np.nan for k in kinds], code)
    result["bytes_written"] = _numbers([k.cost.bytes_written if k.cost else np.nan for k in kinds], code)
    return result


def shapes_of(rows: Rows, code: Integers) -> Coded:
    """Shapes and dtypes of kinds of calls as text; `code` indexes `rows.kinds`, −1 for none."""
    of_kind = Coded.of([k.shapes for k in rows.kinds])
    return Coded(of_kind.words, np.append(of_kind.code, np.int32(-1))[code])


def finish(
    columns: dict[str, Any],
    costs: CostModel,
    declared: Mapping[str, DeclaredKernel],
    passes: Mapping[str, tuple[str, ...]],
    layers: str,
) -> None:
    """Add order, short name, family and layer, split the forward pass as the workload names its parts, and give every
    column the form that pandas keeps."""
    names, modules = Coded.of(columns["name"]), Coded.of(columns["module"])
    columns["order"] = np.arange(len(names.code))
    columns["short_name"] = names.mapped(short_name)
    columns["family"] = names.mapped(lambda n: declared[n].family if n in declared else costs.family(n))
    layer = np.array([*layer_numbers(modules.words, layers), -1], dtype=np.int64)
    columns["layer"] = integers(layer[modules.code])
    columns["pass"] = _split_forward(Coded.of(columns["pass"]), modules, passes)
    if "serves" in columns:
        columns["serves"] = _served(Coded.of(columns["serves"]), columns["pass"], passes)
    columns["step"] = integers(columns["step"])
    for column in COLUMNS:
        if column.dtype in (TEXT, CATEGORY) and column.name in columns:
            columns[column.name] = Coded.of(_plain(columns[column.name])).array(column.dtype)


def _plain(values: Any) -> Any:
    """Words as they are; other sequences (an array of objects) as a list."""
    return values if isinstance(values, Coded | list) else list(values)


def uncosted(columns: Mapping[str, Any], total_ns: float | None = None) -> list[str]:
    """A warning that names the kernels without a cost and their share of the time, if there are any.

    `columns` are of all kernels, or of some where `total_ns` is the time of all; "name" may still be coded. Copies and
    collectives are left out: links bound them, and the facts hold their bytes.
    """
    time = np.asarray(columns["duration_ns"], dtype=float)
    whole = time.sum() if total_ns is None else total_ns
    unknown = np.isnan(np.asarray(columns["bytes_read"], dtype=float))
    unknown &= ~((columns["kind"] == "memcpy") | (columns["family"] == "collective"))
    if time[unknown].sum() < _WORTH_SAYING * whole or not whole:
        return []
    names = Coded.of(columns["name"])
    code = names.code[unknown]
    used, first = np.unique(code, return_index=True)
    of_name = np.bincount(code, weights=time[unknown], minlength=len(names.words))
    total = {names.words[c]: float(of_name[c]) for c in used[np.argsort(first)].tolist()}
    largest = sorted(total, key=lambda n: -total[n])
    shown = ", ".join(f"{_cropped(n)} ({total[n] / whole:.1%})" for n in largest[:_NAMED])
    more = f" and {len(largest) - _NAMED} more" if len(largest) > _NAMED else ""
    return [f"{UNKNOWN_WORK} for {sum(total.values()) / whole:.1%} of the kernel time: {shown}{more}"]


def _cropped(name: str, width: int = 60) -> str:
    bare = short_name(name) if name.startswith("void ") else name
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def _split_forward(passes: Coded, modules: Coded, patterns: Mapping[str, tuple[str, ...]]) -> Coded:
    """Forward work in a module that matches a pass's patterns, or in a module below one, belongs to that pass."""
    passes = passes.mapped(lambda word: {"zero_grad": "optimizer"}.get(word, word) or None)
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
    """What rows serve, with the pass of each member: the row's own, but forward work is split as `patterns` say."""
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

    It is the number that stands for the * of `pattern`. Without a pattern, the modules that the profiler's Python stack
    names (`Block_0.Linear_1`) tell it: blocks are the outermost modules of one class that occur several times side by
    side and hold others, and count in the order of their numbers.
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


def _range_paths(host: HostEvents, chosen: Integers) -> Coded:
    """Paths of the annotations around the chosen events, perfkit's own and the profiler's steps left out."""
    shown = [not n.startswith(("perfkit:", "ProfilerStep#")) for n in host.names]
    own = (host.category == ANNOTATION) & host.named(shown)
    nearest = host.nearest(own)
    paths: dict[str, int] = {}
    text: list[str] = []
    code_of = np.full(len(host) + 1, -1, np.int32)
    for i in np.flatnonzero(own).tolist():
        parent = host.parent[i]
        around = code_of[nearest[parent]] if parent >= 0 else -1
        name = host.names[host.name[i]]
        path = f"{text[around]}/{name}" if around >= 0 and len(text[around]) < _LONGEST_PATH else name
        code_of[i] = paths.setdefault(path, len(paths))
        if len(text) < len(paths):
            text.append(path)
    return Coded(text, code_of[_at(nearest, chosen)])


def _at(values: Integers, chosen: Integers) -> Integers:
    """`values` of the chosen events; −1 where there is no event."""
    if not len(values):
        return np.full(len(chosen), -1, np.int32)
    return np.where(chosen >= 0, values[np.maximum(chosen, 0)], -1)


def _numbers(values: list[float], code: Integers) -> Any:
    return np.append(np.asarray(values, dtype=float), np.nan)[code]
