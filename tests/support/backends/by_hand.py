"""A handwritten step against autograd in fp64."""

from __future__ import annotations

import copy

from torch import Tensor

from perfkit.backends import get
from perfkit.backends.interface import Program
from perfkit.run_folder import Settings
from perfkit.workloads import Workload
from perfkit.workloads.settings import resolve_settings


def settings(workload: Workload, **given: object) -> Settings:
    return resolve_settings(workload, **({"preset": "tiny", "batch_size": 2, "sequence_length": 9} | given))


def pair(workload: Workload, given: Settings) -> tuple[Program, Program]:
    """The step by hand in fp32, and eager in fp64 with the same weights."""
    model = workload.build(given)
    exact = copy.deepcopy(model).double()
    exact.tie()
    return get("llmc").prepare(workload, model, given), get("eager").prepare(workload, exact, given)


def far(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).abs().max() / expected.abs().max())
