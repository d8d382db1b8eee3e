"""What links between ranks reach: sweeps of each collective over sizes, and what nccl-tests' formulas make of them."""
