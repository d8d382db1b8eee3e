"""Sizes: GPT-2's for each operation, what `--sizes` asks for, and the steps of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfkit.errors import UsageError

# GPT-2 124M: the training test's batch on a CPU, a full context on a GPU.
_MODEL = {"C": 768, "NH": 12, "NKV": 12, "HS": 64, "V": 50257, "Vp": 50304, "M": 768}
_BATCH = {"cpu": {"B": 4, "T": 64}, "cuda": {"B": 8, "T": 1024}}
_WIDE = {"softmax": _MODEL["V"]} | dict.fromkeys(("activation", "bias", "gelu", "linear"), 4 * 768)  # M of these
# Letters that mean something else in some operations: multiples of B·T, or a number of their own.
_ROWS = ("activation", "bias", "cross_entropy", "linear_cross_entropy", "softmax")
_ELEMENTS = {"gelu": 4 * 768, "residual": 768}
_PARAMETERS = 7_077_888  # of one block's weights: what the optimizer gets as one tensor would be a little less
_TOKEN = {"B": 1, "M": 50257, "F": 4 * 768, "P": 32, "S": 1024}  # of one sequence, with a cache of a full context
_FEW = {"K": 768, "M": 3 * 768}  # of a projection to q, k and v, for one token of each sequence
STEPS = 9


def gpt2(
    family: str, names: Sequence[str], device: str, fallback: Mapping[str, int], batch: Mapping[str, int] | None = None
) -> dict[str, int]:
    """GPT-2's sizes called `names` for an operation of `family`; `fallback` for letters that GPT-2 does not have.

    `batch` is B and T, the device's usual ones when left out.
    """
    batch = batch or _BATCH["cuda" if device.startswith("cuda") else "cpu"]
    values = {**fallback, **_MODEL, **batch}
    if family == "decoding":
        return {name: {**values, **_TOKEN}[name] for name in names}
    if family == "few_rows":
        return {name: {**values, **_FEW, "N": batch["B"]}[name] for name in names}
    tokens = batch["B"] * batch["T"]
    if family in _ROWS or "M" in names:
        values["N"] = tokens
        values["M"] = _WIDE.get(family, 768)
    elif "N" in names:
        values["N"] = tokens * _ELEMENTS[family] if family in _ELEMENTS else _PARAMETERS
    return {name: values[name] for name in names}


def parse(text: str, names: Sequence[str]) -> dict[str, int]:
    """`B=4,T=1024` as sizes. Raises `UsageError` for an invalid size, or one that is not in `names`."""
    sizes = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, value = (s.strip() for s in part.partition("="))
        _check_name(name, names)
        sizes[name] = _number(f"--sizes {part}", value if sign else "")
    return sizes


def parse_sweep(text: str, names: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Return the sizes that a sweep changes, and their rising values.

    `C=64..4096` gives nine sizes evenly on a logarithmic scale, `C=64,100,256` these, `M,N,K=64..4096` changes three
    together. Raises `UsageError` for anything else.
    """
    left, _, values = (s.strip() for s in text.partition("="))
    changed = tuple(name.strip() for name in left.split(","))
    for name in changed:
        _check_name(name, names)
    low, dots, high = values.partition("..")
    if dots:
        first, last = _number(f"--sweep {text}", low), _number(f"--sweep {text}", high)
        if first >= last:
            raise UsageError(f"--sweep {text}: the second size must be larger than the first.")
        ratio = (last / first) ** (1 / (STEPS - 1))
        found = {round(first * ratio**i) for i in range(STEPS - 1)} | {last}
    else:
        found = {_number(f"--sweep {text}", value) for value in values.split(",")}
    if len(found) < 2:
        raise UsageError(f"--sweep {text}: a sweep needs several sizes.", "Write NAME=64..4096, or NAME=64,256,1024.")
    return changed, sorted(found)


def _check_name(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise UsageError(f"There is no size called {name!r} here.", f"The sizes are {', '.join(names)}.")


def _number(where: str, text: str) -> int:
    cleaned = text.strip().replace("_", "")
    if not cleaned.isdigit() or int(cleaned) < 1:
        raise UsageError(f"{where}: {text.strip()!r} is not a size.", "Write a whole number from 1 on, as in C=768.")
    return int(cleaned)
