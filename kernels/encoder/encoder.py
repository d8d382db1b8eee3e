"""The encoder: each token's embedding plus its position's, as in GPT-2, or alone, as in Llama."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.cost.model import ITEM_BYTES, Call, Cost
from perfkit.errors import InputError
from perfkit.kernels import Family, Gradient, Implementation, Operation, added_to, versions

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.kernels.checking import Inputs

DTYPES = {"idx": "int64"}
FAILURES = {2: "a token of idx is not an index into the V rows of wte."}
FAILURES_ALONE = {2: "a token of idx is not an index into the V rows of weight."}


def forward_reference(idx: Tensor, wte: Tensor, wpe: Tensor) -> Tensor:
    """x[b,t] = wte[idx[b,t]] + wpe[t], in plain PyTorch."""
    return wte[idx] + wpe[: idx.shape[1]]


def backward_reference(dx: Tensor, idx: Tensor, vocabulary: int, positions: int) -> tuple[Tensor, Tensor]:
    """dwte (V, C) and dwpe (P, C); rows that no token names are 0."""
    channels = dx.shape[-1]
    dwte, dwpe = dx.new_zeros(vocabulary, channels), dx.new_zeros(positions, channels)
    dwpe[: idx.shape[1]] = dx.sum(dim=0)
    return dwte.index_add_(0, idx.flatten(), dx.flatten(0, 1)), dwpe


def enough_positions(time: int, positions: int) -> int:
    """`positions`; raises `InputError` when they are fewer than the tokens in a row."""
    if time > positions:
        raise InputError(f"There are {positions} positions for {time} tokens in a row.", "Give shorter rows.")
    return positions


def forward_cost(call: Call) -> Cost:
    """An element of x 1 FLOP. Read: idx, the rows of wte that B·T tokens can name, and T rows of wpe."""
    idx, wte = call.tensor(0), call.tensor(1)
    channels, item = wte.shape[1], ITEM_BYTES[wte.dtype]
    rows = min(idx.numel, wte.shape[0]) + idx.shape[1]
    written = idx.numel * channels
    return Cost({f"vector_{wte.dtype}": float(written)}, idx.nbytes + rows * channels * item, written * item)


def backward_cost(call: Call) -> Cost:
    """An element of dx 2 FLOP: added to its token's row and to its position's.

    A result is written whole; one that is added to is read and written in the rows that B·T tokens, or T positions,
    can name.
    """
    dx, idx, vocabulary, positions = call.tensor(0), call.tensor(1), call.arguments[2], call.arguments[3]
    assert isinstance(vocabulary, int)
    assert isinstance(positions, int)
    dwte_added, dwpe_added = (added_to(call, 4, output) for output in (0, 1))
    read = (min(idx.numel, vocabulary) if dwte_added else 0) + (idx.shape[1] if dwpe_added else 0)
    written = read + (0 if dwte_added else vocabulary) + (0 if dwpe_added else positions)
    row = dx.shape[-1] * ITEM_BYTES[dx.dtype]
    return Cost({f"vector_{dx.dtype}": 2.0 * dx.numel}, dx.nbytes + idx.nbytes + read * row, written * row)


def forward_inputs(make: Inputs, B: int, T: int, C: int, V: int) -> tuple[Any, ...]:
    """Draw idx (B, T), wte (V, C), wpe (P, C)."""
    return make.integers(0, V, B, T), make.normal(V, C), make.normal(T + 2, C)


def backward_inputs(make: Inputs, B: int, T: int, C: int, V: int) -> tuple[Any, ...]:
    """Draw dx (B, T, C), idx (B, T)."""
    return make.normal(B, T, C), make.integers(0, V, B, T), V, T + 2


def embedding_reference(idx: Tensor, weight: Tensor) -> Tensor:
    """x[b,t] = weight[idx[b,t]], in plain PyTorch."""
    return weight[idx]


def embedding_backward_reference(dx: Tensor, idx: Tensor, vocabulary: int) -> Tensor:
    """dweight[v] = Σ of dx[b,t] with idx[b,t] = v; other rows 0, in plain PyTorch."""
    channels = dx.shape[-1]
    return dx.new_zeros(vocabulary, channels).index_add_(0, idx.flatten(), dx.flatten(0, -2))


def embedding_cost(call: Call) -> Cost:
    """No arithmetic. Read: idx, and the rows that its tokens can name."""
    idx, weight = call.tensor(0), call.tensor(1)
    row = weight.shape[1] * ITEM_BYTES[weight.dtype]
    read = idx.nbytes + min(idx.numel, weight.shape[0]) * row
    return Cost({f"vector_{weight.dtype}": 0.0}, read, idx.numel * row)


def embedding_backward_cost(call: Call) -> Cost:
    """An element of dx 1 FLOP. The result is written whole; added to, it is read and written in the tokens' rows."""
    dx, idx, vocabulary = call.tensor(0), call.tensor(1), call.arguments[2]
    assert isinstance(vocabulary, int)
    named, added = min(idx.numel, vocabulary), added_to(call, 3, 0)
    row = dx.shape[-1] * ITEM_BYTES[dx.dtype]
    read = dx.nbytes + idx.nbytes + (named * row if added else 0)
    return Cost({f"vector_{dx.dtype}": float(dx.numel)}, read, (named if added else vocabulary) * row)


def embedding_inputs(make: Inputs, B: int, T: int, C: int, V: int) -> tuple[Any, ...]:
    """Draw idx (B, T), weight (V, C)."""
    return make.integers(0, V, B, T), make.normal(V, C)


