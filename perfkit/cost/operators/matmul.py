"""Matrix products: 2·M·N·K on the matrix units; bias, scale and activation on the vector units.

M rows and N columns of the result, K the summed dimension, B the batch. The matrix FLOP are FlopCounterMode's, but
for complex factors: a complex multiply-add is four real ones, 8 FLOP, where that mode counts 2.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import Operator, same
from perfkit.cost.shapes import (
    broadcast,
    dense,
    dtype_at,
    integers_at,
    is_complex,
    matrix_unit,
    number_at,
    part,
    product,
    promote,
    tensor_at,
    tensors_at,
    vector_unit,
    work,
)


def _product(
    call: Call,
    left: TensorSpec,
    right: TensorSpec,
    shape: tuple[int, ...],
    inner: int,
    *,
    vector: float = 0.0,
    read: tuple[TensorSpec | None, ...] = (),
    dtype: str = "",
) -> Cost:
    """Cost of left @ right with result `shape` over `inner`, plus `vector` operations on the result.

    A result without elements (an expert that no token chose) reads nothing.
    """
    parts = 2 if is_complex(left.dtype) else 1
    flop = {matrix_unit(part(left.dtype), call.matmul_precision): 2.0 * parts**2 * product(shape) * inner}
    out = dtype or left.dtype
    if vector:
        unit = vector_unit(part(out))
        flop[unit] = flop.get(unit, 0.0) + parts * vector
    result = dense(shape, out)
    return work(flop, (left, right, *read) if result.numel else (), (result,))


def _fit(left: int, right: int) -> int:
    if left != right:
        raise ValueError(f"the inner sizes of a product differ: {left} and {right}")
    return left


def _affine(call: Call, elements: int) -> tuple[float, bool]:
    """Vector operations of beta·input + alpha·product on `elements` results, and whether the input is read."""
    beta, alpha = number_at(call, 3, 1.0), number_at(call, 4, 1.0)
    count = (beta != 0) + (beta not in (0, 1)) + (alpha != 1)
    return float(count * elements), beta != 0


def mm(call: Call) -> Cost:
    """mm(a (M,K), b (K,N)); also _int_mm, whose result is int32."""
    a, b = call.tensor(0), call.tensor(1)
    (m, k), (k2, n) = a.shape, b.shape
    dtype = "int32" if "_int_mm" in call.name else ""
    return _product(call, a, b, (m, n), _fit(k, k2), dtype=dtype)


def addmm(call: Call) -> Cost:
    """addmm(input, a (M,K), b (K,N), beta, alpha): the input's sum is M·N on the vector units."""
    a, b = call.tensor(1), call.tensor(2)
    (m, k), (k2, n) = a.shape, b.shape
    vector, used = _affine(call, m * n)
    return _product(call, a, b, (m, n), _fit(k, k2), vector=vector, read=(call.tensor(0) if used else None,))


def addmm_activation(call: Call) -> Cost:
    """_addmm_activation(…, use_gelu): addmm and a ReLU (1) or tanh GELU (9) per result."""
    base = addmm(call)
    rows, columns = call.tensor(1).shape[0], call.tensor(2).shape[1]
    count = 9 if number_at(call, 5, 0.0) else 1
    return base + Cost({vector_unit(call.tensor(1).dtype): float(count * rows * columns)})


def bmm(call: Call) -> Cost:
    """bmm(a (B,M,K), b (B,K,N))."""
    a, b = call.tensor(0), call.tensor(1)
    (batch, m, k), (batch2, k2, n) = a.shape, b.shape
    return _product(call, a, b, (_fit(batch, batch2), m, n), _fit(k, k2))


def baddbmm(call: Call) -> Cost:
    """baddbmm(input, a (B,M,K), b (B,K,N), beta, alpha); addbmm sums over B."""
    a, b = call.tensor(1), call.tensor(2)
    (batch, m, k), (batch2, k2, n) = a.shape, b.shape
    summed = call.name.startswith("aten::addbmm")
    shape = (m, n) if summed else (_fit(batch, batch2), m, n)
    vector, used = _affine(call, product(shape))
    inner = _fit(k, k2) * (batch if summed else 1)
    return _product(call, a, b, shape, inner, vector=vector, read=(call.tensor(0) if used else None,))


def mv(call: Call) -> Cost:
    """mv(a (M,K), v (K))."""
    a, v = call.tensor(0), call.tensor(1)
    (m, k), (k2,) = a.shape, v.shape
    return _product(call, a, v, (m,), _fit(k, k2))


