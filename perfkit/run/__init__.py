"""Runs workloads: reference, check, timing and profile of each backend, into a run folder."""
