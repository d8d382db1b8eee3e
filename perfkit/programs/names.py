"""Names of the modules of a program: paths in the models that it calls, and the pattern of repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_WRAPPERS = ("module", "_orig_mod")  # where data-parallel and compiled modules keep what they wrap


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The model inside modules that only run it in parallel or compiled."""
    while True:
        children = dict(module.named_children())
        inner = next((children[name] for name in _WRAPPERS if name in children), None)
        if inner is None or len(children) > 1:
            return module
        module = inner


def of_wrapper(module: torch.nn.Module, known: dict[int, str], told: bool = False) -> str:
    """The path of a module that is in no model: that of what it wraps. A compiled model, inside which no module is
    called, goes by its class, unless its kernels tell their own modules (`told`); so does what wraps nothing."""
    model = unwrapped(module)
    path = known.get(id(model)) if model is not module else None
    compiled = not told and any(name == "_orig_mod" for name, _ in module.named_children())
    return type(model).__name__ if path is None or (compiled and not path) else path


def outermost(called: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
    """Of the modules that were called from outside those that are in none of the others, the largest first."""
    models = list({id(m): m for m in map(unwrapped, called)}.values())
    order = sorted(models, key=lambda m: -sum(1 for _ in m.modules()))
    inside: set[int] = set()
    found = []
    for model in order:
        if id(model) not in inside:
            found.append(model)
            inside |= {id(m) for m in model.modules()}
    return found


def paths(models: Sequence[torch.nn.Module]) -> dict[int, str]:
    """Path by id of every module. Modules of the only model with parameters have the paths that they have in it, as
    in a run of a workload; the others begin with the class of their model, and so does one that holds no modules."""
    trained = [m for m in models if any(True for _ in m.parameters())]
    main = trained[0] if len(trained) == 1 else models[0] if len(models) == 1 else None
    classes: Counter[str] = Counter()
    found: dict[int, str] = {}
    for model in models:
        name = type(model).__name__
        classes[name] += 1
        whole = model is main and next(model.children(), None) is not None
        prefix = "" if whole else name if classes[name] == 1 else f"{name}_{classes[name]}"
        for path, module in model.named_modules():
            inner = ".".join(word for word in path.split(".") if word != "_orig_mod")
            found.setdefault(id(module), ".".join(filter(None, (prefix, inner))))
    return found


def _class(module: torch.nn.Module) -> str:
    """The class by its name: each module whose weight is normalised has a class of its own, all called alike."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def layers(models: Sequence[torch.nn.Module], named: dict[int, str]) -> str:
    """The pattern of the repeated blocks (`transformer.h.*`): of the lists of modules of one class that which holds
    most parameters. Blocks that hold modules come before single ones. "" where nothing repeats."""
    best: tuple[bool, int, str] = (False, 0, "")
    for module in (m for model in models for m in model.modules()):
        blocks = [(name, child) for name, child in module.named_children() if name.isdigit()]
        if len(blocks) < 2 or len({_class(child) for _, child in blocks}) > 1:
            continue
        holds = any(True for _ in blocks[0][1].children())
        size = sum(p.numel() for _, child in blocks for p in child.parameters())
        pattern = ".".join(filter(None, (named.get(id(module), ""), "*")))
        best = max(best, (holds, size, pattern), key=lambda one: one[:2])
    return best[2] if best[1] else ""
