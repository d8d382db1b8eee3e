"""Memory snapshots of PyTorch's CUDA allocator: the pickles that `torch.cuda.memory._dump_snapshot` writes."""
