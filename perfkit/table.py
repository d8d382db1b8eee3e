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

from perfkit.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

ORIGINS = ("counter", "derived", "model", "absent")
# How a row's place was found; docs/one-tree.md says what each is worth.
EVIDENCE = ("range", "autograd", "parameter", "symbol", "provenance", "declared", "alignment", "none")

# The units that do arithmetic: matrix units (on a CPU, the code paths of matrix products) apart from vector units.
RESOURCES = (
    "vector_fp64",
    "vector_fp32",
    "vector_fp16",
    "vector_bf16",
    "vector_int",
    "matrix_fp64",
    "matrix_fp32",
    "matrix_tf32",
    "matrix_fp16",
    "matrix_bf16",
    "matrix_fp8",
    "matrix_int8",
)

TEXT, INTEGER, REAL, CATEGORY = "string", "Int64", "float64", "category"


@dataclass(frozen=True)
class Column:
    """One column: its name, pandas dtype, unit ("" for none), group, and what it holds."""

    name: str
    dtype: str
    unit: str
    group: str
    text: str


def _column_list() -> tuple[Column, ...]:
    def c(name: str, dtype: str, unit: str, group: str, text: str) -> Column:
        return Column(name, dtype, unit, group, text)

    identity = (
        c("name", TEXT, "", "identity", "name as captured: the mangled or demangled kernel, or the operator"),
        c("short_name", TEXT, "", "identity", "name without namespace, arguments and template parameters"),
        c("family", CATEGORY, "", "identity", "matmul, attention, normalization, elementwise, reduction, …"),
        c("kind", CATEGORY, "", "identity", "cpu_op, gpu_kernel, memcpy, memset, or graph (a CUDA graph as a whole)"),
        c("device", CATEGORY, "", "identity", "cpu, cuda:0, …"),
        c("stream", INTEGER, "", "identity", "GPU stream, or the thread of a CPU operator"),
        c("order", INTEGER, "", "identity", "launch order, unique in a table, from 0"),
        c("rank", INTEGER, "", "identity", "the process's rank in its job; absent in a single process"),
    )
    place = (
        c("step", INTEGER, "", "place", "training or inference step in the capture, from 0"),
        c("pass", CATEGORY, "", "place", "encoder, forward, classifier, backward, optimizer; prefill, decode"),
        c("layer", INTEGER, "", "place", "index of the repeated block, from 0; absent outside blocks"),
        c("module", TEXT, "", "place", "module path in the model, such as transformer.h.0.attn"),
        c("operator", TEXT, "", "place", "the logical operator it serves; for a backward kernel, the forward operator"),
        c("range", TEXT, "", "place", "ranges around it, joined by /; in a generated program the last is generated:N"),
        c("placed_by", CATEGORY, "", "place", f"how its place was found: {', '.join(EVIDENCE)}"),
        c("line", TEXT, "", "place", "source line that launched it, such as train.py:8 in augment; its forward's line"),
        c("serves", TEXT, "", "place", "of a fused kernel the operators that it serves, with their shares: see below"),
    )
    launch = (
        c("grid_x", INTEGER, "", "launch", "thread blocks in x"),
        c("grid_y", INTEGER, "", "launch", "thread blocks in y"),
        c("grid_z", INTEGER, "", "launch", "thread blocks in z"),
        c("block_x", INTEGER, "", "launch", "threads of a block in x"),
        c("block_y", INTEGER, "", "launch", "threads of a block in y"),
        c("block_z", INTEGER, "", "launch", "threads of a block in z"),
        c("registers", INTEGER, "", "launch", "registers a thread"),
        c("shared_bytes", REAL, "B", "launch", "shared memory a block"),
        c("occupancy", REAL, "%", "launch", "achieved (counter) or theoretical (derived) occupancy, 0 to 1"),
        c("waves", REAL, "", "launch", "waves a multiprocessor"),
        c("shapes", TEXT, "", "launch", "shapes and dtypes of the arguments, as text"),
    )
    collective = (
        c("collective", CATEGORY, "", "collective", "all_reduce, all_gather, reduce_scatter, …; absent elsewhere"),
        c("group", TEXT, "", "collective", "its process group: description and ranks"),
        c("message_bytes", REAL, "B", "collective", "the larger of what a rank puts in and gets out"),
        c("algorithm", CATEGORY, "", "collective", "NCCL's: RING, TREE, NVLS, …, from the kernel's name"),
        c("protocol", CATEGORY, "", "collective", "NCCL's: LL, LL128, SIMPLE, from the kernel's name"),
        c(
            "wait_ns",
            REAL,
            "ns",
            "collective",
            "of its duration, waiting for other ranks; absent in a rank's own table",
        ),
    )
    measures = (
        c("start_ns", REAL, "ns", "time", "start, from the start of the capture"),
        c("duration_ns", REAL, "ns", "time", "GPU: kernel time; CPU: self time of the operator"),
        *(c(f"flop_{r}", REAL, "FLOP", "flop", f"work on the {r.replace('_', ' ')} units") for r in RESOURCES),
        c("bytes_read", REAL, "B", "bytes", "minimal bytes read: each input once (rows read, for a gather)"),
        c("bytes_written", REAL, "B", "bytes", "minimal bytes written: each output once"),
        c("dram_bytes", REAL, "B", "dram", "bytes from and to device memory; known even where its two parts are not"),
        c("dram_read_bytes", REAL, "B", "dram", "bytes read from device memory"),
        c("dram_write_bytes", REAL, "B", "dram", "bytes written to device memory"),
        c("l2_read_bytes", REAL, "B", "l2", "bytes read from L2"),
        c("l2_write_bytes", REAL, "B", "l2", "bytes written to L2"),
        c("l1_bytes", REAL, "B", "l1", "bytes between L1 and the register file"),
        c("tensor_active", REAL, "%", "tensor", "share of cycles in which the tensor pipe was active, 0 to 1"),
        c("instructions", REAL, "", "instructions", "warp instructions executed"),
    )
    groups = ("time", "flop", "bytes", "dram", "l2", "l1", "tensor", "instructions")
    origins = tuple(c(f"{g}_origin", CATEGORY, "", "origin", f"origin of the {g} columns") for g in groups)
    return identity + place + launch + collective + measures + origins


