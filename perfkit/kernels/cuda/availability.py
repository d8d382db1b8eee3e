"""Check whether CUDA C++ kernels can run here."""

from __future__ import annotations

import importlib.util

from perfkit.errors import Unavailable
from perfkit.kernels.cuda import nvrtc

_GET_CUPY = "Install it: pip install 'perfkit[cuda13]', or 'perfkit[cuda12]' for a driver of CUDA 12."


def unavailable() -> str | None:
    """One sentence why CUDA kernels cannot run here, or None. Needs torch when CuPy is there."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed, which launches the CUDA kernels. {_GET_CUPY}"
    import torch

    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU on this machine, which CUDA kernels need."
    try:
        nvrtc.library()
    except Unavailable as error:
        return str(error)
    return None
