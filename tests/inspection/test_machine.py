"""Machine code: what objdump prints, and C kernels of the catalog as this machine's compiler makes them."""

from __future__ import annotations

import platform
import shutil

import pytest

from perfkit.errors import RunFailed, Unavailable, UsageError
from perfkit.inspection import kernels, machine

LISTING = """
0000000000001000 <outer>:
    1000:\tpush   %rbp
    1001:\tlea    0x100(%rip),%rdi        # 1100 <outer._omp_fn.0>
    1008:\tcall   2000 <GOMP_parallel@plt>
    100d:\tret

0000000000001100 <outer._omp_fn.0>:
    1100:\tvmovups (%rcx,%rdx,4),%zmm0
    1107:\tvfmadd213ps %zmm1,%zmm2,%zmm0
    110d:\tvmulps 0x40(%rip),%zmm0,%zmm0        # 2040 <constants>
    1113:\tcall   1200 <helper>
    1118:\tvmovups %zmm0,(%rsi,%rdx,4){%k1}
    111f:\tcmp    %rdx,%rax
    1122:\tjg     1100 <outer._omp_fn.0>
    1124:\tjmp    1122 <outer._omp_fn.0+0x22>
    1126:\tret

0000000000001200 <helper>:
    1200:\tvaddss %xmm0,%xmm1,%xmm0
    1204:\tret

0000000000001300 <unrelated>:
    1300:\tvaddps %ymm0,%ymm1,%ymm0
    1304:\tret
"""

x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or shutil.which("objdump") is None or shutil.which("gcc") is None,
    reason="needs x86-64, gcc and objdump",
)


def test_what_a_symbol_runs_is_found():
    functions = machine.parse(LISTING)
    assert list(functions) == ["outer", "outer._omp_fn.0", "helper", "unrelated"]
    assert [code.name for code in machine.reached(functions, "outer")] == ["outer", "outer._omp_fn.0", "helper"]


def test_kinds_and_widths():
    code = machine.parse(LISTING)["outer._omp_fn.0"]
    kinds = [i.kind for i in code.instructions]
    assert kinds == [
        "load", "vector multiply-add", "vector arithmetic", "call", "store", "other", "jump", "jump", "other",
    ]  # fmt: skip
    assert code.instructions[1].width == 512
    (helper, _) = machine.parse(LISTING)["helper"].instructions
    assert helper.kind == "scalar arithmetic" and helper.width == 128


def test_innermost_loops():
    code = machine.parse(LISTING)["outer._omp_fn.0"]
    loops = [[hex(i.address) for i in loop] for loop in code.loops()]
    assert loops == [[hex(a) for a in (0x1100, 0x1107, 0x110D, 0x1113, 0x1118, 0x111F, 0x1122)], ["0x1122", "0x1124"]]


def facts(name, *implementations, **options):
    settings = {"dtype": "fp32", "arch": "sm_90", "sizes": ""} | options
    found = list(kernels.inspect_operation(name, implementations, *settings.values()))
    return [(one, dict(one.facts)) for one in found]


@x86
@pytest.mark.parametrize(("isa", "name", "bits"), [("plain", "SSE", "128"), ("avx2", "AVX2 with FMA", "256")])
def test_the_instruction_set_is_the_one_that_was_asked_for(isa, name, bits, monkeypatch):
    monkeypatch.setenv("PERFKIT_KERNEL_ISA", isa)
    try:
        ((_, found),) = facts("layernorm_forward", "c:2")
    except Unavailable:
        pytest.skip(f"this processor lacks {isa}")
    assert found["instruction set"] == name
    assert found["vector width"].startswith(f"{bits} bits")


@x86
def test_a_naive_kernel_and_a_fast_one(monkeypatch):
    monkeypatch.setenv("PERFKIT_KERNEL_ISA", "avx2")
    try:
        (naive, slow), (fast, quick) = facts("gelu_forward", "c")
    except Unavailable:
        pytest.skip("this processor lacks AVX2")
    assert slow["vector width"] == "no vector arithmetic" and slow["calls"] == "tanhf"
    assert "scalar" in slow["innermost loop 1"] and "calls tanhf" in slow["innermost loop 1"]
    assert quick["vector width"].startswith("256 bits") and "tanhf" not in quick.get("calls", "")
    assert naive.title == "gelu_forward c:1 fp32: a loop with tanhf"
    assert "gelu_forward_v2" in fast.listing and "vmovups" in fast.listing


def test_what_cannot_be_inspected(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"no kernel called 'gelus'\. There are: .*gelu_forward"):
        facts("gelus")
    with pytest.raises(UsageError, match=r"gelu_forward has no implementation c:9 in fp32\. It has c:1"):
        facts("gelu_forward", "c:9")
    with pytest.raises(UsageError, match="no implementation in fp8"):
        facts("gelu_forward", dtype="fp8")
    with pytest.raises(UsageError, match="There is no size called 'Q'"):
        facts("gelu_forward", sizes="Q=1")
    with pytest.raises(UsageError, match="--arch sm_1 is not an architecture"):
        facts("gelu_forward", arch="sm_1")
    if shutil.which("objdump"):
        broken = tmp_path / "broken.so"
        broken.write_bytes(b"no library")
        with pytest.raises(RunFailed, match="objdump cannot read"):
            machine.inspect_library(broken, "f", "f")
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match="objdump, which shows machine code, is missing here"):
        machine.disassembled(tmp_path)
