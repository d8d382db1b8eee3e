"""Operators that move or make data: copies, fills, joins, random numbers.

Their FLOP are known to be zero, except that a random number counts 1.
"""

from __future__ import annotations

import math

from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.cost.registry import ANY, Operator, same
from perfkit.cost.shapes import (
    dense,
    dtype_at,
    floating,
    integer_at,
    integers_at,
    movement,
    sums,
    tensor_at,
    tensors_at,
    vector_unit,
    work,
)


def copy_into(call: Call) -> Cost:
    """copy_(destination, source): the source, broadcast, is read once; the destination is only written."""
    source = tensor_at(call, 1)
    return movement((source,), (call.tensor(0),))


def copy_out(call: Call) -> Cost:
    """clone(x), contiguous(x), flip(x), roll(x) and others that give a dense copy of the same shape."""
    x = call.tensor(0)
    return movement((x,), (dense(x.shape, x.dtype),))


def convert(call: Call) -> Cost:
    """_to_copy(x, dtype, …)."""
    x = call.tensor(0)
    return movement((x,), (dense(x.shape, dtype_at(call, 1, x.dtype)),))


def join(call: Call) -> Cost:
    """cat(tensors, dim) and stack(tensors, dim): everything read and written once.

    Raises `ValueError` for no tensors: there is always one, so they were not recorded.
    """
    tensors = tensors_at(call, 0)
    if not tensors:
        raise ValueError(f"{call.name}: the tensors of the list were not recorded")
    return movement(tensors, [dense(t.shape, t.dtype) for t in tensors])


