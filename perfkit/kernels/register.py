"""Make the catalog's operations PyTorch operators: schema, implementation, shapes for tracing, and gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from perfkit.content import content_dir
from perfkit.errors import Unavailable
from perfkit.kernels import selection
from perfkit.kernels.autograd import register_gradient
from perfkit.kernels.declare import NAMESPACE, Implementation, Operation
from perfkit.kernels.dispatch import Runner
from perfkit.kernels.families import catalog, find
from perfkit.kernels.languages import LANGUAGES, candidates, device_unavailable

# PyTorch knows an operator once for the whole process; its implementation may be replaced by a user's own version.
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_operations: dict[str, Operation] = {}
_runners: dict[tuple[str, str], Runner] = {}

# Kernels in the usual precision are built at once, those in others at their first call.
_PREPARED_DTYPE = "fp32"


def load(extra_dirs: Iterable[str | Path] = ()) -> dict[str, Implementation]:
    """Build and register every operation that can run here; return what runs, by qualified name.

    Loading again costs little and changes nothing, except that operations of `extra_dirs` replace those of the same
    name until the process ends. Raises `Unavailable` when no kernel can run on this machine, `RunFailed` when a source
    does not compile, and `InputError` for a broken family.
    """
    selection.read_environment()
    families = catalog(extra_dirs)
    known = sorted({device for language in LANGUAGES.values() for device in language.devices})
    devices = [device for device in known if device_unavailable(families, device) is None]
    if not devices:
        raise Unavailable(device_unavailable(families, "cpu") or "No kernel can run on this machine.")
    operations = [o for family in families for o in family.operations if _is_new(o)]
    runners = [Runner(o, d) for o in operations for d in devices if candidates(o, d, _prepared(o))]
    # Compilers are processes of their own: a few at a time. Any failure is raised here, before anything is registered.
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(_prepare, runners))
    for runner in runners:
        _put(runner)
    chosen = {runner.operation.qualified_name: _prepare(runner) for runner in _runners.values()}
    return {name: implementation for name, implementation in chosen.items() if implementation is not None}


def _prepare(runner: Runner) -> Implementation | None:
    """Build what will run; None when it lacks the version asked for, which is an error only if it gets called."""
    dtype = _prepared(runner.operation)
    found = candidates(runner.operation, runner.device, dtype, selection.wanted().language)
    if selection.wanted().version not in (None, *(i.version for i in found)):
        return None
    return runner.prepare(dtype)


def _prepared(operation: Operation) -> str:
    """The precision that is built at once: the usual one, or of an operation that lacks it its first."""
    every = dict.fromkeys(dtype for i in operation.implementations for dtype in i.dtypes)
    return _PREPARED_DTYPE if _PREPARED_DTYPE in every else next(iter(every))


def runner(operation: Operation, device: str) -> Runner:
    """The runner of `operation`, whether it is registered or not."""
    registered = _runners.get((operation.name, device))
    return registered if registered and registered.operation == operation else Runner(operation, device)


def registered(name: str) -> Operation | None:
    """The operation of this name (with or without `perfkit::`) that was loaded last; None before any was."""
    return _operations.get(name.removeprefix(f"{NAMESPACE}::"))


def direct(name: str) -> Callable[..., Any]:
    """`torch.ops.perfkit.NAME` for callers whose tensors are plain and ask for no gradient: half the time of a call.

    PyTorch's dispatcher, with its layers for autograd, takes longer than the launch. A profiler sees the operator all
    the same: while one records, the call goes through the dispatcher.
    """
    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    first = next(i for i, kind in enumerate(find(name).signature.kinds) if kind == "Tensor")
    recorded = torch.autograd._profiler_enabled
    runners = {device: (name, device) for x in LANGUAGES.values() for device in x.devices}

    def call(*arguments: Any) -> Any:
        if recorded():
            return operator(*arguments)
        return _runners[runners[arguments[first].device.type]](*arguments)

    return call


def _is_new(operation: Operation) -> bool:
    """Return whether loading must register it: it is unknown so far, or a user's own version from another folder."""
    before = _operations.get(operation.name)
    if before is None:
        return True
    return before.folder != operation.folder and operation.folder.parent != content_dir("kernels")


def _put(runner: Runner) -> None:
    """Let `runner` serve its operator on its device; register the operator with PyTorch when it is new."""
    operation, key = runner.operation, (runner.operation.name, runner.device)
    known = operation.name in _operations
    _operations[operation.name] = operation
    if not known:
        _define(operation)
    if key not in _runners:
        _library.impl(operation.name, _call(*key), runner.device.upper())
    _runners[key] = runner


def _define(operation: Operation) -> None:
    name = operation.name
    _library.define(name + operation.schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_fake(operation.qualified_name, lambda *arguments: _fake(name, arguments), lib=_library)
    if operation.gradient is not None:
        register_gradient(operation, _library)


def _fake(name: str, arguments: Sequence[Any]) -> Any:
    """The outputs' shapes and types; None where everything happens in place."""
    operation = _operations[name]
    return operation.allocate(*arguments) if operation.signature.outputs else None


def _call(name: str, device: str) -> Callable[..., Any]:
    """Return the function that PyTorch calls. It looks up the runner at each call: a user's version may have replaced
    it."""

    def call(*arguments: Any) -> torch.Tensor | Sequence[torch.Tensor]:
        return _runners[name, device](*arguments)

    return call
