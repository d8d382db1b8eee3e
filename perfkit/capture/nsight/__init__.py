"""Nsight Compute (`ncu`) and Nsight Systems (`nsys`) as child processes: command lines, progress, failures in words."""

TOOLS = ("ncu", "nsys")
