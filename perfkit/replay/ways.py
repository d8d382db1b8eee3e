"""Ways to run a rebuilt call: eager, torch.compile, choices of libraries, and perfkit's own kernels that fit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from perfkit.bench.benchmark import PYTORCH, Outputs, Prepared, Way
from perfkit.bench.torch_ways import ROUNDING, compiled
from perfkit.errors import Unavailable, first_line
from perfkit.replay import attention, fitting, rebuilt
from perfkit.replay.rebuilt import Recipe, Values

Context = Callable[[], contextlib.AbstractContextManager[Any]]
_PRODUCT = re.compile(r"^aten::(addmm|mm|bmm|baddbmm|addbmm|matmul|linear|_addmm_activation|einsum)$")
_CONVOLUTION = re.compile(r"^aten::\w*conv\w*$")


def ways_of(recipe: Recipe, device: str, names: Sequence[str]) -> tuple[Way, ...]:
    """Every way to run `recipe` on `device`; `names` are those of the results that are compared."""
    kind = device.partition(":")[0]
    found = [_called(PYTORCH, "PyTorch's operator, as recorded", recipe, contextlib.nullcontext, names)]
    if "source" in recipe:
        return (replace(found[0], text="the generated kernel, as Inductor launches it"),)
    if not recipe.get("gradient"):
        found.append(_compile_way(recipe, names))
    for name, text, context, other in _libraries(recipe, kind):
        found.append(_called(name, text, other, context, names, same=recipe))
    return (*found, *fitting.ways(recipe, device, names))


def _libraries(recipe: Recipe, kind: str) -> Iterator[tuple[str, str, Context, Recipe]]:
    """Choices that PyTorch offers for this operator: name, text, the context that makes it, and the recipe."""
    operator = recipe["operator"]
    if attention.is_attention(operator):
        general = attention.general(recipe, own=False) if operator != attention.GENERAL else recipe
        for name, member in attention.BACKENDS.items():
            if kind == "cuda" or name in ("flash", "math"):
                yield name, f"scaled_dot_product_attention, backend {name}", _sdpa(member), general
    if _PRODUCT.match(operator) and kind == "cuda":
        yield "cublas", "preferred_blas_library: cuBLAS", _blas("cublas"), recipe
        yield "cublaslt", "preferred_blas_library: cuBLASLt", _blas("cublaslt"), recipe
    if _CONVOLUTION.match(operator) and kind == "cuda":
        yield "cudnn-benchmark", "cuDNN's fastest algorithm", lambda: _cudnn(benchmark=True), recipe
        yield "no-cudnn", "PyTorch's own kernels", lambda: _cudnn(enabled=False), recipe
    if (_PRODUCT.match(operator) or _CONVOLUTION.match(operator)) and kind == "cpu":
        yield "no-onednn", "without oneDNN", _no_onednn, recipe


def _sdpa(member: str) -> Context:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, member)
    return lambda: sdpa_kernel([backend])


def _blas(name: str) -> Context:
    @contextlib.contextmanager
    def chosen() -> Iterator[None]:
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library(name)
        try:
            yield
        finally:
            torch.backends.cuda.preferred_blas_library(before)

    return chosen


@contextlib.contextmanager
def _no_onednn() -> Iterator[None]:
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _cudnn(enabled: bool = True, benchmark: bool = False) -> contextlib.AbstractContextManager[Any]:
    flags: contextlib.AbstractContextManager[Any] = torch.backends.cudnn.flags(enabled=enabled, benchmark=benchmark)
    return flags


def _called(
    name: str, text: str, recipe: Recipe, context: Context, names: Sequence[str], same: Recipe | None = None
) -> Way:
    """`recipe` under `context`, given the arguments of `same` where that is another recipe."""

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        """Return the call on arguments of its own."""
        values: Values = arguments[0]
        if same is not None and same is not recipe:
            values = rebuilt.Maker("cpu", 0).arguments(recipe, values)
        own = rebuilt.fresh(recipe, values)
        try:
            call = rebuilt.call_of(recipe, own, context)
            call()
        except RuntimeError as error:
            if same is None:
                raise
            raise Unavailable(f"PyTorch does not offer it for this call: {first_line(error, 120)}.") from error
        return [prepared(recipe, values, own, call, names, context)]

    return Way(name, name, text, prepare, tolerance_factor=ROUNDING)


def prepared(
    recipe: Recipe, values: Values, own: Values, call: Callable[[], Any], names: Sequence[str],
    context: Context = contextlib.nullcontext,
) -> Prepared:  # fmt: skip
    """A call on `own`, copies of `values` where it changes them, which it gets back before each sample."""

    def checked() -> Outputs:
        found = rebuilt.outputs(recipe, values, context)
        return {name: found[name] for name in names if name in found}

    def reset() -> None:
        for name in recipe["changed"]:
            _restore(own[name], values[name])

    return Prepared(call, checked, reset=reset if recipe["changed"] else None)


def _restore(own: Any, value: Any) -> None:
    for mine, before in zip(own, value, strict=True) if isinstance(own, list) else [(own, value)]:
        mine.copy_(before)


def _compile_way(recipe: Recipe, names: Sequence[str]) -> Way:
    operator = rebuilt.operator_of(recipe)
    keyword = [name for name, by_keyword, _ in recipe["arguments"] if by_keyword]

    def function(*ordered: Any) -> Any:
        split = len(ordered) - len(keyword)
        return operator(*ordered[:split], **dict(zip(keyword, ordered[split:], strict=True)))

    def ordered(values: Values) -> list[Any]:
        return [*rebuilt.positional(recipe, values), *(values[name] for name in keyword)]

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        """Return the call on arguments of its own."""
        values: Values = arguments[0]
        own = rebuilt.fresh(recipe, values)
        mine = ordered(own)
        run = compiled(function, mine)

        def checked() -> Outputs:
            copies = rebuilt.fresh(recipe, values)
            found = rebuilt.results(recipe, run(*ordered(copies)), copies)
            return {name: found[name] for name in names if name in found}

        reset = prepared(recipe, values, own, lambda: None, names).reset
        return [Prepared(lambda: run(*mine), checked, reset=reset)]

    return Way("compile", "compile", "torch.compile of it alone", prepare, tolerance_factor=ROUNDING)
