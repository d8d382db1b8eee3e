"""Products of fp8 in a step by hand: what is cast, when, and where it lies.

Legend: N rows, K width of what a layer takes, M of what it gives.

    forward    y (N, M)  = x8 · w8ᵀ         backward    dx (N, K) = dy8 · w8
    in e4m3                                 dy8 in e5m2 dW (M, K) = dy8ᵀ · x8

A weight is cast once a step, what enters a layer once a batch, and each time both as it lies and transposed: the
library multiplies rows with rows only. Of an input the transposed numbers are kept for the backward, and the others
until the next cast of that width. Every amax is of its tensor now: it starts at 0, and the kernel that makes the tensor
raises it, or one that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perfkit import kernels
from perfkit.handwritten.arena import Arena
from perfkit.handwritten.calls import Kernels, at

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2


class Eights:
    """The layers of `weights` (module path → W (M, K)) over `rows` rows.

    `leaders` names for each layer the first one with the same input, which casts it for all; what leaders with the same
    `slot` keep for the backward shares its memory.
    """

    def __init__(
        self,
        call: Kernels,
        weights: Mapping[str, Tensor],
        rows: int,
        leaders: Callable[[str], str] = lambda name: name,
        slot: Callable[[str], str] = lambda name: name,
    ) -> None:
        self._call = call
        self._weights = weights
        self._leader = {name: leaders(name) for name in weights}
        self._slot = {name: slot(leader) for name, leader in self._leader.items()}
        device = next(iter(weights.values())).device
        first = dict.fromkeys(self._leader.values())
        self._of_weights = Arena(dict.fromkeys(weights, ()), torch.float32, device)
        batch = [*(f"x {name}" for name in first), *(f"dy {name}" for name in weights)]
        self._of_batch = Arena(dict.fromkeys(batch, ()), torch.float32, device)
        self._scales = Arena(dict.fromkeys([*batch, *(f"w {name}" for name in weights)], ()), torch.float32, device)
        kept: dict[str, tuple[int, ...]] = {f"x {self._slot[name]}": (weights[name].shape[1], rows) for name in first}
        for name, weight in weights.items():
            kept |= {f"w {name}": tuple(weight.shape), f"wt {name}": tuple(weight.t().shape)}
        for width in {weight.shape[1] for weight in weights.values()}:
            kept[f"x8 {width}"] = rows, width
        self._numbers = Arena(kept, FORWARD, device)
        wide = {weight.shape[0] for weight in weights.values()}
        gradients: dict[str, tuple[int, ...]] = {f"dy {width}": (rows, width) for width in wide}
        self._gradients = Arena(gradients | {f"dyt {width}": (width, rows) for width in wide}, GRADIENT, device)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def input_amax(self, name: str) -> Tensor | None:
        """The amax () that the kernel before this layer raises for its input; None of a layer that is not in fp8."""
        return self._of_batch[f"x {self._leader[name]}"] if name in self else None

    def gradient_amax(self, name: str) -> Tensor | None:
        """The amax () that a kernel raises for the gradient of what this layer gives."""
        return self._of_batch[f"dy {name}"] if name in self else None

    def begin_step(self) -> None:
        """Cast the weights as they are now."""
        self._of_weights.flat.zero_()
        for name, weight in self._weights.items():
            numbers, scale = [self._numbers[f"w {name}"], self._numbers[f"wt {name}"]], self._scales[f"w {name}"]
            with at(name):
                self._cast("fp8_cast", weight, self._of_weights[name], [*numbers, scale])

    def begin_batch(self) -> None:
        """Forget the largest values of the batch before."""
        self._of_batch.flat.zero_()

    def forward(
        self, name: str, x: Tensor, bias: Tensor | None, out: Tensor, measured: bool = False, moving: bool = False
    ) -> None:
        """out (N, M) = x (N, K) · Wᵀ + b. `measured`: x's amax was raised. `moving`: x lies elsewhere each time."""
        if name == self._leader[name]:
            self.cast_input(name, x, measured, moving)
        x8, _, scale = self._input(name)
        terms = x8, self._numbers[f"w {name}"], scale, self._scales[f"w {name}"]
        if bias is None:
            self._call("fp8_linear_forward", *terms, out=[out])
        else:
            self._call("fp8_linear_bias_forward", *terms, bias, out=[out])

    def cast_input(self, name: str, x: Tensor, measured: bool = False, moving: bool = False) -> None:
        """Cast what enters the layer `name` and those that take the same, as `forward` does."""
        self._cast("fp8_cast", x, self._of_batch[f"x {name}"], self._input(name), measured, moving)

    def _input(self, name: str) -> list[Tensor]:
        """Memory for x8 (N, K), x8t (K, N) and the scale of a layer's input."""
        width = self._weights[name].shape[1]
        kept = self._numbers[f"x8 {width}"], self._numbers[f"x {self._slot[name]}"]
        return [*kept, self._scales[f"x {self._leader[name]}"]]

    def backward(
        self, name: str, dy: Tensor, dx: Tensor | None, dweight: Tensor,
        add: bool = False, add_dx: bool = False, measured: bool = False,
    ) -> None:  # fmt: skip
        """dx (N, K) = dy (N, M) · W and dW (M, K) = dyᵀ · x, each added to what is there with `add_dx` and `add`."""
        width, scales = dy.shape[1], self._scales
        dy8, dy8t, scale = self._gradients[f"dy {width}"], self._gradients[f"dyt {width}"], scales[f"dy {name}"]
        self._cast("fp8_gradient_cast", dy, self._of_batch[f"dy {name}"], [dy8, dy8t, scale], measured)
        if dx is not None:
            terms = dy8, self._numbers[f"wt {name}"], scale, scales[f"w {name}"]
            self._call("fp8_linear_backward_input", *terms, out=[dx], add=["dx"] if add_dx else [])
        _, x8t, scale_x = self._input(name)
        terms = dy8t, x8t, scale, scale_x
        self._call("fp8_linear_backward_weight", *terms, out=[dweight], add=["dweight"] if add else [])

    def _cast(
        self, kind: str, x: Tensor, amax: Tensor, out: Sequence[Tensor], measured: bool = False, moving: bool = False
    ) -> None:
        run = _bound_now if moving else self._call
        if not measured:
            run("fp8_amax", x, amax)
        run(kind, x, amax, out=out)


