"""Source lines of what a trace shows: `stacks` of one trace, `join` of two, `pieces` of the host's time, `facts`."""