def join_chunks(call: Call) -> Cost:
    """_chunk_cat(tensors, dim, chunks, out): the tensors cut into chunks along a dimension, and those joined, with
    padding where a dimension does not divide."""
    tensors = tensors_at(call, 0)
    if not tensors:
        raise ValueError(f"{call.name}: the tensors of the list were not recorded")
    dim, chunks, out = integer_at(call, 1), integer_at(call, 2), tensor_at(call, 3)
    if out is not None:
        return movement(tensors, (out,))
    padded = [t.numel // max(t.shape[dim], 1) * -(-t.shape[dim] // chunks) * chunks for t in tensors]
    return movement(tensors, [dense((n,), t.dtype) for n, t in zip(padded, tensors, strict=True)])


def pad(call: Call) -> Cost:
    """constant_pad_nd(x, padding, value): pairs for the last dimensions first."""
    x, pairs = call.tensor(0), integers_at(call, 1)
    sizes = list(x.shape)
    for i, (low, high) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        sizes[len(sizes) - 1 - i] += low + high
    return movement((x,), (dense(sizes, x.dtype),))


def repeat(call: Call) -> Cost:
    """repeat(x, repeats): x read once, the tiled result written."""
    x, repeats = call.tensor(0), integers_at(call, 1)
    return movement((x,), (dense((x.numel * math.prod(repeats),), x.dtype),))


def fill(call: Call) -> Cost:
    """fill_(x, value), zero_(x): written once, not read."""
    return movement((), (call.tensor(0),))


# Leading numbers (start, end, step) by the number of arguments: the rest are dtype, layout, device, out.
_RANGE_NUMBERS = {1: 1, 5: 1, 2: 2, 6: 2, 3: 3, 4: 3, 7: 3}


def sequence(call: Call) -> Cost:
    """arange(end), arange(start, end), arange(start, end, step), each with options or with out= behind."""
    out = next((a for a in call.arguments if isinstance(a, TensorSpec)), None)
    count = 1 if out is not None and len(call.arguments) == 2 else _RANGE_NUMBERS[len(call.arguments)]
    numbers = [a for a in call.arguments[:count] if isinstance(a, int | float)]
    if len(numbers) != count:
        raise TypeError("the range was not recorded")
    start, end, step = (0, *numbers, 1) if count == 1 else (*numbers, 1)[:3]
    size = max(0, math.ceil((end - start) / step))
    whole = all(isinstance(n, int) for n in numbers)
    dtype = out.dtype if out is not None else "int64" if whole else "fp32"
    return work({vector_unit(dtype): float(size)}, (), (dense((size,), dtype),))


def spaced(call: Call) -> Cost:
    """linspace(start, end, steps, …): multiply and add an element."""
    out = next((a for a in call.arguments[3:] if isinstance(a, TensorSpec)), None)
    dtype = out.dtype if out is not None else "fp32"
    steps = integer_at(call, 2)
    return work({vector_unit(dtype): 2.0 * steps}, (), (dense((steps,), dtype),))


def draw(call: Call) -> Cost:
    """normal_(x, …), uniform_, bernoulli_, random_: one operation a number (two a complex one), written once."""
    x = call.tensor(0)
    return work(sums(x.dtype, x.numel), (tensor_at(call, 1),), (x,))


def draw_like(call: Call) -> Cost:
    """bernoulli(p), multinomial and others that draw one number for each element of their input."""
    x = call.tensor(0)
    return work({vector_unit(x.dtype): float(x.numel)}, (x,), (dense(x.shape, x.dtype),))


def permutation(call: Call) -> Cost:
    """randperm(n, …): n draws and swaps, n int64 written."""
    n = integer_at(call, 0)
    return work({"vector_int": 2.0 * n}, (), (dense((n,), "int64"),))


def multinomial(call: Call) -> Cost:
    """multinomial(p (…,C), samples, …): cumulative sums over C, one draw and a binary search a sample."""
    p, samples = call.tensor(0), integer_at(call, 1)
    out = dense((*p.shape[:-1], samples), "int64")
    search = 1 + math.ceil(math.log2(max(p.shape[-1], 2)))
    return work({vector_unit(p.dtype): float(p.numel + out.numel * search)}, (p,), (out,))


def dropout(call: Call) -> Cost:
    """native_dropout(x, p, train): draw, compare, ·mask, ·scale; the mask (bool) is written too."""
    x = call.tensor(0)
    out = dense(x.shape, floating(x.dtype))
    return work({vector_unit(out.dtype): 4.0 * x.numel}, (x,), (out, dense(x.shape, "bool")))


def slice_gradient(call: Call) -> Cost:
    """select_backward / slice_backward(grad, input sizes, …): the gradient copied into zeros."""
    grad = call.tensor(0)
    return movement((grad,), (dense(integers_at(call, 1), grad.dtype),))


_COPY = "source once; destination once"


def operators() -> list[Operator]:
    """Copies, joins, fills and random numbers."""
    randoms = "normal_ uniform_ bernoulli_ random_ exponential_ geometric_ cauchy_ log_normal_"
    return [
        *same("copy_ _copy_from _copy_from_and_resize", "copy", copy_into, "0", _COPY,
              delegates=("copy_", "_copy_from")),
        *same("clone contiguous", "copy", copy_out, "0", _COPY, kind="dispatch"),
        *same("pixel_shuffle pixel_unshuffle channel_shuffle", "copy", copy_out, "0", _COPY, kind="dispatch"),
        *same("native_channel_shuffle", "copy", copy_out, "0", _COPY, delegates=(ANY,)),
        *same("_to_copy", "copy", convert, "0", _COPY, kind="dispatch"),
        *same("flip roll", "copy", copy_out, "0", _COPY, delegates=("cat",)),
        *same("cat _cat concat", "copy", join, "0", "every part once; result once", delegates=("cat",)),
        *same("stack", "copy", join, "0", "every part once; result once", delegates=("cat",)),
        *same("_chunk_cat", "copy", join_chunks, "0", "every part once; result once", delegates=(ANY,)),
        *same("split_with_sizes_copy split_copy unbind_copy", "copy", copy_out, "0", _COPY, delegates=(ANY,)),
        *same("constant_pad_nd", "copy", pad, "0", "input; padded output", delegates=("copy_",)),
        *same("repeat", "copy", repeat, "0", "input; tiled output", kind="dispatch"),
        *same("select_backward slice_backward", "copy", slice_gradient, "0", "gradient; the whole input gradient",
              delegates=(ANY,)),
        *same("reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d", "copy", pad, "0",
              "input; padded output"),
        *same("fill_", "fill", fill, "0", "written once"),
        *same("zero_", "fill", fill, "0", "written once", delegates=("fill_",)),
        *same("arange range", "fill", sequence, "1 an element", "written once", delegates=("arange",)),
        *same(randoms, "random", draw, "1 a number", "probabilities where a tensor; written once"),
        *same("bernoulli", "random", draw_like, "1 a number", "probabilities; written once", delegates=("bernoulli_",)),
        *same("linspace", "fill", spaced, "2 an element", "written once", delegates=("linspace",)),
        *same("randperm", "random", permutation, "2 a number", "written once", delegates=("randperm",)),
        *same("multinomial", "random", multinomial, "1 a probability, 1 + ⌈log₂C⌉ a sample", "probabilities; samples",
              delegates=("argmax", "div")),
        *same("native_dropout _fused_dropout", "random", dropout, "4 per element (draw, compare, ·mask, ·scale)",
              "input; output and mask (bool)", delegates=("bernoulli_",)),
    ]  # fmt: skip
