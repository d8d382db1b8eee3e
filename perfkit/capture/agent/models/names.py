"""Names of the modules of a program: paths in the models that it calls, and the pattern of repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_WRAPPERS = ("module", "_orig_mod")  # where data-parallel and compiled modules keep what they wrap
# Where wrappers of parts of a model keep them: no names that the program gave.
_NO_NAMES = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def named_modules(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Path and module of `module` and all in it, each module once. A program's own class may have overridden the
    methods that list them, which are not called."""
    seen: set[int] = set()
    waiting = [("", module)]
    while waiting:
        path, found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield path, found
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in reversed(named_children(found))]


def named_children(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Name and module of those directly in `module`."""
    return [(name, child) for name, child in vars(module).get("_modules", {}).items() if child is not None]


def modules(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """`module` and all in it."""
    return (found for _, found in named_modules(module))


def parameters(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """The parameters of `module` and all in it; a shared one comes again."""
    return (p for found in modules(module) for p in vars(found).get("_parameters", {}).values() if p is not None)


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The model inside modules that only run it in parallel or compiled."""
    while True:
        children = dict(named_children(module))
        inner = next((children[name] for name in _WRAPPERS if name in children), None)
        if inner is None or len(children) > 1:
            return module
        module = inner


def of_wrapper(module: torch.nn.Module, known: dict[int, str], told: bool = False) -> str:
    """The path of a module that is in no model: that of what it wraps. A compiled model, inside which no module is
    called, goes by its class, unless its kernels tell their own modules (`told`); so does what wraps nothing."""
    model = unwrapped(module)
    path = known.get(id(model)) if model is not module else None
    compiled = not told and any(name == "_orig_mod" for name, _ in named_children(module))
    return type(model).__name__ if path is None or (compiled and not path) else path


def outermost(called: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
    """Return the modules among `called` that are in none of the others, the largest first."""
    models = list({id(m): m for m in map(unwrapped, called)}.values())
    order = sorted(models, key=lambda m: -sum(1 for _ in modules(m)))
    inside: set[int] = set()
    found = []
    for model in order:
        if id(model) not in inside:
            found.append(model)
            inside |= {id(m) for m in modules(model)}
    return found


def paths(models: Sequence[torch.nn.Module]) -> dict[int, str]:
    """Path by id of every module. Modules of the only model with parameters have the paths that they have in it, as
    in a run of a workload; the others begin with the class of their model, and so does one that holds no modules."""
    trained = [m for m in models if any(True for _ in parameters(m))]
    main = trained[0] if len(trained) == 1 else models[0] if len(models) == 1 else None
    classes: Counter[str] = Counter()
    found: dict[int, str] = {}
    for model in models:
        name = type(model).__name__
        classes[name] += 1
        whole = model is main and bool(named_children(model))
        prefix = "" if whole else name if classes[name] == 1 else f"{name}_{classes[name]}"
        for path, module in named_modules(model):
            inner = ".".join(word for word in path.split(".") if word not in _NO_NAMES)
            found.setdefault(id(module), ".".join(filter(None, (prefix, inner))))
    return found


def _class(module: torch.nn.Module) -> str:
    """The class by its name: each module whose weight is normalised has a class of its own, all called alike."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def layers(models: Sequence[torch.nn.Module], named: dict[int, str]) -> str:
    """The pattern of the repeated blocks (`transformer.h.*`): of the lists of modules of one class that which holds
    most parameters. Blocks that hold modules come before single ones. "" where nothing repeats."""
    best: tuple[bool, int, str] = (False, 0, "")
    for module in (m for model in models for m in modules(model)):
        blocks = [(name, child) for name, child in named_children(module) if name.isdigit()]
        if len(blocks) < 2 or len({_class(child) for _, child in blocks}) > 1:
            continue
        holds = bool(named_children(blocks[0][1]))
        size = sum(p.numel() for _, child in blocks for p in parameters(child))
        pattern = ".".join(filter(None, (named.get(id(module), ""), "*")))
        best = max(best, (holds, size, pattern), key=lambda one: one[:2])
    return best[2] if best[1] else ""
