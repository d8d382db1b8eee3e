"""Running a workload: reference, check, timing and profile, into a run folder."""
