from __future__ import annotations

import pytest

from perfkit import backends, kernels
from perfkit.backends.thunder import support
from tests.backends.conftest import ONE_LAYER, errors, relative_error, worst
from tests.support.sweeps import rest

torch = pytest.importorskip("torch")
if missing := support.unavailable(None):
    pytest.skip(missing, allow_module_level=True)
if missing := kernels.unavailable("cpu"):
    pytest.skip(missing, allow_module_level=True)

from torch.nn import functional as F  # noqa: E402

from perfkit import functional  # noqa: E402

LAYERS = 1
GPT2 = {
    "split_heads": ("split_heads", LAYERS),
    "merge_heads": ("merge_heads", LAYERS),
    "causal_softmax": ("causal_softmax", LAYERS),
    "layer_norm": ("layernorm", 2 * LAYERS + 1),
    "gelu": ("gelu", LAYERS),
    "cross_entropy": ("cross_entropy", 1),
}


ABSENT = {"gradient_or_zeros"}  # what a backward trace does with a gradient before it uses it


def expected_symbols(program) -> dict[tuple[str, str, str], int]:
    return {(s.trace, s.name, s.kernel): s.count for s in program.symbols() if s.expected}


@pytest.fixture(scope="module")
def stepped(bench):
    b = bench(**ONE_LAYER, grad_accumulation=2)
    program = b.program("thunder-llmc")
    return b, program, b.step(program)


@pytest.mark.slow
def test_accumulated_training_agrees_with_fp64(stepped):
    b, program, result = stepped
    reference = b.reference()
    eager = worst(errors(b.step(b.program("eager")), reference))
    assert worst(errors(result, reference)) <= 3 * eager
    assert program.problems() == []


@pytest.mark.slow
def test_all_twelve_symbols_of_gpt2_ran_on_their_kernels(stepped):
    _, program, _ = stepped
    assert expected_symbols(program) == {
        (direction, name, f"perfkit::{kernel}_{direction}"): count
        for direction in ("forward", "backward")
        for name, (kernel, count) in GPT2.items()
    }


@pytest.mark.slow
def test_the_profiler_shows_each_kernel_by_name(stepped):
    b, program, _ = stepped
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        b.step(program)
    calls = {row.key: row.count for row in profile.key_averages()}
    micro_batches = b.settings.grad_accumulation
    for kernel, count in GPT2.values():
        assert calls[f"perfkit::{kernel}_forward"] == count * micro_batches
        assert calls[f"perfkit::{kernel}_backward"] == count * micro_batches


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "fewer"),
    [({"dtype": "bf16"}, []), rest({"training": False}, ["cross_entropy"]),
     rest({"variant": "sdpa"}, ["causal_softmax"]), rest({"recompute": True}, [])],
)  # fmt: skip
def test_other_modes_agree_with_fp64_and_expect_what_they_hold(bench, settings, fewer):
    b = bench(**ONE_LAYER, **settings)
    reference = b.reference()
    eager = worst(errors(b.step(b.program("eager")), reference))
    program = b.program("thunder-llmc")
    assert worst(errors(b.step(program), reference)) <= 3 * eager
    assert program.problems() == []
    directions = ("forward", "backward") if b.settings.training else ("forward",)
    assert {(trace, name) for trace, name, _ in expected_symbols(program)} == {
        (direction, name) for direction in directions for name in GPT2 if name not in fewer
    }
    if b.settings.recompute:
        recomputed = {s.kernel for s in program.symbols() if s.trace == "backward" and not s.expected}
        assert "perfkit::layernorm_forward" in recomputed


@pytest.mark.slow
def test_an_expected_kernel_that_did_not_run_is_a_problem(bench, monkeypatch):
    from perfkit.backends.thunder.executor import executor as llmc

    b = bench(**ONE_LAYER)
    program = b.program("thunder-llmc")
    claimed = llmc.executor.implmap["torch.nn.functional.gelu"]
    with monkeypatch.context() as patch:
        patch.setattr(claimed, "grad_transform", None)  # Thunder then takes its own gradient, and with it its own GELU
        b.step(program)
        assert program.problems() == [
            "gelu should run 1 × on perfkit::gelu_forward in the forward trace; it ran 0 ×.",
            "gelu should run 1 × on perfkit::gelu_backward in the backward trace; it ran 0 ×.",
        ]
        counts = {(s.trace, s.name): s.count for s in program.symbols() if s.expected}
        assert counts["forward", "gelu"] == counts["backward", "gelu"] == 0


