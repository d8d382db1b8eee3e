"""Work that a trace's own events do not tell, and what tells it instead.

foreach     lists of more than 30 tensors: the gradients of the step, proven by thread blocks
picked      lists of indices: the views that an operator makes of them
sparse      sparse tensors: the shapes of their parts
triton      kernels of Triton: the arguments of their launch
generated   kernels of a compiler: what it said of each call
captured    what a CUDA graph replays: a trace of its capture
"""
