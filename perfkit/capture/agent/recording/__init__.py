"""Recordings of steps: with the profiler, by a clock or by counters, and what is noted meanwhile."""
