"""Triton kernels: launched on an NVIDIA GPU, or run by Triton's interpreter on the CPU, for tests.

A source is a Python file next to the family's, with `@triton.jit` kernels and, for each implementation, one function
marked `@launch` that says grid and meta-parameters. The interpreter needs TRITON_INTERPRET=1 from the start of the
process; its device is the CPU, and it is used only where the language "triton" is asked for by name.
"""

from perfkit.kernels.triton.availability import interpreted, test_device, unavailable
from perfkit.kernels.triton.binding import launcher
from perfkit.kernels.triton.device import multiprocessors
from perfkit.kernels.triton.launch import TritonLaunch, launch, row_tile

__all__ = [
    "TritonLaunch",
    "interpreted",
    "launch",
    "launcher",
    "multiprocessors",
    "row_tile",
    "test_device",
    "unavailable",
]
