"""One call of a PyTorch operator, rebuilt from a recipe: its inputs, the call, and the same call in fp64.

A recipe is plain data:

    {"operator": "aten::addmm", "overload": "", "seed": 0, "changed": [names of arguments that it changes],
     "arguments": [[name, keyword only, value], ...],
     "gradient": whether its backward pass is what runs, "upstream": the value that it begins with,
     "source": the text of a generated kernel that runs in the operator's place,
     "forward": a recipe whose results arguments may be, "reference": a recipe that computes the same in fp64}

A value is {"tensor": {"shape", "strides", "dtype", "fill", "bound"}}, {"list": [values]}, {"value": plain},
{"real": "inf"}, {"dtype": "float32"}, {"device": ""}, {"layout": name}, {"format": name},
{"result": number of the forward recipe's results, "else": a value of the same shape}, {"argument": name of another
recipe's argument}.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Recipe = dict[str, Any]
Values = dict[str, Any]
UPSTREAM = "(gradient of the result)"  # among the arguments of a recipe that runs backwards


def operator_of(recipe: Recipe) -> Any:
    """The operator's overload in `torch.ops`, or the generated kernel of the recipe's source."""
    if "source" in recipe:
        return kernel_of(recipe["operator"], recipe["source"])
    namespace, _, name = recipe["operator"].partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), name), recipe["overload"] or "default")


def kernel_of(name: str, source: str) -> Callable[..., None]:
    """A Triton kernel as Inductor launches it, compiled from the source that Inductor wrote."""
    from torch._inductor.codecache import PyCodeCache

    kernel: Any = getattr(PyCodeCache.load(source), name)
    kernel.precompile()

    def launch(*arguments: Any) -> None:
        kernel.run(*arguments, stream=torch.cuda.current_stream().cuda_stream)

    return launch


class Maker:
    """Makes the values of a recipe on a device; the same ones for the same seed."""

    def __init__(self, device: str, seed: int) -> None:
        self.device, self.seed = device, seed
        self.forward: tuple[Any, ...] = ()

    def arguments(self, recipe: Recipe, given: Values | None = None) -> Values:
        """The arguments by name; `given` are those of the recipe that this one belongs to."""
        made: Values = {}
        forward = recipe.get("forward")
        waiting = [entry for entry in recipe["arguments"] if "result" in entry[2]]
        for name, _, value in recipe["arguments"]:
            if "result" not in value:
                made[name] = self.value(value, given or {})
        if forward:
            with torch.no_grad():
                found = operator_of(forward)(*positional(forward, inner := self.arguments(forward, made)),
                                             **keywords(forward, inner))  # fmt: skip
            self.forward = tuple(found) if isinstance(found, tuple | list) else (found,)
        for name, _, value in waiting:
            made[name] = self.forward[value["result"]]
        ordered = {name: made[name] for name, _, _ in recipe["arguments"]}
        if "upstream" in recipe:
            ordered[UPSTREAM] = self.value(recipe["upstream"], given or {})
        return ordered

    def value(self, value: Values, given: Values) -> Any:
        """One value of a recipe."""
        ((kind, content),) = value.items()
        if kind == "tensor":
            return self.tensor(**content)
        if kind == "list":
            return [self.value(one, given) for one in content]
        if kind == "argument":
            return given[content]
        if kind == "real":
            return float(content)
        if kind == "device":
            return torch.device(self.device)
        return getattr(torch, content) if kind in ("dtype", "layout", "format") else content

    def tensor(
        self, shape: list[int], strides: list[int] | None, dtype: str, fill: str, bound: int = 0, cpu: bool = False
    ) -> Tensor:
        """A tensor with these strides (None: contiguous), filled as `fill` says."""
        if self.device == "meta":
            made = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
            return made if strides is None else made.as_strided(shape, strides)
        device = "cpu" if cpu else self.device
        self.seed += 1
        generator = torch.Generator(device).manual_seed(self.seed)
        kind = getattr(torch, dtype)
        extent = 1
        for size, step in zip(shape, strides or [], strict=bool(strides)):
            extent += (size - 1) * step
        count = torch.Size(shape).numel() if strides is None or 0 in shape else extent
        flat = filled(count, kind, fill, bound, generator)
        return flat.view(shape) if strides is None or 0 in shape else flat.as_strided(shape, strides)


def filled(count: int, dtype: torch.dtype, fill: str, bound: int, generator: torch.Generator) -> Tensor:
    """`count` numbers of a distribution: normal, positive (0.5 to 1.5), unit (0 to 1), rising, or a whole constant."""
    place: dict[str, Any] = {"device": generator.device, "generator": generator}
    if fill in ("zero", "one"):
        return torch.full((count,), int(fill == "one"), dtype=dtype, device=generator.device)
    if fill == "rising":  # from 0 to the bound in equal steps, as offsets of bags of equal size
        return (torch.arange(count, device=generator.device) * bound // max(count, 1)).to(dtype)
    if dtype.is_complex:
        return torch.randn(count, dtype=dtype, **place)
    if not dtype.is_floating_point:
        return torch.randint(0, 2 if dtype == torch.bool else max(bound, 1), (count,), **place).to(dtype)
    wide = dtype if dtype == torch.float64 else torch.float32
    if fill == "normal":
        return torch.randn(count, dtype=wide, **place).to(dtype)
    return (torch.rand(count, dtype=wide, **place) + (0.5 if fill == "positive" else 0.0)).to(dtype)


def widened(value: Any) -> Any:
    """The value in fp64: tensors of real numbers, dtypes, and lists of both."""
    if isinstance(value, list):
        return [widened(one) for one in value]
    if isinstance(value, Tensor):
        return (
            value.double() if value.is_floating_point() else value.to(torch.complex128) if value.is_complex() else value
        )
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def copied(value: Any) -> Any:
    """A copy of a tensor, or of each in a list, with the same strides."""
    if isinstance(value, list):
        return [copied(one) for one in value]
    return torch.empty_like(value).copy_(value) if isinstance(value, Tensor) else value


def positional(recipe: Recipe, arguments: Values) -> list[Any]:
    """The arguments that are not given by keyword, in order."""
    return [arguments[name] for name, keyword, _ in recipe["arguments"] if not keyword]


def keywords(recipe: Recipe, arguments: Values) -> Values:
    """The arguments that are given by keyword."""
    return {name: arguments[name] for name, keyword, _ in recipe["arguments"] if keyword}


def call_of(
    recipe: Recipe, arguments: Values, context: Callable[[], Any] = contextlib.nullcontext
) -> Callable[[], Any]:
    """The call: of the operator, or of its backward pass, whose forward pass runs once, under `context` too."""
    operator, args, named = operator_of(recipe), positional(recipe, arguments), keywords(recipe, arguments)
    if recipe.get("gradient"):
        return gradient_of(lambda: operator(*args, **named), args, arguments.get(UPSTREAM), context)

    def call() -> Any:
        with context():
            return operator(*args, **named)

    return (lambda: operator(*args, **named)) if context is contextlib.nullcontext else call


def gradient_of(
    forward: Callable[[], Any], args: list[Any], upstream: Tensor | None, context: Callable[[], Any]
) -> Callable[[], Any]:
    """The backward pass of `forward` for all tensors of real numbers in `args`, from the gradient of its result."""
    leaves = [a.requires_grad_() for a in args if isinstance(a, Tensor) and a.is_floating_point()]
    with torch.enable_grad(), context():
        made = forward()
    first = made[0] if isinstance(made, tuple | list) else made
    above = torch.ones_like(first) if upstream is None else upstream
    return lambda: torch.autograd.grad(first, leaves, above, retain_graph=True)


def results(recipe: Recipe, result: Any, arguments: Values) -> Values:
    """The tensors that a call gave, by number, and the arguments that it changed, by name."""
    found: Values = {}
    changed = [arguments[name] for name in recipe["changed"]]
    for name, value in zip(recipe["changed"], changed, strict=True):
        found.update(_numbered(name, value))
    for number, one in enumerate(result if isinstance(result, tuple | list) else (result,)):
        if not any(one is other for other in changed):
            found.update(_numbered(f"result {number}", one))
    return found


def _numbered(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value.detach()
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _numbered(f"{name}[{number}]", one)


def fresh(recipe: Recipe, arguments: Values) -> Values:
    """The arguments with copies of those that the call changes, or follows backwards."""
    every = bool(recipe.get("gradient"))
    return {name: copied(value) if every or name in recipe["changed"] else value for name, value in arguments.items()}


def outputs(recipe: Recipe, arguments: Values, context: Callable[[], Any] = contextlib.nullcontext) -> Values:
    """The results of one call on copies of what it changes."""
    own = fresh(recipe, arguments)
    return results(recipe, call_of(recipe, own, context)(), own)


def expected(recipe: Recipe, arguments: Values, maker: Maker) -> Values:
    """The results in fp64, by the reference of the recipe or the operator itself."""
    wide = {name: widened(value) for name, value in arguments.items()}
    other = recipe.get("reference")
    if other:
        return outputs(other, maker.arguments(other, wide))
    return outputs(recipe, wide)
