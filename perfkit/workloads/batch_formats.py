"""Batches and results of models in one form, whatever form a workload gives them.

A batch is a tensor, a tuple (the positional arguments of the model) or a mapping (its arguments by name). What a model
returns becomes `(outputs, loss)`: `outputs` a tensor, or several by their place in what was returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfkit.errors import InputError

if TYPE_CHECKING:
    import torch

    from perfkit.workloads.interface import Batch

    Outputs = torch.Tensor | dict[str, torch.Tensor]

LOSS = "loss"


def placed(batch: Any, device: str, dtype: torch.dtype) -> Batch:
    """Return `batch` with its tensors on `device`, floating-point ones in `dtype`; everything else is unchanged.

    Raises `InputError` for a batch that is not a tensor, tuple, list or mapping.
    """
    import torch

    if not isinstance(batch, torch.Tensor | tuple | list | Mapping):
        kind = type(batch).__name__
        raise InputError(
            f"The workload's batch is of type {kind}.", "Return a tensor, a tuple or a mapping of tensors."
        )
    return mapped(batch, lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype))


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return `value` with each tensor replaced by what `change` returns for it; everything else is unchanged."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(one, change) for key, one in value.items()}
    if isinstance(value, tuple | list):
        parts = [mapped(one, change) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def share(batch: Any, rank: int, ranks: int, samples: int) -> Any:
    """The part of a batch that one of several ranks works on: of each tensor with `samples` rows its share of them.

    Raises `InputError` where the ranks do not divide the samples, or no tensor has that number of rows.
    """
    each, rest = divmod(samples, ranks)
    divided = 0

    def part(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal divided
        if not tensor.dim() or tensor.shape[0] != samples:
            return tensor
        divided += 1
        return tensor[rank * each : (rank + 1) * each].contiguous()

    found = mapped(batch, part)
    if rest or not divided:
        raise InputError(
            f"{ranks} ranks cannot divide the workload's batch of {samples} samples.",
            f"Let the first dimension of its tensors be a batch size (-B) that {ranks} divides.",
        )
    return found


def called(model: Callable[..., Any], batch: Batch) -> Any:
    """Call `model` with `batch`."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def parted(result: Any) -> tuple[Any, torch.Tensor | None]:
    """Return a model's outputs and its loss, which is named so, or is the only single number in a tuple.

    Of `(outputs, loss)` the second is the loss. The loss may be None. Raises `InputError` for a tuple of several
    numbers, of which nothing says which is the loss.
    """
    import torch

    if isinstance(result, torch.Tensor):
        return result, None if result.dim() else result
    named = _by_name(result)
    if named is not None:
        return {name: value for name, value in named.items() if name != LOSS}, named.get(LOSS)
    if not isinstance(result, tuple | list):
        return result, None
    if len(result) == 2 and _is_number(result[1]):
        return result[0], result[1]
    numbers = [index for index, value in enumerate(result) if _is_number(value)]
    if len(numbers) > 1:
        raise InputError(f"The model returns {len(numbers)} single numbers, and one of them is the loss.", _SAY_WHICH)
    loss = result[numbers[0]] if numbers else None
    return [value for value in result if value is not loss], loss


_SAY_WHICH = "Give the workload a method loss(self, outputs, batch), or return a mapping with a loss."


def checked_loss(loss: Any) -> torch.Tensor:
    """`loss`, if a training step can begin its backward there. Raises `InputError` otherwise."""
    import torch

    if not isinstance(loss, torch.Tensor):
        what = "no loss" if loss is None else f"a loss of type {type(loss).__name__}"
        raise InputError(f"The model returns {what}, and training needs one.", _SAY_WHICH)
    if loss.numel() != 1:
        raise InputError(
            f"The loss has the shape {tuple(loss.shape)}, and training needs one number.", "Take its mean."
        )
    if not loss.requires_grad:
        raise InputError(
            "The loss does not depend on a parameter that learns.", "Look for detach(), no_grad() or requires_grad."
        )
    return loss


def normal(outputs: Any) -> Outputs:
    """The tensors of `outputs`, cut off from autograd: the only one, or all by their place ("logits", "0.hidden").

    Where some hold floating-point numbers, these alone: whole numbers are indices and masks made of them.
    """
    found = dict(tensors(outputs))
    numbers = {name: t for name, t in found.items() if t.is_floating_point() or t.is_complex()} or found
    numbers = {name: t.detach() if t.requires_grad else t for name, t in numbers.items()}
    return next(iter(numbers.values())) if len(numbers) == 1 else numbers


def by_name(outputs: Outputs, name: str) -> dict[str, torch.Tensor]:
    """Normal outputs as tensors by name: `name` itself for the only one, else `name.PLACE`; complex ones as pairs."""
    import torch

    named = {f"{name}.{place}": t for place, t in outputs.items()} if isinstance(outputs, dict) else {name: outputs}
    return {place: torch.view_as_real(t) if t.is_complex() else t for place, t in named.items()}


def _is_number(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dim() == 0


def _by_name(result: Any) -> Mapping[str, Any] | None:
    """The parts of a result that have names; None of a tuple and the like, whose parts have none."""
    if isinstance(result, Mapping):
        return result
    if hasattr(result, "_asdict"):
        named = result._asdict()
        return named if LOSS in named else None
    if hasattr(result, LOSS) or hasattr(result, "logits"):
        slots = {name: getattr(result, name) for name in (LOSS, "logits") if hasattr(result, name)}
        return {**getattr(result, "__dict__", {}), **slots}
    return None


def tensors(value: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in `value` with their places ("logits", "0.hidden"), in the order in which `mapped` meets them."""
    import torch

    if isinstance(value, torch.Tensor):
        yield place, value
        return
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, tuple | list):
        parts = enumerate(value)
    else:
        parts = ()
    for name, part in parts:
        yield from tensors(part, f"{place}.{name}" if place else str(name))
