"""Bandwidth of links between ranks: sweeps of each collective over sizes, and nccl-tests' formulas."""