def test_adamw_in_a_form_that_nobody_chose_steps_fused_and_the_report_says_so():
    from perfkit.backends.optimizers import fuse

    def stepped(offered: bool, **options):
        model = torch.nn.Linear(5, 3)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(random(*p.shape))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.3, **options)
        chosen = fuse(optimizer) if offered else False
        for factor in (1.0, -3.0, 0.2):
            for p in model.parameters():
                p.grad = factor * random(*p.shape).cos()
            optimizer.step()
        return chosen, optimizer.param_groups[0]["fused"], [p.detach() for p in model.parameters()]

    plain, (chosen, form, parameters) = stepped(False)[2], stepped(True)
    assert chosen and form
    assert max(relative_error(p, q) for p, q in zip(parameters, plain, strict=True)) < 1e-6
    assert stepped(True, foreach=False)[:2] == (False, None), "what the workload chose stays"
    assert stepped(True, fused=True)[:2] == (False, True)
    assert not fuse(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)) and not fuse(None)


def test_the_form_of_the_optimizer_is_said(bench):
    assert any("--optimizer fused" in text for text in bench().program("thunder-llmc").warnings())
    assert bench(training=False).program("thunder-llmc").warnings() == []
    assert bench(optimizer="foreach").program("thunder-llmc").warnings() == []


def test_before_the_first_step_nothing_is_claimed(bench):
    program = bench().program("thunder-llmc")
    assert program.symbols() == []
    assert len(program.problems()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["gelu_forward", "layernorm_backward", "cross_entropy_backward"])
def test_a_broken_kernel_gives_results_that_the_reference_tells_apart(stepped, monkeypatch, broken):
    from perfkit.kernels import register

    b, program, _ = stepped
    right = register._runners[broken, "cpu"]

    def wrong(*arguments):
        outputs = right(*arguments)
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        first.mul_(1.001)
        return outputs

    b.workload.build(b.settings)
    fresh = b.workload.build(b.settings).state_dict()
    program.model.load_state_dict(fresh)
    monkeypatch.setitem(register._runners, (broken, "cpu"), wrong)
    assert worst(errors(b.step(program), b.reference())) > 1e-4


# ---- one symbol at a time: where a kernel applies, and where it does not --------------------------------------------


@pytest.fixture(scope="module")
def jit():
    """`jit(function)` compiles with the executor; `.kernels` of what it returns are those that the last call ran."""
    thunder = support.load()
    kernels.load()
    from perfkit.backends.thunder.executor.executor import NAME, executor
    from perfkit.backends.thunder.executor.rewriting import Rewriting

    def compiled(function):
        executors = [executor, *thunder.get_default_executors()]
        call = thunder.jit(function, executors=executors, transforms=[Rewriting()])

        def ran() -> set[str]:
            traces = [thunder.last_traces(call)[-1], *thunder.last_backward_traces(call)[-1:]]
            symbols = [b.sym for trace in traces for b in trace.bound_symbols if b.sym.executor is not None]
            return {symbol.name for symbol in symbols if symbol.executor.name == NAME} - ABSENT

        return call, ran

    return compiled


def gradients(function, arguments, upstream):
    """Result and gradients of `function` at fresh leaves of `arguments`, for the gradient `upstream` of the result."""
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in arguments]
    result = function(*leaves)
    result.backward(upstream.to(result.dtype))
    return result.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]


