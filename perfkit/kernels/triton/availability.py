"""Check whether Triton kernels can run here, and on which device."""

from __future__ import annotations

import importlib.util
import os

_TRUE = ("1", "true", "on", "yes", "y")


def interpreted() -> bool:
    """Return whether TRITON_INTERPRET asks for Triton's interpreter instead of its compiler."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in _TRUE


def test_device() -> str | None:
    """The CPU when the interpreter is asked for and Triton is there; None otherwise."""
    return "cpu" if interpreted() and installed() else None


def unavailable() -> str | None:
    """One sentence why Triton kernels cannot run on a GPU here, or None. Needs torch when Triton is there."""
    if not installed():
        return "Triton is not installed, which compiles the kernels for a GPU. Install it: pip install triton."
    if interpreted():
        return "TRITON_INTERPRET is set, so that Triton runs on the CPU alone. Unset it."
    import torch

    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU on this machine, which Triton kernels need."
    return None


def installed() -> bool:
    """Return whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None
