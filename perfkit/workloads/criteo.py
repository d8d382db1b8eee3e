"""Criteo-like click data: 13 counts, 26 hashed categories and a click a row; from a parquet file, or synthetic.

The schema: columns `labels`, `DENSE_0` … `DENSE_12` and `SPARSE_0` … `SPARSE_25`, int64, the categories holding
unsigned 32-bit hashes; a JSON of the same stem next to the file gives the `cardinality` of each `SPARSE_i` and its
`tokenizer_values`, the known hashes.

Synthetic rows have the skew of real ones: within a feature the value of rank r comes up as 1 / (r + 1)^1.1, the counts
are log-normal, and the click depends on both, so that there is something to learn. Legend: B rows of a batch.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.errors import InputError, first_line
from perfkit.run_folder import write_whole, written_whole

SYNTHETIC = "synthetic"
DENSE, SPARSE = 13, 26
DENSE_NAMES = tuple(f"DENSE_{i}" for i in range(DENSE))
SPARSE_NAMES = tuple(f"SPARSE_{i}" for i in range(SPARSE))
# Values of each categorical feature in Criteo's Kaggle data, as DLRM's own preprocessing counts them.
KAGGLE_CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
_SKEW = 1.1
_ROW_GROUP = 65_536

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


class ClickSource(ABC):
    """Rows of click data. `values[i]` are the known hashes of feature i, in the order of their indices."""

    description: str
    values: tuple[np.ndarray, ...]

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Known values of each categorical feature."""
        return tuple(len(v) for v in self.values)

    @abstractmethod
    def rows(self, step: int, count: int) -> Columns:
        """Batch `step` of `count` rows: counts (B, 13) fp32, hashes (B, 26) int64, clicks (B) fp32."""


def open_clicks(data: str, largest: int, seed: int) -> ClickSource:
    """The source that `data` names: synthetic, with at most `largest` values a feature, or a parquet file.

    Raises `InputError` for a file that is missing, is not of the schema, or lies without its JSON.
    """
    return SyntheticClicks(largest, seed) if data == SYNTHETIC else StoredClicks(Path(data).expanduser())


class SyntheticClicks(ClickSource):
    """Rows made on demand, the same for the same seed and step."""

    def __init__(self, largest: int, seed: int) -> None:
        self.seed = seed
        sizes = [min(n, largest) for n in KAGGLE_CARDINALITIES]
        self.values = tuple(_hashes(i, size) for i, size in enumerate(sizes))
        self._cumulative = [_zipf(size) for size in sizes]
        chosen = np.random.default_rng(seed)
        self._weight_dense = chosen.normal(0.0, 0.3, DENSE)
        self._weight_sparse = [chosen.normal(0.0, 0.4, size).astype(np.float32) for size in sizes]
        self.description = f"synthetic clicks ({sum(sizes):,} values in {SPARSE} features, Zipf {_SKEW}, seed {seed})"

    def rows(self, step: int, count: int) -> Columns:
        """`count` rows of step `step`, the same each time: dense (count, 13), sparse (count, 26), clicks (count)."""
        made = np.random.default_rng((self.seed, step))
        dense = np.floor(made.lognormal(1.0, 1.5, (count, DENSE))).astype(np.float32)
        score = (np.log1p(dense) - 1.3) @ self._weight_dense.astype(np.float32) - 1.1  # about a quarter are clicks
        sparse = np.empty((count, SPARSE), np.int64)
        for i, cumulative in enumerate(self._cumulative):
            rank = np.searchsorted(cumulative, made.random(count), side="right")
            sparse[:, i] = self.values[i][rank]
            score += self._weight_sparse[i][rank]
        clicks = made.random(count) < 1.0 / (1.0 + np.exp(-score))
        return dense, sparse, clicks.astype(np.float32)


def _hashes(feature: int, count: int) -> np.ndarray:
    """`count` different unsigned 32-bit hashes: an odd multiplier permutes the numbers below 2³²."""
    ranks = np.arange(count, dtype=np.uint64) + np.uint64(feature * 40_503 + 1)
    return ((ranks * np.uint64(2_654_435_761)) & np.uint64(0xFFFF_FFFF)).astype(np.int64)


def _zipf(count: int) -> np.ndarray:
    weights = 1.0 / np.arange(1, count + 1) ** _SKEW
    cumulative = np.cumsum(weights / weights.sum())
    cumulative[-1] = 1.0
    return cumulative


