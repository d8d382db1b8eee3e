"""Names of precisions, and PyTorch's types for them. Needs torch, so it is imported where a kernel runs."""

from __future__ import annotations

import torch

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "int64": torch.int64,
    "int32": torch.int32,
}
FP8 = ("e4m3", "e5m2")
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def name_of(dtype: torch.dtype) -> str:
    """Our name of a PyTorch type; PyTorch's own for one that no kernel has."""
    return NAMES.get(dtype, str(dtype).removeprefix("torch."))
