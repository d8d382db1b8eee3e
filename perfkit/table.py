"""The kernel table: one row a kernel launch (GPU) or a working operator execution (CPU).

Every reader produces it, every analysis consumes it. Columns have fixed names, dtypes and base units (ns, bytes, FLOP).
**Absent is NaN (or None for text), never 0**, and every group of measures names its origin: `counter` (read from the
hardware or the clock), `derived` (computed from counters), `model` (analytic, from shapes) or `absent`.

`COLUMNS` is the single description: the docs page, the parquet schema and the checks are made from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.columns import Coded, Frame, Real, Whole, absent
from perfkit.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

ORIGINS = ("counter", "derived", "model", "absent")
# How a row's place was found; docs/one-tree.md says what each is worth.
EVIDENCE = ("range", "autograd", "parameter", "symbol", "provenance", "declared", "alignment", "none")

# The units that do arithmetic: matrix units (on a CPU, the code paths of matrix products) apart from vector units.
RESOURCES = (
    "vector_fp64", "vector_fp32", "vector_fp16", "vector_bf16", "vector_int", "matrix_fp64", "matrix_fp32",
    "matrix_tf32", "matrix_fp16", "matrix_bf16", "matrix_fp8", "matrix_int8",
)  # fmt: skip

TEXT, INTEGER, REAL, CATEGORY = "string", "Int64", "float64", "category"


@dataclass(frozen=True)
class ColumnSpec:
    """One column: its name, pandas dtype, unit ("" for none), group, and what it holds."""

    name: str
    dtype: str
    unit: str
    group: str
    text: str


def _group(name: str, *columns: tuple[str, str, str, str]) -> tuple[ColumnSpec, ...]:
    """The columns of a group, each by its name, dtype, unit and text."""
    return tuple(ColumnSpec(column, dtype, unit, name, text) for column, dtype, unit, text in columns)


MEASURES = ("time", "flop", "bytes", "dram", "l2", "l1", "tensor", "instructions")
COLUMNS: tuple[ColumnSpec, ...] = (
    *_group(
        "identity",
        ("name", TEXT, "", "name as captured: the mangled or demangled kernel, or the operator"),
        ("short_name", TEXT, "", "name without namespace, arguments and template parameters"),
        ("family", CATEGORY, "", "matmul, attention, normalization, elementwise, reduction, …"),
        ("kind", CATEGORY, "", "cpu_op, gpu_kernel, memcpy, memset, or graph (a CUDA graph as a whole)"),
        ("device", CATEGORY, "", "cpu, cuda:0, …"),
        ("stream", INTEGER, "", "GPU stream, or the thread of a CPU operator"),
        ("order", INTEGER, "", "launch order, unique in a table, from 0"),
        ("rank", INTEGER, "", "the process's rank in its job; absent in a single process"),
    ),
    *_group(
        "place",
        ("step", INTEGER, "", "training or inference step in the capture, from 0"),
        ("pass", CATEGORY, "", "encoder, forward, classifier, backward, optimizer; prefill, decode"),
        ("layer", INTEGER, "", "index of the repeated block, from 0; absent outside blocks"),
        ("module", TEXT, "", "module path in the model, such as transformer.h.0.attn"),
        ("operator", TEXT, "", "the logical operator it serves; for a backward kernel, the forward operator"),
        ("range", TEXT, "", "ranges around it, joined by /; in a generated program the last is generated:N"),
        ("placed_by", CATEGORY, "", f"how its place was found: {', '.join(EVIDENCE)}"),
        ("line", TEXT, "", "source line that launched it, such as train.py:8 in augment; its forward's line"),
        ("serves", TEXT, "", "of a fused kernel the operators that it serves, with their shares: see below"),
    ),
    *_group(
        "launch",
        *((f"grid_{axis}", INTEGER, "", f"thread blocks in {axis}") for axis in "xyz"),
        *((f"block_{axis}", INTEGER, "", f"threads of a block in {axis}") for axis in "xyz"),
        ("registers", INTEGER, "", "registers a thread"),
        ("shared_bytes", REAL, "B", "shared memory a block"),
        ("occupancy", REAL, "%", "achieved (counter) or theoretical (derived) occupancy, 0 to 1"),
        ("waves", REAL, "", "waves a multiprocessor"),
        ("shapes", TEXT, "", "shapes and dtypes of the arguments, as text"),
    ),
    *_group(
        "collective",
        ("collective", CATEGORY, "", "all_reduce, all_gather, reduce_scatter, …; absent elsewhere"),
        ("group", TEXT, "", "its process group: description and ranks"),
        ("message_bytes", REAL, "B", "the larger of what a rank puts in and gets out"),
        ("algorithm", CATEGORY, "", "NCCL's: RING, TREE, NVLS, …, from the kernel's name"),
        ("protocol", CATEGORY, "", "NCCL's: LL, LL128, SIMPLE, from the kernel's name"),
        ("wait_ns", REAL, "ns", "of its duration, waiting for other ranks; absent in a rank's own table"),
    ),
    *_group(
        "time",
        ("start_ns", REAL, "ns", "start, from the start of the capture"),
        ("duration_ns", REAL, "ns", "GPU: kernel time; CPU: self time of the operator"),
    ),
    *_group("flop", *((f"flop_{r}", REAL, "FLOP", f"work on the {r.replace('_', ' ')} units") for r in RESOURCES)),
    *_group(
        "bytes",
        ("bytes_read", REAL, "B", "minimal bytes read: each input once (rows read, for a gather)"),
        ("bytes_written", REAL, "B", "minimal bytes written: each output once"),
    ),
    *_group(
        "dram",
        ("dram_bytes", REAL, "B", "bytes from and to device memory; known even where its two parts are not"),
        ("dram_read_bytes", REAL, "B", "bytes read from device memory"),
        ("dram_write_bytes", REAL, "B", "bytes written to device memory"),
    ),
    *_group(
        "l2",
        ("l2_read_bytes", REAL, "B", "bytes read from L2"),
        ("l2_write_bytes", REAL, "B", "bytes written to L2"),
    ),
    *_group("l1", ("l1_bytes", REAL, "B", "bytes between L1 and the register file")),
    *_group("tensor", ("tensor_active", REAL, "%", "share of cycles in which the tensor pipe was active, 0 to 1")),
    *_group("instructions", ("instructions", REAL, "", "warp instructions executed")),
    *_group("origin", *((f"{one}_origin", CATEGORY, "", f"origin of the {one} columns") for one in MEASURES)),
)
COLUMN_NAMES: tuple[str, ...] = tuple(c.name for c in COLUMNS)
FLOP_COLUMNS: tuple[str, ...] = tuple(f"flop_{r}" for r in RESOURCES)
MEASURE_GROUPS: dict[str, tuple[str, ...]] = {g: tuple(c.name for c in COLUMNS if c.group == g) for g in MEASURES}


@dataclass
class KernelTable:
    """Rows with exactly `COLUMNS`, the warnings that travel with them, and where they came from.

    `rows` are columns as a reader makes them until somebody asks for the `frame` of pandas, which holds from then on.
    `source` says which file it was read from and by which reader; `facts` holds what a reader knows of the device and
    the capture (name of the device, ceilings stored in the report, number of launches lost, …). `recorded` is what a
    reader of traces keeps of the file next to the table while both are in memory.
    """

    rows: pd.DataFrame | Frame
    warnings: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a data frame of pandas."""
        if isinstance(self.rows, Frame):
            self.rows = self.rows.pandas({c.name: c.dtype for c in COLUMNS})
        return self.rows

    @frame.setter
    def frame(self, frame: pd.DataFrame) -> None:
        self.rows = frame

    @property
    def flop(self) -> pd.Series:
        """Total FLOP a row over all units; NaN where nothing is known."""
        return self.frame[list(FLOP_COLUMNS)].sum(axis=1, min_count=1)

    @property
    def bytes(self) -> pd.Series:
        """Minimal bytes a row, read plus written; NaN where unknown."""
        return self.frame[["bytes_read", "bytes_written"]].sum(axis=1, min_count=2)

    def check(self) -> KernelTable:
        """Return self if every invariant holds; raise `InputError` naming the first that does not."""
        problem = next(iter(_problems(self.rows)), None)
        if problem:
            where = self.source.get("path", "the kernel table")
            raise InputError(f"{where} holds a broken kernel table: {problem}.", "Capture it again.")
        return self

    def write(self, path: Path) -> None:
        """Write as parquet, through a temporary name, with warnings, source and facts in the file's metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(self.frame, preserve_index=False)
        extra = {"version": SCHEMA_VERSION, "warnings": self.warnings, "source": self.source, "facts": self.facts}
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), b"perfkit": json.dumps(extra, allow_nan=False).encode()}
        )
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            pq.write_table(table, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> KernelTable:
        """Read a table that `write` wrote. Raises `InputError` for a missing, foreign or damaged file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Read from our own buffer: no second thread, and a damaged file cannot surprise through a memory map.
            raw = pq.read_table(pa.BufferReader(path.read_bytes()))
            extra = json.loads((raw.schema.metadata or {})[b"perfkit"])
            newer = extra["version"] > SCHEMA_VERSION
            frame = None if newer else conform(raw.to_pandas())
            said = None if newer else [extra[name] for name in ("warnings", "source", "facts")]
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
        except (OSError, LookupError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
            raise InputError(f"{path} is not a kernel table that perfkit can read.", "Capture it again.") from error
        if frame is None or said is None:
            raise InputError(f"{path} was written by a newer perfkit.", "Update perfkit to read it.")
        table = cls(frame, *said)
        return table.check()


def build(
    rows: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    warnings: Iterable[str] = (),
    source: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> KernelTable:
    """Make a checked table from columns (a mapping of arrays) or from rows (an iterable of mappings).

    Columns left out are absent; unknown names are refused.
    """
    if isinstance(rows, Mapping):
        unknown = sorted(set(rows) - set(COLUMN_NAMES))
    else:
        rows = list(rows)
        unknown = sorted({name for row in rows for name in row} - set(COLUMN_NAMES))
    if unknown:
        raise ValueError(f"not columns of the kernel table: {', '.join(unknown)}")
    made = _light(rows) if isinstance(rows, Mapping) else None
    if made is None:
        import pandas as pd

        if isinstance(rows, Mapping):
            made = pd.DataFrame({n: _exact(n, v) for n, v in rows.items()}, copy=False)
        else:
            made = pd.DataFrame(rows, dtype=object)
        made = conform(made)
    return KernelTable(made, list(warnings), dict(source or {}), dict(facts or {})).check()


_KINDS = {REAL: Real, INTEGER: Whole, TEXT: Coded, CATEGORY: Coded}


def _light(columns: Mapping[str, Any]) -> Frame | None:
    """The columns without pandas; None where one is not of a reader's own kind."""
    columns_held: dict[str, Any] = {}
    for name, values in columns.items():
        kind = _KINDS[next(c.dtype for c in COLUMNS if c.name == name)]
        if kind is Real and isinstance(values, np.ndarray) and values.dtype.kind == "f":
            columns_held[name] = values.astype(float, copy=False).view(Real)
        elif kind is Coded and isinstance(values, Coded):
            columns_held[name] = values.distinct()
        elif kind is Whole and isinstance(values, Whole):
            columns_held[name] = values
        else:
            return None
    rows = len(next(iter(columns_held.values()), ()))
    made: dict[str, Any] = {}
    for column in COLUMNS:
        if column.name in columns_held:
            made[column.name] = columns_held[column.name]
        elif column.group == "origin":
            made[column.name] = _default_origin(column, made, rows)
        else:
            made[column.name] = absent(_KINDS[column.dtype], rows)
    return Frame(made, rows)


def _exact(name: str, values: Any) -> Any:
    """Lists of whole numbers as objects: pandas would round large ones to floats where others are absent."""
    import pandas as pd

    dtype = next(c.dtype for c in COLUMNS if c.name == name)
    if isinstance(values, Coded | Whole):
        return values.pandas(dtype)
    return pd.Series(values, dtype=object) if dtype == INTEGER and isinstance(values, list) else values


def conform(frame: pd.DataFrame) -> pd.DataFrame:
    """Give `frame` exactly the columns, order and dtypes of `COLUMNS`; origins that are missing are worked out."""
    import pandas as pd

    data: dict[str, Any] = {}
    for column in COLUMNS:
        if column.name in frame:
            values = frame[column.name].array
            data[column.name] = values if values.dtype == column.dtype else _cast(frame[column.name], column)
        elif column.group == "origin":
            data[column.name] = _default_origin(column, data, len(frame)).pandas(CATEGORY)
        else:
            data[column.name] = _absent(column.dtype, len(frame))
    return pd.DataFrame(data, copy=False)


def _cast(values: pd.Series, column: ColumnSpec) -> Any:
    """The values in the column's dtype. Raises `InputError` for those that it cannot hold."""
    try:
        return values.astype(column.dtype).array
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{column.name} of the kernel table has values that it cannot hold: {error}.") from error


def _absent(dtype: str, rows: int) -> Any:
    """A column in which nothing is known."""
    import pandas as pd

    if dtype == REAL:
        return np.full(rows, np.nan)
    if dtype == INTEGER:
        return pd.arrays.IntegerArray(np.zeros(rows, np.int64), np.ones(rows, bool))
    nothing = np.full(rows, -1)
    return pd.Categorical.from_codes(nothing, []) if dtype == CATEGORY else pd.array([""], TEXT).take(nothing, True)


def _default_origin(column: ColumnSpec, data: Mapping[str, Any], rows: int) -> Coded:
    """Return the origin of measures if a reader does not say: times are counted, anything else that is known is
    modelled."""
    known = np.zeros(rows, bool)
    for name in MEASURE_GROUPS[column.name.removesuffix("_origin")]:
        if not _empty(data[name]):
            known |= ~np.isnan(np.asarray(data[name], dtype=float))
    return Coded(["absent", "counter" if column.name == "time_origin" else "model"], known.astype(np.int32))


def _empty(values: Any) -> bool:
    """Return whether nothing of a column is known, at a glance."""
    return isinstance(values, Real) and values.strides == (0,) and len(values) > 0 and bool(np.isnan(values[0]))


def _problems(frame: pd.DataFrame | Frame) -> Iterable[str]:
    """Yield what is wrong, most basic first."""
    if tuple(frame.columns) != COLUMN_NAMES:
        yield "its columns are not those of this version"
        return
    if frame["name"].isna().any():
        yield "a row has no name"
    if frame["order"].isna().any() or frame["order"].nunique() < len(frame):
        yield "launch order is not unique"
    for column in COLUMNS:
        if column.dtype != REAL or _empty(frame[column.name]):
            continue
        values = frame[column.name].to_numpy(dtype=float)
        if np.isinf(values).any():
            yield f"{column.name} is infinite"
        if column.name != "start_ns" and (values < 0).any():
            yield f"{column.name} is negative"
    times = frame["duration_ns"].to_numpy(float)[(frame["kind"] == "gpu_kernel").to_numpy(bool)]
    times = times[~np.isnan(times)]
    if len(times) and not times.any():
        yield f"none of its {len(times)} kernels has a time"
    for group, names in MEASURE_GROUPS.items():
        known = np.zeros(len(frame), bool)
        for name in names:
            known |= False if _empty(frame[name]) else ~np.isnan(frame[name].to_numpy(dtype=float))
        codes, words = frame[f"{group}_origin"].factorize()
        if (codes < 0).any() or not set(words) <= set(ORIGINS):
            yield f"{group}_origin is not one of {', '.join(ORIGINS)}"
        elif (np.array([*(word == "absent" for word in words), False])[codes] == known).any():
            yield f"{group}_origin contradicts the {group} columns"
