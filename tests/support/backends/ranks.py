"""One of two ranks that train small models in every way, and hold them against one process on the whole batch."""

import os
import sys
from functools import partial
from pathlib import Path

import msgspec
import torch
from torch import nn

from perfkit import backends
from perfkit.backends import AutogradProgram, parallel
from perfkit.backends.parallel import zero1
from perfkit.backends.parallel.ranks import join
from perfkit.backends.thunder.backend import ThunderProgram
from perfkit.handwritten import step as raw_step
from perfkit.run.ranks import files
from perfkit.run_folder import Settings
from perfkit.workloads import Workload, batch_formats, loader
from perfkit.workloads.settings import resolve_settings

zero1.BUCKET_BYTES, raw_step.BUCKET_BYTES = 400, 50_000  # several buckets


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(7, 7) for _ in range(3))
        self.last = nn.Linear(7, 7, bias=False)
        self.first = nn.Linear(7, 7)
        self.last.weight = self.first.weight  # shared

    def forward(self, x):
        y = self.first(x)
        for block in self.h:
            y = torch.tanh(block(y))
        return y, self.last(y).square().mean()


class Small(Workload):
    name, summary, layers = "small", "three blocks", "h.*"
    presets = {"one": {"batch_size": 8}}

    def build(self, settings):
        torch.manual_seed(3)
        return Blocks()

    def batch(self, settings, step):
        return (torch.randn(8, 7, generator=torch.Generator().manual_seed(step)),)

    def optimizer(self, model, settings):
        return torch.optim.AdamW(model.parameters(), lr=1e-2)


def trained(settings, batches, traced=False):
    """Gradients and parameters after three steps of two batches each."""
    model = Small().build(settings)
    if traced:
        program = ThunderProgram(Small(), model, settings, None)
    else:
        made = parallel.begin(Small(), model, settings)
        program = AutogradProgram(Small(), model, made.call, made.optimizer, parallel=made)
    for step in range(3):
        program.train_step(batches(step))
    return program.gradients(), program.parameters()


def built_in(name, backend, batches, **options):
    """The same of a built-in workload on a backend, one batch a step."""
    workload = loader.find(name)
    settings = resolve_settings(workload, **options)
    model = workload.build(settings).train()
    ranks = settings.ranks
    program = backends.get(backend).prepare(
        workload, model, msgspec.structs.replace(settings, batch_size=settings.batch_size // ranks)
    )
    for step in range(3):
        program.train_step([batches(workload.batch(settings, step))])
    return program.gradients(), program.parameters(), program.elsewhere


def compare(what, found, expected, elsewhere=frozenset()):
    for mine, right in zip(found, expected, strict=True):
        assert mine.keys() | elsewhere == right.keys(), (what, mine.keys())
        for name, tensor in mine.items():
            dense = tensor.to_dense() if tensor.is_sparse else tensor
            expectation = right[name].to_dense() if right[name].is_sparse else right[name]
            torch.testing.assert_close(
                dense, expectation, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{what}, {n}: {m}"
            )


def brought(ranks, tmp):
    """Files that only the first rank's host has are read by the other, as if it were on another host."""
    here = Path(tmp) if ranks.rank == 0 else Path(tmp) / "of another host"
    os.environ["LOCAL_RANK"] = "0"
    with files.seen(here, ranks) as near:
        assert (near == here) == (ranks.rank == 0)
        assert (near / "large").read_bytes() == bytes(range(256)) * 100 and (near / "empty").read_bytes() == b""
    assert near == here or not near.exists()
    result = {"trace": "rank1.json"}
    with files.written(here, ranks, result) as near:
        (near / "rank1.json").write_text("made there")
    assert result == ({"trace": "rank1.json"} | ({"sent": b"made there"} if ranks.rank else {}))


def main():
    given = {"workload": "small", "preset": "one", "batch_size": 8}
    whole = [Small().batch(None, number) for number in range(6)]
    expected = trained(Settings(**given), lambda step: whole[2 * step : 2 * step + 2])
    ranks = join(Settings(**given, ranks=2, parallel="ddp"))
    share = [batch_formats.share(batch, ranks.rank, ranks.size, 8) for batch in whole]
    files._CHUNK = 10_000
    brought(ranks, sys.argv[1])
    for way in sys.argv[2:]:
        way, traced = way.removeprefix("thunder-"), way.startswith("thunder-")
        settings = Settings(**given, ranks=2, parallel=way)
        found = trained(settings, lambda step: share[2 * step : 2 * step + 2], traced)
        compare(way, found, expected)
        assert ranks.mean(float(ranks.rank)) == 0.5 and ranks.most(float(ranks.rank)) == 1.0
        ranks.meet()
        if ranks.rank == 0:
            print(f"{'thunder ' * traced}{way} is right", flush=True)
    held = set()
    for name, backend, way, options in BUILT_IN:
        *right, _ = built_in(name, backend, lambda batch: batch, **options)
        part = partial(batch_formats.share, rank=ranks.rank, ranks=2, samples=options["batch_size"])
        *mine, elsewhere = built_in(name, backend, part, ranks=2, parallel=way, **options)
        compare(f"{name} {backend} {way}", mine, right, elsewhere)
        held |= elsewhere
        if ranks.rank == 0:
            print(f"{name} {backend} {way} is right", flush=True)
    assert len(held) == 13  # of the 26 tables


TINY = {"preset": "tiny", "batch_size": 4, "sequence_length": 16}
CLICKS = {"preset": "small", "batch_size": 4, "dimensions": {"interaction": "cat", "largest": 20, "hot": 2}}
BUILT_IN = [
    ("gpt2", "llmc", "ddp", TINY),
    ("gpt2", "llmc", "zero1", TINY),
    ("llama", "llmc", "zero1", TINY),
    ("dlrm", "eager", "tables", CLICKS),
    ("dlrm", "eager", "tables", {**CLICKS, "dimensions": {**CLICKS["dimensions"], "gradient": "sparse"}}),
]

main()
sys.stdout.flush()
os._exit(0)