COLUMNS: tuple[Column, ...] = _column_list()
COLUMN_NAMES: tuple[str, ...] = tuple(c.name for c in COLUMNS)
FLOP_COLUMNS: tuple[str, ...] = tuple(f"flop_{r}" for r in RESOURCES)
MEASURE_GROUPS: dict[str, tuple[str, ...]] = {
    g: tuple(c.name for c in COLUMNS if c.group == g)
    for g in ("time", "flop", "bytes", "dram", "l2", "l1", "tensor", "instructions")
}


@dataclass
class KernelTable:
    """A data frame with exactly `COLUMNS`, the warnings that travel with it, and where it came from.

    `source` says which file it was read from and by which reader; `facts` holds what a reader knows of the device and
    the capture (name of the device, ceilings stored in the report, number of launches lost, …). `recorded` is what a
    reader of traces keeps of the file next to the table while both are in memory.
    """

    frame: pd.DataFrame
    warnings: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.frame)

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
        problem = next(iter(_problems(self.frame)), None)
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
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist.", "Give the path of a run folder or profile.") from error
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise InputError(f"{path} is not a kernel table that perfkit can read.", "Capture it again.") from error
        if extra["version"] > SCHEMA_VERSION:
            raise InputError(f"{path} was written by a newer perfkit.", "Update perfkit to read it.")
        table = cls(conform(raw.to_pandas()), extra["warnings"], extra["source"], extra["facts"])
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
    import pandas as pd

    rows = {n: _exact(n, v) for n, v in rows.items()} if isinstance(rows, Mapping) else rows
    frame = pd.DataFrame(rows, copy=False) if isinstance(rows, Mapping) else pd.DataFrame(list(rows), dtype=object)
    unknown = sorted(set(frame.columns) - set(COLUMN_NAMES))
    if unknown:
        raise ValueError(f"not columns of the kernel table: {', '.join(unknown)}")
    return KernelTable(conform(frame), list(warnings), dict(source or {}), dict(facts or {})).check()


