"""An operation of the catalog, implementation by implementation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perfkit.bench import sizes as size_texts
from perfkit.errors import InputError, PerfkitError, UsageError
from perfkit.inspection.gpu import check_arch, inspect_cuda, inspect_triton
from perfkit.inspection.machine import inspect_library
from perfkit.inspection.results import Inspected
from perfkit.kernels.c import build
from perfkit.kernels.declare import Implementation, Operation
from perfkit.kernels.families import catalog

_GPU: dict[str, Callable[[Operation, Implementation, str, str, Sequence[Any]], list[Inspected]]] = {
    "cuda": inspect_cuda,
    "triton": inspect_triton,
}


def inspect_operation(
    name: str, implementations: Sequence[str], dtype: str, arch: str, sizes: str, extra_dirs: Sequence[str] = ()
) -> Iterator[Inspected]:
    """Return the compilers' output for each implementation of `name` (all, or those like `c:2` or `triton`).

    Of several, one that cannot be inspected here is a note; a single one raises what is wrong. Raises `UsageError` for
    an unknown operation, implementation, precision, size or architecture.
    """
    check_arch(arch)
    found = [(f.name, o) for f in catalog(extra_dirs) for o in f.operations if o.name == name.removeprefix("perfkit::")]
    if not found:
        known = ", ".join(sorted(o.name for f in catalog(extra_dirs) for o in f.operations))
        raise UsageError(f"There is no kernel called {name!r}.", f"There are: {known}; or a workload with --backend.")
    family, operation = found[0]
    chosen = _chosen(operation, implementations, dtype)
    arguments = _arguments(family, operation, dtype, sizes)
    for one in chosen:
        try:
            yield from _inspected(operation, one, dtype, arch, arguments)
        except PerfkitError as error:
            if len(chosen) == 1:
                raise
            yield Inspected(title=f"{name} {one.language}:{one.version} {dtype}", facts=[], notes=[str(error)])


def _chosen(operation: Operation, wanted: Sequence[str], dtype: str) -> list[Implementation]:
    written = sorted(operation.implementations, key=lambda i: (i.language, i.version))
    suited = [i for i in written if dtype in i.dtypes]
    chosen = [i for i in suited if not wanted or i.language in wanted or f"{i.language}:{i.version}" in wanted]
    if not chosen:
        known = ", ".join(f"{i.language}:{i.version} ({', '.join(i.dtypes)})" for i in written)
        asked = f"{' or '.join(wanted)} " if wanted else ""
        raise UsageError(f"{operation.name} has no implementation {asked}in {dtype}.", f"It has {known}.")
    return chosen


def _arguments(family: str, operation: Operation, dtype: str, sizes: str) -> tuple[Any, ...]:
    """Arguments of GPT-2's sizes on the CPU, for the shapes that launches follow from."""
    from perfkit.kernels.checking import Inputs

    names = tuple(inspect.signature(operation.inputs).parameters)[1:]
    given = size_texts.gpt2(family, names, "cpu", operation.cases[-1]) | size_texts.parse(sizes, names)
    return operation.inputs(Inputs(dtype, 0), **given)


def _inspected(
    operation: Operation, chosen: Implementation, dtype: str, arch: str, arguments: Sequence[Any]
) -> list[Inspected]:
    if chosen.language == "c":
        title = f"{operation.name} c:{chosen.version} {dtype}: {chosen.text}"
        return [inspect_library(build.library(operation.source_path(chosen), dtype), chosen.symbol, title)]
    if chosen.language not in _GPU:
        raise InputError(f"Kernels in {chosen.language} cannot be inspected.")
    return _GPU[chosen.language](operation, chosen, dtype, arch, arguments)
