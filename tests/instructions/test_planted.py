"""Kernels with a planted fault, captured on Hopper: the first finding names the marked line, and its bound holds."""

from __future__ import annotations

import pytest

from perfkit.analysis.results import BackendReport
from perfkit.instructions.calls import callers
from perfkit.instructions.results import Instruction, KernelCode
from tests.support.analysis import profiles
from tests.support.sweeps import rest

# The rule, and what the healthy twin took where it does the same work, ns.
FAULTS = {
    "conflict": ("bank-conflicts", 127_616.0),
    "barrier": ("barrier", 20_704.0),
    "atomics": ("atomics", 44_096.0),
    "stride": ("uncoalesced", 54_368.0),
    "uneven": ("imbalance", 12_288.0),
    "prologue": ("prologue", 77_728.0),
    "product": ("tensor-idle", 229_184.0),
}


def report(name: str) -> BackendReport:
    return profiles.backend(profiles.ncu(f"{name}.ncu-rep", "planted"))


@pytest.mark.parametrize(
    "name", ["conflict", "atomics", *map(rest, ("barrier", "stride", "uneven", "prologue", "product"))]
)
def test_the_first_finding_names_the_planted_line(name: str) -> None:
    rule, healthy_ns = FAULTS[name]
    backend = report(name)
    found = backend.findings[0]
    assert found.name == rule and found.kernels == [name]
    assert found.lines[0].file == "planted_kernels.cu" and found.lines[0].code.endswith(f"// planted {name}")
    assert backend.kernel_ns - healthy_ns <= found.saving_ns <= backend.kernel_ns


@pytest.mark.parametrize(
    "name", ["barrier_healthy", *map(rest, ("conflict_healthy", "prologue_healthy", "product_healthy"))]
)
def test_the_healthy_twin_has_no_such_finding(name: str) -> None:
    rules = {reason.name for group in report(name).kernels for reason in group.reasons}
    assert not rules & {rule for rule, _ in FAULTS.values()}


HEADER = """static __device__ float atomicAdd(float *address, float val)
{
  return __fAtomicAdd(address, val);
}
"""


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("  v = x[i];\n  atomicAdd(y, v);\n  v = 2;", 3),
        ("  atomicAdd(y, v);\n  v = x[i];\n  atomicAdd(y, v);", None),  # which of the two nobody knows
        ("  v = x[i];\n  v = 2;\n  v = 3;", None),
    ],
)
def test_a_line_of_a_library_is_named_by_its_only_call(body: str, called: int | None) -> None:
    file, header = "/src/k.cu", "/usr/local/cuda/include/sm_20_atomic_functions.hpp"
    lines = [(file, 1), (file, 2), (header, 3), (file, 4)]
    made = [Instruction(at=16 * place, sass="NOP", file=of, line=at) for place, (of, at) in enumerate(lines)]
    text = f"__global__ void k(float* x) {{\n{body}\n}}\nvoid other() {{ atomicAdd(0, 1); }}\n"
    code = KernelCode(name="k", instructions=made, sources={file: text, header: HEADER})
    assert callers(code) == ({(header, 3): (file, called)} if called else {})
    code.sources.pop(header)
    assert callers(code) == {}