def embedding_backward_inputs(make: Inputs, B: int, T: int, C: int, V: int) -> tuple[Any, ...]:
    """Draw dx (B, T, C), idx (B, T)."""
    return make.normal(B, T, C), make.integers(0, V, B, T), V


# One token, a width that is not a multiple of the vector width, more tokens than words and fewer, words of hundreds of
# tokens, words whose numbers take two bytes, GPT-2's width.
CASES = (
    {"B": 1, "T": 1, "C": 1, "V": 1},
    {"B": 2, "T": 5, "C": 33, "V": 3},
    {"B": 3, "T": 40, "C": 100, "V": 17},
    {"B": 4, "T": 320, "C": 16, "V": 2},
    {"B": 3, "T": 1000, "C": 8, "V": 700},
    {"B": 2, "T": 16, "C": 768, "V": 1000},
)

SORTED = "tokens sorted by word, pieces of 32 summed by a warp each: a frequent word is shared by many"


def backwards(name: str) -> tuple[Implementation, ...]:
    """The gradient of the embeddings, with or without that of the positions."""
    sorting = "tokens sorted by word; threads over words, each summed in registers and written once"
    return (
        *versions(
            c=("channel by channel", sorting),
            cuda=("one element a thread", "a block owns some words and writes each of their rows once"),
            accumulates={"c": (1, 2)},
        ),
        Implementation(3, "cuda", "encoder_sorted.cu", f"{name}_v3", SORTED, accumulates=True),
        Implementation(1, "triton", "encoder_sorted_triton.py", name, SORTED, accumulates=True),
    )


FAMILY = Family(
    name="encoder",
    text=__doc__,
    legend={"B": "batch", "T": "time", "C": "channels", "V": "vocabulary", "P": "positions, at least T"},
    operations=(
        Operation(
            name="encoder_forward",
            category="embedding",
            schema="(Tensor idx, Tensor wte, Tensor wpe) -> (Tensor x)",
            formula="x[b,t] = wte[idx[b,t]] + wpe[t]",
            shapes={"idx": "B T", "wte": "V C", "wpe": "P C", "x": "B T C"},
            dtypes=DTYPES,
            failures=FAILURES,
            reference=forward_reference,
            letters=lambda idx, wte, wpe: {"P": enough_positions(idx.shape[1], wpe.shape[0])},
            scalars=lambda idx, wte, wpe: (*idx.shape, wte.shape[1], wte.shape[0]),
            inputs=forward_inputs,
            cases=CASES,
            cost=forward_cost,
            gradient=Gradient(
                "encoder_backward",
                derive={
                    "vocabulary": lambda values: values["wte"].shape[0],
                    "positions": lambda values: values["wpe"].shape[0],
                },
            ),
            implementations=versions(
                c=("element by element", "threads over tokens, vectors within"),
                cuda=("one element a thread", "one warp a token, 16-byte accesses"),
                triton="whole rows",
                triton_fastest_in=("bf16",),
            ),
        ),
        Operation(
            name="encoder_backward",
            category="embedding",
            schema="(Tensor dx, Tensor idx, int vocabulary, int positions) -> (Tensor dwte, Tensor dwpe)",
            formula="dwte[v] = Σ of dx[b,t] with idx[b,t] = v, dwpe[t] = Σ over b of dx[b,t]; other rows 0",
            shapes={"dx": "B T C", "idx": "B T", "dwte": "V C", "dwpe": "P C"},
            dtypes=DTYPES,
            failures=FAILURES,
            reference=backward_reference,
            letters=lambda dx, idx, vocabulary, positions: {
                "V": vocabulary,
                "P": enough_positions(idx.shape[1], positions),
            },
            scalars=lambda dx, idx, vocabulary, positions: (*dx.shape, vocabulary, positions),
            inputs=backward_inputs,
            cases=CASES,
            cost=backward_cost,
            implementations=backwards("encoder_backward"),
        ),
        Operation(
            name="embedding_forward",
            category="embedding",
            schema="(Tensor idx, Tensor weight) -> (Tensor x)",
            formula="x[b,t] = weight[idx[b,t]]",
            shapes={"idx": "B T", "weight": "V C", "x": "B T C"},
            dtypes=DTYPES,
            failures=FAILURES_ALONE,
            reference=embedding_reference,
            scalars=lambda idx, weight: (idx.numel(), weight.shape[1], weight.shape[0]),
            inputs=embedding_inputs,
            cases=CASES,
            cost=embedding_cost,
            gradient=Gradient("embedding_backward", derive={"vocabulary": lambda values: values["weight"].shape[0]}),
            implementations=versions(
                c=("element by element", "threads over tokens, whole rows"),
                cuda=("one element a thread", "one warp a token, 16-byte accesses"),
                triton="whole rows",
            ),
        ),
        Operation(
            name="embedding_backward",
            category="embedding",
            schema="(Tensor dx, Tensor idx, int vocabulary) -> (Tensor dweight)",
            formula="dweight[v] = Σ of dx[b,t] with idx[b,t] = v; other rows 0",
            shapes={"dx": "B T C", "idx": "B T", "dweight": "V C"},
            dtypes=DTYPES,
            failures=FAILURES_ALONE,
            reference=embedding_backward_reference,
            letters=lambda dx, idx, vocabulary: {"V": vocabulary},
            scalars=lambda dx, idx, vocabulary: (idx.numel(), dx.shape[-1], vocabulary),
            inputs=embedding_backward_inputs,
            cases=CASES,
            cost=embedding_backward_cost,
            implementations=backwards("embedding_backward"),
        ),
    ),
)
