"""Prediction of a step on more ranks from the kernels of one measured rank and a model of each collective.

one_rank     a run folder of one process → its step as segments of work, its parameters, its memory
links        the links between ranks → seconds of a collective between any number of ranks
schedule     the segments, and the collectives of ddp, fsdp or zero1 along with them → how long the step is
memory       the memory of a rank
predict      all of it for each number of ranks, way and scaling → the report
"""
