"""DLRM, a deep learning recommendation model: will this person click? Trained on Criteo-like data.

Legend: B batch, D embedding width, F = 27 vectors: one of the 13 counts and one of each of the 26 categories.

    counts (B, 13) → dense MLP → (B, D)        ┐
    hashes (B, 26, H) → index → embeddings (B, D) each ┘→ interaction → prediction MLP → logits (B) → loss ()

The variants are three ways from a hash to a row of an embedding table, a lesson in performance: comparison with all
known hashes, held in a Python list that every forward copies to the device, or in a tensor that is there already; or no
comparison at all, the hash modulo the size of the table.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfkit.errors import UsageError
from perfkit.functional import linear_relu
from perfkit.workloads import Batch, Settings, Workload
from perfkit.workloads.criteo import DENSE, SPARSE, ClickSource, open_clicks
from perfkit.workloads.exchange import all_to_all, mean_of_ranks


class ListIndex(nn.Module):
    """The place of each hash among the known ones, which are in a Python list: hashes (B, H) → indices (B, H)."""

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__()
        self.values = list(values)

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, H) → indices (B, H)."""
        known = torch.tensor(self.values, device=hashes.device)  # a copy to the device, in each forward
        return torch.eq(hashes.unsqueeze(-1), known).long().argmax(dim=-1)


class TensorIndex(nn.Module):
    """The place of each hash among known ones in a buffer on the device: hashes (B, H) → indices (B, H)."""

    values: Tensor

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("values", torch.tensor(list(values)), persistent=False)

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, H) → indices (B, H)."""
        return torch.eq(hashes.unsqueeze(-1), self.values).long().argmax(dim=-1)


class ModulusIndex(nn.Module):
    """(hash + 1) modulo the size of the table: different hashes may share a row. hashes (B, H) → indices (B, H)."""

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__()
        self.size = len(values)

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, H) → indices (B, H)."""
        return (hashes + 1) % self.size


INDICES = {"index-hash-list": ListIndex, "index-hash-tensor": TensorIndex, "modulus-hash": ModulusIndex}


class Table(nn.Module):
    """One embedding table and its index; of several hashes a sample the vectors add up: (B, H) → (B, D).

    With `sparse` the table's gradient holds the rows that were looked up, else all of them.
    """

    def __init__(self, index: nn.Module, rows: int, width: int, bag: bool, sparse: bool) -> None:
        super().__init__()
        self.index = index
        self.embedding = (
            nn.EmbeddingBag(rows, width, mode="sum", sparse=sparse) if bag else nn.Embedding(rows, width, sparse=sparse)
        )
        self.bag = bag

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, H) → (B, D)."""
        found = self.embedding(self.index(hashes))
        return found if self.bag else found.sum(dim=1) if hashes.shape[1] > 1 else found.squeeze(1)


class SparseArch(nn.Module):
    """Embeddings of all categories: hashes (B, 26, H) → (B, 26, D)."""

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(tables)

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, 26, H) → (B, 26, D)."""
        return torch.stack([table(hashes[:, i]) for i, table in enumerate(self.tables)], dim=1)


class SharedSparseArch(nn.Module):
    """Embeddings of all categories, of ranks that each hold some tables whole: hashes (B, 26, H) → (B, 26, D).

    B is of one rank. Each sends its hashes to the ranks of their tables, and gets the embeddings back.
    """

    def __init__(self, tables: Sequence[nn.Module], owners: Sequence[Sequence[int]], rank: int) -> None:
        super().__init__()
        self.owners = owners
        self.own = owners[rank]
        self.tables = nn.ModuleDict({str(i): tables[i] for i in self.own})
        order = [i for some in owners for i in some]
        self.order = order
        self.back = sorted(range(len(order)), key=order.__getitem__)

    def forward(self, hashes: Tensor) -> Tensor:
        """hashes (B, 26, H) → (B, 26, D)."""
        ranks, rows = len(self.owners), hashes.shape[0]
        theirs = [len(some) * rows for some in self.owners]  # rows that the tables of each rank get from this one
        mine = [len(self.own) * rows] * ranks
        sent = hashes.transpose(0, 1)[self.order].flatten(0, 1)
        asked = all_to_all(sent, theirs, mine).view(ranks, len(self.own), rows, -1)
        found = [self.tables[str(i)](asked[:, place].flatten(0, 1)) for place, i in enumerate(self.own)]
        answers = torch.stack(found).view(len(self.own), ranks, rows, -1).transpose(0, 1).flatten(0, 2)
        vectors = mean_of_ranks(all_to_all(answers, mine, theirs), ranks)
        return vectors.view(len(self.order), rows, -1)[self.back].transpose(0, 1)


