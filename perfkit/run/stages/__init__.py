"""Stages of a run once the processes of its backends are there: reference, turns, profiling, Nsight's tools."""
