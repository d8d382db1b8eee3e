"""CUDA C++ kernels: compiled with NVRTC, loaded and launched through CuPy on PyTorch's current stream.

A source `x.cu` holds `__global__` templates, and the Python file `x_cuda.py` next to it one host function for each
symbol, which says grid, block and shared memory of its launches as functions of the sizes (see `host.py`).
"""

from perfkit.kernels.cuda.availability import unavailable
from perfkit.kernels.cuda.binding import launcher
from perfkit.kernels.cuda.host import VECTOR_BYTES, Argument, Host, ceil

__all__ = ["VECTOR_BYTES", "Argument", "Host", "ceil", "launcher", "unavailable"]