def shared_out(rows: Sequence[int], ranks: int) -> list[list[int]]:
    """The tables of each rank, so that all hold about as many rows: the largest first, to whom has fewest."""
    owners: list[list[int]] = [[] for _ in range(ranks)]
    for table in sorted(range(len(rows)), key=lambda i: -rows[i]):
        min(owners, key=lambda some: (sum(rows[i] for i in some), len(some))).append(table)
    return [sorted(some) for some in owners]


class LinearReLU(nn.Linear):
    """A linear layer and a ReLU: (B, K) → (B, M)."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, K) → (B, M)."""
        return linear_relu(x, self.weight, self.bias)


def mlp(sizes: Sequence[int], last: type[nn.Linear]) -> nn.Sequential:
    """Linear layers of the given widths with a ReLU after each, the last being of type `last`."""
    pairs = list(itertools.pairwise(sizes))
    return nn.Sequential(*(LinearReLU(*pair) for pair in pairs[:-1]), last(*pairs[-1]))


class Outer(nn.Module):
    """All products of two numbers, as in the fused-kernels lecture: (B, F, D) → (B, (F·D)²)."""

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (B, F, D) → (B, (F·D)²)."""
        flat = vectors.flatten(1)
        return torch.bmm(flat.unsqueeze(2), flat.unsqueeze(1)).flatten(1)


class Dot(nn.Module):
    """The dot products of each two vectors, and the dense one itself: (B, F, D) → (B, F·(F − 1)/2 + D)."""

    pairs: Tensor

    def __init__(self, vectors: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", rows * vectors + columns, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (B, F, D) → (B, F·(F − 1)/2 + D)."""
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.cat([vectors[:, 0], products.index_select(1, self.pairs)], dim=1)


class Cat(nn.Module):
    """The vectors one after the other: (B, F, D) → (B, F·D)."""

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (B, F, D) → (B, F·D)."""
        return vectors.flatten(1)


def interaction(kind: str, vectors: int, width: int) -> tuple[nn.Module, int]:
    """The module, and how many features come out of it."""
    if kind == "outer":
        return Outer(), (vectors * width) ** 2
    if kind == "dot":
        return Dot(vectors), vectors * (vectors - 1) // 2 + width
    return Cat(), vectors * width


class DLRM(nn.Module):
    """counts (B, 13), hashes (B, 26, H), clicks (B) → logits (B), loss (), or None without clicks."""

    def __init__(self, tables: Sequence[Table], size: dict[str, Any]) -> None:
        super().__init__()
        width, dense, prediction = size["width"], widths("dense", size), widths("prediction", size)
        self.dense_arch = mlp([DENSE, *dense, width], LinearReLU)
        self.sparse_arch: SparseArch | SharedSparseArch = SparseArch(tables)
        self.interaction, features = interaction(size["interaction"], 1 + len(tables), width)
        self.prediction = mlp([features, *prediction, 1], nn.Linear)

    def forward(self, counts: Tensor, hashes: Tensor, clicks: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """counts (B, 13), hashes (B, 26, H), clicks (B) → logits (B), loss () or None."""
        dense = self.dense_arch(torch.log1p(counts))
        vectors = torch.cat([dense.unsqueeze(1), self.sparse_arch(hashes)], dim=1)
        logits = self.prediction(self.interaction(vectors)).squeeze(1)
        return logits, None if clicks is None else F.binary_cross_entropy_with_logits(logits, clicks)


def widths(name: str, size: dict[str, Any]) -> list[int]:
    """Hidden widths of an MLP: "512-256-64" → [512, 256, 64]. Raises `UsageError` for anything else."""
    parts = size[name].split("-")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(
            f"The dimension {name} is {size[name]!r}.", "Write the widths of its layers, as in 512-256-64."
        )
    return [int(part) for part in parts]


class TablesApart(torch.optim.Optimizer):
    """SparseAdam over the tables, whose gradients are sparse, and Adam over all else, as one optimizer.

    SparseAdam moves the moments of the rows that were looked up and leaves the others as they are; Adam would let them
    fade and go on moving the row. So the two train differently from the second step on, and neither is wrong.
    """

    def __init__(self, model: DLRM, lr: float, **form: Any) -> None:
        tables = list(model.sparse_arch.parameters())
        ours = {id(p) for p in tables}
        others = [p for p in model.parameters() if id(p) not in ours]
        super().__init__([{"params": tables}, {"params": others}], {"lr": lr})
        self.parts = (torch.optim.SparseAdam(tables, lr=lr), torch.optim.Adam(others, lr=lr, **form))

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step both optimizers."""
        for part in self.parts:
            part.step()


