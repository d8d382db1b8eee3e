"""From placed events to numbers.

calls, rows                             which operators work, and what their calls cost
cpu, gpu, costs, work, collectives      the rows of the table
untold                                  work that the events themselves do not tell
gaps, idle, threads, stalls             the time between rows, and what a program waits for
gpu_facts, gpu_traffic                  facts about a GPU beside the table
measure                                 all of it: `measure`
"""
