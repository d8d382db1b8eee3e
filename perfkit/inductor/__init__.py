"""Facts that Inductor has on the kernels that it generates: the only place that uses Inductor's private names.

`recording` wraps the methods that give fused C++ and Triton kernels their names, where the scheduler's nodes are still
at hand; `traffic` takes the bytes from the buffers they read and write, `loops` the arithmetic from their loop bodies.
Where a name is missing (another torch version) nothing is recorded, and a warning says so.
"""
