"""Predicted savings of fusing operators, and the time of a compiler's fused kernels against that."""
