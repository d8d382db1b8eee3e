"""Declarations of a family folder: the family, its operations, and the numbered implementations of each.

`kernels/FAMILY/FAMILY.py` (or a folder of the same form in a user's own directory) sets `FAMILY = Family(...)`. The
file must be readable without torch: functions that need it import it inside. docs/kernels.md shows the form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from perfkit.cost.model import Call, CostFunction
from perfkit.kernels.schema import Schema
from perfkit.kernels.shapes import letters_of, sized

NAMESPACE = "perfkit"
# The language of implementations that only call PyTorch's operators and other kernels (`perfkit.kernels.composed`).
COMPOSED = "torch"
# That of implementations around products of cuBLASLt (`perfkit.kernels.cublaslt`), in Python as well.
CUBLASLT = "cublaslt"
# Endings of a source's file name, after the family's name.
ENDINGS = {"c": ".c", "cuda": ".cu", "triton": "_triton.py", COMPOSED: "_torch.py", CUBLASLT: "_cublaslt.py"}


@dataclass(frozen=True)
class Implementation:
    """One version of an operation in one language. Versions count from naive (1) upwards; the highest is the fastest of
    its language, and runs unless another language's is known to be faster.

    `source` is a file next to the family's Python file, `symbol` the function in it, `text` what this version does
    better than the one before, `dtypes` the precisions it exists in. A source or symbol of "" is named as usual
    (`versions`).

    `accumulates`: its function takes one more integer after the operation's scalars, a bit for each output: where bit i
    is set, it adds to output i instead of overwriting it (`perfkit.kernels.bind`). For other implementations the
    engine adds afterwards, by way of a temporary.

    `fastest_in`: the precisions in which it is the fastest of its device's versions in any language, by measurement
    (`perfkit bench`, benchmarks/gpu_kernels.py). It then runs in the place of the highest version.
    """

    version: int
    language: str
    source: str
    symbol: str
    text: str
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    accumulates: bool = False
    fastest_in: tuple[str, ...] = ()

    def numbers(self, scalars: tuple[int | float, ...], accumulate: int = 0) -> tuple[int | float, ...]:
        """Return the numbers that the function takes after the tensors. Bit i of `accumulate` adds to output i, if it
        can."""
        return (*scalars, accumulate) if self.accumulates else scalars


def versions(
    *,
    c: Sequence[str] = (),
    cuda: Sequence[str] = (),
    triton: str = "",
    accumulates: Mapping[str, Collection[int]] | None = None,
    triton_fastest_in: tuple[str, ...] = (),
    source: str = "",
) -> tuple[Implementation, ...]:
    """Implementations by the `text` of each, naive first, in files and functions that are named as usual.

    `c` are OPERATION_v1, OPERATION_v2, … in FAMILY.c, `cuda` those in FAMILY.cu, `triton` is OPERATION in
    FAMILY_triton.py; `source` replaces FAMILY. `accumulates`: language → the versions that do.
    """
    adding = accumulates or {}
    texts = {"c": c, "cuda": cuda, "triton": [triton] if triton else []}
    return tuple(
        Implementation(
            version, language, f"{source}{ENDINGS[language]}" if source else "", "", text,
            accumulates=version in adding.get(language, ()),
            fastest_in=triton_fastest_in if language == "triton" else (),
        )
        for language, of_language in texts.items()
        for version, text in enumerate(of_language, start=1)
    )  # fmt: skip


@dataclass(frozen=True)
class Gradient:
    """Which operation computes the gradients.

    Everything else follows from names. An argument of that operation called `dNAME` is the gradient of the forward
    output NAME, any other is the forward input or output of that name; its output `dNAME` is the gradient of the
    forward input NAME. `derive` gives an argument that is neither, as a function of the forward values by name.

    `also` computes gradients that the operation does not give: "dNAME" → a function of the values that the operation
    was called with and of its results, each by name. `incoming` names forward outputs whose gradients only `also` uses.
    """

    operation: str
    derive: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    also: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = field(default_factory=dict)
    incoming: tuple[str, ...] = ()


def added_to(call: Call, inputs: int, output: int) -> bool:
    """Return whether a call recorded by a profiler adds to output number `output` instead of overwriting it.

    A bound operation (`perfkit.kernels.bind`) that does so shows one argument more than its `inputs`: a bit for each
    output, as its kernel takes it. For cost functions: adding reads what is there.
    """
    mask = call.arguments[inputs] if len(call.arguments) > inputs else 0
    return isinstance(mask, int) and bool(mask >> output & 1)


@dataclass(frozen=True)
class Operation:
    """One operation, known to PyTorch as `perfkit::NAME`.

    - `category`: the family it counts to in the kernel table: elementwise, softmax, normalization, loss, copy, …
    - `schema`: as torch.library writes it, with named outputs: `(Tensor x, float eps) -> (Tensor y, Tensor rstd)`;
      `Tensor(a!) x` is changed in place, and `-> ()` gives nothing else.
    - `formula`: what it computes, as text.
    - `shapes`: tensor name → its dimensions by the family's letters: `B T 3C`, `... C`, "" for a single number.
    - `reference`: the same in plain PyTorch, for any floating-point precision. It changes nothing in place: it gives
      the new values of the arguments that the operation changes, then the outputs.
    - `letters`: arguments → the letters of the outputs' shapes that no argument's shape contains, such as the heads.
    - `scalars`: arguments → the sizes and numbers that the kernel takes after its tensors (int → int64_t, float →
      double).
    - `inputs`: (`Inputs`, **sizes) → fresh random arguments; `cases`: the sizes that a check tries.
    - `cost`: least FLOP and bytes of one call.
    - `parts`: where several GPU kernels of one call share its work: the name of each → its part of the cost. They add
      up to 1. Without it the kernel that takes the most time has the whole cost, and the others have none.
    - `dtypes`: tensors that are not of the working precision: name → "fp32", "int64", "bf16", "e4m3" or "e5m2".
    - `failures`: a kernel's return code (2 and up) → one sentence.
    - `tolerance`: largest error in a precision, |y - reference| / (|reference| + root mean square of the reference).
    - `growth`: factor on the tolerance for a case of given sizes: results of a larger case are smaller.
    - `rounded_once`: computed in fp32 in every precision, and each result rounded once: of its error, half a unit in
      the last place is taken off, and the rest held to the tolerance of fp32.
    """

    name: str
    category: str
    schema: str
    formula: str
    shapes: Mapping[str, str]
    reference: Callable[..., Any]
    scalars: Callable[..., tuple[int | float, ...]]
    inputs: Callable[..., tuple[Any, ...]]
    cases: tuple[Mapping[str, int], ...]
    cost: CostFunction
    implementations: tuple[Implementation, ...]
    gradient: Gradient | None = None
    letters: Callable[..., Mapping[str, int]] = lambda *arguments: {}
    dtypes: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=lambda: {"fp32": 1e-5, "bf16": 1e-2})
    growth: Callable[[Mapping[str, int]], float] = lambda sizes: 1.0
    rounded_once: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def qualified_name(self) -> str:
        """The name in PyTorch and in a profile: `perfkit::NAME`."""
        return f"{NAMESPACE}::{self.name}"

    @cached_property
    def signature(self) -> Schema:
        """The schema, parsed."""
        return Schema.parse(self.name, self.schema)

    def allocate(self, *arguments: Any) -> Any:
        """The empty outputs of a call, a tensor or a tuple of them: on the device of the first tensor of the working
        precision, and in that precision except for those that `dtypes` names. It serves fake tensors too."""
        from perfkit.kernels.dtypes import TORCH_DTYPES

        signature = self.signature
        tensors = {signature.inputs[i]: arguments[i] for i in signature.tensors}
        known = letters_of(self.shapes, {name: tensor.shape for name, tensor in tensors.items()})
        known |= self.letters(*arguments)
        like = next(tensor for name, tensor in tensors.items() if name not in self.dtypes)
        made = [
            like.new_empty(sized(self.shapes[name], known), **{"dtype": TORCH_DTYPES[given]} if given else {})
            for name, given in ((name, self.dtypes.get(name)) for name in signature.outputs)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def source_path(self, implementation: Implementation) -> Path:
        """Return the path of the source of `implementation`."""
        return self.folder / implementation.source


@dataclass(frozen=True)
class Family:
    """Operations that belong together: one folder, with the Python file of the same name and its sources.

    `legend` gives the meaning of every letter in the operations' shapes. What the operations replace in PyTorch and in
    models is declared in another file of the folder (`perfkit.kernels.replaced`).
    """

    name: str
    text: str
    legend: Mapping[str, str]
    operations: tuple[Operation, ...]
    folder: Path = Path()
