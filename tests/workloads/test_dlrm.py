"""DLRM's parts against what they are by definition, and click data from a file and made on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from perfkit.errors import InputError, UsageError
from perfkit.workloads import loader
from perfkit.workloads.criteo import (
    KAGGLE_CARDINALITIES,
    SyntheticClicks,
    metadata_path,
    open_clicks,
    write_clicks,
)
from perfkit.workloads.settings import resolve_settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dlrm():
    return loader.find("dlrm")


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    path = tmp_path_factory.mktemp("clicks") / "clicks.parquet"
    write_clicks(path, 1000, largest=50, seed=3)
    return path


def small(dlrm, **given):
    return resolve_settings(dlrm, **({"preset": "small", "dimensions": {"largest": 40}, "batch_size": 8} | given))


def test_the_ways_to_an_index_find_the_known_hash(dlrm):
    rows = {}
    for variant in ("index-hash-list", "index-hash-tensor"):
        model = dlrm.build(small(dlrm, variant=variant))
        _, hashes, _ = dlrm.batch(small(dlrm), 0)
        table = model.sparse_arch.tables[2]
        rows[variant] = table.index(hashes[:, 2])
        known = SyntheticClicks(40, 1337).values[2]
        assert [int(known[i]) for i in rows[variant].flatten()] == hashes[:, 2].flatten().tolist()
    assert torch.equal(*rows.values())
    modulus = dlrm.build(small(dlrm, variant="modulus-hash")).sparse_arch.tables[2]
    assert torch.equal(modulus.index(hashes[:, 2]), (hashes[:, 2] + 1) % 40)


@pytest.mark.parametrize(
    ("kind", "features"), [("outer", (27 * 16) ** 2), ("dot", 27 * 26 // 2 + 16), ("cat", 27 * 16)]
)
def test_interactions_by_definition(dlrm, kind, features):
    settings = small(dlrm, dimensions={"largest": 4, "interaction": kind})
    module = dlrm.build(settings).interaction
    vectors = torch.randn(2, 27, 16)
    out = module(vectors)
    assert out.shape == (2, features)
    one = vectors[1].double()
    expected = {
        "outer": torch.outer(one.flatten(), one.flatten()).flatten(),
        "dot": torch.cat([one[0], *((one[i] @ one[j])[None] for i in range(27) for j in range(i))]),
        "cat": one.flatten(),
    }[kind]
    torch.testing.assert_close(out[1].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("embedding", ["tables", "bag"])
@pytest.mark.parametrize("hot", [1, 3])
def test_several_hashes_a_feature_add_up(dlrm, embedding, hot):
    settings = small(dlrm, dimensions={"largest": 40, "interaction": "cat", "embedding": embedding, "hot": hot})
    model = dlrm.build(settings)
    _, hashes, _ = dlrm.batch(settings, 0)
    assert hashes.shape == (8, 26, hot)
    table = model.sparse_arch.tables[0]
    index = (hashes[:, 0] + 1) % 40
    torch.testing.assert_close(table(hashes[:, 0]), table.embedding.weight[index].sum(dim=1))


def test_it_learns(dlrm):
    settings = small(dlrm, batch_size=256, dimensions={"largest": 100, "interaction": "cat"})
    model = dlrm.build(settings)
    optimizer = dlrm.optimizer(model, settings)
    losses = []
    for step in range(40):
        loss = model(*dlrm.batch(settings, step))[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.02
    assert "of 2048 rows not trained on" in dlrm.demonstrate(model, settings)


@pytest.mark.parametrize("embedding", ["tables", "bag"])
def test_sparse_gradients_are_the_dense_ones_of_the_rows_looked_up(dlrm, embedding):
    gradients, moved = {}, {}
    for kind in ("dense", "sparse"):
        dimensions = {"largest": 300, "interaction": "cat", "hot": 2, "embedding": embedding, "gradient": kind}
        settings = small(dlrm, dimensions=dimensions)
        model = dlrm.build(settings)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = dlrm.optimizer(model, settings)
        model(*dlrm.batch(settings, 0))[1].backward()
        gradients[kind] = {name: p.grad for name, p in model.named_parameters()}
        optimizer.step()
        moved[kind] = {name: p.detach() - before[name] for name, p in model.named_parameters()}
    tables = {name for name, g in gradients["sparse"].items() if g.is_sparse}
    assert tables == {f"sparse_arch.tables.{i}.embedding.weight" for i in range(26)}
    for name, dense in gradients["dense"].items():
        found = gradients["sparse"][name]
        torch.testing.assert_close(found.to_dense() if name in tables else found, dense)
        # The first step is the same: by the gradient's sign, and not at all where no row was looked up. (SparseAdam
        # adds its epsilon elsewhere, which shows where a gradient is next to nothing.)
        clear = (dense.abs() > 1e-5) | (dense == 0)
        torch.testing.assert_close(moved["sparse"][name][clear], moved["dense"][name][clear], rtol=5e-2, atol=0.0)


def test_the_form_of_the_optimizer_is_that_asked_for(dlrm):
    for kind in ("dense", "sparse"):
        dimensions = {"largest": 30, "interaction": "cat", "gradient": kind}
        settings = small(dlrm, dimensions=dimensions, optimizer="fused")
        optimizer = dlrm.optimizer(dlrm.build(settings), settings)
        parts = getattr(optimizer, "parts", (optimizer,))
        assert parts[-1].defaults["fused"] is True
        assert optimizer.state_dict() is not None


def test_synthetic_clicks_are_skewed_as_real_ones_and_the_same_again():
    source = SyntheticClicks(1000, seed=1)
    assert source.cardinalities == tuple(min(n, 1000) for n in KAGGLE_CARDINALITIES)
    dense, sparse, labels = source.rows(5, 4096)
    again = SyntheticClicks(1000, seed=1).rows(5, 4096)
    assert all(np.array_equal(a, b) for a, b in zip((dense, sparse, labels), again, strict=True))
    assert not np.array_equal(sparse, source.rows(6, 4096)[1])
    assert 0.1 < labels.mean() < 0.5
    assert (dense >= 0).all() and (dense == np.floor(dense)).all()
    assert ((sparse >= 0) & (sparse < 2**32)).all()
    counts = np.array([(sparse[:, 0] == value).sum() for value in source.values[0]])
    weights = 1 / np.arange(1, 1001) ** 1.1
    assert counts[0] / 4096 == pytest.approx(weights[0] / weights.sum(), rel=0.15)  # the most frequent of Zipf's law
    assert len(set(source.values[0].tolist())) == 1000


def test_a_file_gives_the_rows_that_it_holds_and_begins_again(clicks):
    source = open_clicks(str(clicks), 1, 1)
    table = pq.read_table(clicks)
    assert source.cardinalities == tuple(min(n, 50) for n in KAGGLE_CARDINALITIES)
    _, sparse, labels = source.rows(1, 300)
    assert sparse[:, 4].tolist() == table["SPARSE_4"].to_pylist()[300:600]
    _, sparse, labels = source.rows(3, 300)  # 900 … 999, then 0 … 199
    assert labels.tolist() == table["labels"].to_pylist()[900:] + table["labels"].to_pylist()[:200]
    dense, _, _ = open_clicks(str(clicks), 1, 1).rows(0, 2500)  # more than the file holds
    assert dense[1000:2000].tolist() == dense[:1000].tolist()


_WALK = """
import resource, sys
from perfkit.workloads.criteo import open_clicks
source = open_clicks(sys.argv[1], 1, 1)
source.rows(0, 512)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = sum(float(source.rows(step, 512)[2].sum()) for step in range(int(sys.argv[2])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, total)
"""


def test_a_file_is_streamed_and_not_held(tmp_path):
    """To go through a file costs no memory that grows with the file: a few of its row groups, not its 48."""
    path, groups, group = tmp_path / "clicks.parquet", 48, 8192
    source = SyntheticClicks(50, seed=1)
    names = ["labels", *(f"DENSE_{i}" for i in range(13)), *(f"SPARSE_{i}" for i in range(26))]
    dense, sparse, clicks = source.rows(0, group)
    columns = [np.ascontiguousarray(c, np.int64) for c in (clicks, *dense.T, *sparse.T)]
    with pq.ParquetWriter(path, pa.schema([(n, pa.int64()) for n in names])) as writer:
        for _ in range(groups):
            writer.write_table(pa.table(columns, names=names))
    write_clicks(tmp_path / "one.parquet", 10, largest=50, seed=1)
    metadata_path(path).write_text(metadata_path(tmp_path / "one.parquet").read_text())
    steps = groups * group // 512
    done = subprocess.run(
        [sys.executable, "-c", _WALK, str(path), str(steps)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )  # fmt: skip
    grown_kib, total = map(float, done.stdout.split())
    assert total == groups * clicks.sum(), "every row was seen once"
    whole_kib = groups * group * len(names) * 8 / 1024  # 126 MB as int64
    assert grown_kib < whole_kib / 6


def test_training_on_a_file(dlrm, clicks):
    settings = small(dlrm, data=str(clicks), dimensions={})
    counts, hashes, labels = dlrm.batch(settings, 0)
    assert counts.shape == (8, 13) and hashes.shape == (8, 26, 1) and labels.shape == (8,)
    assert "1,000 clicks of clicks.parquet" in dlrm.describe_data(settings)


def test_files_that_do_not_serve(tmp_path, clicks):
    with pytest.raises(InputError, match="is missing"):
        open_clicks(str(tmp_path / "none.parquet"), 1, 1)
    text = tmp_path / "text.parquet"
    text.write_text("no parquet")
    with pytest.raises(InputError, match="has no metadata"):
        open_clicks(str(text), 1, 1)
    metadata_path(text).write_text(metadata_path(clicks).read_text())
    with pytest.raises(InputError, match="is not a parquet file"):
        open_clicks(str(text), 1, 1)
    narrow = tmp_path / "narrow.parquet"
    pq.write_table(pq.read_table(clicks).drop(["SPARSE_3", "labels"]), narrow)
    metadata_path(narrow).write_text(metadata_path(clicks).read_text())
    with pytest.raises(InputError, match="has no column labels and 1 more"):
        open_clicks(str(narrow), 1, 1)
    found = json.loads(metadata_path(clicks).read_text())
    for wrong in ("[]", "{", json.dumps(found | {"SPARSE_0": {"cardinality": 2, "tokenizer_values": [1]}})):
        metadata_path(narrow).write_text(wrong)
        with pytest.raises(InputError, match=r"metadata of click data|has cardinality 2 and 1"):
            open_clicks(str(narrow), 1, 1)


def test_odd_dimensions_are_refused(dlrm):
    with pytest.raises(UsageError, match="no interaction called 'inner'"):
        small(dlrm, dimensions={"interaction": "inner"})
    with pytest.raises(UsageError, match="dimension prediction is '512-x'"):
        dlrm.build(small(dlrm, dimensions={"prediction": "512-x"}))
