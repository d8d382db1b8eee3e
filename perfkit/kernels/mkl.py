"""MKL's vector functions (square roots, exponentials, logarithms of many numbers) choose their code in one thread."""

from __future__ import annotations


def choose_vector_functions() -> None:
    """Let MKL choose the code of its vector functions for this processor now, while a single thread calls them.

    It chooses at the first call in a process, and not safely: between two instructions it holds the processor's number
    before it is translated. Another thread that begins then reads it as one of MKL's quick functions of half the
    precision, on Intel processors with AVX-512: a part of that call's results is off by 10⁻⁴. PyTorch calls these
    functions from all its threads. A process that compares results calls this first; again, it does nothing.
    """
    import torch

    torch.ones(1).sqrt()
