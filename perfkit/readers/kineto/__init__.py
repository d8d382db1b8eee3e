"""Traces of torch.profiler (Kineto) as kernel tables.

stream, decoding     the file's text in pieces; typed events
categories           what an event is
collect, coding, growing     events as columns; what repeats once
events               host and device events, sorted and nested
place, modules       step, pass, module and range of each event
rows, work, lists    which operators are rows, and their cost
gpu, messages        launches of GPU work; collectives
columns              the columns of the table
gaps, idle, habits, timeline, memory, host    facts beside the table
trace                all of it: `read_trace`
"""
