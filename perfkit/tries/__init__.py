"""Did a change help? A program before and after it, measured in turns in copies of its folder (docs/try.md).

trees      the two copies, and what differs between them
running    one run of any program, with its steps timed
turns      any program: launches of both sides, as `perfkit.compare` has them
printed    the losses that a program prints, before and after
workload   a workload: its results against the reference, then its launches
decide     accept, reject or cannot tell
log        the tries of a folder, one line of JSON each
"""
