"""Benchmarks of single operations: every way to compute one, checked first, then timed in turns with PyTorch's own.

benchmark  what is computed: inputs, reference, cost, and the ways (`catalog`: kernels; `plain`: lecture's operations)
measure    the time of one way, with warm and with cold caches
run        sizes × ways → `results.Bench`
"""
