"""Operations bound to memory of the caller's own: the same results, into place, added where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from perfkit.errors import InputError, UsageError
from perfkit.kernels import Operation, bind, catalog, find, use_version
from perfkit.kernels.checking import Inputs, poisoned_run
from perfkit.kernels.dtypes import FP8


def can_be_added_to(operation: Operation) -> bool:
    """Whether it has outputs, none of them of fp8, whose numbers have no sums, and takes fp32."""
    types = {dtype for i in operation.implementations for dtype in i.dtypes}
    return bool(operation.signature.outputs) and not {*operation.dtypes.values()} & {*FP8} and "fp32" in types


WITH_OUTPUTS = [o.name for family in catalog() for o in family.operations if can_be_added_to(o)]


def some_inputs(operation: Operation) -> tuple[Any, ...]:
    return operation.inputs(Inputs("fp32", 11), **operation.cases[1])


def results(operation: Operation, arguments: tuple[Any, ...], version: int | None = None) -> tuple[Tensor, ...]:
    """The outputs alone, by the operator's own way."""
    return poisoned_run(operation, version, arguments)[len(operation.signature.mutated) :]


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize("name", WITH_OUTPUTS)
def test_outputs_are_written_and_added_to_in_place(name: str, version: int | None) -> None:
    operation = find(name)
    copy = [a.clone() if isinstance(a, Tensor) else a for a in some_inputs(operation)]
    with use_version(version):
        expected = results(operation, some_inputs(operation), version)
        written = [torch.full_like(e, 7.0) for e in expected]
        bind(operation, some_inputs(operation), written)()
        added = [torch.full_like(e, 7.0) for e in expected]
        bind(operation, copy, added, accumulate=operation.signature.outputs)()
    for w, a, e in zip(written, added, expected, strict=True):
        assert torch.equal(w, e)
        assert torch.allclose(a, e + torch.full_like(e, 7.0), rtol=1e-5, atol=1e-5)


def test_only_the_named_outputs_are_added_to() -> None:
    operation = find("layernorm_backward")
    expected = results(operation, some_inputs(operation))
    outputs = [torch.ones_like(e) for e in expected]
    bind(operation, some_inputs(operation), outputs, accumulate=("dweight",))()
    assert torch.equal(outputs[0], expected[0])
    assert torch.allclose(outputs[1], expected[1] + 1, atol=1e-5)
    assert torch.equal(outputs[2], expected[2])


def test_numbers_of_fp8_are_written_and_not_added_to() -> None:
    x, amax = torch.randn(32, 16), torch.tensor(5.0)
    outputs = torch.ops.perfkit.fp8_cast(x, amax)
    bound = [torch.empty_like(o) for o in outputs]
    bind("fp8_cast", (x, amax), bound)()
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(bound, outputs, strict=True))
    with pytest.raises(UsageError, match="cannot add to x8"):
        bind("fp8_cast", (x, amax), bound, accumulate=("x8", "scale"))


def test_numbers_change_by_name() -> None:
    param, grad, m, v, *numbers = some_inputs(find("adamw_step"))
    once = [t.clone() for t in (param, m, v)]
    step = bind("adamw_step", (param, grad, m, v, *numbers))
    step(step=5, lr=0.25)
    torch.ops.perfkit.adamw_step(once[0], grad, *once[1:], 0.25, *numbers[1:5], 5, numbers[6])
    assert all(torch.equal(a, b) for a, b in zip(once, (param, m, v), strict=True))
    with pytest.raises(UsageError, match="adamw_step takes no number called grad"):
        step(grad=1)


def test_a_profiler_sees_the_operators_name_and_shapes(tmp_path: Path) -> None:
    x = torch.randn(3, 5)
    gelu = bind("gelu_forward", (x,), (torch.empty(3, 5),))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        gelu()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (event,) = [e for e in events if e.get("name") == "perfkit::gelu_forward"]
    assert (event["cat"], event["args"]["Input Dims"]) == ("cpu_op", [[3, 5]])


def test_a_profiler_sees_which_outputs_are_added_to() -> None:
    arguments = torch.randn(2, 3, 8), torch.randint(0, 5, (2, 3)), 5, 9
    results = torch.zeros(5, 8), torch.zeros(9, 8)
    add = bind("encoder_backward", arguments, results, accumulate=("dwpe",))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        add()
    (event,) = [e for e in profile.events() if e.name == "perfkit::encoder_backward"]
    assert event.concrete_inputs[2:] == [5, 9, 0b10]


def test_what_does_not_fit_is_refused() -> None:
    x = torch.randn(3, 5)
    with pytest.raises(InputError, match=r"gelu_forward writes y as fp32 \(3, 5\) on cpu; it was given fp32 \(5, 3\)"):
        bind("gelu_forward", (x,), (torch.empty(5, 3),))
    with pytest.raises(InputError, match="it was given bf16"):
        bind("gelu_forward", (x,), (x.bfloat16(),))
    with pytest.raises(InputError, match="gelu_forward: x is not contiguous"):
        bind("gelu_forward", (x.t(),), (torch.empty(5, 3),))
    with pytest.raises(UsageError, match="gelu_forward has 1 outputs, not 0"):
        bind("gelu_forward", (x,))
    with pytest.raises(UsageError, match="no output called dx"):
        bind("gelu_forward", (x,), (x,), accumulate=("dx",))
