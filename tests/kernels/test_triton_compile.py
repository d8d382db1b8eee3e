"""Triton's compiler takes the kernels, without a GPU; what they need fits GPUs of three generations.

A few kernels for one generation here; `make test-full` compiles them all. What was compiled is kept in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfkit.errors import Unavailable
from perfkit.kernels import catalog, find
from perfkit.kernels.checking import Inputs
from perfkit.kernels.triton.offline import CompiledTriton, compiled

# Rows reduced, atomic sums, matrix products, a library function: what Triton's compiler may refuse or spill on.
A_FEW = {"adamw_step", "encoder_backward", "flash_attention_backward", "gelu_backward", "layernorm_forward"}
OPERATIONS = [
    pytest.param(o.name, marks=[] if o.name in A_FEW else pytest.mark.full)
    for f in catalog()
    for o in f.operations
    if any(i.language == "triton" for i in o.implementations)
]
# The least that a block may have of these: an RTX 3090's or 4090's shared memory, and any GPU's registers.
SHARED = 99 << 10
REGISTERS = 65536


@pytest.fixture(scope="module", autouse=True)
def compiler() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        yield


def kernels(name: str, dtype: str, capability: int, **sizes: int) -> list[CompiledTriton]:
    operation = find(name)
    (implementation,) = [i for i in operation.implementations if i.language == "triton"]
    arguments = operation.inputs(Inputs(dtype, 1), **(sizes or operation.cases[-1]))
    return compiled(operation, implementation, dtype, arguments, capability)


def fits(kernel: CompiledTriton) -> None:
    used = kernel.resources
    assert kernel.shared <= SHARED, kernel.name
    assert used.registers * 32 * kernel.warps <= REGISTERS, (kernel.name, used)
    assert used.spill_stores <= 256, (kernel.name, used)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_kernel_compiles_and_fits(name: str) -> None:
    found = kernels(name, "bf16", 90)
    assert found
    for kernel in found:
        fits(kernel)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("capability", "dtype"), [(80, "bf16"), (90, "fp32"), (100, "bf16")])
@pytest.mark.parametrize("name", ["softmax_backward", "flash_attention_forward", "flash_attention_backward"])
def test_the_largest_kernels_fit_other_generations_and_fp32(name: str, capability: int, dtype: str) -> None:
    for kernel in kernels(name, dtype, capability):
        fits(kernel)


def test_loads_are_as_wide_as_a_thread_can_make_them() -> None:
    (gelu,) = kernels("gelu_forward", "fp32", 90, N=1 << 20)
    assert "ld.global.v4.b32" in gelu.ptx
    assert gelu.cubin[:4] == b"\x7fELF"
    (odd,) = kernels("gelu_forward", "fp32", 90, N=100_003)
    assert "ld.global.v4.b32" not in odd.ptx  # elements that end in the middle of an access


def test_the_compiler_is_not_there_under_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(Unavailable, match="Triton's compiler cannot be used here"):
        kernels("gelu_forward", "fp32", 90)