def assert_same(jit, function, arguments, expected, tolerance=1e-5):
    """`function` gives through Thunder what PyTorch gives in fp64, backward included, on exactly these kernels."""
    generator = torch.Generator().manual_seed(3)
    double = [a.double() if a.is_floating_point() else a for a in arguments]
    upstream = torch.randn(function(*double).shape, generator=generator, dtype=torch.float64) + 2.5
    call, ran = jit(function)
    result, found = gradients(call, arguments, upstream)
    reference, right = gradients(function, double, upstream)
    assert ran() == set(expected)
    assert len(found) == len(right)
    for got, want in zip([result, *found], [reference, *right], strict=True):
        assert relative_error(got, want) < tolerance


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def both(kernel: str) -> list[str]:
    return [f"{kernel}_forward", f"{kernel}_backward"]


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm_takes_eps(jit, eps):
    arguments = [random(3, 5, 24) * 2 + 1, random(24), random(24)]
    assert_same(jit, lambda x, w, b: F.layer_norm(x, (24,), w, b, eps), arguments, both("layernorm"))


def test_layer_norm_without_weight_or_over_two_dimensions_falls_through(jit):
    assert_same(jit, lambda x: F.layer_norm(x, (24,)), [random(4, 24)], [])
    assert_same(jit, lambda x, w, b: F.layer_norm(x, (6, 4), w, b), [random(3, 6, 4), random(6, 4), random(6, 4)], [])


def test_gelu_in_its_tanh_form_only(jit):
    assert_same(jit, lambda x: F.gelu(x, approximate="tanh"), [random(7, 33)], both("gelu"))
    assert_same(jit, lambda x: F.gelu(x), [random(7, 33)], [])


@pytest.mark.parametrize("ignored", [-100, -1, 2])
def test_cross_entropy_takes_the_gradient_from_above_and_ignore_index(jit, ignored):
    targets = torch.tensor([0, 4, 2, ignored, 1, ignored])
    run = lambda x: F.cross_entropy(x, targets_of(x), ignore_index=ignored) * 1.7  # noqa: E731
    targets_of = lambda x: targets  # noqa: E731
    assert_same(jit, run, [random(6, 5)], both("cross_entropy"))


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"weight": torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])}])
def test_other_forms_of_cross_entropy_fall_through(jit, options):
    targets = torch.tensor([0, 4, 2, 3, 1, 0])
    double = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}

    def loss(x):
        return F.cross_entropy(x, targets, **(double if x.dtype == torch.float64 else options))

    assert_same(jit, loss, [random(6, 5)], [])


def test_the_sum_of_cross_entropies_is_not_taken_for_the_mean(jit):
    targets, logits = torch.tensor([0, 4, 2, 3, 1, 0]), random(6, 5)
    call, ran = jit(lambda x: F.cross_entropy(x, targets, reduction="sum"))
    with torch.no_grad():
        assert relative_error(call(logits), F.cross_entropy(logits, targets, reduction="sum")) < 1e-6
    assert ran() == set()


def test_heads_and_causal_softmax(jit):
    assert_same(jit, lambda x: sum_of(functional.split_heads(x, 4)), [random(2, 6, 96)], both("split_heads"))
    assert_same(jit, lambda x: functional.merge_heads(x), [random(2, 4, 6, 8)], both("merge_heads"))
    assert_same(jit, lambda x: functional.causal_softmax(x, 0.4), [random(2, 3, 9, 9)], both("causal_softmax"))


def test_the_parts_of_llama(jit):
    x, branch, weight = random(2, 3, 24) + 0.5, random(2, 3, 24), random(24)
    assert_same(jit, lambda x, w: functional.rms_norm(x, w, 1e-5), [x, weight], both("rmsnorm"))
    kernels_of_both = ["residual_rmsnorm_forward", "rmsnorm_backward"]
    norm = functional.residual_rms_norm
    assert_same(jit, lambda x, b, w: sum(norm(x, b, w, 1e-5)), [x, branch, weight], kernels_of_both)
    assert_same(jit, lambda x, b, w: norm(x, b, w, 1e-5)[1], [x, branch, weight], kernels_of_both)
    assert_same(jit, lambda g, u: functional.swiglu(g, u), [x * 3, branch], both("swiglu"))
    angles = random(5, 6)

    def turned(q, k):
        return torch.cat(functional.rotary(q, k, angles.to(q.dtype).cos(), angles.to(q.dtype).sin()), 2)

    assert_same(jit, turned, [random(2, 5, 4, 12), random(2, 5, 2, 12)], both("rotary"))
    # Thunder's own operators compute the same where the catalog has no kernel.
    double = [a.double() for a in (x, branch, weight)]
    assert_same(jit, lambda x, b, w: sum(norm(x, b, w, 1e-5)), double, [], tolerance=1e-12)
    assert_same(jit, lambda x, w: functional.rms_norm(x, w, 1e-5), [double[0], double[2]], [], tolerance=1e-12)
    assert_same(jit, lambda g, u: functional.swiglu(g, u), double[:2], [], tolerance=1e-12)
    assert_same(jit, turned, [random(2, 5, 4, 12).double(), random(2, 5, 2, 12).double()], [], tolerance=1e-12)


