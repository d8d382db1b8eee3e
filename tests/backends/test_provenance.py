"""Which parts of the model the calls in Inductor's code serve."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfkit import backends  # noqa: E402
from perfkit.backends import compile as compile_backend  # noqa: E402
from perfkit.inductor import provenance  # noqa: E402
from perfkit.inductor.provenance import (  # noqa: E402
    CallSites,
    function_name,
    places_of,
    recording_sites,
)
from perfkit.workloads import find  # noqa: E402

ATEN = torch.ops.aten


class Graph:
    """An FX graph with the metadata that Dynamo and autograd leave behind."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()

    def input(self, *shape: int) -> Any:
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        node.meta["val"] = torch.empty(shape)
        return node

    def call(self, target: Any, *args: Any, at: str = "", function: Any = None, backward: bool = False) -> Any:
        """A node; `at` is the module and `function` what the model called there, both "" or None for no metadata."""
        node = self.graph.call_function(target, args)
        node.meta["val"] = torch.empty(4, 4)
        prefix = "fwd_" if backward else ""
        if function is not None:
            node.meta[f"{prefix}source_fn_stack"] = [("name_3", function)]
            node.meta[f"{prefix}nn_module_stack"] = {"1": (f"L['self'].{at}", torch.nn.Module)} if at else {}
        if backward:
            node.meta["partitioner_tag"] = "is_backward"
        return node


def test_a_node_has_its_innermost_module_and_function_and_a_backward_node_those_of_its_forward() -> None:
    g = Graph()
    x = g.input(4, 4)
    forward = g.call(ATEN.relu.default, x, at="h.0.mlp", function=torch.relu)
    backward = g.call(ATEN.mul.Tensor, x, forward, at="h.0.mlp", function=torch.relu, backward=True)
    own = g.call(ATEN.add.Tensor, x, x, function=operator.add)
    found = places_of(g.graph, {})
    assert found[forward] == found[backward] == ("h.0.mlp", "relu")
    assert found[own] == ("(root)", "add")
    assert x not in found


def test_a_modules_identity_tells_its_path_whatever_dynamo_calls_it() -> None:
    """A frame that was compiled by itself knows its module only as `self`."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()))
    sites = CallSites()
    sites.begin(model)
    g = Graph()
    node = g.call(ATEN.relu.default, g.input(4, 4), function=torch.relu)
    node.meta["nn_module_stack"] = {f"{id(model[1][0])}@2": ("L['self']", torch.nn.ReLU)}
    assert places_of(g.graph, sites.paths)[node] == ("1.0", "relu")


def test_behind_a_graph_break_the_captured_module_is_not_the_model() -> None:
    """A block that was captured by itself: its own work is the block's, for its layer is known to be h.1.fc."""
    model = torch.nn.ModuleDict(
        {"h": torch.nn.ModuleList(torch.nn.ModuleDict({"fc": torch.nn.Linear(4, 4)}) for _ in "ab")}
    )
    sites = CallSites()
    sites.begin(model)
    g = Graph()
    linear = g.call(ATEN.mm.default, g.input(4, 4), g.input(4, 4), function=torch.nn.functional.linear)
    linear.meta["nn_module_stack"] = {str(id(model["h"][1]["fc"])): ("L['self'].fc", torch.nn.Linear)}
    own = g.call(ATEN.tanh.default, linear, function=torch.tanh)
    assert places_of(g.graph, sites.paths) == {linear: ("h.1.fc", "linear"), own: ("h.1", "tanh")}
    alone = Graph()
    alone.call(ATEN.tanh.default, alone.input(4, 4), function=torch.tanh)
    assert places_of(alone.graph, sites.paths) == {}  # its owner is unknown


def test_a_sum_of_gradients_has_the_place_of_the_summand_that_is_computed_last() -> None:
    g = Graph()
    x = g.input(4, 4)
    early = g.call(ATEN.mul.Tensor, x, x, at="h.0.ln_2", function=torch.mul, backward=True)
    late = g.call(ATEN.mul.Tensor, x, early, at="h.0.ln_1", function=torch.layer_norm, backward=True)
    view = g.call(ATEN.view.default, late, [4, 4], at="h.0", function="view", backward=True)
    summed = g.call(ATEN.add.Tensor, view, early, backward=True)
    assert places_of(g.graph, {})[summed] == ("h.0.ln_1", "layer_norm")


def test_what_a_pattern_made_has_the_place_of_its_user_and_a_product_that_of_its_factors() -> None:
    g = Graph()
    x, weight = g.input(4, 4), g.input(4, 4)
    constant = g.call(ATEN.full.default, [4, 4], 0.0)
    user = g.call(ATEN.where.self, x, constant, x, at="loss", function=torch.nn.functional.cross_entropy)
    table = g.call(ATEN.embedding_dense_backward.default, user, x, 4, 0, False, at="wte", function=torch.embedding)
    factor = g.call(ATEN.permute.default, user, [1, 0], at="lm_head", function=torch.nn.functional.linear)
    added = g.call(ATEN.addmm.default, table, factor, weight)
    found = places_of(g.graph, {})
    assert found[constant] == ("loss", "cross_entropy")
    assert found[added] == ("lm_head", "linear")


