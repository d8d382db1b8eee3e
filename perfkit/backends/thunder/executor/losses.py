"""Cross entropy for the executor: over logits in any precision, in place, in rows that may be padded.

Models convert logits in 16 bits to fp32 before the loss, and a head's product may be wider than the vocabulary
(`products.padded_width`). The kernels compute in fp32 whatever they read, and leave the padding out; so the loss may
read the product itself, and its gradient be what the head's products read. `claimed` puts that into a captured trace:

    logits = linear(x, weight)                      wide = wide_linear(x, weight, None, Vp)
    loss = cross_entropy(view(to(logits)), …)       logits = first_columns(wide, V)
                                                    loss = padded_cross_entropy(wide, …)

Import it only after `support.load()` and `kernels.load()`: it needs both.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
from thunder.core import dtypes, prims
from thunder.core.prims import get_grad, put_grad
from thunder.core.proxies import TensorProxy
from thunder.core.trace import from_trace, tracectx

from perfkit.backends.thunder.executor import library
from perfkit.backends.thunder.executor.registry import claim, executor, fits, kernel_symbol
from perfkit.backends.thunder.executor.shapes import detached, like

_forward, _backward = kernel_symbol("cross_entropy_forward"), kernel_symbol("cross_entropy_backward")

# Symbols that hand logits on as they are: in another precision, which the kernels do not need, or in other rows.
_CONVERSIONS = ("convert_element_type", "to", "float")
_SHAPES = ("view", "reshape", "flatten", "contiguous")


def _applies(
    logits: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> bool:  # fmt: skip
    """Logits (N, V) against one class index a row, averaged, without class weights and label smoothing."""
    plain = weight is None and size_average is None and reduce is None and reduction == "mean" and label_smoothing == 0
    rows = isinstance(target, TensorProxy) and target.ndim == 1 and target.dtype == dtypes.int64
    return plain and rows and logits.ndim == 2 and logits.numel() > 0 and fits("cross_entropy", logits)


def _ignored(others: tuple[Any, ...], keyword: int) -> int:
    """`ignore_index`, the third argument after the target: (weight, size_average, ignore_index, …)."""
    return others[2] if len(others) > 2 else keyword


def _inference(logits: Any, target: Any, *others: Any, ignore_index: int = -100, **keywords: Any) -> Any:
    vocabulary = logits.shape[-1]
    return ltorch.to(_forward(logits, target, vocabulary, _ignored(others, ignore_index))[0], logits.dtype)


def _training(logits: Any, target: Any, *others: Any, ignore_index: int = -100, **keywords: Any) -> Any:
    numbers = logits.shape[-1], _ignored(others, ignore_index)
    found, logsumexp = _forward(logits, target, *numbers)
    loss = ltorch.to(found, logits.dtype)
    dloss = ltorch.to(get_grad(loss), dtypes.float32)
    put_grad(logits, _backward(dloss, logits, target, logsumexp, *numbers))
    return loss


claim(ltorch.cross_entropy, "cross_entropy", _applies, _inference, _training)


# ---- the loss of a head's own product --------------------------------------------------------------------------------


def _never(*arguments: Any) -> Any:
    raise AssertionError("a symbol of captured traces, which executed ones do not hold")


def _padded_inference(wide: Any, target: Any, vocabulary: int, ignore_index: int) -> Any:
    return _forward(_rows(wide), target, vocabulary, ignore_index)[0]


def _padded_training(wide: Any, target: Any, vocabulary: int, ignore_index: int) -> Any:
    rows = _rows(wide)
    loss, logsumexp = _forward(rows, target, vocabulary, ignore_index)
    gradient = _backward(get_grad(loss), rows, target, logsumexp, vocabulary, ignore_index)
    put_grad(wide, ltorch.reshape(gradient, tuple(wide.shape)))
    return loss


def _rows(wide: Any) -> Any:
    return ltorch.reshape(wide, (-1, wide.shape[-1]))


# logits (…, Vp), targets (N), N the number of rows → the mean loss () in fp32.
_padded_loss = executor.register_operator(
    "padded_cross_entropy", meta=lambda wide, *others: like(wide, (), dtypes.float32), fn=_never
)
executor.register_implementation(_padded_loss, execution_transform=_padded_inference, grad_transform=_padded_training)


def claimed(trace: Any) -> Any:
    """A captured trace whose long products are padded, and whose cross entropies read what the head's product made."""
    made = {proxy.name: bound for bound in trace.bound_symbols for proxy in bound.flat_proxy_outs}
    new, wide = from_trace(trace), {}
    for bound in trace.bound_symbols:
        if library.pads(bound):
            symbols = _padded_product(new, *bound.args, y=bound.output)
            wide[bound.output.name] = symbols[0].output
        elif bound.sym.id == ltorch.cross_entropy.id and bound.args and executor.can_execute(bound):
            logits = _origin(bound.args[0], made)
            ignored = _ignored(bound.args[2:], bound.kwargs.get("ignore_index", -100))
            given = (wide.get(logits.name, logits), bound.args[1], logits.shape[-1], ignored)
            symbols = _loss_symbols(new, given, bound.output)
        else:
            new.bound_symbols.append(bound)
            continue
        for symbol in symbols:
            symbol.tags |= bound.tags
        new.bound_symbols += symbols
    return new


def _origin(logits: Any, made: dict[str, Any]) -> Any:
    """Return what the kernel can read for `logits`: their value before conversions to more bits and views as rows.

    Symbols under torch.no_grad stay: a gradient ends there.
    """
    columns = logits.shape[-1]
    while (bound := made.get(logits.name)) is not None and bound.sym.name in _CONVERSIONS + _SHAPES:
        before = bound.args[0]
        same = before.shape[-1:] == (columns,) and before.numel() == logits.numel() and before.device == logits.device
        if not same or detached(logits) or not fits("cross_entropy", before):
            break
        if before.dtype.bytes > logits.dtype.bytes:
            break
        logits = before
    return logits


def _padded_product(trace: Any, x: Any, weight: Any, bias: Any = None, *, y: Any) -> list[Any]:
    with tracectx(trace):
        wide = like(x, (*x.shape[:-1], library.padded(weight)))
    wide.tags.update(y.tags)
    return library.wide_linear_symbols(x, weight, bias, wide, y)


def _loss_symbols(trace: Any, given: tuple[Any, ...], loss: Any) -> list[Any]:
    """The loss of `given` as `loss`, which PyTorch gives in the precision of the logits that it was asked for."""
    if loss.dtype == dtypes.float32:
        return [_padded_loss.bind(*given, output=loss)]
    with tracectx(trace):
        exact = like(loss, dtype=dtypes.float32)
    return [
        _padded_loss.bind(*given, output=exact),
        prims.convert_element_type.bind(exact, loss.dtype, output=loss),
    ]
