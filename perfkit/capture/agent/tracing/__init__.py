"""torch.profiler in a program of somebody else: one session, started, noted and exported."""
