"""A step on more ranks, foretold on paper: the kernels of one measured rank, and a model of each collective.

one_rank     a run folder of one process → its step as segments of work, its parameters, its memory
links        what carries messages → seconds of a collective between any number of ranks
schedule     the segments, and the collectives of ddp, fsdp or zero1 beside them → how long the step is
memory       what a rank holds
foretell     all of it for each number of ranks, way and scaling → the report
"""
