"""Importing Thunder, and why it may not be possible.

lightning-thunder 0.2.6 (its newest release) lists five methods of `torch.Tensor` for named tensors, and torch 2.13
has dropped them: the import fails with an AttributeError. Thunder only wants to register them by name, and no
workload calls them, so `load` defines those that are missing, once, before the import. On a torch that has them
nothing is touched.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from perfkit.backends.eager import NO_TORCH, torch_installed
from perfkit.cache import cache_dir
from perfkit.errors import Unavailable
from perfkit.run_folder import Settings
from perfkit.workloads.choices import unknown

DROPPED = ("align_as", "align_to", "has_names", "refine_names", "rename")
FIRST_PYTHON_WITHOUT = (3, 14)


def unavailable(settings: Settings | None) -> str | None:
    """One sentence why Thunder cannot run here, or None.

    With `settings` it is imported too, which takes seconds: once for these versions, unless executors are named.
    Raises `UsageError` for an unknown executor in `settings`.
    """
    if not torch_installed():
        return NO_TORCH
    if sys.version_info >= FIRST_PYTHON_WITHOUT:
        found = ".".join(map(str, sys.version_info[:2]))
        return f"lightning-thunder needs a Python before 3.14, and this is {found}: make an environment with 3.13."
    if importlib.util.find_spec("thunder") is None:
        return "lightning-thunder is not installed: pip install 'perfkit[run]'."
    if settings is not None:
        try:
            executors(settings.executors) if settings.executors else _import_once()
        except Unavailable as error:
            return error.message
    return None


def _import_once() -> None:
    """Import Thunder, if it never was with these versions. Raises `Unavailable` as `load` does."""
    versions = "-".join(importlib.metadata.version(name) for name in ("torch", "lightning-thunder"))
    known = cache_dir() / "thunder" / f"{versions}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if known.exists():
        return
    load()
    with contextlib.suppress(OSError):  # a cache that cannot be written
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


@functools.cache
def load() -> Any:
    """Import Thunder and return the module. Raises `Unavailable` with one sentence when that fails."""
    import torch

    for name in DROPPED:
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, _named_tensor_method(name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it mentions each optional package that is not there
            import thunder
    except Exception as error:  # an import can fail in any way: a missing symbol, another torch, a broken package
        raise Unavailable(
            f"lightning-thunder cannot be imported with torch {torch.__version__}: {type(error).__name__}: {error}."
        ) from error
    _complete_operators()
    return thunder


def _complete_operators() -> None:
    """Let traced models write `tensor % n`: Thunder 0.2.6 looks for a method that its torch language does not have."""
    import thunder.torch as ltorch
    from thunder.torch.langctx import register_method, torchctx

    if not torchctx.has_method("mod"):
        register_method("mod", ltorch.remainder)  # what `%` is in PyTorch: the sign of the divisor
    _group_attention()


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


def _named_tensor_method(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(f"torch.Tensor.{name} is not in this version of PyTorch")

    method.__name__ = name  # Thunder registers a method under this name
    return method


def executors(names: Sequence[str]) -> list[Any]:
    """Thunder's executors of these names. Raises `UsageError` for one that Thunder does not have, naming all it has."""
    thunder = load()
    found = []
    for name in names:
        executor = thunder.get_executor(name)
        if executor is None:
            raise unknown("Thunder executor", name, sorted(str(e.name) for e in thunder.get_all_executors()))
        found.append(executor)
    return found