def _exact(name: str, values: Any) -> Any:
    """Lists of whole numbers as objects: pandas would round large ones to floats where others are absent."""
    import pandas as pd

    whole = any(c.name == name and c.dtype == INTEGER for c in COLUMNS)
    return pd.Series(values, dtype=object) if whole and isinstance(values, list) else values


def conform(frame: pd.DataFrame) -> pd.DataFrame:
    """Give `frame` exactly the columns, order and dtypes of `COLUMNS`; origins that are missing are worked out."""
    import pandas as pd

    data: dict[str, Any] = {}
    for column in COLUMNS:
        if column.name in frame:
            values = frame[column.name].array
            data[column.name] = values if values.dtype == column.dtype else _cast(frame[column.name], column)
        elif column.group == "origin":
            data[column.name] = _default_origin(column, data, len(frame))
        else:
            data[column.name] = _absent(column.dtype, len(frame))
    return pd.DataFrame(data, copy=False)


def _cast(values: pd.Series, column: Column) -> Any:
    """The values in the column's dtype. Raises `InputError` for those that it cannot hold."""
    try:
        return values.astype(column.dtype).array
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{column.name} of the kernel table has values that it cannot hold: {error}.") from error


def _absent(dtype: str, rows: int) -> Any:
    """A column in which nothing is known."""
    import numpy as np
    import pandas as pd

    if dtype == REAL:
        return np.full(rows, np.nan)
    if dtype == INTEGER:
        return pd.arrays.IntegerArray(np.zeros(rows, np.int64), np.ones(rows, bool))
    nothing = np.full(rows, -1)
    return pd.Categorical.from_codes(nothing, []) if dtype == CATEGORY else pd.array([""], TEXT).take(nothing, True)


def _default_origin(column: Column, data: Mapping[str, Any], rows: int) -> Any:
    """Return the origin of measures if a reader does not say: times are counted, anything else that is known is
    modelled."""
    import numpy as np
    import pandas as pd

    known = np.zeros(rows, bool)
    for name in MEASURE_GROUPS[column.name.removesuffix("_origin")]:
        known |= ~np.isnan(np.asarray(data[name], dtype=float))
    words = ["absent", "counter" if column.name == "time_origin" else "model"]
    used = [i for i in (0, 1) if (known == bool(i)).any()]
    place = np.array([used.index(i) if i in used else -1 for i in (0, 1)])
    return pd.Categorical.from_codes(place[known.astype(int)], [words[i] for i in used])


def _problems(frame: pd.DataFrame) -> Iterable[str]:
    """Yield what is wrong, most basic first."""
    import numpy as np

    if tuple(frame.columns) != COLUMN_NAMES:
        yield "its columns are not those of this version"
        return
    if frame["name"].isna().any():
        yield "a row has no name"
    if not frame["order"].is_unique or frame["order"].isna().any():
        yield "launch order is not unique"
    for column in COLUMNS:
        if column.dtype != REAL:
            continue
        values = frame[column.name].to_numpy(dtype=float)
        if np.isinf(values).any():
            yield f"{column.name} is infinite"
        if column.name != "start_ns" and (values < 0).any():
            yield f"{column.name} is negative"
    times = frame.loc[frame["kind"] == "gpu_kernel", "duration_ns"].dropna()
    if len(times) and not times.any():
        yield f"none of its {len(times)} kernels has a time"
    for group, names in MEASURE_GROUPS.items():
        known = np.any([~np.isnan(frame[name].to_numpy(dtype=float)) for name in names], axis=0)
        stated = frame[f"{group}_origin"].array
        words = np.array([*stated.categories, None], dtype=object)
        if not set(words[np.unique(stated.codes)].tolist()) <= set(ORIGINS):
            yield f"{group}_origin is not one of {', '.join(ORIGINS)}"
        elif ((words == "absent")[stated.codes] == known).any():
            yield f"{group}_origin contradicts the {group} columns"
