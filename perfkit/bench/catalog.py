"""Benchmark of an operation of the kernel catalog: as models write it, PyTorch's own, every implementation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perfkit.bench import sizes
from perfkit.bench.benchmark import PYTORCH, Benchmark, Outputs, Prepared, Way
from perfkit.bench.torch_ways import ROUNDING, named, torch_way
from perfkit.cost.model import Call, Cost, TensorSpec
from perfkit.kernels import replaced
from perfkit.kernels.checking import as_tuple, poisoned_launch
from perfkit.kernels.declare import Family, Implementation, Operation
from perfkit.kernels.dispatch import Kernel
from perfkit.kernels.dtypes import FP8, name_of
from perfkit.kernels.languages import language
from perfkit.kernels.memory import WORTH_HUGE_PAGES, advise_huge_pages
from perfkit.kernels.register import runner
from perfkit.kernels.selection import use_version

Scalars = tuple[int | float, ...]


def benchmark(family: Family, operation: Operation, device: str, blocks: bool) -> Benchmark:
    """`operation` with its ways on `device`; with `blocks`, a variant for each block size an implementation offers."""
    names = tuple(inspect.signature(operation.inputs).parameters)[1:]
    fallback = operation.cases[-1]
    suited = [i for i in operation.implementations if _runs_on(i, device)]
    ordered = sorted(suited, key=lambda i: (i.language, i.version))
    results = operation.signature.results
    return Benchmark(
        name=operation.name,
        formula=operation.formula,
        sizes=names,
        inputs=operation.inputs,
        reference=lambda *arguments: named(results, operation.reference(*arguments)),
        cost=lambda arguments: cost_of(operation, arguments),
        tolerance=operation.tolerance,
        growth=operation.growth,
        defaults=lambda device: sizes.gpt2(family.name, names, device, fallback),
        ways=(
            *naive_ways(operation),
            pytorch_way(operation),
            torch_way("compile", operation.reference, results, "torch.compile of the reference", optional=True),
            *(implementation_way(operation, i, device, blocks) for i in ordered),
        ),
        in_place=bool(operation.signature.mutated),
    )


def _runs_on(implementation: Implementation, device: str) -> bool:
    found = language(implementation)
    kind = device.split(":")[0]
    return kind in (*found.devices, found.test_device())


def cost_of(operation: Operation, arguments: Sequence[Any]) -> Cost:
    """Least FLOP and bytes of a call with these arguments."""
    return operation.cost(Call(operation.qualified_name, tuple(map(spec, arguments))))


def spec(argument: Any) -> Any:
    """Return an argument in the form that the cost model takes."""
    if not isinstance(argument, Tensor):
        return argument
    single = argument.numel() == 1 and not argument.is_floating_point()
    value = int(argument) if single else None
    name = name_of(argument.dtype)
    return TensorSpec(tuple(argument.shape), "fp8" if name in FP8 else name, argument.stride(), value)


def pytorch_way(operation: Operation) -> Way:
    """PyTorch's own operator; the reference in the working precision where that is one already."""
    own = replaced.own(operation)
    text = "PyTorch's own operator" if own else "PyTorch, as a model would write it"
    return _called_way(PYTORCH, operation, own or (lambda *arguments: lambda: operation.reference(*arguments)), text)


def naive_ways(operation: Operation) -> list[Way]:
    """The operation as models write it, where that is not PyTorch's own operator."""
    written = replaced.naive(operation)
    return [_called_way("naive", operation, written, "PyTorch, as models write it")] if written else []


def _called_way(name: str, operation: Operation, made: Callable[..., replaced.Call], text: str) -> Way:
    """`made(*arguments)` gives the call to time, and what it returns is checked."""
    names = replaced.results(operation)

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        return [Prepared(made(*arguments), lambda: named(names, made(*arguments)()))]

    return Way(name, name, text, prepare, tolerance_factor=ROUNDING)


def implementation_way(operation: Operation, chosen: Implementation, device: str, blocks: bool) -> Way:
    """One implementation, at each block size that it offers where `blocks` asks for them."""
    kind = device.split(":")[0]

    def prepare(arguments: Sequence[Any], dtype: str) -> list[Prepared]:
        with use_version(chosen.version, chosen.language):
            plan = runner(operation, kind).plan(arguments)
        kernels = [plan.kernel, *(_variants(plan.kernel, plan.scalars) if blocks else ())]
        return [_prepared(operation, kernel, plan.scalars, arguments) for kernel in kernels]

    return Way(f"{chosen.language}:{chosen.version}", chosen.language, chosen.text, prepare)


def _variants(kernel: Kernel, scalars: Scalars) -> list[Kernel]:
    """The kernel at every block size worth trying but its own."""
    bound: Any = kernel.run
    usual = dict(_parameters(kernel, scalars))
    others = [dict(p) for p in getattr(bound, "sweep", [])]
    return [Kernel(kernel.implementation, bound.using(**p)) for p in others if p != usual]


def _parameters(kernel: Kernel, scalars: Scalars) -> Mapping[str, int]:
    bound: Any = kernel.run
    return bound.parameters(scalars) if hasattr(bound, "parameters") else {}


def _prepared(operation: Operation, kernel: Kernel, scalars: Scalars, arguments: Sequence[Any]) -> Prepared:
    signature = operation.signature
    tensors = {n: a.contiguous() for n, a in zip(signature.inputs, arguments, strict=True) if isinstance(a, Tensor)}
    changed = {name: tensors[name].clone() for name in signature.mutated}  # the arguments serve other ways too
    inputs = list((tensors | changed).values())
    patterns = as_tuple(operation.allocate(*arguments))
    large = [t for t in patterns if not t.is_cuda and t.nbytes >= WORTH_HUGE_PAGES]

    def call() -> Any:
        outputs = [torch.empty_like(pattern) for pattern in patterns]
        if large:
            for output in outputs:
                advise_huge_pages(output)
        kernel.launch([*inputs, *outputs], scalars)
        return outputs

    def checked() -> Outputs:
        return dict(zip(signature.results, poisoned_launch(operation, kernel, scalars, arguments), strict=True))

    return Prepared(call, checked, dict(_parameters(kernel, scalars)))
