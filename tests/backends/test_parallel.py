"""The ways in which ranks share a training step, against one process."""

import os
from pathlib import Path

import pytest

from perfkit.hardware.subprocesses import torchrun
from perfkit.run_folder import Settings
from tests.support import forks

RANKS = Path(__file__).parents[1] / "support" / "backends" / "ranks.py"


def test_every_way_gives_the_gradients_and_parameters_of_one_process(tmp_path):
    (tmp_path / "large").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "empty").touch()
    done = forks.run(
        [*torchrun(1, 2), str(RANKS), str(tmp_path), "ddp", "fsdp", "zero1", "thunder-ddp", "thunder-fsdp"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ways = ["ddp", "fsdp", "zero1", "thunder ddp", "thunder fsdp"]
    by_hand = ["gpt2 llmc ddp", "gpt2 llmc zero1", "llama llmc zero1"]
    right = [*ways, *by_hand, "dlrm eager tables", "dlrm eager tables"]
    assert done.stdout.splitlines() == [f"{what} is right" for what in right]


def test_zero1_refuses_an_optimizer_that_looks_at_whole_tensors():
    import torch

    from perfkit.backends.parallel import zero1
    from perfkit.errors import Unavailable
    from perfkit.workloads import Workload

    class Own(torch.optim.SGD):
        pass

    class Small(Workload):
        name = "small"

        def build(self, settings): ...
        def batch(self, settings, step): ...
        def optimizer(self, model, settings):
            return Own(model.parameters())

    with pytest.raises(Unavailable, match=r"small \(Own\) may not work element by element"):
        zero1.Zero1(Small(), torch.nn.Linear(2, 2), Settings(workload="small", preset="one", batch_size=2))


def test_buckets_hold_one_precision_and_the_last_parameters_first():
    import torch

    from perfkit.backends.parallel.zero1 import ParameterBucket, divided

    half, full = (torch.nn.Parameter(torch.ones(10, dtype=t)) for t in (torch.bfloat16, torch.float32))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert divided([half, frozen, full]) == [[full], [half]]
    bucket = ParameterBucket([full], rank=1, ranks=3)
    assert bucket.size == 48 and bucket.part.numel() == 16 and full.tolist() == [1.0] * 10
    assert bucket.part.data_ptr() == bucket.values[16:].data_ptr()
