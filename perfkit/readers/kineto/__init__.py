"""Traces of torch.profiler (Kineto) as kernel tables. Data goes one way through three parts:

decode     bytes → events
place      events → their places
measure    placed events → rows, work, gaps, waits
checks     what every trace must pass before its numbers count
trace      all of it: `read_trace`
recorded, memory    what a timeline shows next to the kernels; allocations over time
"""
