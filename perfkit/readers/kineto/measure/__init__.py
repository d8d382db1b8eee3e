"""From placed events to numbers.

calls, rows                      which operators work, and what their calls cost
completed, foreach, generated    work that the events themselves do not show
captured                         work inside CUDA graphs, from traces of their captures
cpu, gpu, work, collectives      the rows of the table
gaps, idle, threads, stalls      the time between rows, and what a program waits for
gpu_facts, gpu_traffic           facts about a GPU
measure                          all of it: `measure`"""