def _bound_now(name: str, *arguments: Any, out: Sequence[Tensor] = ()) -> None:
    kernels.bind(name, arguments, out)()


def calling(layers: Sequence[Any]) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """Return a function that runs layers, each with its input (N, K), as a step by hand does: for their check."""
    made: dict[int, Eights] = {}

    def call(inputs: Sequence[Tensor]) -> list[Tensor]:
        rows = len(inputs[0])
        if rows not in made:
            weights = {str(i): layer.weight.detach() for i, layer in enumerate(layers)}
            made[rows] = Eights(Kernels(), weights, rows)
        eights = made[rows]
        with torch.no_grad():
            eights.begin_step()
            eights.begin_batch()
        return list(_applied(eights, layers, inputs))

    return call


def _applied(eights: Eights, layers: Sequence[Any], inputs: Sequence[Tensor]) -> Iterator[Tensor]:
    for i, (layer, x) in enumerate(zip(layers, inputs, strict=True)):
        yield _ByHand.apply(x, layer.weight, layer.bias, eights, str(i))  # type: ignore[no-untyped-call]


class _ByHand(torch.autograd.Function):
    """The products of one layer, so that PyTorch can ask for their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eights: Eights, name: str) -> Tensor:
        ctx.eights, ctx.name, ctx.like, ctx.biased = eights, name, (x, weight), bias is not None
        y = x.new_empty(len(x), len(weight))
        eights.forward(name, x, bias, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        dx, dweight = (torch.empty_like(t) for t in ctx.like)
        dy = dy.contiguous()
        ctx.eights.backward(ctx.name, dy, dx, dweight)
        return dx, dweight, torch.ops.perfkit.bias_gradient(dy) if ctx.biased else None, None, None
