"""Workloads run as a backend's process runs them, in this process: reference, first steps, verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit import correctness
from perfkit.run.serving import _answer
from perfkit.run.worker import Worker
from perfkit.run_folder import Correctness, Settings
from perfkit.workloads import Workload

STEPS = 3


def verdict(settings: Settings, folder: Path, backend: str = "eager") -> tuple[Correctness, dict[str, Any]]:
    """The verdict on `backend` against eager in fp64, and what its first steps gave."""
    steps = STEPS if settings.training else 1
    reference = Worker(lambda text: None)
    _, precision = reference.prepare(settings, "eager", reference=True)
    losses = reference.first_steps(steps, str(folder), write=True)["found"].losses
    first = {name: _first_steps(settings, name, steps, folder) for name in dict.fromkeys(("eager", backend))}
    found, eager = first[backend]["found"], first["eager"]["found"]
    return correctness.judge(settings.dtype, precision, found, eager, losses), first[backend]


def _first_steps(settings: Settings, backend: str, steps: int, folder: Path) -> dict[str, Any]:
    worker = Worker(lambda text: None)
    worker.prepare(settings, backend)
    return worker.first_steps(steps, str(folder))


def evaluated(workload: Workload, settings: Settings, model: Any = None) -> tuple[Any, Any, dict[str, Any]]:
    """Logits, loss and gradients by name of one batch; in fp64 where no model is given."""
    model = model or workload.build(settings).double()
    logits, loss = model(*workload.batch(settings, 0))
    loss.backward()
    return logits, loss, {name: p.grad for name, p in model.named_parameters()}


def said(settings: Settings, folder: Path) -> tuple[str, str]:
    """The kind of failure of an eager run, and its sentence as the parent gets them."""
    worker = Worker(lambda text: None)
    commands = {
        "prepare": {"settings": settings, "backend": "eager"},
        "first_steps": {"steps": 2, "reference": str(folder), "write": True},
    }
    for command, arguments in commands.items():
        answer, found = _answer(worker, command, arguments)
        if answer == "error":
            return found[0], " ".join(found[1:]).strip()
    return "", ""
