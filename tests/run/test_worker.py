"""The worker's measuring loop, and what it says of an exception of somebody else's code."""

from __future__ import annotations

import tempfile
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from perfkit.backends.parallel.ranks import Ranks
from perfkit.errors import OutOfMemory, RunFailed
from perfkit.run import profile
from perfkit.run.serving import SMALLER, explained
from perfkit.run.worker import Worker
from perfkit.run_folder import KERNELS
from perfkit.table import KernelTable
from perfkit.workloads import find, resolve_settings
from tests.support.readers import damage


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total capacity …",
            "The GPU's memory ran out: 96.00 GiB more were asked for.",
        ),
        ("CUDA error: out of memory", "The GPU's memory ran out."),
    ],
)
def test_running_out_of_gpu_memory_names_the_amount_and_the_next_step(text: str, said: str) -> None:
    found = explained(torch.cuda.OutOfMemoryError(text))

    assert isinstance(found, OutOfMemory) and (found.message, found.hint) == (said, SMALLER)


def test_running_out_of_memory_on_a_cpu_does_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)

    found = explained(caught.value)
    assert isinstance(found, OutOfMemory) and found.message == f"Memory ran out: {4 << 60} bytes more were asked for."


def test_a_trace_without_times_of_the_gpu_leaves_no_kernel_table(tmp_path: Path) -> None:
    """As a second profiler session left it before the export."""
    scratch = tempfile.TemporaryDirectory()
    recording = profile.ExportedTrace(scratch, [3e6, 3e6], 1000.0)
    sound = damage.events_of(Path(__file__).parents[1] / "fixtures" / "kineto" / "thunder.json.gz")
    for how, said in ((damage.zeroed, "700 of 700 activities of the GPU have no time"), (list, "")):
        damage.write(recording.trace, sound, how)
        worker: Any = Worker(lambda text: None)
        worker.settings = SimpleNamespace(kernel_dirs=(), device="cuda", dtype="fp32")
        worker.workload = SimpleNamespace(passes={}, layers="")
        worker.program, worker.ranks = SimpleNamespace(declared_kernels=dict, call_sites=list, stepped=list), Ranks()
        worker._samples_ns, worker._beside_ns, worker._recording = [3e6, 3.2e6], [3.1e6], recording
        found = worker.read_recording(str(tmp_path))
        assert found["profiled_ns"] == [3e6, 3e6] and found["unusable"].startswith(said)
        assert bool(found["unusable"]) == bool(found["trace_checks"]) == bool(said)
        assert (tmp_path / KERNELS).is_file() == (not said) and (tmp_path / found["trace"]).is_file()
    checks = {check["name"]: check for check in KernelTable.load(tmp_path / KERNELS).facts["trace_checks"]}
    assert checks["timed"]["holds"] and all(check["holds"] for check in checks.values())


def test_any_other_error_is_its_own_sentence() -> None:
    found = explained(ValueError("wrong shape\nsecond line"))

    assert type(found) is RunFailed and str(found) == "ValueError: wrong shape"


def test_one_batch_is_alive_however_many_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches made ahead would be part of the peak of memory, and of one side's more than of another's."""
    worker = Worker(lambda text: None)
    worker.prepare(resolve_settings(find(str(Path(__file__).parents[1] / "support" / "run" / "small.py"))), "eager")
    made: list[tuple[int, weakref.ref[torch.Tensor]]] = []
    alive: list[int] = []
    batch = worker.workload.batch

    def counted(settings: Any, step: int) -> tuple[torch.Tensor, ...]:
        tensors: tuple[torch.Tensor, ...] = batch(settings, step)
        made.append((step, weakref.ref(tensors[0])))
        alive.append(sum(one() is not None for _, one in made))
        return tensors

    monkeypatch.setattr(worker.workload, "batch", counted)
    assert len(worker.time(6, settle=1)) == 6 and worker.paging()[0] is not None
    assert alive == [1] * 7 and [step for step, _ in made] == list(range(made[0][0], made[0][0] + 7))


@pytest.mark.parametrize(("settle_ns", "settled"), [(0.0, 4), (1.0, 1), (1e15, 4)])
def test_steps_settle_before_a_turn_for_a_time_and_are_not_counted(settle_ns: float, settled: int) -> None:
    worker = Worker(lambda text: None)
    worker.prepare(resolve_settings(find(str(Path(__file__).parents[1] / "support" / "run" / "small.py"))), "eager")
    before = worker._next_step

    begun = time.time()
    assert len(worker.time(2, settle=4, settle_ns=settle_ns)) == 2
    uuid, ((first, last),) = worker.spans()  # of the steps that count, for who watches the GPU
    assert uuid == "" and begun <= first <= last <= time.time()
    assert last - first >= sum(worker._samples_ns) / 1e9
    assert worker._next_step - before == settled + 2 and len(worker._samples_ns) == 2


@pytest.mark.parametrize(
    ("device", "training", "takes", "recomputes"),
    [
        ("cuda", True, ("recompute",), True),
        ("cuda", True, (), False),
        ("cuda", False, ("recompute",), False),
        ("cpu", True, ("recompute",), False),
    ],
)
def test_a_reference_that_trains_on_a_gpu_keeps_few_activations(
    device: str, training: bool, takes: tuple[str, ...], recomputes: bool
) -> None:
    worker: Any = Worker(lambda text: None)
    worker.workload = SimpleNamespace(takes=takes)
    settings = resolve_settings(find("gpt2"), preset="tiny", training=training, device="cpu")
    settings = msgspec.structs.replace(settings, device=device)

    assert worker._small(settings).recompute is recomputes and not settings.recompute


def test_the_bytes_of_a_token_are_those_of_the_runs_precision_though_the_reference_states_them() -> None:
    """In fp64 weights are twice those of fp32: the roof of decoding was as much too high."""
    worker = Worker(lambda text: None)
    settings = resolve_settings(
        find("llama"), preset="tiny", device="cpu", dtype="fp32", generate=2, sequence_length=8, training=False
    )
    facts, precision = worker.prepare(settings, "eager", reference=True)

    assert precision == "fp64" and next(worker.program.model.parameters()).element_size() == 8
    embedding = next(size for name, size in facts.parameter_sizes.items() if "embed" in name)
    assert facts.phases[1].weight_bytes == 4 * (facts.parameters - embedding)
