"""What a run does with its backends once their processes are there: reference, turns, profiling, Nsight's tools."""