def sum_of(heads):
    q, k, v = heads
    return q + 2.0 * k + 3.0 * v


LINEAR = ["linear_forward", "linear_input_gradient", "linear_weight_gradient"]


def test_linear_layers(jit):
    x, weight, bias = random(2, 3, 7), random(5, 7), random(5)
    assert_same(jit, lambda x, w, b: F.linear(x, w, b), [x, weight, bias], [*LINEAR, "bias_gradient"])
    assert_same(jit, lambda x, w: F.linear(x, w), [x.transpose(0, 1), weight], LINEAR)
    assert_same(jit, lambda x: F.linear(x, weight.to(x.dtype)), [x], LINEAR[:2])  # a frozen weight
    assert_same(jit, lambda x, w: F.linear(x, w), [random(7), weight], [])
    assert_same(jit, lambda x, w: F.linear(x, w), [x.double(), weight.double()], [], tolerance=1e-12)


def test_a_large_product_goes_into_rows_on_cache_lines(jit, monkeypatch):
    """As GPT-2's logits do, whose rows begin between two; the result is dense all the same."""
    from perfkit.backends.thunder.executor import products
    from perfkit.kernels import memory

    monkeypatch.setattr(memory, "WORTH_HUGE_PAGES", 1)
    dense, aligned = torch.empty(6, 21), torch.empty(6, 32)
    assert memory.on_cache_lines(dense).stride() == (32, 1)
    assert memory.on_cache_lines(aligned) is aligned
    assert memory.on_cache_lines(double := dense.double()) is double, "only fp32 gains"
    x, weight, bias = random(2, 3, 7), random(21, 7), random(21)
    assert products.linear_forward(x, weight, bias).is_contiguous()
    assert_same(jit, lambda x, w, b: F.linear(x, w, b), [x, weight, bias], [*LINEAR, "bias_gradient"])
    assert_same(jit, lambda x, w: F.linear(x, w), [x, weight], LINEAR)


def test_a_long_row_of_a_gpu_is_padded_to_where_its_matrix_units_are_fast():
    from perfkit.backends.thunder.executor.products import padded_width

    assert [padded_width(50257, size) for size in (2, 4)] == [50304, 50272], "on 128 bytes"
    assert padded_width(50264, 2) == 50264, "its rows begin on 16 bytes"
    assert padded_width(1001, 2) == 1001, "too short to gain"


def test_a_padded_product_and_its_gradients_are_those_of_the_plain_one(jit, monkeypatch):
    from perfkit.backends.thunder.executor import library

    padded = ["pad_rows", "pad_columns", "first_rows", "first_columns"]
    monkeypatch.setattr(library, "padded", lambda weight: weight.shape[0] + 3)
    x, weight, bias = random(2, 3, 7), random(5, 7), random(5)
    assert_same(jit, lambda x, w, b: F.linear(x, w, b), [x, weight, bias], [*LINEAR, "bias_gradient", *padded])
    assert_same(jit, lambda x, w: F.linear(x, w).view(6, 5).sum(), [x, weight], [*LINEAR, *padded])
    with torch.no_grad():
        call, ran = jit(lambda x, w: F.linear(x, w))
        assert torch.allclose(call(x, weight), F.linear(x, weight)) and "pad_rows" in ran()


