"""The instructions and source lines of GPU kernels: where warps were sampled, why they waited, what changed."""
