"""Cross entropy of logits against integer targets: the mean over the rows that are not ignored.

Rows of logits may be longer than the vocabulary, `Vp` columns for `V` words, as the matrix units of a GPU like them.
The padding is never read, and its gradient is 0. Losses are fp32 in every precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Operation, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

DTYPES = {"targets": "int64", "logsumexp": "fp32", "loss": "fp32", "dloss": "fp32"}
FAILURES = {2: "a target is neither an index below V nor ignore_index."}
IGNORE = -1


def forward_reference(logits: Tensor, targets: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Mean loss of the targets that count, and logsumexp (N); columns from `vocabulary` on are padding."""
    from torch.nn.functional import cross_entropy

    real = logits[:, :vocabulary]
    return cross_entropy(real, targets, ignore_index=ignore_index), real.logsumexp(dim=-1)


def backward_reference(
    dloss: Tensor, logits: Tensor, targets: Tensor, logsumexp: Tensor, vocabulary: int, ignore_index: int
) -> Tensor:
    """dlogits (N, Vp) by autograd; 0 in the padding."""
    import torch

    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        loss, _ = forward_reference(leaf, targets, vocabulary, ignore_index)
        return torch.autograd.grad(loss, leaf, dloss)[0]


def _sizes(logits: Tensor, vocabulary: int, ignore_index: int) -> tuple[int, ...]:
    """N, V, Vp, ignore_index."""
    rows, padded = logits.shape
    if not 0 <= vocabulary <= padded:
        raise InputError(f"There are {padded} columns of logits for {vocabulary} words.", "Correct `vocabulary`.")
    return rows, vocabulary, padded, ignore_index


def _vocabulary(call: Call, index: int) -> int:
    vocabulary = call.arguments[index]
    assert isinstance(vocabulary, int)
    return vocabulary


def forward_cost(call: Call) -> Cost:
    """A logit of the vocabulary 4 FLOP: max, x − max, exp, sum; a row 4: log, + max, − its target's logit, sum; one
    division. The padding is not read."""
    logits, targets = call.tensor(0), call.tensor(1)
    real = float(targets.numel * _vocabulary(call, 2))
    flop = {f"vector_{logits.dtype}": 4.0 * real + 4.0 * targets.numel + 1.0}
    written = (1 + targets.numel) * ITEM_BYTES["fp32"]
    return Cost(flop, real * ITEM_BYTES[logits.dtype] + targets.nbytes, written)


def backward_cost(call: Call) -> Cost:
    """A logit of the vocabulary 3 FLOP: x − logsumexp, exp, ·dloss/rows; a row 1: − 1 at its target; one division.

    The padding is written only.
    """
    dloss, logits, targets, logsumexp = (call.tensor(i) for i in range(4))
    real, item = float(targets.numel * _vocabulary(call, 4)), ITEM_BYTES[logits.dtype]
    flop = {f"vector_{logits.dtype}": 3.0 * real + targets.numel + 1.0}
    return Cost(flop, dloss.nbytes + real * item + targets.nbytes + logsumexp.nbytes, logits.numel * item)


def _padded_logits(make: Inputs, N: int, V: int, Vp: int) -> Tensor:
    logits = make.normal(N, Vp or V, scale=2.0)
    logits[:, V:] = float("nan")  # the padding must not matter
    return logits


def _targets(make: Inputs, N: int, V: int) -> Tensor:
    targets = make.integers(0, V, N)
    targets[1::3] = IGNORE
    return targets


def forward_inputs(make: Inputs, N: int, V: int, Vp: int = 0) -> tuple[Any, ...]:
    """Without `Vp`, logits have no padding."""
    targets = _targets(make, N, V)
    return _padded_logits(make, N, V, Vp), targets, V, IGNORE


def backward_inputs(make: Inputs, N: int, V: int, Vp: int = 0) -> tuple[Any, ...]:
    """Draw dloss, logits (N, Vp), targets (N), logsumexp (N)."""
    logits, targets, *numbers = forward_inputs(make, N, V, Vp)
    logsumexp = logits[:, :V].double().logsumexp(dim=-1).float()
    # An upstream gradient other than 1, for kernels that forget it.
    return make.normal(mean=2.5).float(), logits, targets, logsumexp, *numbers


