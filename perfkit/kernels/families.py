"""The catalog: every family found in `kernels/` and in a user's own directories. Needs neither torch nor a compiler."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from perfkit.content import content_dir, load_content_module
from perfkit.cost import CostModel
from perfkit.errors import InputError, UsageError
from perfkit.kernels.declare import COMPOSED, ENDINGS, Family, Implementation, Operation


def catalog(extra_dirs: Iterable[str | Path] = ()) -> list[Family]:
    """All families: the built-in ones, then those of each directory of `extra_dirs`, each sorted by name.

    An operation of a later directory replaces the operation of the same name before it, so that a user can try an own
    version of a built-in one; its schema must stay the same. Raises `InputError` for a directory or a file that is
    not what it should be.
    """
    families = [*_built_in(content_dir("kernels")), *(f for folder in extra_dirs for f in _families(Path(folder)))]
    owner: dict[str, Operation] = {}
    for operation in (o for family in families for o in family.operations):
        before = owner.get(operation.name)
        if before is not None and before.signature != operation.signature:
            raise InputError(
                f"{operation.folder} declares {operation.name}{operation.schema}, but {before.folder} has it as "
                f"{before.name}{before.schema}.",
                "Give the operation another name, or the same schema.",
            )
        owner[operation.name] = operation
    kept = [
        replace(family, operations=tuple(o for o in family.operations if owner[o.name] is o)) for family in families
    ]
    return [family for family in kept if family.operations]


def find(name: str, extra_dirs: Iterable[str | Path] = ()) -> Operation:
    """The operation called `name` (with or without `perfkit::`). Raises `UsageError` when it is unknown."""
    operations = {o.name: o for family in catalog(extra_dirs) for o in family.operations}
    short = name.removeprefix("perfkit::")
    if short not in operations:
        raise UsageError(f"There is no kernel operation called {name}.", f"Known: {', '.join(sorted(operations))}.")
    return operations[short]


def cost_model(extra_dirs: Iterable[str | Path] = ()) -> CostModel:
    """The costs of PyTorch's operators and of all operations, as a profile of either is read.

    An operation whose only implementation calls other operators leaves its work to them, which a profile shows inside.
    """
    operations = [o for family in catalog(extra_dirs) for o in family.operations]
    return CostModel(
        {o.qualified_name: o.cost for o in operations},
        composed=[o.qualified_name for o in operations if all(i.language == COMPOSED for i in o.implementations)],
        parts={o.qualified_name: o.parts for o in operations if o.parts},
    )


@functools.cache
def _built_in(directory: Path) -> tuple[Family, ...]:
    """The families below `directory`, read once a process: a program in Thunder asks for some 50 operations."""
    return tuple(_families(directory))


def _families(directory: Path) -> Iterator[Family]:
    """The families below `directory`: each folder FAMILY that holds a FAMILY.py."""
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory of kernels.", "Give a directory with one folder a family.")
    files = [p / f"{p.name}.py" for p in sorted(directory.iterdir()) if p.is_dir()]
    found = [file for file in files if file.is_file()]
    if not found:
        raise InputError(
            f"{directory} holds no kernel family.", "A family is a folder such as gelu/ with gelu.py: docs/kernels.md."
        )
    yield from map(_family, found)


def _family(file: Path) -> Family:
    family = getattr(load_content_module("kernels", file), "FAMILY", None)
    if not isinstance(family, Family):
        raise InputError(f"{file} sets no FAMILY.", "Set FAMILY = perfkit.kernels.Family(...): docs/kernels.md.")
    operations = tuple(_operation(o, file.parent) for o in family.operations)
    return replace(family, operations=operations, folder=file.parent)


def _operation(operation: Operation, folder: Path) -> Operation:
    """`operation` with its folder, after the checks that need no compiler."""
    implementations = tuple(_named(i, operation.name, folder.name) for i in operation.implementations)
    placed = replace(operation, folder=folder, implementations=implementations)
    signature = placed.signature
    tensors = [signature.inputs[i] for i in signature.tensors] + list(signature.outputs)
    missing = [name for name in tensors if name not in placed.shapes]
    if missing:
        raise InputError(f"{folder}: {placed.name} gives no shape for {', '.join(missing)}.", "Add it to shapes.")
    versions = [(i.language, i.version) for i in placed.implementations]
    if len(versions) != len(set(versions)):
        raise InputError(f"{folder}: {placed.name} has two implementations of one version.", "Number them apart.")
    absent = [i.source for i in placed.implementations if not placed.source_path(i).is_file()]
    if absent:
        raise InputError(f"{folder}: {placed.name} names {absent[0]}, which is missing.", "Put the source next to it.")
    if placed.parts and abs(sum(placed.parts.values()) - 1) > 1e-9:
        raise InputError(f"{folder}: the parts of {placed.name} do not add up to 1.", "Give each kernel its part.")
    return placed


def _named(implementation: Implementation, operation: str, family: str) -> Implementation:
    """`implementation` with the usual names of its source and function, where it leaves them out."""
    source = implementation.source or f"{family}{ENDINGS.get(implementation.language, '')}"
    usual = operation if implementation.language == "triton" else f"{operation}_v{implementation.version}"
    return replace(implementation, source=source, symbol=implementation.symbol or usual)