class DLRMWorkload(Workload):
    """DLRM with Adam on synthetic clicks or on a parquet file of Criteo's schema."""

    name = "dlrm"
    summary = "DLRM: a recommendation model on Criteo-like clicks"
    # `largest`: values of a feature at most; `hot`: hashes a feature and sample (multi-hot where above 1); `gradient`:
    # that of a table holds all its rows, or (sparse) those that were looked up.
    presets = {
        "small": {"batch_size": 64, "dense": "32", "prediction": "16", "width": 16, "interaction": "outer",
                  "embedding": "tables", "hot": 1, "largest": 1000, "gradient": "dense"},
        "main": {"batch_size": 128, "dense": "512-256-64", "prediction": "512-256", "width": 16, "interaction": "outer",
                 "embedding": "tables", "hot": 1, "largest": 10_000, "gradient": "dense"},
        "kaggle": {"batch_size": 128, "dense": "512-256-64", "prediction": "512-256", "width": 16, "interaction": "dot",
                   "embedding": "tables", "hot": 1, "largest": 100_000, "gradient": "dense"},
    }  # fmt: skip
    choices = {"interaction": ("outer", "dot", "cat"), "embedding": ("tables", "bag"), "gradient": ("dense", "sparse")}
    variants = ("modulus-hash", "index-hash-tensor", "index-hash-list")
    passes = {
        "index": ("sparse_arch.tables.*.index",),
        "embedding": ("sparse_arch", "sparse_arch.*"),
        "interaction": ("interaction",),
        "prediction": ("prediction", "prediction.*"),
    }
    takes = frozenset({"data", "optimizer"})
    parallel = "tables"

    def build(self, settings: Settings) -> DLRM:
        """The model in fp32 on the CPU, seeded."""
        size = self.dimensions(settings)
        torch.manual_seed(settings.seed)
        index, bag, sparse = INDICES[settings.variant], size["embedding"] == "bag", size["gradient"] == "sparse"
        values = self._clicks(settings).values
        return DLRM([Table(index(v.tolist()), len(v), size["width"], bag, sparse) for v in values], size)

    def batch(self, settings: Settings, step: int) -> Batch:
        """counts (B, 13), hashes (B, 26, H), and in training clicks (B)."""
        rows, hot = settings.batch_size, self.dimensions(settings)["hot"]
        dense, sparse, clicks = self._clicks(settings).rows(step, rows * hot)
        counts = torch.from_numpy(dense[:rows])
        hashes = torch.from_numpy(sparse).view(hot, rows, SPARSE).permute(1, 2, 0).contiguous()
        return (counts, hashes, torch.from_numpy(clicks[:rows])) if settings.training else (counts, hashes)

    def optimizer(self, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
        """Adam, as in the lecture; for sparse gradients SparseAdam over the tables and Adam over all else."""
        form: dict[str, Any] = {} if settings.optimizer == "default" else {settings.optimizer: True}
        if self.dimensions(settings)["gradient"] == "sparse":
            assert isinstance(model, DLRM)
            return TablesApart(model, lr=1e-3, **form)
        return torch.optim.Adam(model.parameters(), lr=1e-3, **form)

    def shard(self, model: nn.Module, rank: int, ranks: int) -> None:
        """Leave this rank its tables; all-to-all brings the others' hashes there, and the embeddings back."""
        assert isinstance(model, DLRM)
        tables: list[Any] = list(model.sparse_arch.tables)
        if ranks > len(tables):
            raise UsageError(f"{len(tables)} tables cannot be shared out to {ranks} ranks.", "Give fewer --ranks.")
        rows = [len(table.embedding.weight) for table in tables]
        model.sparse_arch = SharedSparseArch(tables, shared_out(rows, ranks), rank)

    def describe_data(self, settings: Settings) -> str:
        """Return the source of the clicks."""
        return self._clicks(settings).description

    @torch.no_grad()
    def demonstrate(self, model: nn.Module, settings: Settings) -> str:
        """Say how many clicks of unseen rows the model predicts correctly."""
        dense, sparse, clicks = self._clicks(settings).rows(10_000, 2048)
        parameter = next(model.parameters())
        counts = torch.from_numpy(dense).to(parameter)
        hashes = torch.from_numpy(sparse).to(parameter.device).unsqueeze(-1)
        logits, _ = model(counts, hashes)
        right = ((logits > 0).cpu() == torch.from_numpy(clicks > 0.5)).double().mean()
        usual = max(clicks.mean(), 1 - clicks.mean())
        return f"is right about {float(right):.1%} of 2048 rows not trained on; the commoner answer is for {usual:.1%}"

    def _clicks(self, settings: Settings) -> ClickSource:
        return _opened(settings.data, self.dimensions(settings)["largest"], settings.seed)


@functools.lru_cache(maxsize=2)
def _opened(data: str, largest: int, seed: int) -> ClickSource:
    return open_clicks(data, largest, seed)
