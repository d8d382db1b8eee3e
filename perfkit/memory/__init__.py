"""Owners of the memory of a device: parameters, gradients, optimizer state, activations and the rest, at the peak.

records → lifetimes of allocations → kinds and owners → `results.MemoryReport`
"""
