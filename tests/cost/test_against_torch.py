"""The model against PyTorch: every operator of real profiles has a kind and a cost, and matrix FLOP equal
FlopCounterMode's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from perfkit.cost import (
    Argument,
    Call,
    CostModel,
    GPTShape,
    TensorSpec,
    matmul_flop,
    normalise,
    recorded_call,
)
from tests.support.cost.programs import PROGRAMS, TinyGPT

# Composites that do nothing but dispatch when there is nothing to do (a conversion to the same dtype, for example).
_MAY_BE_EMPTY = {
    "to",
    "type_as",
    "dropout",
    "result_type",
    "is_same_size",
    "broadcast_tensors",
    "contiguous",
    "cudnn_is_acceptable",
    "_nnpack_available",
}


@dataclass
class Event:
    """An operator of a trace and the names of those that ran inside it."""

    name: str
    arguments: dict[str, Any]
    start: float
    end: float
    below: list[str] = field(default_factory=list)


def events(path: Path) -> Iterator[Event]:
    """The operators of a trace with what ran inside each, by thread and time."""
    threads: dict[Any, list[Event]] = {}
    for e in json.loads(path.read_text())["traceEvents"]:
        if e.get("cat") == "cpu_op":
            threads.setdefault(e["tid"], []).append(Event(e["name"], e["args"], e["ts"], e["ts"] + e["dur"]))
    for thread in threads.values():
        open_events: list[Event] = []
        for event in sorted(thread, key=lambda e: (e.start, -e.end)):
            while open_events and open_events[-1].end <= event.start:
                open_events.pop()
            for outer in open_events:
                outer.below.append(event.name)
            open_events.append(event)
        yield from thread


def recorded(program: Callable[[], Any], path: Path) -> list[Event]:
    program()  # once before, so that one-time set-up does not show
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        program()
    profiler.export_chrome_trace(str(path))
    return list(events(path))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_operator_of_a_profile_has_its_cost(name: str, tmp_path: Path) -> None:
    model, working, unplaced = CostModel(), 0, []
    for event in recorded(PROGRAMS[name], tmp_path / "trace.json"):
        kind = model.kind(event.name, event.below)
        if kind == "work":
            working += 1
            if model.cost(recorded_call(event.name, event.arguments)) is None:
                unplaced.append((event.name, event.arguments.get("Input Dims")))
            assert model.family(event.name) != "other", event.name
        elif kind == "dispatch" and normalise(event.name).startswith("aten::") and not event.below:
            assert event.name.removeprefix("aten::") in _MAY_BE_EMPTY, f"{event.name} did the work itself"
    assert working > 5
    assert not unplaced, unplaced


# Operator → those below it that compute something else than its formula counts: the mean of losses, offsets, checks,
# halves of a matrix.
_OF_THEIR_OWN = {
    **{loss: {"div_", "sum"} for loss in ("binary_cross_entropy", "huber_loss", "mse_loss", "smooth_l1_loss")},
    "binary_cross_entropy_backward": {"div_"},
    "_embedding_bag_dense_backward": {"arange", "sort"},
    "sort": {"arange"},
    "_embedding_bag": {"arange", "cumsum", "div_", "index_add_", "max", "maximum", "sub", "sub_"},
    "bincount": {"max", "min"},
    "mkldnn_rnn_layer": {"add"},
    "mkldnn_rnn_layer_backward": {"add"},
    "unfold_backward": {"arange"},
    "_cholesky_solve_helper": {"any"},
    "cholesky_inverse": {"any"},
    "linalg_cholesky_ex": {"tril"},
    "linalg_ldl_factor_ex": {"tril"},
    "linalg_lu_solve": {"all", "gt", "le"},
    "linalg_qr": {"triu"},
}
# And those of which a CPU computes a part apart, where a GPU has one kernel: the part counts in both.
_APART_ON_A_CPU = {
    "glu_backward": {"mul_", "sigmoid"},
    "var": {"div_", "sum"},
    "_slow_conv2d_backward": {"sum"},
    "_addmm_activation": {"clamp_min_"},
    "_unique2": {"arange", "sort"},
}
_ALLOWED = {**_OF_THEIR_OWN, **_APART_ON_A_CPU}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_work_is_counted_twice(name: str, tmp_path: Path) -> None:
    """An operator leaves its work to the one that it calls: one of the two counts."""
    model, twice = CostModel(), set()

    def computes(event: str, arguments: dict[str, Any]) -> bool:
        cost = model.cost(recorded_call(event, arguments))
        return cost is not None and sum(cost.flop.values()) > 0

    found = recorded(PROGRAMS[name], tmp_path / "trace.json")
    for outer in found:
        if model.kind(outer.name, outer.below) == "work" and computes(outer.name, outer.arguments):
            inside = [e for e in found if outer.start <= e.start and e.end <= outer.end and e is not outer]
            twice |= {
                (normalise(outer.name).removeprefix("aten::"), normalise(e.name).removeprefix("aten::"))
                for e in inside
                if model.kind(e.name, e.below) == "work" and computes(e.name, e.arguments)
            }
    assert not {pair for pair in twice if pair[1] not in _ALLOWED.get(pair[0], ())}


def test_the_work_of_a_profile_is_the_work_of_the_model(tmp_path: Path) -> None:
    """Matrix FLOP summed over a profiled step's rows equal the hand calculation: nothing is lost or counted twice."""
    model = TinyGPT(vocabulary=50, context=8, layers=2, heads=2, channels=16)
    tokens = torch.randint(0, 50, (3, 8))
    costs, rows = CostModel(), []
    for event in recorded(lambda: model(tokens, tokens).backward(), tmp_path / "trace.json"):
        if costs.kind(event.name, event.below) == "work":
            rows.append(costs.cost(recorded_call(event.name, event.arguments)))
    matrix = sum(v for c in rows if c is not None for unit, v in c.flop.items() if unit.startswith("matrix"))
    assert matrix == matmul_flop(GPTShape(3, 8, 16, 2, 2, 50))["step"]["total"]


