"""The names of NCCL's and RCCL's kernels: the collective, the dtype, and how it is done."""

from __future__ import annotations

import re
from typing import NamedTuple

_KERNEL = re.compile(r"^(?:nccl|rccl|msccl)(?:Dev)?Kernel_([A-Z][A-Za-z]+)")
_WAY = re.compile(
    r"_(RING|TREE|NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|PAT)_(LL128|LL|SIMPLE)(?=_|\b)", re.IGNORECASE
)
_REDUCED = re.compile(r"_(?:Sum|Prod|Max|Min|MinMax|PreMulSum|SumPostDiv)_(\w+?)(?:_|\b)")
_SPELLINGS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}  # fmt: skip
# As NCCL writes them, before and since its version 2.19.
_DTYPES = {
    "f32": "fp32", "float": "fp32", "f64": "fp64", "double": "fp64", "f16": "fp16", "half": "fp16", "bf16": "bf16",
    "__nv_bfloat16": "bf16", "i64": "int64", "int64_t": "int64", "i32": "int32", "int32_t": "int32", "i8": "int8",
    "int8_t": "int8", "u8": "uint8", "uint8_t": "uint8",
}  # fmt: skip
GENERIC = "Generic"  # one kernel for any collective of a group of them: its name has none


class CollectiveWay(NamedTuple):
    """The algorithm and protocol in capitals, "" for what a name does not contain."""

    algorithm: str = ""
    protocol: str = ""


def is_collective(name: str) -> bool:
    """Return whether a kernel of this name talks to other GPUs."""
    return name.startswith(("nccl", "rccl", "ncclDev", "ncclKernel")) or "ncclDevKernel" in name[:80]


def collective_of(kernel: str) -> str:
    """The collective as the kernel's name has it, such as AllReduce; "" where it has none."""
    found = _KERNEL.match(kernel)
    return found[1] if found and found[1] != GENERIC else ""


def spelled(collective: str) -> str:
    """One spelling: `AllReduce`, `allreduce_` and `ncclAllReduce` become `all_reduce`; of words it does not know, lower
    case."""
    plain = collective.strip("_").lower().removeprefix("nccl")
    alike = plain.replace("_", "")
    return next((ours for theirs, ours in _SPELLINGS.items() if alike.startswith(theirs)), plain)


def way_of(kernel: str) -> CollectiveWay:
    """How NCCL does it."""
    found = _WAY.search(kernel)
    return CollectiveWay(found[1].upper(), found[2].upper()) if found else CollectiveWay()


def dtype_of(kernel: str) -> str:
    """perfkit's name of the dtype of a reducing collective; "" for others, which NCCL moves as bytes."""
    found = _REDUCED.search(kernel)
    return _DTYPES.get(found[1], "") if found else ""