def test_padding_that_the_compiler_adds_is_a_pad() -> None:
    g = Graph()
    x = g.input(4, 4)
    cast = g.call(ATEN.relu.default, x, at="loss", function=torch.relu)
    padded = g.call(ATEN.constant_pad_nd.default, cast, [0, 4])
    own = g.call(ATEN.constant_pad_nd.default, cast, [0, 4], at="h", function=torch.nn.functional.pad)
    found = places_of(g.graph, {})
    assert (found[padded], found[own]) == (("loss", "pad"), ("h", "pad"))


def test_a_product_of_padded_factors_is_the_linear_layers_and_not_the_losss() -> None:
    """Inductor's replacement of the head's gradient, dx = g·W, where V is padded: the products of g and of the
    transposed weight, which no function of the model's has called."""
    g = Graph()
    weight = g.input(4, 4)
    gradient = g.call(ATEN.mul.Tensor, g.input(4, 4), 2.0, at="loss", function="float", backward=True)
    rows = g.call(ATEN.view.default, gradient, [4, 4], backward=True)
    linear = torch.nn.functional.linear
    once = g.call(ATEN.permute.default, weight, [1, 0], at="lm_head", function=linear, backward=True)
    twice = g.call(ATEN.permute.default, once, [1, 0], backward=True)
    for order in ((0, 1), (1, 0)):
        factors = [None, None]
        for i in order:
            factors[i] = g.call(ATEN.constant_pad_nd.default, (rows, twice)[i], [0, 4], backward=True)
        product = g.call(ATEN.mm.default, *factors, backward=True)
        found = places_of(g.graph, {})
        assert found[product] == ("lm_head", "linear")
        assert [found[factor] for factor in factors] == [("loss", "pad"), ("lm_head", "pad")]


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("linear_5", torch.nn.Linear, "linear"),
        ("gelu_1", torch.nn.functional.gelu, "gelu"),
        ("view_8", "view", "view"),
        ("add_2", operator.add, "add"),
    ],
)
def test_the_function_that_the_model_called(name: str, target: Any, expected: str) -> None:
    assert function_name(name, target) == expected


def test_without_inductors_private_name_there_is_a_warning_and_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_TELLS", "no_such_function")
    said: list[str] = []
    with recording_sites(CallSites(), said.append):
        pass
    assert said == ["Compiled kernels are placed by alignment only: this torch's Inductor has no no_such_function."]


class Twice(torch.nn.Module):
    """Two blocks whose fused kernels are the same code, with a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.h = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))

    def forward(self, x):
        for block in self.h:
            x = x + torch.tanh(block(x))
        return x, x.sum()


@pytest.mark.slow
def test_one_fused_kernel_has_a_place_for_each_call_and_its_line_in_the_code(fresh_dynamo) -> None:
    if missing := backends.get("compile").unavailable():
        pytest.skip(missing)
    model = Twice()
    call = torch.compile(model, dynamic=False, options=compile_backend.CPU_OPTIONS)
    program = compile_backend.CompiledProgram(find("mlp"), model, call, torch.optim.SGD(model.parameters(), lr=0.1))
    program.train_step([(torch.randn(16, 32),)])
    assert program.warnings() == []
    forward, backward = program.call_sites()
    text = program.generated().splitlines()
    for site in (*forward, *backward):
        word = site.name.rpartition("::")[2] if "::" in site.name else site.name.split("_", 2)[2]
        assert f"{word}(" in text[site.line - 1], site
        assert sum(m.share for m in site.members) == pytest.approx(1)
    for graph, products in ((forward, [("h.0", 1), ("h.1", 1)]), (backward, [("h.1", 2), ("h.0", 1)])):
        # The first layer's input needs no gradient.
        of_linear = Counter(s.members[0].module for s in graph if s.name in ("aten::addmm", "aten::mm"))
        assert of_linear == dict(products)
        assert all(s.members[0].operator == "linear" for s in graph if s.name.startswith("aten::"))
    fused = [{(m.module, m.operator) for m in s.members} for s in forward if "cpp_fused" in s.name]
    assert ("(root)", "tanh") in set().union(*fused) and ("(root)", "add") in set().union(*fused)
    for site in forward:
        if site.name == "aten::addmm":  # 2·16·32·32 and the bias; x, weight and bias in, 16 × 32 out
            assert site.work is not None and sum(site.work.flop.values()) == 2 * 16 * 32 * 32 + 16 * 32
            assert site.work.bytes_read == 4 * (16 * 32 + 32 * 32 + 32) and site.work.bytes_written == 4 * 16 * 32
        else:
            assert site.work is not None and site.work.bytes_read > 0


@pytest.mark.slow
def test_a_graph_of_changing_shapes_is_not_made_one_of_constants_by_looking_at_it(fresh_dynamo) -> None:
    """To ask a symbolic size for its value adds a guard, and the user's program compiles again for every shape."""
    if missing := backends.get("compile").unavailable():
        pytest.skip(missing)
    from perfkit.inductor.dynamo import Compilations
    from perfkit.inductor.recording import CPU_OPTIONS, Recording, recording

    model, told, counted = Twice(), Recording(), Compilations()
    told.sites.begin(model)
    call = torch.compile(model, dynamic=True, options=CPU_OPTIONS)
    with recording(told):
        for rows in (16, 24, 40):
            call(torch.randn(rows, 32))[1].backward()
    assert counted.facts()["graphs"] == 1 and counted.facts()["recompilations"] == []
    products = [site for graph in told.sites.graphs for site in graph if site.name in ("aten::addmm", "aten::mm")]
    assert products and all(site.work is None for site in products)
    (said,) = told.said()
    assert "compiled for any shape" in said and told.known() == {}
