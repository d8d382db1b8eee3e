"""Stand-ins for what Thunder looks up in PyTorch and newer ones no longer have, and for what Thunder itself lacks.

lightning-thunder 0.2.6 is its newest release. Each stand-in is put in place by a probe, never by a version, and does
what was there before; on a torch that has everything nothing is touched:
- torch 2.13 dropped five methods of `Tensor` for named tensors, which Thunder only registers by their names;
- torch 2.14 made `torch.autograd.Function.apply` a method in C, without the Python function (`__func__`) by which
  Thunder recognises that a traced model applies a function with a backward of its own.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

DROPPED = ("align_as", "align_to", "has_names", "refine_names", "rename")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While Thunder is imported: what its import looks up. Afterwards: what tracing needs."""
    import torch

    for name in DROPPED:
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, _named_tensor_method(name))
    if hasattr(torch.autograd.Function.apply, "__func__"):
        yield
    else:
        with _apply_in_python():
            yield
        _recognise_apply()
    _name_modulus()
    _group_attention()


def _named_tensor_method(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(f"torch.Tensor.{name} is not in this version of PyTorch")

    method.__name__ = name  # Thunder registers a method under this name
    return method


def _apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
    """`Function.apply` as a function of Python, which Thunder registers what it does instead for."""
    return cls.apply(*arguments, **keywords)


@contextlib.contextmanager
def _apply_in_python() -> Iterator[None]:
    """Give `torch.autograd.Function` an `apply` with a `__func__`, and PyTorch's own back at the end."""
    import torch

    function: Any = torch.autograd.Function
    own = vars(function)["apply"]
    function.apply = classmethod(_apply)
    try:
        yield
    finally:
        function.apply = own


def _recognise_apply() -> None:
    """Let Thunder treat `C.apply`, a built-in method of a function's class C, as it treats `_apply` with C."""
    import thunder.core.jit_ext
    from thunder.core.interpreter import _interpret_call, wrap_const

    jit_ext: Any = thunder.core.jit_ext
    found = jit_ext.general_jit_lookaside

    def lookaside(function: Any, *arguments: Any, **keywords: Any) -> Any:
        if not _applies(function):
            return found(function, *arguments, **keywords)
        return lambda *given, **named: _interpret_call(_apply, wrap_const(function.__self__), *given, **named)

    jit_ext.general_jit_lookaside = lookaside


def _applies(function: Any) -> bool:
    """Return whether `function` is the built-in `apply` of a class of `torch.autograd.Function`."""
    from torch.autograd import Function

    if not isinstance(function, types.BuiltinMethodType) or function.__name__ != "apply":
        return False
    return isinstance(function.__self__, type) and issubclass(function.__self__, Function)


def _name_modulus() -> None:
    """Let traced models write `tensor % n`: Thunder 0.2.6 looks for a method that its torch language does not have."""
    import thunder.torch as ltorch
    from thunder.torch.langctx import register_method, torchctx

    if not torchctx.has_method("mod"):
        register_method("mod", ltorch.remainder)  # what `%` is in PyTorch: the sign of the divisor


def _group_attention() -> None:
    """Let traced models call PyTorch's attention with `enable_gqa`, which Thunder 0.2.6 does not know.

    Keys and values are repeated for the heads that share them, as PyTorch's own composite form does it.
    """
    import inspect

    import thunder.torch as ltorch
    import torch
    from thunder.core import jit_ext

    plain: Any = ltorch.scaled_dot_product_attention
    if "enable_gqa" in inspect.signature(plain.meta).parameters:
        return

    def attention(query: Any, key: Any, value: Any, *others: Any, enable_gqa: bool = False, **keywords: Any) -> Any:
        if enable_gqa:
            key, value = (for_heads(x, query.shape[-3]) for x in (key, value))
        return plain(query, key, value, *others, **keywords)

    def for_heads(x: Any, heads: int) -> Any:
        *batch, groups, time, size = x.shape
        wide = ltorch.expand(ltorch.unsqueeze(x, -3), (*batch, groups, heads // groups, time, size))
        return ltorch.reshape(wide, (*batch, heads, time, size))

    prepared = jit_ext.record_source_loc_in_symbol_header(attention)
    prepared = jit_ext.ensure_recursive_proxies(jit_ext.interpreter_needs_wrap(prepared))
    jit_ext.register_general_jit_lookaside(torch.nn.functional.scaled_dot_product_attention)(prepared)