def classifier_reference(
    logits: Tensor, targets: Tensor, dloss: float, vocabulary: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """dlogits (N, Vp), and the losses (N) that they belong to."""
    from torch.nn.functional import cross_entropy, one_hot, pad

    real = logits[:, :vocabulary]
    losses = cross_entropy(real, targets, ignore_index=ignore_index, reduction="none")
    counted = targets != ignore_index
    chosen = one_hot(targets.where(counted, 0), vocabulary)
    gradient = (real.softmax(dim=-1) - chosen) * (dloss * counted.unsqueeze(1))
    return pad(gradient, (0, logits.shape[1] - vocabulary)), losses


def classifier_sizes(
    logits: Tensor, targets: Tensor, dloss: float, vocabulary: int, ignore_index: int
) -> tuple[int | float, ...]:
    """N, V, Vp, ignore_index, dloss."""
    return *_sizes(logits, vocabulary, ignore_index), float(dloss)


def classifier_cost(call: Call) -> Cost:
    """A logit of the vocabulary 7 FLOP: max, x − max, exp, sum, and x − logsumexp, exp, ·dloss; a row 5.

    Logits are read once and dlogits written once, the padding written only.
    """
    logits, targets, vocabulary = call.tensor(0), call.tensor(1), _vocabulary(call, 3)
    rows, item = targets.numel, ITEM_BYTES[logits.dtype]
    flop = {f"vector_{logits.dtype}": 7.0 * rows * vocabulary + 5.0 * rows}
    written = logits.numel * item + rows * ITEM_BYTES["fp32"]
    return Cost(flop, rows * vocabulary * item + targets.nbytes, written)


def classifier_inputs(make: Inputs, N: int, V: int, Vp: int) -> tuple[Any, ...]:
    """Draw logits (N, Vp), targets (N)."""
    targets = _targets(make, N, V)
    return _padded_logits(make, N, V, Vp), targets, 1.0 / N, V, IGNORE


# V below the vector width and not a multiple of it, several blocks, GPT-2's vocabulary; padded and not.
CASES = (
    {"N": 4, "V": 3, "Vp": 3},
    {"N": 5, "V": 33, "Vp": 40},
    {"N": 7, "V": 4099, "Vp": 4099},
    {"N": 3, "V": 50257, "Vp": 50304},
)

FAMILY = Family(
    name="cross_entropy",
    text=__doc__,
    legend={"N": "rows (batch × time)", "V": "vocabulary", "Vp": "vocabulary, padded"},
    operations=(
        Operation(
            name="cross_entropy_forward",
            category="loss",
            schema="(Tensor logits, Tensor targets, int vocabulary, int ignore_index)"
            " -> (Tensor loss, Tensor logsumexp)",
            formula="logsumexp = log Σ exp(logits[n,v]) over v < vocabulary, loss = mean over rows with target ≠ "
            "ignore_index of logsumexp − logits[target]",
            shapes={"logits": "N Vp", "targets": "N", "loss": "", "logsumexp": "N"},
            dtypes=DTYPES,
            failures=FAILURES,
            reference=forward_reference,
            scalars=lambda logits, targets, vocabulary, ignore_index: _sizes(logits, vocabulary, ignore_index),
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient("cross_entropy_backward"),
            implementations=versions(
                c=(
                    "two loops a row",
                    "threads over rows, vectors within; logits read from memory once, block by block",
                ),
                cuda=(
                    "one thread a row",
                    "one block a row, neighbouring threads on neighbours",
                    "read once, by 16-byte accesses wherever the row starts",
                ),
                triton="logits read once, block by block",
            ),
        ),
        Operation(
            name="cross_entropy_backward",
            category="loss",
            schema="(Tensor dloss, Tensor logits, Tensor targets, Tensor logsumexp, int vocabulary, int ignore_index)"
            " -> (Tensor dlogits)",
            formula="dlogits = (exp(logits − logsumexp) − [v = target])·dloss / counted rows over v < vocabulary; 0 in "
            "the padding Vp beyond it and in ignored rows",
            shapes={"dloss": "", "logits": "N Vp", "targets": "N", "logsumexp": "N", "dlogits": "N Vp"},
            dtypes=DTYPES,
            failures=FAILURES,
            reference=backward_reference,
            scalars=lambda dloss, logits, targets, logsumexp, vocabulary, ignore_index: _sizes(
                logits, vocabulary, ignore_index
            ),
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            implementations=versions(
                c=("one loop", "threads over rows, vectors within"),
                cuda=(
                    "one thread an element",
                    "one block a row, neighbouring threads on neighbours",
                    "16-byte accesses wherever the row starts",
                ),
                triton="blocks of the flat logits, each read once",
            ),
        ),
        Operation(
            name="classifier",
            category="loss",
            schema="(Tensor(a!) logits, Tensor targets, float dloss, int vocabulary, int ignore_index)"
            " -> (Tensor losses)",
            formula="losses[n] = logsumexp − logits[n, target], then logits[n,v] becomes dlogits[n,v] = "
            "dloss·(exp(logits[n,v] − logsumexp) − [v = target]), over v < vocabulary; 0 in the padding Vp beyond it; "
            "loss and gradient 0 in rows with target = ignore_index",
            shapes={"logits": "N Vp", "targets": "N", "losses": "N"},
            dtypes={"targets": "int64", "losses": "fp32"},
            failures=FAILURES,
            reference=classifier_reference,
            scalars=classifier_sizes,
            inputs=classifier_inputs,
            cases=CASES,
            cost=classifier_cost,
            implementations=(
                *versions(
                    c=(
                        "three loops a row",
                        "threads over rows; logits read from memory once, one exponential each, "
                        "kept from sum to gradient",
                    ),
                    cuda=(
                        "one thread a row",
                        "one block a row, 16-byte accesses wherever it starts; read twice",
                        "the row stays in shared memory, over a cluster, and is read once",
                    ),
                    source="classifier",
                ),
                *versions(triton="a row becomes its gradient while it is in the cache"),
            ),
        ),
    ),
)