def test_sums_in_16_bits_are_made_without_conversions(jit):
    """As PyTorch makes them, to the bit, and so are their gradients; the second may repeat over the first dimension."""
    for shape in ((4, 3, 8), (3, 8)):
        x, y = (random(*s).bfloat16().requires_grad_() for s in ((4, 3, 8), shape))
        results = []
        for call in (jit(lambda x, y: x * 2 + y)[0], lambda x, y: x * 2 + y):
            z = call(x, y)
            results.append([z, *torch.autograd.grad(z, (x, y), torch.linspace(-1, 1, 96).view(4, 3, 8).bfloat16())])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert_same(jit, lambda x, y: x + y, [random(2, 3), random(2, 3)], [])  # fp32 has nothing to convert
    assert_same(jit, lambda x, y: x + y, [random(2, 3), random(2, 1)], [])


@pytest.mark.parametrize("onednn", [True, False])
def test_either_library_multiplies_alike(jit, monkeypatch, onednn):
    from perfkit.backends.thunder.executor import products
    from perfkit.kernels import libraries

    asked, real = [], libraries.onednn_linear
    monkeypatch.setattr(libraries, "_here", lambda: onednn)
    monkeypatch.setattr(products, "onednn_linear", lambda *a, **k: asked.append(a) or real(*a, **k))
    x, weight, bias = random(2, 3, 7), random(5, 7), random(5)
    assert_same(jit, lambda x, w, b: F.linear(x, w, b), [x, weight, bias], [*LINEAR, "bias_gradient"])
    assert_same(jit, lambda x, w: F.linear(x, w), [x.transpose(0, 1), weight], LINEAR)
    assert bool(asked) == onednn
    assert products.linear_forward(x[:0], weight).shape == (0, 3, 5)
    assert products.linear_forward(x.double(), weight.double()).dtype == torch.float64


def test_the_gradient_of_an_embedding(jit):
    idx, weight = torch.tensor([[3, 0, 3], [1, 3, 0]]), random(5, 7)
    assert_same(jit, lambda idx, w: F.embedding(idx, w), [idx, weight], ["embedding_gradient"])
    assert_same(jit, lambda idx, w: F.embedding(idx, w, padding_idx=3), [idx, weight], [])


def test_large_results_lie_on_huge_pages(monkeypatch):
    from perfkit.backends.thunder.executor import products
    from perfkit.kernels import memory

    advised = []
    monkeypatch.setattr(memory, "advise_huge_pages", lambda tensor: advised.append(tuple(tensor.shape)))
    wide = torch.ones(1, memory.WORTH_HUGE_PAGES // 4)
    assert products.linear_weight_gradient(torch.full((1, 1), 2.0), wide).sum() == 2 * wide.numel()
    products.linear_weight_gradient(torch.ones(1, 1), wide[:, :-1])
    assert advised == [tuple(wide.shape)]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: sum_of(functional.split_heads(x, 4)), (2, 6, 96)),
        (lambda x: functional.merge_heads(x), (2, 4, 6, 8)),
        (lambda x: functional.causal_softmax(x, 0.4), (2, 3, 9, 9)),
        (lambda x: F.gelu(x, approximate="tanh"), (4, 8)),
    ],
)
def test_a_precision_without_kernels_falls_through_to_the_same_result(jit, function, shape):
    assert_same(jit, function, [random(*shape, dtype=torch.float64)], [], tolerance=1e-12)
    call, _ = jit(function)
    with torch.no_grad():
        x = random(*shape, dtype=torch.float64)
        assert relative_error(call(x), function(x)) < 1e-12


def test_only_the_precisions_of_the_kernels_are_available(monkeypatch, bench):
    import msgspec

    settings = msgspec.structs.replace(bench().settings, dtype="fp64")
    assert (
        backends.get("thunder-llmc").unavailable(settings) == "None of the hand-written kernels exists in fp64 on cpu."
    )


def test_without_a_compiler_the_kernels_reason_is_given(monkeypatch, bench):
    monkeypatch.setattr(kernels, "unavailable", lambda device: "There is no C compiler on this machine.")
    assert backends.get("thunder-llmc").unavailable(bench().settings) == "There is no C compiler on this machine."
    assert backends.get("thunder-llmc").unavailable() == "There is no C compiler on this machine."


def test_on_a_device_without_kernels(bench):
    import msgspec

    settings = msgspec.structs.replace(bench().settings, device="cuda")
    reason = backends.get("thunder-llmc").unavailable(settings)
    assert reason is None or reason.endswith(".")