def addmv(call: Call) -> Cost:
    """addmv(input, a (M,K), v (K), beta, alpha)."""
    a, v = call.tensor(1), call.tensor(2)
    (m, k), (k2,) = a.shape, v.shape
    vector, used = _affine(call, m)
    return _product(call, a, v, (m,), _fit(k, k2), vector=vector, read=(call.tensor(0) if used else None,))


def dot(call: Call) -> Cost:
    """dot(u (K), v (K))."""
    u, v = call.tensor(0), call.tensor(1)
    (k,), (k2,) = u.shape, v.shape
    return _product(call, u, v, (), _fit(k, k2))


def outer(call: Call) -> Cost:
    """ger(u (M), v (N)): one multiplication per result, on the vector units."""
    u, v = call.tensor(0), call.tensor(1)
    (m,), (n,) = u.shape, v.shape
    dtype = promote((u, v))
    return work({vector_unit(dtype): float(m * n)}, (u, v), (dense((m, n), dtype),))


def addr(call: Call) -> Cost:
    """addr(input, u (M), v (N)): multiply and add per result."""
    u, v = call.tensor(1), call.tensor(2)
    (m,), (n,) = u.shape, v.shape
    return work({vector_unit(u.dtype): 2.0 * m * n}, (call.tensor(0), u, v), (dense((m, n), u.dtype),))


def _linear(call: Call, x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, other: TensorSpec | None) -> Cost:
    """x (…,K) times weight (N,K) transposed, plus bias (N), plus another tensor of the result's shape."""
    (n, k) = weight.shape
    shape = (*x.shape[:-1], n)
    vector = float(product(shape) * ((bias is not None) + (other is not None)))
    return _product(call, x, weight, shape, _fit(x.shape[-1], k), vector=vector, read=(bias, other))


def linear(call: Call) -> Cost:
    """linear(x (…,K), weight (N,K), bias (N))."""
    return _linear(call, call.tensor(0), call.tensor(1), tensor_at(call, 2), None)


def linear_pointwise(call: Call) -> Cost:
    """mkldnn _linear_pointwise(x, weight, bias, …) or (x, other, weight, bias, …); what is fused is not recorded."""
    third = tensor_at(call, 2)
    if third is not None and len(third.shape) == 2:
        return _linear(call, call.tensor(0), third, tensor_at(call, 3), call.tensor(1))
    return _linear(call, call.tensor(0), call.tensor(1), third, None)


def mkl_linear(call: Call) -> Cost:
    """mkl _mkl_linear(x, packed weight, original weight (N,K), bias, batch)."""
    return _linear(call, call.tensor(0), call.tensor(2), tensor_at(call, 3), None)


def grouped_mm(call: Call) -> Cost:
    """_grouped_mm(a, b, offs, …), a product for each of G groups, as of a mixture of experts.

    (M,K) times (G,K,N) and (G,M,K) times (K,N) divide the rows or the columns of the result (M,N) among the groups,
    (M,K) times (K,N) the inner dimension of (G,M,N), and with two batches it is `bmm`. `offs` (G) ends each group: all
    that the factors hold is assumed to be in one, as the trace does not hold its numbers.
    """
    a, b, scaled = call.tensor(0), call.tensor(1), "scaled" in call.name
    ends = 4 if scaled else 2
    rows, inner, columns = a.shape[-2], _fit(a.shape[-1], b.shape[-2]), b.shape[-1]
    groups = (_fit(a.shape[0], b.shape[0]),) if len(a.shape) == len(b.shape) == 3 else ()
    flop = {matrix_unit(a.dtype, call.matmul_precision): 2.0 * product(groups) * rows * inner * columns}
    shape = (*(call.tensor(ends).shape if len(a.shape) == len(b.shape) == 2 else groups), rows, columns)
    read: tuple[TensorSpec | None, ...] = (a, b, tensor_at(call, ends))
    if scaled:
        flop["vector_fp32"] = float(product(shape))
        read = (*read, tensor_at(call, 2), tensor_at(call, 3))
    return work(flop, read, (dense(shape, dtype_at(call, 7, "bf16") if scaled else dtype_at(call, 4, a.dtype)),))


def scaled_mm(call: Call) -> Cost:
    """_scaled_mm(a (M,K), b (K,N), scale_a, scale_b, bias, scale_result, out_dtype): scaling counts 1 per result."""
    return _scaled(call, (tensor_at(call, 2), tensor_at(call, 3)), tensor_at(call, 4), 6)


_OF_BLOCKS = (2, 3)  # recipes (torch.nn.functional.ScalingType) whose scales are numbers of fp8; others' are fp32


