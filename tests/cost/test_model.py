"""The model as a whole: kinds, names, unknown things, own kernels, fused regions; and properties that always hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.cost import (
    FAMILIES,
    KINDS,
    OPERATORS,
    Call,
    Cost,
    CostModel,
    TensorSpec,
    family_of_kernel_name,
    fused_cost,
    normalise,
    recorded_call,
)
from perfkit.cost.model import ITEM_BYTES
from perfkit.table import RESOURCES
from tests.support.sweeps import examples


def test_the_registry_is_sound() -> None:
    for operator in OPERATORS.values():
        assert operator.kind in KINDS and operator.family in FAMILIES, operator.name
        assert operator.kind != "work" or operator.cost or operator.flop == "unknown", operator.name
        unknown = [d for d in operator.delegates if d != "*" and d not in OPERATORS]
        assert not unknown, f"{operator.name} delegates to {unknown}"


def test_operators_that_only_call_others_leave_the_work_to_them() -> None:
    """An operator that PyTorch composes of others in all of its forms is no row, the others are."""
    torch = pytest.importorskip("torch")

    def has(overload: str, key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload, key))

    def composed(name: str) -> bool:
        forms = [n for n in torch._C._dispatch_get_all_op_names() if n == name or n.startswith(f"{name}.")]
        return bool(forms) and all(has(n, "CompositeImplicitAutograd") and not has(n, "CPU") for n in forms)

    wrappers = [o for o in OPERATORS.values() if o.kind == "work" and composed(o.name)]
    assert {"aten::true_divide", "aten::true_divide_", "aten::concat", "aten::square"} <= {o.name for o in wrappers}
    assert [o.name for o in wrappers if not o.delegates] == []
    assert "aten::div" in OPERATORS["aten::true_divide"].delegates, "its bytes were counted in both"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "work"), ("aten::view", "view"), ("aten::linear", "dispatch"), ("aten::to", "dispatch"),
        ("aten::empty", "allocation"), ("aten::resize_", "allocation"), ("aten::item", "sync"),
        ("aten::_local_scalar_dense", "sync"), ("detach", "view"), ("MmBackward0", "dispatch"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "dispatch"), ("ProfilerStep#3", "dispatch"),
        ("torch::autograd::AccumulateGrad", "dispatch"), ("Torch-Compiled Region: 0/0", "dispatch"),
        ("CompiledFunctionBackward", "dispatch"), ("graph_0_cpp_fused_gelu_0", "work"), ("mine::kernel", "work"),
        ("aten::add.Tensor", "work"), ("aten.view.default", "view"),
    ],
)  # fmt: skip
def test_kinds(name: str, kind: str) -> None:
    assert CostModel().kind(name) == kind


@pytest.mark.parametrize(
    ("name", "below", "kind"),
    [
        ("aten::zero_", ["aten::fill_"], "dispatch"),
        ("aten::zero_", [], "work"),
        ("aten::mean", ["aten::sum", "aten::div_"], "dispatch"),
        ("aten::sum", ["aten::sum"], "dispatch"),
        ("aten::addmm", ["aten::expand", "aten::copy_"], "work"),
        ("aten::_foreach_mul_", ["aten::mul_"], "dispatch"),
        ("aten::_foreach_mul_", ["aten::empty"], "work"),
    ],
)
def test_work_handed_on(name: str, below: list[str], kind: str) -> None:
    assert CostModel().kind(name, below) == kind


def test_names_have_one_spelling() -> None:
    assert normalise("torch.ops.aten.add.Tensor") == normalise("aten.add.default") == normalise("aten::add.out")
    assert normalise("autograd::engine::evaluate_function: A.B") == "autograd::engine::evaluate_function: A.B"
    assert normalise("void cub::f<float>(a.b)").startswith("void cub")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ampere_sgemm_128x64_tn", "matmul"), ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128", "matmul"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>", "matmul"), ("nvjet_tst_128x64", "matmul"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", "normalization"),
        ("layernorm_forward_kernel3", "normalization"), ("fused_residual_forward_kernel5", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "copy"),
        ("void softmax_warp_forward<float, float, float, 8>", "softmax"), ("triton_poi_fused_add_0", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", "reduction"),
        ("triton_red_fused_sum_3", "reduction"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"), ("Memcpy HtoD (Pageable -> Device)", "copy"),
        ("Memset (Device)", "fill"), ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("multi_tensor_apply_kernel<UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, at::native::Copy<c10::BFloat16, float> >",
         "copy"),
        ("multi_tensor_apply_kernel<TensorListMetadata<1>, ZeroFunctor<float, 1, 1, 0> >", "fill"),
        ("adamw_kernel3", "optimizer"), ("encoder_forward_kernel3", "embedding"),
        ("gelu_forward_kernel2", "elementwise"), ("void swiglu_backward_v2<bf16, 8, 1>", "elementwise"),
        ("void rotary_forward_v2<float, 4>", "elementwise"), ("void embedding_forward_v2<float, 4, 4>", "embedding"),
        ("void fused_classifier_kernel5", "loss"), ("graph_0_cpp_fused_native_layer_norm_gelu_1", "normalization"),
        ("permute_kernel", "copy"), ("whatever", "other"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "attention"),
        ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*)", "attention"),
        ("void convertFp16ToFp32(__half const*, float*)", "copy"), ("implicit_convolve_sgemm", "convolution"),
        ("triton_poi_fused_add_convert_element_type_3", "elementwise"),
        ("cudnn::cnn::conv2d_grouped_direct_kernel<float>", "convolution"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2, 4>", "attention"),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>", "normalization"),
        ("cupy_multiply__float64_float64_float64", "elementwise"), ("cupy_sqrt__float64_float64", "elementwise"),
        ("cupy_where__bool_float_float_float", "elementwise"), ("cupy_exp__float_float", "elementwise"),
        ("cupyx_scipy_special_lambertw__complex_complex", "elementwise"), ("cupy_copy__float64_float64", "copy"),
        ("cupy_fill", "fill"), ("cupy_sum", "reduction"), ("cupy_take", "other"),
        ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu)>", "elementwise"),
    ],
)  # fmt: skip
def test_families_of_kernel_names(name: str, family: str) -> None:
    assert family_of_kernel_name(name) == family
    assert CostModel().family(name) == family


def test_views_are_free_and_unknown_is_told() -> None:
    model = CostModel()
    assert model.cost(Call("aten::view", ())) == Cost()
    assert model.cost(Call("mine::kernel", ())) is None
    assert model.cost(Call("aten::mm", ())) is None
    assert model.cost(Call("aten::mm", (TensorSpec((2, 3), "fp32"), TensorSpec((4, 5), "fp32")))) is None
    assert set(model.missing) == {"mine::kernel", "aten::mm"}
    assert model.missing["mine::kernel"] == "unknown operator"


def test_own_kernels() -> None:
    model = CostModel({"mine::kernel": lambda call: Cost({}, 1.0, 2.0)}, {"mine::kernel": "softmax"})
    assert model.cost(Call("mine::kernel", ())) == Cost({}, 1.0, 2.0)
    assert model.family("mine::kernel") == "softmax" and model.kind("mine::kernel") == "work"


def test_a_fused_region_keeps_the_flop_and_moves_its_edges_only() -> None:
    parts = [Cost({"vector_fp32": 10.0}, 40, 40), Cost({"vector_fp32": 90.0}, 40, 40)]
    edge = TensorSpec((10,), "fp32")
    assert fused_cost(parts, [edge], [edge]) == Cost({"vector_fp32": 100.0}, 40, 40)


def test_recorded_arguments() -> None:
    arguments = {
        "Input Dims": [[2, 3], [[4], [5, 6]], [], [], [], [7]],
        "Input type": ["c10::BFloat16", "TensorList", "Scalar", "ScalarList", "", "long int"],
        "Input Strides": [[3, 1], [[1], [6, 1]], [], [], [], [1]],
        "Concrete Inputs": ["", "", "-inf", "[True, 2, 0.5]", "", ""],
    }
    found = recorded_call("aten::x", arguments, list_dtype="fp16").arguments
    assert found[0] == TensorSpec((2, 3), "bf16", (3, 1))
    assert found[1] == (TensorSpec((4,), "fp16", (1,)), TensorSpec((5, 6), "fp16", (6, 1)))
    assert found[2:5] == (-math.inf, (True, 2, 0.5), None)
    assert found[5] == TensorSpec((7,), "int64", (1,))


def test_reductions_without_recorded_dimensions_are_unknown() -> None:
    old = {"Input Dims": [[4, 6], []], "Input type": ["float", "ScalarList"]}
    assert CostModel().cost(recorded_call("aten::sum", old)) is None


def test_what_a_sparse_argument_holds_is_unknown() -> None:
    sizes = {"Input Dims": [[1000, 300], [300, 16]], "Input type": ["float", "float"]}
    sparse = sizes | {"Input Strides": [[], [16, 1]]}
    dense = CostModel().cost(recorded_call("aten::mm", sizes | {"Input Strides": [[300, 1], [16, 1]]}))
    assert dense is not None
    assert dense == CostModel().cost(recorded_call("aten::mm", sizes)), "older traces lack strides"
    model = CostModel()
    assert model.cost(recorded_call("aten::mm", sparse)) is None and "sparse" in model.missing["aten::mm"]
    assert model.cost(recorded_call("aten::t", sparse)) == Cost(), "a view does no work"
    packed = {"Input Dims": [[8, 300], [16, 300], []], "Input type": ["float", "float", ""]}
    packed["Input Strides"] = [[300, 1], [], []]
    assert model.cost(recorded_call("mkldnn::_linear_pointwise", packed)) is not None, "packed weights are whole"


# --- properties ---------------------------------------------------------------------------------------------------

dtypes = st.sampled_from(["fp64", "fp32", "bf16", "fp16", "int64", "bool"])
shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
tensors = st.builds(TensorSpec, shapes, dtypes)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(), st.sampled_from(["?", "tanh", "none"]))
lists = st.one_of(st.lists(tensors, max_size=3).map(tuple), st.lists(st.integers(-3, 9), max_size=3).map(tuple))
wild = st.lists(st.integers(-3, 10**9), max_size=5).map(tuple)
junk = st.builds(TensorSpec, wild, st.sampled_from(["fp32", "wrong"]))
arguments = st.lists(st.one_of(tensors, tensors, scalars, lists, junk), max_size=11).map(tuple)
costs = st.builds(
    Cost,
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2**40).map(float), max_size=3),
    st.integers(0, 2**40).map(float),
    st.integers(0, 2**40).map(float),
)


@settings(max_examples=examples(200, 1500), deadline=None)
@given(st.sampled_from(sorted(OPERATORS)), arguments)
def test_no_arguments_whatever_raise_or_give_nonsense(name: str, given_arguments: tuple) -> None:
    found = CostModel().cost(Call(name, given_arguments))
    if found is not None:
        assert set(found.flop) <= set(RESOURCES)
        assert all(math.isfinite(v) and v >= 0 for v in (*found.flop.values(), found.bytes_read, found.bytes_written))


junk_json = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=8), st.sampled_from(["Scalar", "float", "TensorList", "[1,"])),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["Input Dims", "Input type", "Input Strides", "Concrete Inputs"])


@settings(max_examples=examples(40, 300), deadline=None)
@given(st.dictionaries(keys, junk_json), st.sampled_from(["aten::add", "aten::sum", "aten::cat", "aten::mm"]))
def test_damaged_events_do_not_raise(recorded: dict, name: str) -> None:
    cost = CostModel().cost(recorded_call(name, recorded))
    assert cost is None or min(cost.bytes_read, cost.bytes_written, cost.total_flop) >= 0


@given(costs, costs, costs)
def test_adding_costs(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b).total_flop == a.total_flop + b.total_flop
    assert a + Cost() == Cost(dict(sorted(a.flop.items())), a.bytes_read, a.bytes_written)


def _grown(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(s + (i == place) for i, s in enumerate(shape))


@settings(deadline=None)
@given(
    st.sampled_from(["relu", "exp", "gelu", "sum", "mean", "clone", "zero_", "cumsum", "normal_", "silu_", "var"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.integers(0, 3),
    st.sampled_from(["fp32", "bf16"]),
)
def test_more_elements_never_cost_less(name: str, shape: tuple[int, ...], place: int, dtype: str) -> None:
    model, rest = CostModel(), (0,) if name == "cumsum" else ()
    small, large = (
        model.cost(Call(f"aten::{name}", (TensorSpec(s, dtype), *rest)))
        for s in (shape, _grown(shape, place % len(shape)))
    )
    assert small is not None and large is not None
    assert large.bytes_read >= small.bytes_read and large.bytes_written >= small.bytes_written
    assert large.bytes_read + large.bytes_written > small.bytes_read + small.bytes_written
    assert large.total_flop >= small.total_flop


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.sampled_from(["fp32", "bf16", "fp64"]))
def test_products(m: int, n: int, k: int, dtype: str) -> None:
    a, b, bias = TensorSpec((m, k), dtype), TensorSpec((k, n), dtype), TensorSpec((n,), dtype)
    product = CostModel().cost(Call("aten::mm", (a, b)))
    affine = CostModel().cost(Call("aten::addmm", (bias, a, b, 1, 1)))
    assert product is not None and affine is not None
    assert product.flop == {f"matrix_{dtype}": 2.0 * m * n * k}
    assert affine.total_flop == product.total_flop + m * n
    assert affine.bytes_read == product.bytes_read + n * ITEM_BYTES[dtype]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_broadcasting(sizes: list[int], ones: list[bool]) -> None:
    """Broadcast operands are read at their own size; the result has the common one. The order does not matter."""
    full = TensorSpec(tuple(sizes), "fp32")
    part = TensorSpec(tuple(1 if one else s for s, one in zip(sizes, ones, strict=False)), "fp32")
    found = CostModel().cost(Call("aten::add", (full, part)))
    assert found == CostModel().cost(Call("aten::add", (part, full)))
    assert found == Cost({"vector_fp32": float(full.numel)}, 4.0 * (full.numel + part.numel), 4.0 * full.numel)
    strided = TensorSpec(full.shape, "fp32", tuple(0 if one else 1 for one in (ones * 2)[: len(sizes)]))
    expanded = CostModel().cost(Call("aten::add", (full, strided)))
    assert expanded == found
