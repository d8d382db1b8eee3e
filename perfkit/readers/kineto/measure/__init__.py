"""From placed events to numbers.

calls, rows, sparse, triton, foreach    which operators work, and what their calls cost
cpu, gpu, costs, work, collectives      the rows of the table
generated, captured                     work of compiled graphs, and of what a CUDA graph was captured from
gaps, idle, threads, stalls             the time between rows, and what a program waits for
gpu_facts, gpu_traffic                  facts about a GPU beside the table
measure                                 all of it: `measure`
"""