class StoredClicks(ClickSource):
    """A parquet file, read row group by row group: only the group of the current batch is held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = _read_metadata(path)
        self._file = _open_parquet(path)
        sizes = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._ends = np.cumsum(sizes) if sizes else np.zeros(0, np.int64)
        if not sizes or not self._ends[-1]:
            raise InputError(f"{path} holds no rows.", "Write one with `perfkit data criteo`.")
        self._held: tuple[int, Columns] | None = None
        self.description = f"{int(self._ends[-1]):,} clicks of {path.name} ({sum(self.cardinalities):,} values)"

    def rows(self, step: int, count: int) -> Columns:
        """The rows of step `step`; the file begins again at its end."""
        total = int(self._ends[-1])
        parts, start, left = [], step * count % total, count
        while left:
            group = int(np.searchsorted(self._ends, start, side="right"))
            first = int(self._ends[group - 1]) if group else 0
            stop = min(start + left, int(self._ends[group]))
            parts.append(tuple(column[start - first : stop - first] for column in self._group(group)))
            left -= stop - start
            start = stop % total
        dense, sparse, clicks = (np.concatenate(column) for column in zip(*parts, strict=True))
        return dense, sparse, clicks

    def _group(self, number: int) -> Columns:
        if self._held is None or self._held[0] != number:
            try:
                table = self._file.read_row_group(number)
            except (OSError, pa.ArrowException) as error:
                raise InputError(f"{self.path} cannot be read: {first_line(error, 200)}.", "Write it again.") from None
            dense = np.stack([_numbers(table, name) for name in DENSE_NAMES], axis=1).astype(np.float32)
            sparse = np.stack([_numbers(table, name) for name in SPARSE_NAMES], axis=1)
            self._held = number, (dense, sparse, _numbers(table, "labels").astype(np.float32))
        return self._held[1]


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return a column as int64, with 0 for what is missing, as in DLRM's reference."""
    return np.asarray(table[name].combine_chunks().fill_null(0).cast(pa.int64()))


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError(f"File {path} is missing.", "Write one with `perfkit data criteo`.") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{path} is not a parquet file: {first_line(error, 200)}.", "Give a file of Criteo's schema."
        ) from None
    lacking = [n for n in ("labels", *DENSE_NAMES, *SPARSE_NAMES) if n not in file.schema_arrow.names]
    if lacking:
        raise InputError(
            f"{path} has no column {lacking[0]}"
            + (f" and {len(lacking) - 1} more of the schema." if lacking[1:] else "."),
            "It needs labels, DENSE_0 … DENSE_12 and SPARSE_0 … SPARSE_25.",
        )
    return file


def metadata_path(path: Path) -> Path:
    """Return the path of the JSON of a parquet file."""
    return path.with_suffix(".json")


def _read_metadata(path: Path) -> tuple[np.ndarray, ...]:
    """The known hashes of each feature. Raises `InputError` where the JSON is missing or says less than it must."""
    file = metadata_path(path)
    if not path.exists():
        raise InputError(f"File {path} is missing.", "Write one with `perfkit data criteo`.")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        values = tuple(np.asarray(found[name]["tokenizer_values"], np.int64) for name in SPARSE_NAMES)
        counts = [int(found[name]["cardinality"]) for name in SPARSE_NAMES]
    except FileNotFoundError:
        raise InputError(f"{path} has no metadata {file.name}.", "Put the JSON next to it.") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise InputError(
            f"{file} is not the metadata of click data: {type(error).__name__} {first_line(error, 200)}.",
            "For each SPARSE_i it gives cardinality and tokenizer_values.",
        ) from None
    for name, known, count in zip(SPARSE_NAMES, values, counts, strict=True):
        if known.ndim != 1 or len(known) != count or not count:
            raise InputError(
                f"{file}: {name} has cardinality {count} and {known.size} tokenizer_values.", "Correct it."
            )
    return values


def write_clicks(
    path: Path, rows: int, largest: int, seed: int, progress: Callable[[int], object] | None = None
) -> None:
    """Write `rows` synthetic rows as parquet, and their metadata next to it; `progress` gets the rows written so
    far."""
    source = SyntheticClicks(largest, seed)
    names = ("labels", *DENSE_NAMES, *SPARSE_NAMES)
    schema = pa.schema([(name, pa.int64()) for name in names])
    with written_whole(path) as unfinished:
        with pq.ParquetWriter(unfinished, schema) as writer:
            for group, start in enumerate(range(0, rows, _ROW_GROUP)):
                dense, sparse, clicks = source.rows(group, min(_ROW_GROUP, rows - start))
                columns: Sequence[np.ndarray] = (clicks, *dense.T, *sparse.T)
                writer.write_table(pa.table([np.ascontiguousarray(c, np.int64) for c in columns], schema=schema))
                if progress:
                    progress(min(start + _ROW_GROUP, rows))
        write_whole(metadata_path(path), _metadata(source))


def _metadata(source: ClickSource) -> str:
    return json.dumps(
        {
            name: {"cardinality": len(values), "tokenizer_values": values.tolist()}
            for name, values in zip(SPARSE_NAMES, source.values, strict=True)
        }
    )