class Counted(TorchDispatchMode):
    """Sums the model's matrix FLOP over every operator that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.model = 0.0, CostModel()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = normalise(str(func))
        call = Call(name, tuple(_argument(a) for a in args))
        # A composite with a formula (convolution) is a leaf here: nothing is dispatched below it.
        found = self.model.cost(call)
        assert found is not None or self.model.kind(name) != "work", (name, call.arguments)
        self.matrix += sum(v for unit, v in (found.flop if found else {}).items() if unit.startswith("matrix"))
        return func(*args, **(kwargs or {}))


_DTYPES = {torch.float32: "fp32", torch.int64: "int64", torch.bool: "bool", torch.float64: "fp64", torch.int32: "int32"}


def _argument(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return TensorSpec(tuple(value.shape), _DTYPES[value.dtype], value.stride())
    if isinstance(value, list | tuple):
        return tuple(_argument(v) for v in value)
    return value if isinstance(value, int | float | str) else None


def both(program: Callable[[], Any]) -> tuple[float, float]:
    """Matrix FLOP of the model and of FlopCounterMode."""
    ours = Counted()
    with ours:
        program()
    with FlopCounterMode(display=False) as theirs:
        program()
    return ours.matrix, float(theirs.get_total_flops())


def gpt_on_meta(shape: GPTShape) -> Callable[[], Any]:
    with torch.device("meta"):
        model = TinyGPT(shape.vocabulary, shape.time, shape.layers, shape.heads, shape.channels)
        tokens = torch.zeros(shape.batch, shape.time, dtype=torch.long)
    return lambda: model(tokens, tokens).backward()


@pytest.mark.parametrize(
    "shape", [GPTShape(3, 8, 16, 2, 2, 50), GPTShape(1, 1, 6, 3, 1, 7), GPTShape(4, 64, 768, 12, 12, 50257)]
)
def test_gpt_step_equals_flop_counter_and_hand_calculation(shape: GPTShape) -> None:
    ours, theirs = both(gpt_on_meta(shape))
    assert ours == theirs == matmul_flop(shape)["step"]["total"]


def test_forward_of_gpt_by_part() -> None:
    shape = GPTShape(3, 8, 16, 2, 2, 50)
    parts = matmul_flop(shape)
    assert parts["step"]["total"] == parts["forward"]["total"] + parts["backward"]["total"]
    assert parts["forward"]["total"] == sum(v for k, v in parts["forward"].items() if k != "total")
    model, tokens = TinyGPT(50, 8, 2, 2, 16), torch.randint(0, 50, (3, 8))
    with FlopCounterMode(display=False) as counter:
        model(tokens, tokens)
    assert counter.get_total_flops() == parts["forward"]["total"]


CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "strided": lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1),
    "grouped": lambda: nn.Conv2d(4, 8, 3, groups=2),
    "depthwise, dilated": lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=2),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1),
    "transposed, grouped": lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_equal_flop_counter(name: str) -> None:
    with torch.device("meta"):
        layer, x = CONVOLUTIONS[name](), torch.randn(2, 4, 9, 11, requires_grad=True)
    ours, theirs = both(lambda: layer(x).sum().backward())
    if "grouped" in name or "depthwise" in name:
        # FlopCounterMode's weight gradient ignores groups; forward alone agrees.
        ours, theirs = both(lambda: layer(x))
    assert ours == theirs > 0


def test_products_equal_flop_counter() -> None:
    def program() -> None:
        a, b = torch.randn(5, 4, 6, device="meta"), torch.randn(5, 6, 3, device="meta")
        torch.baddbmm(torch.randn(5, 4, 3, device="meta"), a, b)
        F.linear(a, b[0].t(), torch.randn(3, device="meta")), a @ b

    ours, theirs = both(program)
    assert ours == theirs > 0


def test_attention_equals_flop_counter_of_the_explicit_form_and_of_the_gpu_operators() -> None:
    """On the CPU FlopCounterMode counts no attention, so the formula is compared with its GPU variants on meta."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    q, k, v = (2, 4, 8, 16), (2, 4, 12, 16), (2, 4, 12, 10)
    specs = [TensorSpec(s, "fp32") for s in (q, k, v)]
    out, sums = TensorSpec((2, 4, 8, 10), "fp32"), TensorSpec((2, 4, 8), "fp32")
    model = CostModel()
    forward = model.cost(Call("aten::_scaled_dot_product_flash_attention_for_cpu", (*specs, 0.0, False)))
    given = (out, *specs, out, sums, 0.0, False)
    backward = model.cost(Call("aten::_scaled_dot_product_flash_attention_for_cpu_backward", given))
    assert forward is not None and forward.flop["matrix_fp32"] == sdpa_flop_count(q, k, v)
    assert backward is not None and backward.flop["matrix_fp32"] == sdpa_backward_flop_count(out.shape, q, k, v)
