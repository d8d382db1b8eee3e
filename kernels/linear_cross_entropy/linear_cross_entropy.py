"""The cross entropy of a linear layer's result, which is a chunk of rows at a time in memory and never whole.

The loss's forward has all that its gradients need but the factor from above: so it computes them as well, while a chunk
of logits is there, and the backward only scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Implementation, Operation

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

DTYPES = {"targets": "int64", "loss": "fp32", "counted": "fp32", "dloss": "fp32"}
IGNORE = -1


def forward_reference(
    x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `linear_cross_entropy_forward` in plain PyTorch."""
    import torch
    from torch.nn.functional import cross_entropy

    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, weight)]
        logits = leaves[0] @ leaves[1][:vocabulary].t()
        total = cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum")
        of_x, of_weight = torch.autograd.grad(total, leaves)
    counted = (targets != ignore_index).sum().to(x.dtype)
    return total.detach() / counted, of_x, of_weight, counted


def backward_reference(dloss: Tensor, x_slope: Tensor, weight_slope: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """dx = x_slope·dloss / counted, dweight = weight_slope·dloss / counted; 0 where none is counted, in plain
    PyTorch."""
    factor = dloss / counted.clamp(min=1)
    return x_slope * factor, weight_slope * factor


def sizes(x: Tensor, weight: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> tuple[int, ...]:
    """V and ignore_index."""
    if not 0 < vocabulary <= weight.shape[0]:
        raise InputError(f"The weight has {weight.shape[0]} rows for {vocabulary} words.", "Correct `vocabulary`.")
    return vocabulary, ignore_index


def forward_cost(call: Call) -> Cost:
    """Three products of 2·N·C·V FLOP: logits, and the two slopes; a logit 7 FLOP more (`classifier`), a row 5."""
    x, weight, targets, vocabulary = call.tensor(0), call.tensor(1), call.tensor(2), call.arguments[3]
    assert isinstance(vocabulary, int)
    rows, channels = x.shape
    flop = {
        f"matrix_{x.dtype}": 6.0 * rows * channels * vocabulary,
        f"vector_{x.dtype}": 7.0 * rows * vocabulary + 5.0 * rows,
    }
    written = x.nbytes + weight.nbytes + 2 * ITEM_BYTES["fp32"]
    return Cost(flop, x.nbytes + vocabulary * channels * ITEM_BYTES[x.dtype] + targets.nbytes, written)


def backward_cost(call: Call) -> Cost:
    """A product an element."""
    dloss, x, weight, counted = (call.tensor(i) for i in range(4))
    flop = {f"vector_{x.dtype}": float(x.numel + weight.numel + 1)}
    return Cost(flop, dloss.nbytes + x.nbytes + weight.nbytes + counted.nbytes, x.nbytes + weight.nbytes)


def forward_inputs(make: Inputs, N: int, C: int, V: int, Vp: int) -> tuple[Any, ...]:
    """Every third target does not count; rows of the weight from V on are padding."""
    targets = make.integers(0, V, N)
    targets[1::3] = IGNORE
    weight = make.normal(Vp, C, scale=1.0 / C**0.5)
    weight[V:] = 0.0
    return make.normal(N, C), weight, targets, V, IGNORE


def backward_inputs(make: Inputs, N: int, C: int, Vp: int) -> tuple[Any, ...]:
    """Draw dloss, x_slope (N, C), weight_slope (Vp, C), counted."""
    # An upstream gradient other than 1, for kernels that forget it.
    return make.normal(mean=2.5).float(), make.normal(N, C), make.normal(Vp, C), make.integers(N, N + 1).float()


FAMILY = Family(
    name="linear_cross_entropy",
    text=__doc__,
    legend={"N": "rows (batch × time)", "C": "channels", "V": "vocabulary", "Vp": "vocabulary, padded"},
    operations=(
        Operation(
            name="linear_cross_entropy_forward",
            category="loss",
            schema="(Tensor x, Tensor weight, Tensor targets, int vocabulary, int ignore_index)"
            " -> (Tensor loss, Tensor x_slope, Tensor weight_slope, Tensor counted)",
            formula="logits = x·weightᵀ over v < vocabulary, L[n] = log Σ exp(logits[n]) − logits[n, target]; loss = "
            "Σ L / counted over rows with target ≠ ignore_index, counted of them; slopes: the gradients of Σ L",
            shapes={"x": "N C", "weight": "Vp C", "targets": "N", "loss": "", "x_slope": "N C"}
            | {"weight_slope": "Vp C", "counted": ""},
            dtypes=DTYPES,
            reference=forward_reference,
            scalars=sizes,
            inputs=forward_inputs,
            cases=(
                {"N": 4, "C": 8, "V": 3, "Vp": 3},
                {"N": 9, "C": 24, "V": 33, "Vp": 40},
                {"N": 70, "C": 16, "V": 515, "Vp": 515},
            ),
            # Two rows with one target may cancel in its slope: of inputs of 5 the roundings of p − 1, of products and
            # of their sum leave up to 1e-6, with a root mean square of 0.08 where most words are not targets.
            # Logits are rounded to bf16, as those of a head alone; on a CPU the products of chunks too.
            tolerance={"fp32": 3e-5, "bf16": 6e-2},
            cost=forward_cost,
            gradient=Gradient("linear_cross_entropy_backward"),
            implementations=(
                Implementation(
                    1, "torch", "linear_cross_entropy_torch.py", "forward",
                    "the library's products around the kernel `classifier`, by chunks of rows",
                ),
            ),
        ),
        Operation(
            name="linear_cross_entropy_backward",
            category="elementwise",
            schema="(Tensor dloss, Tensor x_slope, Tensor weight_slope, Tensor counted)"
            " -> (Tensor dx, Tensor dweight)",
            formula="dx = x_slope·dloss / counted, dweight = weight_slope·dloss / counted; 0 where none is counted",
            shapes={"dloss": "", "x_slope": "N C", "weight_slope": "Vp C", "counted": "", "dx": "N C"}
            | {"dweight": "Vp C"},
            dtypes=DTYPES,
            reference=backward_reference,
            scalars=lambda *arguments: (),
            inputs=backward_inputs,
            cases=({"N": 4, "C": 8, "Vp": 3}, {"N": 9, "C": 24, "Vp": 40}),
            cost=backward_cost,
            implementations=(
                Implementation(1, "torch", "linear_cross_entropy_torch.py", "backward", "a product each"),
            ),
        ),
    ),
)  # fmt: skip