def scaled_mm_v2(call: Call) -> Cost:
    """_scaled_mm_v2(a (M,K), b (K,N), scales_a, recipes_a, swizzles_a, the same of b, bias, out_dtype)."""
    scales = [
        dense(scale.shape, "fp8" if recipe in _OF_BLOCKS else "fp32")  # a trace has no dtype of tensors in a list
        for first in (2, 5)
        for scale, recipe in zip(tensors_at(call, first), integers_at(call, first + 1), strict=True)
    ]
    return _scaled(call, scales, tensor_at(call, 8), 9)


def _scaled(call: Call, scales: Iterable[TensorSpec | None], bias: TensorSpec | None, dtype: int) -> Cost:
    """A product with what it scales by, its result in the dtype that is the argument at `dtype`, else as `a`."""
    a, b = call.tensor(0), call.tensor(1)
    (m, k), (k2, n) = a.shape, b.shape
    flop = {matrix_unit(a.dtype, call.matmul_precision): 2.0 * m * n * _fit(k, k2)}
    flop["vector_fp32"] = float(m * n * (1 + (bias is not None)))
    return work(flop, (a, b, *scales, bias), (dense((m, n), dtype_at(call, dtype, a.dtype)),))


def matmul(call: Call) -> Cost:
    """matmul with vectors, matrices and broadcast batches."""
    a, b = call.tensor(0), call.tensor(1)
    if not a.shape or not b.shape:
        raise ValueError("matmul needs at least one dimension")
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    inner = _fit(a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0])
    batch = broadcast((a.shape[:-2], b.shape[:-2]))
    return _product(call, a, b, (*batch, *rows, *columns), inner)


_BOTH = "both factors, input or bias where used; result"
_ONE_BY_ONE = ("mm", "bmm", "_scaled_mm")  # where no kernel does all groups: fp32, a CPU, GPUs before Hopper
_SCALED = "both factors, their scales, bias where used; result"


def operators() -> list[Operator]:
    """Every matrix product."""
    affine = " + M·N for each of: the input's sum, beta ∉ {0,1}, alpha ≠ 1"
    return [
        *same("mm _int_mm", "matmul", mm, "2·M·N·K", _BOTH),
        *same("addmm addmm_", "matmul", addmm, "2·M·N·K" + affine, _BOTH),
        *same("_addmm_activation", "matmul", addmm_activation, "addmm + M·N (ReLU) or 9·M·N (GELU)", _BOTH),
        *same("bmm", "matmul", bmm, "2·B·M·N·K", _BOTH),
        *same("baddbmm baddbmm_", "matmul", baddbmm, "2·B·M·N·K" + affine, _BOTH),
        *same("addbmm addbmm_", "matmul", baddbmm, "2·B·M·N·K" + affine, _BOTH, delegates=("addmm_",)),
        *same("mv", "matmul", mv, "2·M·K", _BOTH, delegates=("addmv_",)),
        *same("addmv addmv_", "matmul", addmv, "2·M·K" + affine.replace("M·N", "M"), _BOTH),
        *same("dot vdot", "matmul", dot, "2·K", _BOTH, delegates=("dot",)),
        *same("ger", "matmul", outer, "M·N", _BOTH, delegates=("mul",)),
        *same("addr addr_", "matmul", addr, "2·M·N", _BOTH),
        *same("_scaled_mm", "matmul", scaled_mm, "2·M·N·K + M·N scaling + M·N bias", _SCALED),
        *same("_scaled_mm_v2", "matmul", scaled_mm_v2, "2·M·N·K + M·N scaling + M·N bias", _SCALED),
        *same(
            "_grouped_mm",
            "matmul",
            grouped_mm,
            "2·M·N·K of all groups",
            "both factors, offsets; result",
            delegates=_ONE_BY_ONE,
        ),
        *same(
            "_scaled_grouped_mm",
            "matmul",
            grouped_mm,
            "2·M·N·K of all groups + 1 a result",
            "both factors, scales, offsets; result",
            delegates=_ONE_BY_ONE,
        ),
        *same("mkldnn_linear", "matmul", linear, "2·M·N·K + M·N bias", _BOTH),
        *same("mkldnn::_linear_pointwise", "matmul", linear_pointwise, "2·M·N·K + M·N bias + M·N second input", _BOTH),
        *same("mkl::_mkl_linear", "matmul", mkl_linear, "2·M·N·K + M·N bias", _BOTH),
        *same("linear", "matmul", linear, "2·M·N·K + M·N bias", _BOTH, kind="dispatch"),
        *same("matmul", "matmul", matmul, "2·B·M·N·K", _BOTH, kind="dispatch"),
    ]
