"""What fusing operators could save, and what a compiler's fused kernels take against that."""
